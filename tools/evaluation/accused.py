"""False alarms of the judge on correct devices: functions and whole models, with gradients, in four modes.

Each function and architecture is judged by what ``cpu_reference`` and ``precision_compare.module`` take by themselves.
Devices are ``cpu`` (the CPU judged by itself), and the emulated one with the numerics ``exact`` and ``chip:SEED``.
Errors are then planted into what one of the devices gave. Needs the extras ``models`` and ``corpus``.

Results are added to the file ``--results`` as they come: a run that was stopped goes on where it was, by the same
command.
"""

from __future__ import annotations

import copy
import importlib
import json
import math
import os
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click
import torch

from pytest_ascend.emulator import choices, dispatch
from pytest_ascend.precision import compare, layers, models
from pytest_ascend.precision.formulas import cann_formulas
from pytest_ascend.precision.nested import mapped, tensors_in
from pytest_ascend.precision.reference import COUNTS, Reference, plain
from pytest_ascend.precision.whole import ModuleResults
from pytest_ascend.run.reference import cpu_reference
from tools.ops.database import database

from .composed import FUNCTIONS
from .support import lines_of, machine, table, write

DEVICES = ("cpu", "exact", *(f"chip:{seed}" for seed in range(1, 6)))
MODES = ("float32", "bfloat16", "float16", "autocast")
#: Sizes of planted errors, as multiples of the reference runs' error, and where they are planted.
SIZES, PLACES = (1.5, 2.0, 3.0, 4.0), ("one element", "everywhere")
#: Tensors of each model into which errors are planted.
SPOILT = 6
#: What is found of one thing: the fields of a line of the results.
Row: TypeAlias = dict[str, Any]
#: Judges a result that the device gives now; with True errors are planted into it, too.
Judge: TypeAlias = Callable[[bool], Iterator[Row]]


def switch(device: str) -> str:
    """Let the emulated device compute with other numerics, and return the type of a device."""
    if device == "cpu":
        return "cpu"
    os.environ[choices.NUMERICS] = device
    dispatch.install(again=True)
    return "npu"


# --- functions ---


def function_of(unit: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a function of tensors, and its inputs in float32: composed ones, and those of torch's database."""
    name, _, number = unit.partition("#")
    if number:
        call, shapes = FUNCTIONS[name]
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return call, tuple(torch.randn(shape, generator=generator) for shape in shapes[int(number)])
    info = database()[name][0]
    torch.manual_seed(0)
    samples = info.sample_inputs("cpu", torch.float32)
    sample = max(samples, key=lambda each: each.input.numel())
    places = [i for i, each in enumerate(sample.args) if isinstance(each, torch.Tensor)]

    def call(first: Any, *others: Any) -> Any:
        args = list(sample.args)
        for place, tensor in zip(places, others, strict=True):
            args[place] = tensor
        found = info.op(first, *args, **sample.kwargs)
        return found if isinstance(found, torch.Tensor) else found[0]

    return call, (sample.input, *(sample.args[i] for i in places))


def of_function(unit: str, kind: str) -> Iterator[tuple[Row, Judge]]:
    """Yield what is judged of a function: in every mode its output and its gradients."""
    function, inputs = function_of(unit)

    def gradients(*given: Any) -> Any:
        leaves = [each.detach().requires_grad_(each.is_floating_point()) for each in given]
        output = function(*leaves)
        incoming = torch.linspace(-1, 2, output.numel()).reshape(output.shape).to(output)
        return torch.autograd.grad(output, [each for each in leaves if each.requires_grad], incoming)

    for mode in MODES:
        dtype = torch.float32 if mode == "autocast" else getattr(torch, mode)
        given = tuple(each.to(dtype) if each.is_floating_point() else each for each in inputs)
        for part, call in (("output", lambda *each: (function(*each).detach(),)), ("gradient", gradients)):
            yield {"mode": mode, "part": part}, _function_judge(call, given, mode, kind)


def _function_judge(call: Any, inputs: Any, mode: str, kind: str) -> Judge:
    autocast = torch.bfloat16 if mode == "autocast" else None

    def judge_now(spoils: bool) -> Iterator[Row]:
        try:
            expected = cpu_reference(call, *inputs, autocast=autocast)
            with torch.autocast(kind, dtype=torch.bfloat16, enabled=autocast is not None):
                actual = call(*(each.to(kind) for each in inputs))
        except RuntimeError as error:
            yield {"what": "no kernel", "said": str(error)[:200]}
            return
        for place, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            yield {"what": "correct", "place": place, **_accusation([compare(ours, theirs)])}
            if spoils:
                yield from planted(ours.cpu(), theirs, compare)

    return judge_now


# --- models ---


def architectures() -> dict[str, Any]:
    """Return architectures of transformers and diffusers with random weights, and the README's block."""
    text = Path(__file__).with_name("models.json").read_text(encoding="utf-8")
    return {"the README's block": None, **json.loads(text)}


def made(unit: str, mode: str) -> tuple[Any, Any, Any]:
    """Return an architecture and its keywords in the dtype of a mode, and the dtype of its autocast.

    Its weights and inputs are the same each time.
    """

    torch.manual_seed(0)
    entry = architectures()[unit]
    if entry is None:
        model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.GELU())
        given = {"input": torch.randn(8, 128)}
    else:
        library, settings = importlib.import_module(entry["library"]), entry["settings"]
        config = entry.get("config")
        model = getattr(library, entry["model"])
        model = model(getattr(library, config)(**settings)) if config else model(**settings)
        if adapter := entry.get("adapter"):
            peft = importlib.import_module("peft")
            model = peft.get_peft_model(model, peft.LoraConfig(**adapter))
        given = {}
        for name, wanted in entry["inputs"].items():
            given[name] = _input(wanted, given)
    dtype = torch.float32 if mode == "autocast" else getattr(torch, mode)
    given = mapped(given, lambda each: each.to(dtype) if each.is_floating_point() else each)
    return model.eval().to(dtype), given, torch.bfloat16 if mode == "autocast" else None


