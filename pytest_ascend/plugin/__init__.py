"""The pytest plugin: options, startup and fixtures.

Only the table of options is imported until ``--ascend`` is given or a fixture is requested.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_ascend.environment.signs import disable_backend_autoload
from pytest_ascend.plugin import options
from pytest_ascend.plugin.keys import CONTEXT, RANKS, SETUP
from pytest_ascend.system.bundled import folder

if TYPE_CHECKING:
    import torch

    from pytest_ascend.device import Device
    from pytest_ascend.distributed.ranks import Ranks
    from pytest_ascend.golden import GoldenStore
    from pytest_ascend.performance.baseline import Comparison
    from pytest_ascend.performance.benchmarking import AscendBenchmark
    from pytest_ascend.plugin.session import RunSetup
    from pytest_ascend.records.case import Case, Measure
    from pytest_ascend.run.case_context import CaseContext, Reproduce
    from pytest_ascend.run.comparing import PrecisionCompare
    from pytest_ascend.run.reference import CpuReference


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    options.declare(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Start the device before any conftest imports torch; without ``--ascend``, make torch importable."""
    namespace = early_config.known_args_namespace
    if not options.is_on(namespace):
        if vain := options.unused_options(namespace):
            raise pytest.UsageError(f"{', '.join(vain)} without --ascend does nothing\n  hint: add --ascend")
        disable_backend_autoload()
        return
    from pytest_ascend.plugin.startup import set_up

    early_config.stash[SETUP] = set_up(early_config, args)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and, with ``--ascend``, everything else."""
    for marker in (
        "ascend_case(case): the pytest_ascend Case that a test decides",
        "ascend_cases(suite, *properties): a test with the parameter `case` decides all of these cases",
        "ascend_explores(): a test with the parameters `case`, `seconds`, `seed` and `findings`, for --ascend-explore",
        "ascend_model(factory, inputs=None): the model whose cases a test with ascend_model_case decides",
        "ascend_standard(name, limits={}, waiver=''): the standard that precision_compare judges a test by",
    ):
        config.addinivalue_line("markers", marker)
    if options.is_on(config.option):
        options.expand(config.option)
        # pytest refuses "=" in an expression. Case ids never contain it: the cases of out= arguments are spelled "out".
        config.option.keyword = config.option.keyword.replace("out=", "out")
        from pytest_ascend.plugin.hooks import register

        register(config, config.stash.get(SETUP, None))


def pytest_pycollect_makeitem(collector: pytest.Module, name: str, obj: object) -> list[pytest.Item] | None:
    """Skip building a test if none of its cases can be selected."""
    if not hasattr(obj, "pytestmark"):
        return None
    from pytest_ascend.plugin.collection import cases_to_build

    return [] if cases_to_build(collector, name, obj) == () else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise tests marked ``ascend_cases`` with their cases, and tests of a user's model with its cases."""
    marked, fixtures = metafunc.definition.get_closest_marker, {"ascend_model_case", "_ascend_community_case"}
    if marked("ascend_cases") or marked("ascend_explores") or not fixtures.isdisjoint(metafunc.fixturenames):
        from pytest_ascend.plugin.collection import parametrize

        parametrize(metafunc)


@pytest.fixture
def ascend_model_case(
    request: pytest.FixtureRequest,
    _ascend_device: Device,
    precision_compare: PrecisionCompare,
    ascend_measure: Measure,
    _ascend_reproduce: Callable[[Reproduce], None],
) -> Callable[[], None]:
    """Run one case of your own model: ``@pytest.mark.ascend_model(factory, inputs)``, or ``--ascend-model``."""
    from pytest_ascend.migration.target import target_model
    from pytest_ascend.parity.model import ModelParity, computation

    case: Case = request.param
    marker, option = request.node.get_closest_marker("ascend_model"), request.config.getoption
    factory, given = option("ascend_model"), option("ascend_model_input")
    if marker and marker.args:
        factory, given = (*marker.args, marker.kwargs.get("inputs"))[:2]
    if isinstance(factory, str) and isinstance(given, str | None):
        _ascend_reproduce(computation(case, factory, given or "").reproduce(case.id, _ascend_device.torch_device()))

    def run() -> None:
        ModelParity(target_model(factory, given), _ascend_device, precision_compare, ascend_measure).check(case)

    return run


@pytest.fixture
def _ascend_community_case(
    request: pytest.FixtureRequest,
    npu_device: torch.device,
    cpu_reference: CpuReference,
    precision_compare: PrecisionCompare,
) -> Callable[[], None]:
    """Run one case from the folder of ``--ascend-cases``; skip, with the reason, one that cannot run."""
    from pytest_ascend.operators import community
    from pytest_ascend.system.errors import UsageError

    folder = request.config.stash[SETUP].options.cases
    assert folder is not None  # noqa: S101  (there are no cases without one)
    call = community.read(folder)[request.param]
    if call.why:
        pytest.skip(call.why)

    def run() -> None:
        try:
            community.compute(call, npu_device, cpu_reference, precision_compare)
        except UsageError as error:
            pytest.skip(error.message)

    return run


