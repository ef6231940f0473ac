"""False alarms of the judge on correct devices: functions and whole models, with gradients, in four modes.

Each function of torch's database and each architecture is judged as by ``precision_compare.module``, architectures
also layer by layer. Devices are ``cpu`` (the CPU judged by itself), and the emulated one with the numerics ``exact``
and ``chip:SEED``. Errors are then planted in the results of one device. Needs the extras models and corpus.

Results are appended to the file ``--results``: the same command resumes an interrupted run.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import random
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import torch

from pytest_ascend.emulator import choices, dispatch
from pytest_ascend.precision import compare, layers
from pytest_ascend.precision.kernel_fallbacks import cann_formulas
from pytest_ascend.precision.nested import mapped, tensors_in
from pytest_ascend.precision.reference import COUNTS, Reference, plain
from pytest_ascend.precision.whole import ModuleResults
from tools.ops.database import database

from .support import lines_of, show, table

DEVICES = ("cpu", "exact", *(f"chip:{seed}" for seed in range(1, 6)))
MODES = ("float32", "bfloat16", "float16", "autocast")
#: Sizes of planted errors as multiples of the reference runs' error, and where they are planted.
SIZES, PLACES = (1.5, 2.0, 3.0, 4.0), ("one element", "everywhere")
#: Number of tensors of each model in which errors are planted.
SPOILT = 6
KINDS = ("functions", "models")


def switch(device: str) -> str:
    """Switch the emulated device to other numerics, and return the torch device type."""
    if device == "cpu":
        return "cpu"
    os.environ[choices.NUMERICS] = device
    dispatch.install(again=True)
    return "npu"


def function_of(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Return a function of torch's database as a module, and the inputs of its largest sample in float32."""
    info = database()[name][0]
    samples = info.sample_inputs("cpu", torch.float32)
    of_tensors = [each for each in samples if isinstance(each.input, torch.Tensor)]
    if not of_tensors:
        raise ValueError("its first argument is a list")
    sample = max(of_tensors, key=lambda each: each.input.numel())
    places = [i for i, each in enumerate(sample.args) if isinstance(each, torch.Tensor)]

    class Function(torch.nn.Module):
        def forward(self, first: Any, *others: Any) -> Any:
            """Call the function and return its first result."""
            args = list(sample.args)
            for place, tensor in zip(places, others, strict=True):
                args[place] = tensor
            found = info.op(first, *args, **sample.kwargs)
            return found if isinstance(found, torch.Tensor) else found[0]

    return Function(), (sample.input, *(sample.args[i] for i in places))


def architectures() -> dict[str, Any]:
    """Return architectures of transformers and diffusers with random weights, and the README's block."""
    text = Path(__file__).with_name("models.json").read_text(encoding="utf-8")
    return {"the README's block": None, **json.loads(text)}


def made(unit: str, mode: str) -> tuple[Any, Any, Any, Any]:
    """Return a module, its inputs and keywords in the dtype of a mode, and the dtype of its autocast.

    Weights and inputs are reproducible.
    """
    torch.manual_seed(0)
    inputs, given = (), {}
    if unit not in architectures():
        model, inputs = function_of(unit)
    elif (entry := architectures()[unit]) is None:
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
        for name, wanted in entry["inputs"].items():
            given[name] = _input(wanted, given)
    dtype = torch.float32 if mode == "autocast" else getattr(torch, mode)
    inputs, given = mapped((inputs, given), lambda each: each.to(dtype) if each.is_floating_point() else each)
    return model.eval().to(dtype), inputs, given, torch.bfloat16 if mode == "autocast" else None


def _input(wanted: Any, others: Mapping[str, Any]) -> torch.Tensor:
    """Return ``normal SIZES``, ``words SIZES`` (tokens), ``= NAME`` (a copy of another input), or listed numbers."""
    if not isinstance(wanted, str):
        return torch.tensor(wanted)
    kind, *sizes = wanted.split()
    if kind == "=":
        return others[sizes[0]].clone()
    shape = [int(size) for size in sizes]
    return torch.randn(shape) if kind == "normal" else torch.randint(1, 90, shape)


def judged(kind: str, unit: str) -> Iterator[dict[str, Any]]:
    """Yield results on each device in each mode; errors are planted on one emulated device, chosen by name."""
    try:
        made(unit, MODES[0])
    except ValueError as error:
        yield {"set": kind, "unit": unit, "what": "left out", "said": str(error)}
        return
    drawn = zlib.crc32(unit.encode())
    for device_type, devices in (("cpu", DEVICES[:1]), ("npu", DEVICES[1:])):
        tasks = [(mode, made(unit, mode)) for mode in MODES]
        for place, device in enumerate(devices):
            switch(device)
            for number, (mode, (model, args, given, autocast)) in enumerate(tasks):
                spoils = (drawn + number) % len(DEVICES[1:]) == place
                about = {"set": kind, "unit": unit, "device": device, "mode": mode}
                try:
                    for row in _module(model, args, given, device_type, autocast, spoils=spoils):
                        yield {**about, "part": kind, **row}
                    if kind == "models":
                        report = layers(model, *args, device=device_type, autocast=autocast, **given)
                        verdicts = [each for one in report.layers for each in (one.forward, one.backward) if each]
                        yield {**about, "part": "layers", "what": "layers", **_accusation(verdicts)}
                except RuntimeError as error:
                    if kind == "models":
                        raise
                    yield {**about, "part": kind, "what": "no kernel", "said": str(error)[:200]}