def _input(wanted: Any, others: Mapping[str, Any]) -> torch.Tensor:
    """Return ``normal SIZES``, ``words SIZES`` (tokens), ``= NAME`` (as another input), or the numbers listed."""
    if not isinstance(wanted, str):
        return torch.tensor(wanted)
    kind, *sizes = wanted.split()
    if kind == "=":
        return others[sizes[0]].clone()
    shape = [int(size) for size in sizes]
    return torch.randn(shape) if kind == "normal" else torch.randint(1, 90, shape)


def of_model(unit: str, kind: str) -> Iterator[tuple[Row, Judge]]:
    """Yield what is judged of an architecture: in every mode each of PARTS."""
    for mode in MODES:
        for part, judge_of in PARTS.items():
            if part != "pair" or mode != "autocast":  # which a comparison of two models does not have
                yield {"mode": mode, "part": part}, judge_of(*made(unit, mode), kind)


def _called(model: Any, given: Any, autocast: Any, kind: str) -> Judge:
    """Judge the outputs by the README's lines: a reference, a call on the device, a comparison."""
    expected = cpu_reference(model, **given)

    def judge_now(_: bool) -> Iterator[Row]:
        with torch.no_grad(), torch.autocast(kind, dtype=torch.bfloat16, enabled=autocast is not None):
            actual = model.to(kind)(**mapped(given, lambda each: each.to(kind)))

        def by_cann() -> list[Any]:
            return [compare(actual, cpu_reference(model.cpu(), **given))]

        yield {"what": "model", **_accusation([compare(actual, expected)], by_cann if kind == "npu" else None)}

    return judge_now


