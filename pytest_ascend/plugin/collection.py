"""Decide which tests are cases, and which case each test decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ascend.coverage import manifest
from pytest_ascend.plugin.keys import CASE, NOT_BUILT, SETUP
from pytest_ascend.records.case import OWN, OWN_TEST, Case
from pytest_ascend.system.bundled import folder
from pytest_ascend.system.errors import UsageError

#: Plugins known not to change the names that ``-k`` matches.
_KNOWN_PLUGINS = (
    *("_pytest", "pytest_ascend", "xdist", "_hypothesis_pytestplugin", "pytest_html", "pytest_benchmark"),
    *("pytest_timeout", "random_order", "pytest_randomly"),
)
#: Property and dtype of each case of a user's model, and the lowest level at which it runs.
OF_MODELS = (
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
#: Likewise for a folder of a transformers model that generates text.
OF_TEXTS = (
    ("generate", "float32", "standard"),
    ("generate", "bfloat16", "standard"),
    ("autocast-generate", "bfloat16", "standard"),
)
#: The cases to build, by the node id of the test function.
_TO_BUILD: pytest.StashKey[dict[str, tuple[Case, ...] | None]] = pytest.StashKey()


def case_of(item: pytest.Item) -> Case | None:
    """Return the case that a test decides: from its marker or parameter, or the test itself if it uses our fixtures."""
    marker = item.get_closest_marker("ascend_case")
    if marker is not None:
        if len(marker.args) != 1 or not isinstance(marker.args[0], Case):
            raise UsageError(
                f"{item.nodeid}: the marker ascend_case has {marker.args!r}",
                hint="give it one Case: @pytest.mark.ascend_case(Case(suite=..., subject=..., property=...))",
            )
        return marker.args[0]
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    if given := [value for value in parameters if isinstance(value, Case)]:
        return given[0]
    # A test that uses one of these fixtures is a case, even without a marker.
    fixtures = {"npu_device", "precision_compare", "ascend_measure", "ascend_benchmark", "_model_parity"}
    is_case = not fixtures.isdisjoint(getattr(item, "fixturenames", ()))
    return Case(suite=OWN, subject=item.nodeid, property=OWN_TEST) if is_case else None


def take_cases(items: list[pytest.Item]) -> None:
    """Attach to each test its case. Raises UsageError if two tests claim the same case."""
    owners: dict[str, str] = {}
    for item in items:
        case = case_of(item)
        if case is None:
            continue
        other = owners.setdefault(case.id, item.nodeid)
        if other != item.nodeid:
            raise UsageError(f"two tests decide the case {case.id}: {other} and {item.nodeid}", hint="rename one case")
        item.stash[CASE] = case
        if item.get_closest_marker("ascend_case"):  # -k matches cases by id; a parametrised test has it in its name
            item.extra_keyword_matches.add(case.id)


def cases_to_build(collector: Any, name: str, function: object) -> tuple[Case, ...] | None:
    """Return the cases of a test marked ``ascend_cases`` that the run may select; None for any other test.

    Building an item takes longer than running most cases, so items of a higher level, and those that node ids or ``-k``
    exclude, are not built. What cannot be decided here is left to pytest.
    """
    marks = [mark for mark in _marks_of(function) if mark.name == "ascend_cases"]
    if not marks:
        return None
    known: dict[str, tuple[Case, ...] | None] = collector.config.stash.setdefault(_TO_BUILD, {})
    key = f"{collector.nodeid}::{name}"
    if key not in known:
        known[key] = _selected(collector, name, function, marks[0].args)
    return known[key]


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Parametrise tests marked ``ascend_cases`` or ``ascend_explores``, of a user's model or of a folder of cases."""
    definition, found = metafunc.definition, None
    if definition.get_closest_marker("ascend_cases"):
        name, found = "case", cases_to_build(definition.parent, definition.name, metafunc.function)
    elif definition.get_closest_marker("ascend_explores"):
        _explored(metafunc)
    if "ascend_model_case" in metafunc.fixturenames:
        name, found = "ascend_model_case", _of_model(metafunc)
    elif "_ascend_community_case" in metafunc.fixturenames:
        from pytest_ascend.operators import community  # noqa: PLC0415 - loads torch

        setup = metafunc.config.stash.get(SETUP, None)
        if not setup or not setup.options.cases:
            raise UsageError(f"{definition.nodeid} needs a folder with cases", hint="give --ascend-cases=DIR")
        name, found = "_ascend_community_case", tuple(community.read(setup.options.cases))
    if found is not None:
        metafunc.parametrize(name, found, ids=[case.id for case in found], indirect=name != "case")