def _module(model: Any, args: Any, given: Any, kind: str, autocast: Any, *, spoils: bool) -> Iterator[dict[str, Any]]:
    """Judge outputs and gradients as by ``precision_compare.module``; use CANN's own formulas where they differ."""
    where = torch.device(kind)
    both = ModuleResults.of(model, args, given, where, autocast)
    found = _accusation(both.judged())
    if found["accused"] and kind == "npu":
        with cann_formulas():
            found = _accusation(ModuleResults.of(model, args, given, where, autocast).judged())
    yield {"what": "module", **found}
    pairs = list(zip(tensors_in(both.actual), tensors_in(both.expected), strict=True))
    pairs = [each for each in pairs if isinstance(each[1], Reference)]
    for ours, theirs in pairs[:: -(-len(pairs) // SPOILT)] if spoils and pairs else ():
        yield from planted(ours.cpu(), theirs)


# --- planted errors ---


def planted(actual: Any, expected: Any) -> Iterator[dict[str, Any]]:
    """Yield, for errors of each size and place, whether they were detected.

    The reference error is the largest error of the device and eight reference runs in the tensor, at least one ulp of
    its largest value. That largest element gets an error slightly above ``size`` times the reference error;
    alternatively every element gets a normally distributed error of ``size`` times the reference root mean square,
    which is at least 0.6 ulp.
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


def _accusation(verdicts: Iterable[Any]) -> dict[str, Any]:
    """Return whether anything is rejected, and what."""
    wrong = [leaf for verdict in verdicts for leaf in (verdict.leaves or (verdict,)) if not leaf.agrees]
    return {"accused": bool(wrong), "said": "; ".join(f"{each.path}: {each.headline}" for each in wrong)[:600]}


# --- the run and its table ---


def units(kinds: tuple[str, ...], sample: int, seed: int) -> list[tuple[str, str]]:
    """Return kind and name of the units to judge: every architecture, and ``sample`` functions (0: all), shuffled."""
    chance = random.Random(seed)  # noqa: S311 - not for security
    functions = [name for name, infos in database().items() if infos[0].supports_autograd and "foreach" not in name]
    chance.shuffle(functions)
    names = {"functions": functions[: sample or None], "models": list(architectures())}
    found = [(kind, unit) for kind in kinds or KINDS for unit in names[kind]]
    chance.shuffle(found)
    return found


def judge(wanted: list[tuple[str, str]], file: Path) -> None:
    """Judge the remaining units on each device."""
    known = {(row["set"], row["unit"]) for row in lines_of(file)}
    torch.set_num_threads(1)
    torch.npu.conv.allow_hf32 = torch.npu.matmul.allow_hf32 = False  # as the plugin sets them
    torch.ones(1, device="npu").add(1)  # the first operator installs the kernels
    with file.open("a", encoding="utf-8") as out:
        for kind, unit in wanted:
            if (kind, unit) not in known:
                out.write("".join(json.dumps(row) + "\n" for row in judged(kind, unit)))
                out.flush()


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the page: rejections by device and mode, then the share of planted errors detected."""
    rejected = [row["accused"] for row in rows if "accused" in row]
    judged_rows = [row for row in rows if row["what"] != "left out"]
    counts = {name: len({row["unit"] for row in judged_rows if row["set"] == name}) for name in KINDS}
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
@click.option("--set", "sets", multiple=True, type=click.Choice(KINDS), help="Judge these only.")
@click.option("--sample", default=0, help="How many functions to draw; 0 for all.")
@click.option("--seed", default=0, help="Seed of what is drawn, and of the order.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=Path("judge-accused.jsonl"), help="File of results."
)
@click.option("--known", is_flag=True, help="Judge nothing more: show what the results hold.")
@click.option("--write", "is_written", is_flag=True, help="Put the tables into docs/evaluation/judge.md.")
def main(*, sets: tuple[str, ...], sample: int, seed: int, results: Path, known: bool, is_written: bool) -> None:
    """Measure, print, and write if requested."""
    if not known:
        judge(units(sets, sample, seed), results)
    rows = lines_of(results)
    for row in rows:
        if row.get("accused"):
            click.echo(f"{row['device']}: {row['unit']}, {row['part']}, {row['mode']}: {row['said']}", err=True)
    by = f"By `python -m tools.evaluation accused --sample {sample} --seed {seed}`."
    show([*tables(rows), "", by], "judge", "accused", is_written=is_written)