def _with_gradients(model: Any, given: Any, autocast: Any, kind: str) -> Judge:
    """Judge outputs and gradients as ``precision_compare.module`` does."""
    where = torch.device(kind)
    first = ModuleResults.of(model, (), given, where, autocast)

    def judge_now(spoils: bool) -> Iterator[Row]:
        def by_cann() -> list[Any]:
            return list(ModuleResults.of(model, (), given, where, autocast).on(where).judged())

        both = first.on(where)
        yield {"what": "model", **_accusation(both.judged(), by_cann if kind == "npu" else None)}
        pairs = list(zip(tensors_in(both.actual), tensors_in(both.expected), strict=True))
        pairs = [each for each in pairs if isinstance(each[1], Reference)]
        for ours, theirs in pairs[:: -(-len(pairs) // SPOILT)] if spoils else ():
            yield from planted(ours.cpu(), theirs, both.compare)

    return judge_now


def _by_layers(model: Any, given: Any, autocast: Any, kind: str) -> Judge:
    """Judge each layer by itself."""

    def judge_now(_: bool) -> Iterator[Row]:
        report = layers(model, device=kind, autocast=autocast, **given)
        verdicts = [verdict for each in report.layers for verdict in (each.forward, each.backward) if verdict]
        yield {"what": "layers", **_accusation(verdicts)}

    return judge_now


def _beside_a_copy(model: Any, given: Any, _autocast: Any, kind: str) -> Judge:
    """Judge a rewritten model beside its original: here both are the same."""

    def judge_now(_: bool) -> Iterator[Row]:
        report = models(model, copy.deepcopy(model), device=kind, **given)
        verdicts = [verdict for each in report.layers for verdict in (each.forward, each.backward) if verdict]
        yield {"what": "layers", **_accusation(verdicts)}

    return judge_now


#: What is judged of an architecture: outputs, the module with gradients, its layers, and each beside a copy's.
PARTS = {"outputs": _called, "module": _with_gradients, "layers": _by_layers, "pair": _beside_a_copy}


# --- planted errors ---


def planted(actual: Any, expected: Any, compare: Any) -> Iterator[Row]:
    """Yield, for errors of each size and place, whether they were seen.

    The reference error is the largest that the device, or one of eight reference runs, has in the tensor, and no less
    than a unit in the last place of its largest value. Its largest element is given an error of more than so many times
    as much; or every element a normal error of so many times the reference root mean square, which is no less than 0.6
    of that unit.
    """

    exact = plain(expected).double()
    if not actual.is_floating_point() or not exact.numel() or not exact.isfinite().all() or not exact.any():
        return
    runs = (actual, *expected.reference_runs(actual.dtype, COUNTS[-1]))
    errors = torch.stack([(e.double() - exact).abs().reshape(-1) for e in runs if e.dtype is actual.dtype])
    ulp = float(2.0 ** exact.abs().max().log2().floor()) * torch.finfo(actual.dtype).eps
    largest, root = max(float(errors.max()), ulp), max(float(errors.square().mean(-1).sqrt().max()), 0.6 * ulp)
    noise = torch.randn(exact.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    place = int(exact.abs().argmax())
    for size in SIZES:
        one = actual.clone().reshape(-1)
        value = float(exact.reshape(-1)[place])
        error = size * largest
        away = math.copysign(1.0, value)
        found = torch.tensor(value + away * error, dtype=torch.float64).to(actual.dtype)
        while abs(float(found) - value) <= error and found.isfinite():
            found = torch.nextafter(found, torch.tensor(away * math.inf, dtype=actual.dtype))
        one[place] = found
        spoilt = {"one element": one.reshape(exact.shape)}
        if exact.numel() >= 64:
            spoilt["everywhere"] = (exact + size * root * noise).to(actual.dtype)
        for where, tensor in spoilt.items():
            if tensor.isfinite().all():
                yield {"what": "planted", "size": size, "where": where, "seen": not compare(tensor, expected).agrees}


def _accusation(verdicts: Any, by_cann: Callable[[], Any] | None = None) -> Row:
    """Return whether something is accused, and what; ``by_cann`` judges again where CANN computes another formula."""
    verdicts = list(verdicts)
    if by_cann and not all(each.agrees for each in verdicts):
        with cann_formulas():
            verdicts = by_cann()
    wrong = [leaf for verdict in verdicts for leaf in (verdict.leaves or (verdict,)) if not leaf.agrees]
    return {"accused": bool(wrong), "said": "; ".join(f"{each.path}: {each.headline}" for each in wrong)[:600]}


# --- the run and its table ---

SETS: Mapping[str, Callable[[str, str], Iterator[tuple[Row, Judge]]]] = {"functions": of_function, "models": of_model}


def units(sets: tuple[str, ...], sample: int, seed: int) -> list[tuple[str, str]]:
    """Return set and name of what is judged: every architecture, and so many functions (0: all), in a random order."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    functions = [f"{name}#{number}" for name, (_, shapes) in FUNCTIONS.items() for number in range(len(shapes))]
    functions += [name for name, infos in database().items() if infos[0].supports_autograd and "foreach" not in name]
    chance.shuffle(functions)
    names = {"functions": functions[: sample or None], "models": list(architectures())}
    found = [(name, unit) for name in sets or SETS for unit in names[name]]
    chance.shuffle(found)
    return found


def judge(wanted: list[tuple[str, str]], file: Path) -> None:
    """Judge what is left on each device; errors are planted on one that the emulated CANN is, drawn by name."""
    known = {(row["set"], row["unit"]) for row in lines_of(file)}
    torch.set_num_threads(1)
    torch.npu.conv.allow_hf32 = torch.npu.matmul.allow_hf32 = False  # as the plugin sets them
    torch.ones(1, device="npu").add(1)  # the first operator installs the kernels
    with file.open("a", encoding="utf-8") as out:
        for name, unit in wanted:
            if (name, unit) in known:
                continue
            rows, drawn = [], zlib.crc32(unit.encode())
            for kind, devices in (("cpu", DEVICES[:1]), ("npu", DEVICES[1:])):
                tasks = list(SETS[name](unit, kind))
                for place, device in enumerate(devices):
                    switch(device)
                    for number, (about, judge_now) in enumerate(tasks):
                        spoils = (drawn + number) % len(DEVICES[1:]) == place
                        rows += [{"set": name, "unit": unit, "device": device, **about, **r} for r in judge_now(spoils)]
            out.write("".join(json.dumps(row) + "\n" for row in rows))
            out.flush()


def tables(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of the page: accused by device and mode, then the share of planted errors that was seen."""
    rejected = [row["accused"] for row in rows if "accused" in row]
    counts = {name: len({row["unit"] for row in rows if row["set"] == name}) for name in SETS}
    yield (
        f"{counts['functions']} functions and {counts['models']} architectures: {sum(rejected)} of {len(rejected):,} "
        "correct results rejected."
    )
    yield ""
    cells: dict[tuple[str, ...], list[bool]] = {}
    for row in rows:
        if "accused" in row:
            cells.setdefault((row["part"], row["mode"], row["device"]), []).append(row["accused"])
    kinds = sorted({key[:2] for key in cells})
    found = {key: f"{sum(each)} of {len(each)}" for key, each in cells.items()}
    yield from table(
        ("accused of", "in", *(f"`{each}`" for each in DEVICES)),
        [(*kind, *(found.get((*kind, each), "not judged") for each in DEVICES)) for kind in kinds],
    )
    yield ""
    seen = Counter((row["where"], row["size"], row["seen"]) for row in rows if row["what"] == "planted")
    yield from table(
        ("errors planted", *(f"{size:g} times" for size in SIZES)),
        [(where, *(_share(seen[where, size, True], seen[where, size, False]) for size in SIZES)) for where in PLACES],
    )


def _share(seen: int, missed: int) -> str:
    return f"{100 * seen / (seen + missed):.2f} % of {seen + missed:,}" if seen + missed else "none planted"


@click.command(help=__doc__)
@click.option("--set", "sets", multiple=True, type=click.Choice(list(SETS)), help="Judge these only.")
@click.option("--sample", default=0, help="How many functions to draw; 0 for all.")
@click.option("--seed", default=0, help="Seed of what is drawn, and of the order.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=Path("judge-accused.jsonl"), help="File of results."
)
@click.option("--known", is_flag=True, help="Judge nothing more: show what the results hold.")
@click.option("--write", "is_written", is_flag=True, help="Put the tables into docs/evaluation/judge.md.")
def main(*, sets: tuple[str, ...], sample: int, seed: int, results: Path, known: bool, is_written: bool) -> None:
    """Measure, print, and write where asked to."""
    if not known:
        judge(units(sets, sample, seed), results)
    rows = lines_of(results)
    for row in rows:
        if row.get("accused"):
            click.echo(f"{row['device']}: {row['unit']}, {row['part']}, {row['mode']}: {row['said']}", err=True)
    lines = [
        *tables(rows),
        "",
        f"By `python -m tools.evaluation accused --sample {sample} --seed {seed}`, {machine()}.",
    ]
    click.echo("\n".join(lines))
    if is_written:
        write("judge", "accused", lines)