@pytest.fixture
def _model_parity(
    _ascend_device: Device, precision_compare: PrecisionCompare, ascend_measure: Measure
) -> Callable[..., None]:
    """Judge a model on the device: ``_model_parity(model, *inputs, property="gradients", dtype="float32")``."""
    from pytest_ascend.migration.target import TargetModel
    from pytest_ascend.parity.model import ModelParity
    from pytest_ascend.plugin.collection import OF_MODELS, OF_TEXTS
    from pytest_ascend.records.case import Case
    from pytest_ascend.system.errors import UsageError

    def judge(model: Any, *args: Any, property: str = "forward", dtype: str = "float32", **kwargs: Any) -> None:  # noqa: A002
        known = [each[:2] for each in (*OF_MODELS, *OF_TEXTS)]
        if (property, dtype) not in known:
            hint = f"choose one of {', '.join(f'{what} in {of}' for what, of in known)}"
            raise UsageError(f"models are not tested for {property} in {dtype}", hint=hint)
        target = TargetModel(name=type(model).__name__, model=model, args=args, kwargs=kwargs)
        case = Case(suite="user", subject=target.name, property=property, dtype=dtype)
        ModelParity(target, _ascend_device, precision_compare, ascend_measure).check(case)

    return judge


@pytest.fixture(scope="session")
def _ascend_device(pytestconfig: pytest.Config) -> Device:
    """Return the device under test, with ``label``, ``synchronize()`` and peak memory. Skips without ``--ascend``."""
    return _setup_of(pytestconfig).prepared.device


def _setup_of(config: pytest.Config) -> RunSetup:
    if SETUP not in config.stash:
        pytest.skip("needs --ascend")
    return config.stash[SETUP]


@pytest.fixture(scope="session")
def npu_device(_ascend_device: Device) -> torch.device:
    """Return the device under test as a ``torch.device``. Skips without ``--ascend``."""
    return _ascend_device.torch_device()


@pytest.fixture
def _ascend_ranks(_ascend_ranks_of_run: Ranks, ascend_measure: Measure) -> Ranks:
    """Return the ranks of this run, and record their number; each is a process with its own card, started once.

    ``ranks.run(function, name=value)`` calls ``function(place, name=value)`` on each rank. Skips on a single device and
    without ``--ascend``.
    """
    ascend_measure("ranks", _ascend_ranks_of_run.count)
    return _ascend_ranks_of_run


@pytest.fixture(scope="session")
def _ascend_ranks_of_run(pytestconfig: pytest.Config) -> Iterator[Ranks]:
    setup = _setup_of(pytestconfig)
    if not setup.ranks:
        pytest.skip("needs several devices: --ascend-ranks=N, or -n N")
    from pytest_ascend.distributed.ranks import Ranks

    kind, devices = setup.prepared.device.kind, setup.rank_devices
    ranks = pytestconfig.stash.get(RANKS, None) or Ranks(kind, setup.ranks, devices=devices)
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def golden_store(pytestconfig: pytest.Config) -> GoldenStore:
    """Return the goldens of ``--ascend-baselines``, or the bundled ones."""
    return _goldens(pytestconfig)


def _goldens(config: pytest.Config) -> GoldenStore:
    """Return the golden store, even if the user defines a fixture named ``golden_store``."""
    from pytest_ascend.golden import GoldenStore

    setup = config.stash.get(SETUP, None)
    return GoldenStore((setup.options.baselines if setup else folder("baselines")) / "golden")


@pytest.fixture(scope="session")
def cpu_reference(pytestconfig: pytest.Config) -> CpuReference:
    """Call a function or module on the CPU in float64; ``golden="name"`` reads a stored result instead.

    ``expected = cpu_reference(block, x)`` does not change ``block`` or ``x``.
    """
    from pytest_ascend.run.reference import CpuReference

    setup = pytestconfig.stash.get(SETUP, None)
    return CpuReference(_goldens(pytestconfig), stores=bool(setup and setup.options.store_goldens))


@pytest.fixture(scope="session")
def _ascend_sweep_seed(pytestconfig: pytest.Config) -> str:
    """Return the seed of generated calls: the manifest's seed, and ``--ascend-certify=challenge`` if given."""
    from pytest_ascend.records.case import SWEEP_SEED

    setup = pytestconfig.stash.get(SETUP, None)
    challenge = setup.options.challenge if setup else None
    return f"{SWEEP_SEED}" if challenge is None else f"{SWEEP_SEED} and challenge {challenge}"