def _explored(metafunc: pytest.Metafunc) -> None:
    """Parametrise with the cases that ``-k`` may select, and with how each is explored."""
    from pytest_ascend.operators.exploring import cases  # noqa: PLC0415  (loads torch)

    setup, name, collector = metafunc.config.stash[SETUP], metafunc.definition.name, metafunc.definition.parent
    options, named, by_k = setup.options, _named(collector, name), _rule_of_k(collector, metafunc.function)

    def may_match(case: Case) -> bool:
        test = f"{name}[{case.id}]"
        return test in named if named else by_k(test)

    cards = len(setup.prepared.indices) if isinstance(options.cards, str) else options.cards
    lanes = cards or setup.usual_cards(options.explore_s)
    found, seconds = cases(manifest.load(setup.suites), options.seed, options.explore_s, lanes, may_match)
    how = (seconds, options.seed, options.report / "findings")
    metafunc.parametrize(
        "case, seconds, seed, findings", [(case, *how) for case in found], ids=[case.id for case in found]
    )


def _of_model(metafunc: pytest.Metafunc) -> tuple[Case, ...]:
    """Return the cases of the model that a marker or the command line names. Raises UsageError if there is no model."""
    from pytest_ascend.migration import pretrained  # noqa: PLC0415 - loads torch
    from pytest_ascend.migration.target import name_of  # noqa: PLC0415

    marker = metafunc.definition.get_closest_marker("ascend_model")
    name = name_of(marker.args[0]) if marker and marker.args else metafunc.config.getoption("ascend_model")
    if not name:
        raise UsageError(
            f"{metafunc.definition.nodeid} uses ascend_model_case, and nothing names a model",
            hint="mark it: @pytest.mark.ascend_model(factory, inputs), or give --ascend-model=package.module:factory",
        )
    continues = pretrained.is_folder(name) and pretrained.generates(name)
    return tuple(
        Case(suite="user", subject=name, property=what, dtype=dtype, family="models", level=level)
        for what, dtype, level in (*OF_MODELS, *(OF_TEXTS if continues else ()))
    )


def _selected(collector: Any, name: str, function: object, args: Sequence[str]) -> tuple[Case, ...]:
    config = collector.config
    setup = config.stash.get(SETUP, None)
    suites = setup.suites if setup else folder("suites").resolve()
    suite, *properties = args
    cases = [each for each in manifest.of_suite(suites, suite) if not properties or each.property in properties]
    named = _named(collector, name)
    if named is not None:
        return tuple(each for each in cases if f"{name}[{each.id}]" in named)
    if setup is None:
        return tuple(cases)
    of_level = [each for each in cases if setup.concerns(each)]
    may_match = _rule_of_k(collector, function)
    kept = tuple(each for each in of_level if may_match(f"{name}[{each.id}]"))
    config.stash[NOT_BUILT] = config.stash.get(NOT_BUILT, 0) + len(of_level) - len(kept)
    return kept


def _named(collector: Any, name: str) -> set[str] | None:
    """Return the cases of a test function that the command line names; None if it names the whole function or more."""
    found: set[str] = set()
    for arg in collector.config.args:
        path, _, rest = arg.partition("::")
        where = (collector.config.invocation_params.dir / path).resolve()
        if not rest and collector.path.is_relative_to(where):
            return None
        if where == collector.path:
            if rest == name or "::" in rest.partition("[")[0]:
                return None
            found.add(rest)
    return found or None


def _rule_of_k(collector: Any, function: object) -> Callable[[str], bool]:
    """Return a predicate: whether ``-k`` may select a test of this function, by the test's name.

    Evaluates pytest's own rule once for the keywords these tests share. It accepts everything if another plugin could
    change names, or if the expression is invalid, which pytest reports.
    """
    expression, hook = collector.config.option.keyword.strip(), collector.config.hook
    hooks = (*hook.pytest_itemcollected.get_hookimpls(), *hook.pytest_collection_modifyitems.get_hookimpls())
    plugins = {each.function.__module__.partition(".")[0] for each in hooks}
    if not expression or not plugins.issubset(_KNOWN_PLUGINS):
        return lambda _: True
    try:
        from _pytest.mark import KeywordMatcher  # noqa: PLC0415  (not public: where it is not found, nothing is left out)
        from _pytest.mark.expression import Expression  # noqa: PLC0415

        compiled = Expression.compile(expression)
        unbuilt: Any = SimpleNamespace(
            function=function,
            listchain=collector.listchain,
            listextrakeywords=collector.listextrakeywords,
            iter_markers=lambda: [pytest.mark.parametrize.mark, *_marks_of(function), *collector.iter_markers()],
        )
        shared = KeywordMatcher.from_item(unbuilt)._names  # noqa: SLF001
        compiled.evaluate(KeywordMatcher(shared))
    except Exception:  # noqa: BLE001  (whatever is not as it is known here)
        return lambda _: True
    return lambda name: compiled.evaluate(KeywordMatcher(shared | {name}))


def _marks_of(function: object) -> list[pytest.Mark]:
    found = getattr(function, "pytestmark", [])
    marks = (getattr(each, "mark", each) for each in (found if isinstance(found, list) else [found]))
    return [each for each in marks if isinstance(each, pytest.Mark)]
