"""Tests of a user's model: their cases, and what each runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ascend.plugin.keys import SETUP
from pytest_ascend.records.case import Case
from pytest_ascend.system.errors import UsageError

if TYPE_CHECKING:
    import torch

    from pytest_ascend.device import Device
    from pytest_ascend.operators.community import Call
    from pytest_ascend.run.case_context import Reproduce
    from pytest_ascend.run.comparing import PrecisionCompare


#: Property and dtype of each case, and the lowest level at which it runs.
PROPERTIES = (
    ("forward", "float32", "smoke"),
    ("forward", "bfloat16", "standard"),
    ("forward", "float16", "standard"),
    ("autocast-forward", "bfloat16", "standard"),
    ("autocast-forward", "float16", "full"),
    ("layers", "float32", "standard"),
    ("gradients", "float32", "standard"),
    ("training", "float32", "standard"),
    ("autocast-training", "bfloat16", "standard"),
    ("memory", "float32", "standard"),
)
#: The same of a folder of transformers whose model continues texts.
OF_TEXTS = (
    ("generate", "float32", "standard"),
    ("generate", "bfloat16", "standard"),
    ("autocast-generate", "bfloat16", "standard"),
)
_COMMUNITY: pytest.StashKey[dict[Case, Call]] = pytest.StashKey()


def cases(name: str) -> tuple[Case, ...]:
    """Return the cases of the model with the user's ``name``."""
    from pytest_ascend.migration import pretrained  # noqa: PLC0415 - loads torch

    continues = pretrained.is_folder(name) and pretrained.generates(name)
    return tuple(
        Case(suite="user", subject=name, property=what, dtype=dtype, family="models", level=level)
        for what, dtype, level in (*PROPERTIES, *(OF_TEXTS if continues else ()))
    )


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Parametrise a test with one case for each property of its model. Raises UsageError if no model is named."""
    from pytest_ascend.migration.target import name_of  # noqa: PLC0415 - loads torch

    marker = metafunc.definition.get_closest_marker("ascend_model")
    name = name_of(marker.args[0]) if marker and marker.args else metafunc.config.getoption("ascend_model")
    if not name:
        raise UsageError(
            f"{metafunc.definition.nodeid} uses ascend_model_case, and nothing names a model",
            hint="mark it: @pytest.mark.ascend_model(factory, inputs), or give --ascend-model=package.module:factory",
        )
    found = cases(name)
    metafunc.parametrize("ascend_model_case", found, ids=[case.id for case in found], indirect=True)


def case_of(
    request: pytest.FixtureRequest,
    device: Device,
    compare: PrecisionCompare,
    measure: Callable[..., None],
    reproduce: Callable[[Reproduce], None],
) -> Callable[[], None]:
    """Return a function that runs the case of a test."""
    from pytest_ascend.migration.target import target_model  # noqa: PLC0415 - loads torch
    from pytest_ascend.parity.model import ModelParity, computation  # noqa: PLC0415

    case: Case = request.param
    marker, option = request.node.get_closest_marker("ascend_model"), request.config.getoption
    factory, given = option("ascend_model"), option("ascend_model_input")
    if marker and marker.args:
        factory, given = (*marker.args, marker.kwargs.get("inputs"))[:2]
    if isinstance(factory, str) and isinstance(given, str | None):
        reproduce(computation(case, factory, given or "").reproduce(case.id, device.torch_device()))
    return lambda: ModelParity(target_model(factory, given), device, compare, measure).check(case)


def parametrize_community(metafunc: pytest.Metafunc) -> None:
    """Parametrise a test with the cases of the folder ``--ascend-cases``. Raises UsageError without one."""
    from pytest_ascend.operators import community  # noqa: PLC0415 - loads torch

    config = metafunc.config
    folder = config.stash[SETUP].options.cases if SETUP in config.stash else None
    if not folder:
        raise UsageError(f"{metafunc.definition.nodeid} needs a folder with cases", hint="give --ascend-cases=DIR")
    calls = config.stash.setdefault(_COMMUNITY, community.read(folder))
    found = list(calls)
    metafunc.parametrize("_ascend_community_case", found, ids=[case.id for case in found], indirect=True)


def community_case(
    request: pytest.FixtureRequest, device: torch.device, reference: Callable[..., Any], compare: Callable[..., Any]
) -> Callable[[], None]:
    """Return a function that runs the case of a test; one that cannot run gives the reason, and counts as not run."""
    from pytest_ascend.operators import community  # noqa: PLC0415 - loads torch

    call = request.config.stash[_COMMUNITY][request.param]
    if call.why:
        pytest.skip(call.why)

    def run() -> None:
        try:
            community.compute(call, device, reference, compare)
        except UsageError as error:
            pytest.skip(error.message)

    return run


def parity(device: Device, compare: PrecisionCompare, measure: Callable[..., None]) -> Callable[..., None]:
    """Return the fixture ``_model_parity``."""
    from pytest_ascend.migration.target import TargetModel  # noqa: PLC0415 - loads torch
    from pytest_ascend.parity.model import ModelParity  # noqa: PLC0415

    def judge(model: Any, *args: Any, property: str = "forward", dtype: str = "float32", **kwargs: Any) -> None:  # noqa: A002
        known = [each[:2] for each in (*PROPERTIES, *OF_TEXTS)]
        if (property, dtype) not in known:
            hint = f"choose one of {', '.join(f'{what} in {of}' for what, of in known)}"
            raise UsageError(f"models are not tested for {property} in {dtype}", hint=hint)
        target = TargetModel(name=type(model).__name__, model=model, args=args, kwargs=kwargs)
        case = Case(suite="user", subject=target.name, property=property, dtype=dtype)
        ModelParity(target, device, compare, measure).check(case)

    return judge