@pytest.fixture
def precision_compare(request: pytest.FixtureRequest) -> PrecisionCompare:
    """Compare a device result with the expected one, by the rule of its dtype; raise if they disagree.

    The standard is taken from the call, the marker ``ascend_standard``, or ``--ascend-standard``, in this order.

    ``precision_compare(actual, expected)`` returns the verdict; see :func:`pytest_ascend.precision.compare`.
    ``precision_compare.exact(function, *shapes)`` calls a sum or product with numbers whose result is known bit for
    bit; ``precision_compare.layers(model, *inputs)`` judges every module of a model and names the first wrong one;
    ``precision_compare.models(model, original, *inputs, names={...})`` compares a rewritten model with its original.
    """
    from pytest_ascend.environment.chips import has_own_formulas
    from pytest_ascend.precision.canaries import Canaries
    from pytest_ascend.run.comparing import PrecisionCompare, marked_settings

    setup, context = request.config.stash.get(SETUP, None), request.node.stash.get(CONTEXT, None)
    note = context.note if context else _forget
    marker = request.node.get_closest_marker("ascend_standard")
    marked = marked_settings(marker.args, marker.kwargs, request.node.nodeid) if marker else {}
    digests = context.digests if context else {}
    if setup is None:
        return PrecisionCompare(note, marked=marked, digests=digests)
    device = setup.prepared.device
    return PrecisionCompare(
        note,
        setup.options.standard,
        str(device.torch_device()),
        marked,
        digests,
        is_judged_again=lambda: context is not None and has_own_formulas(device.chip()),
        canaries=Canaries.of(context.case.id, setup.options.level, context.blind) if context else None,
    )


@pytest.fixture
def ascend_measure(request: pytest.FixtureRequest) -> Measure:
    """Record a measurement of the case: ``ascend_measure("latency_us", 12.5)``. The name ends with the unit.

    A list is recorded as a series: samples, or one line of a curve (``loss_actual`` beside ``loss_expected``).
    """
    context: CaseContext | None = request.node.stash.get(CONTEXT, None)
    return context.measure if context else _forget


@pytest.fixture
def _ascend_reproduce(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Register a function that writes a program to reproduce a failure of the case: ``_ascend_reproduce(write)``.

    If the case does not pass, ``write`` gets the verdict that disagreed, or None, and returns Python source for the run
    log and the page. It may raise ValueError with the reason why there is none. With ``saves=True`` it gets, before the
    verdict, a folder beside the log in which it may save what the program loads.
    """
    context, setup = request.node.stash.get(CONTEXT, None), request.config.stash.get(SETUP, None)

    def keep(write: Callable[..., str], *, saves: bool = False) -> None:
        if context:
            context.reproduce = partial(write, setup.options.report / "calls") if saves and setup else write

    return keep


@pytest.fixture(scope="session")
def _ascend_baseline(pytestconfig: pytest.Config) -> Comparison:
    """Return the measured baseline that matches this run best, if any; benchmarks are compared with it."""
    from pytest_ascend.performance.baseline import Comparison, choose

    setup = _setup_of(pytestconfig)
    choice = choose(setup.options.baselines, setup.stack(), setup.timing())
    return Comparison(choice=choice, tolerance=setup.options.slowdown)


@pytest.fixture
def ascend_benchmark(request: pytest.FixtureRequest, _ascend_device: Device) -> AscendBenchmark:
    """Time the callable that ``make(device)`` returns, through pytest-benchmark, and judge it.

    ``ascend_benchmark(make, Work(items=8))`` records latencies, throughput and the verdict against the baseline in the
    case's record. Skips with ``--benchmark-disable`` and without ``--ascend``.
    """
    from pytest_ascend.performance.benchmarking import AscendBenchmark

    context = request.node.stash.get(CONTEXT, None)
    if context is None or request.config.getoption("benchmark_disable"):
        pytest.skip("needs --ascend, and no --benchmark-disable")
    benchmark, device, card = request.getfixturevalue("benchmark"), cast("Any", _ascend_device), None
    if device.kind == "npu":
        identity = request.config.stash[SETUP].prepared.identity
        card = identity(device.index if device.called < 0 else device.called)
    return AscendBenchmark(
        device=_ascend_device,
        case_id=context.case.id,
        comparison=request.getfixturevalue("_ascend_baseline"),
        measure=context.measure,
        note=context.note,
        benchmark=benchmark if benchmark.enabled else None,
        card=card,
    )


def _former(name: str) -> Any:
    """Return a deprecated alias of a private fixture, kept for one release under its old public name."""

    @pytest.fixture(name=name)
    def former(request: pytest.FixtureRequest) -> Any:
        warnings.warn(pytest.PytestDeprecationWarning(f"the fixture {name} is private now: _{name}"), stacklevel=2)
        return request.getfixturevalue(f"_{name}")

    return former


_FORMER = ("model_parity", "ascend_device", "ascend_ranks", "ascend_sweep_seed", "ascend_reproduce", "ascend_baseline")
globals().update({f"_former_{each}": _former(each) for each in _FORMER})


def _forget(*_: Any) -> None:
    """Ignore measurements taken without ``--ascend``."""
