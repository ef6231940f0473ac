"""Count false alarms of the judge on correct devices: small functions and whole models, in four modes.

    python tools/judge_accused.py [--sample 60] [--seed 0] [--results DIR] [--write]

Each function and architecture is computed on the device, with gradients, and judged by what ``cpu_reference`` and
``precision_compare.module`` take by themselves. Devices: ``cpu`` (the CPU judged by itself), and the emulated one with
the numerics ``exact`` and ``chip:SEED``, of which one process computes all beside one reference. Errors are then
planted into what one of the devices gave. ``--write`` puts the tables into ``docs/precision.md``. Needs the extra
``models``.

What was found is added to files in ``--results`` as it is found: a run that was stopped goes on where it was, by the
same command. Functions and architectures come in an order drawn by ``--seed``; ``--sample`` takes so many functions.
"""

from __future__ import annotations

import json
import math
import os
import platform
import random
import subprocess
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import click

PAGE = Path(__file__).parent.parent / "docs" / "precision.md"
BEGIN, END = "<!-- accused: begin -->", "<!-- accused: end -->"
#: Devices that one process computes with, by the name of its file.
GROUPS = {"cpu": ("cpu",), "emulated": ("exact", "chip:1", "chip:2", "chip:3")}
MODES = ("float32", "bfloat16", "float16", "autocast")
#: Sizes of planted errors, as multiples of the reference runs, and where they are planted.
SIZES, PLACES = (1.5, 2.0, 3.0, 4.0), ("one element", "everywhere")
#: Tensors of each model into which errors are planted.
SPOILT = 6
#: What is found of one thing: the fields of a line of the results.
Row: TypeAlias = dict[str, Any]
#: Judges a result that the device gives now; with True errors are planted into it, too.
Judge: TypeAlias = Callable[[bool], Iterator[Row]]
#: What a result is, and its judge.
Task: TypeAlias = tuple[Row, Judge]


def start(group: str) -> str:
    """Bring the device of a group up in this process, and return its type."""
    import torch  # noqa: PLC0415 - after the emulated device

    torch.set_num_threads(1)
    if group == "cpu":
        sys.modules["torch_npu"] = None  # type: ignore[assignment]  # which transformers would import, and needs CANN
        return "cpu"
    import torch_npu  # noqa: F401, PLC0415

    torch.npu.conv.allow_hf32 = torch.npu.matmul.allow_hf32 = False  # as the plugin sets them
    torch.ones(1, device="npu").add(1)  # the first operator installs the kernels
    return "npu"


def switch(device: str) -> None:
    """Let the emulated device of this process compute with other numerics."""
    if device == "cpu":
        return
    from pytest_ascend.emulator import choices, dispatch  # noqa: PLC0415

    os.environ[choices.NUMERICS] = device
    dispatch.install(again=True)


def of_function(unit: str, kind: str) -> Iterator[Task]:
    """Yield what is judged of a function: in every mode its output and its gradients."""
    import judge_functions  # noqa: PLC0415
    import torch  # noqa: PLC0415

    function = next(each for each in judge_functions.functions() if each.name == unit)

    def gradients(*given: Any) -> Any:
        leaves = [each.detach().requires_grad_() for each in given]
        output = function.call(*leaves)
        seeds = torch.linspace(-1, 2, output.numel()).reshape(output.shape).to(output)
        return torch.autograd.grad(output, leaves, seeds)

    def outputs(*given: Any) -> Any:
        return (function.call(*given).detach(),)

    for mode in MODES:
        dtype = torch.float32 if mode == "autocast" else getattr(torch, mode)
        inputs = tuple(each.to(dtype) for each in function.inputs())
        for part, call in (("output", outputs), ("gradient", gradients)):
            yield {"mode": mode, "part": part}, _function_judge(call, inputs, mode, kind)


def _function_judge(call: Any, inputs: Any, mode: str, kind: str) -> Judge:
    import torch  # noqa: PLC0415

    from pytest_ascend.precision import compare  # noqa: PLC0415
    from pytest_ascend.run.reference import cpu_reference  # noqa: PLC0415

    autocast = torch.bfloat16 if mode == "autocast" else None
    try:
        expected = cpu_reference(call, *inputs, autocast=autocast)
    except RuntimeError as error:
        said = str(error)[:200]
        return lambda _: iter([{"what": "no kernel", "said": said}])

    def judge_now(spoils: bool) -> Iterator[Row]:
        try:
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


def planted(actual: Any, expected: Any, compare: Any) -> Iterator[Row]:
    """Yield, for errors of each size and place, whether they were seen.

    The reference error is the largest that the device, or one of eight reference runs, has in
    the tensor, and no less than a unit in the last place of its largest value. Its largest element is given an error
    of more than so many times as much; or every element a normal error of so many times the reference root mean square,
    which is no less than 0.6 of that unit.
    """
    import torch  # noqa: PLC0415

    from pytest_ascend.precision.reference import COUNTS, plain  # noqa: PLC0415

    exact = plain(expected).double()
    if not actual.is_floating_point() or not exact.numel() or not exact.isfinite().all() or not exact.any():
        return
    results = [
        each for each in (actual, *expected.reference_runs(actual.dtype, COUNTS[-1])) if each.dtype is actual.dtype
    ]
    errors = torch.stack([(each.double() - exact).abs().reshape(-1) for each in results])
    ulp = float(2.0 ** exact.abs().max().log2().floor()) * torch.finfo(actual.dtype).eps
    largest, root = max(float(errors.max()), ulp), max(float(errors.square().mean(-1).sqrt().max()), 0.6 * ulp)
    noise = torch.randn(exact.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    place = int(exact.abs().argmax())
    for size in SIZES:
        one = actual.clone().reshape(-1)
        one[place] = _beyond(float(exact.reshape(-1)[place]), size * largest, actual.dtype)
        spoilt = {"one element": one.reshape(exact.shape)}
        if exact.numel() >= 64:
            spoilt["everywhere"] = (exact + size * root * noise).to(actual.dtype)
        for where, tensor in spoilt.items():
            if tensor.isfinite().all():
                yield {"what": "planted", "size": size, "where": where, "seen": not compare(tensor, expected).agrees}


def _beyond(value: float, error: float, dtype: Any) -> Any:
    """Return the number of a dtype that is next to ``value``, farther from it than ``error``, and away from zero."""
    import torch  # noqa: PLC0415

    away = math.copysign(1.0, value)
    found = torch.tensor(value + away * error, dtype=torch.float64).to(dtype)
    while abs(float(found) - value) <= error and found.isfinite():
        found = torch.nextafter(found, torch.tensor(away * math.inf, dtype=dtype))
    return found


def of_model(unit: str, kind: str) -> Iterator[Task]:
    """Yield what is judged of an architecture: in every mode its outputs, and it as a module with gradients."""
    for mode in MODES:
        for part, judge_of in (("outputs", _called), ("module", _with_gradients)):
            yield {"mode": mode, "part": part}, judge_of(*_made(unit, mode), kind)


def _called(model: Any, given: Any, autocast: Any, kind: str) -> Judge:
    """Judge the outputs by the README's lines: a reference, a call on the device, a comparison."""
    import torch  # noqa: PLC0415

    from pytest_ascend.precision import compare  # noqa: PLC0415
    from pytest_ascend.precision.nested import mapped  # noqa: PLC0415
    from pytest_ascend.run.reference import cpu_reference  # noqa: PLC0415

    expected = cpu_reference(model, **given)

    def judge_now(_spoils: bool) -> Iterator[Row]:
        with torch.no_grad(), torch.autocast(kind, dtype=torch.bfloat16, enabled=autocast is not None):
            actual = model.to(kind)(**mapped(given, lambda each: each.to(kind)))
        yield {"what": "model", **_accusation([compare(actual, expected)])}

    return judge_now


def _with_gradients(model: Any, given: Any, autocast: Any, kind: str) -> Judge:
    """Judge outputs and gradients as ``precision_compare.module`` does."""
    import torch  # noqa: PLC0415

    from pytest_ascend.precision.nested import tensors_in  # noqa: PLC0415
    from pytest_ascend.precision.reference import Reference  # noqa: PLC0415
    from pytest_ascend.precision.whole import ModuleResults  # noqa: PLC0415

    where = torch.device(kind)
    first = ModuleResults.of(model, (), given, where, autocast)

    def judge_now(spoils: bool) -> Iterator[Row]:
        both = first.on(where)
        yield {"what": "model", **_accusation(both.judged())}
        pairs = list(zip(tensors_in(both.actual), tensors_in(both.expected), strict=True))
        pairs = [each for each in pairs if isinstance(each[1], Reference)]
        for ours, theirs in pairs[:: -(-len(pairs) // SPOILT)] if spoils else ():
            yield from planted(ours.cpu(), theirs, both.compare)

    return judge_now


def of_layers(unit: str, kind: str) -> Iterator[Task]:
    """Yield what is judged of the layers of an architecture: each by itself, in every mode."""
    for mode in MODES:
        yield {"mode": mode, "part": "layers"}, partial(_layers_now, *_made(unit, mode), kind)


def _layers_now(model: Any, given: Any, autocast: Any, kind: str, _spoils: bool) -> Iterator[Row]:
    from pytest_ascend.precision import layers  # noqa: PLC0415

    report = layers(model, device=kind, autocast=autocast, **given)
    yield {
        "what": "layers",
        **_accusation(filter(None, (v for each in report.layers for v in (each.forward, each.backward)))),
    }


def _made(unit: str, mode: str) -> tuple[Any, Any, Any]:
    """Return an architecture and its keywords in the dtype of a mode, and the dtype of its autocast."""
    import judge_models  # noqa: PLC0415
    import torch  # noqa: PLC0415

    from pytest_ascend.precision.nested import mapped  # noqa: PLC0415

    dtype = torch.float32 if mode == "autocast" else getattr(torch, mode)
    model, given = judge_models.made(unit)
    given = mapped(given, lambda each: each.to(dtype) if each.is_floating_point() else each)
    return model.to(dtype), given, torch.bfloat16 if mode == "autocast" else None


def _accusation(verdicts: Any) -> Row:
    wrong = [leaf for verdict in verdicts for leaf in (verdict.leaves or (verdict,)) if not leaf.agrees]
    return {"accused": bool(wrong), "said": "; ".join(f"{each.path}: {each.headline}" for each in wrong)[:600]}


SETS: Mapping[str, Callable[[str, str], Iterator[Task]]] = {
    "functions": of_function,
    "models": of_model,
    "layers": of_layers,
}


def judged(name: str, unit: str, group: str, kind: str) -> Iterator[Row]:
    """Judge a function or an architecture on every device of a group; errors are planted on one, drawn by its name."""
    tasks, drawn = list(SETS[name](unit, kind)), zlib.crc32(unit.encode())
    for place, device in enumerate(GROUPS[group]):
        switch(device)
        for number, (about, judge_now) in enumerate(tasks):
            for row in judge_now((drawn + number) % len(GROUPS["emulated"]) == place):
                yield {"set": name, "unit": unit, "device": device, **about, **row}


def units(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return set and name of what is judged: every architecture, and so many functions (0: all), in a random order."""
    import judge_functions  # noqa: PLC0415
    import judge_models  # noqa: PLC0415

    chance = random.Random(options["seed"])  # noqa: S311 - no secret
    functions = [each.name for each in judge_functions.functions()]
    chance.shuffle(functions)
    names = {name: list(judge_models.ARCHITECTURES) for name in SETS}
    names["functions"] = functions[: options["sample"] or None]
    found = [(name, unit) for name in options["sets"] or SETS for unit in names[name]]
    chance.shuffle(found)
    return found


def judge(group: str, wanted: list[tuple[str, str]], file: Path) -> None:
    """Judge what is left on the devices of one group, in this process; add to ``file`` what was found of each unit."""
    kind, known = start(group), {(row["set"], row["unit"]) for row in rows_of(file)}
    with file.open("a", encoding="utf-8") as out:
        for name, unit in wanted:
            if (name, unit) not in known:
                out.write("".join(json.dumps(row) + "\n" for row in list(judged(name, unit, group, kind))))
                out.flush()


def rows_of(file: Path) -> list[Row]:
    """Read what was found: whole lines, each of a unit that was judged to its end."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def in_a_process(group: str, options: Mapping[str, Any]) -> None:
    """Judge on the devices of one group, in a process of its own."""
    command = [sys.executable, __file__, "--only", group, "--results", str(options["results"])]
    command += [f"--sample={options['sample']}", f"--seed={options['seed']}"]
    command += [f"--set={each}" for each in options["sets"]]
    if group != "cpu":
        command = ["pytest-ascend", "emulate", "--", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)  # noqa: S603 - ours
    if done.returncode:
        raise click.ClickException(f"{group}: {done.stderr[-2000:]}")


def tables(rows: list[Row], options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the page: accused by device and mode, then the share of planted errors that was seen."""
    import judge_functions  # noqa: PLC0415

    judged = {name: {row["unit"] for row in rows if row["set"] == name} for name in SETS}
    unfinished = "of an unfinished run of" if options["known"] else "by"
    total = len(list(judge_functions.functions()))
    part = f" --sample {options['sample']} --seed {options['seed']}" if options["sample"] else ""
    drawn = "" if len(judged["functions"]) == total else f", drawn at random (seed {options['seed']}) of {total}"
    yield f"Written {unfinished} `python tools/judge_accused.py{part} --write` on {machine()}."
    rejected = [row["accused"] for row in rows if "accused" in row]
    yield (
        f"{len(judged['functions'])} functions{drawn}, and {len(judged['models'])} architectures: {sum(rejected)} of"
        f" {len(rejected):,} correct results rejected."
    )
    yield ""
    devices = [each for group in GROUPS.values() for each in group]
    yield f"| accused of | in | {' | '.join(f'`{each}`' for each in devices)} |"
    yield "|---|---|" + "---|" * len(devices)
    for name in (each for each in SETS if judged[each]):
        for mode in MODES:
            cells = [_accused(rows, device, name, mode) for device in devices]
            yield f"| {name} | {mode} | {' | '.join(cells)} |"
    yield ""
    yield f"| errors planted | {' | '.join(f'{size:g} times' for size in SIZES)} |"
    yield "|---|" + "---|" * len(SIZES)
    for where in PLACES:
        yield f"| {where} | {' | '.join(_seen(rows, where, size) for size in SIZES)} |"


def _accused(rows: list[Row], device: str, name: str, mode: str) -> str:
    of_cell = [row for row in rows if (row["device"], row["set"], row["mode"]) == (device, name, mode)]
    chosen = [row["accused"] for row in of_cell if "accused" in row]
    return f"{sum(chosen)} of {len(chosen)}" if chosen else "not judged"


def _seen(rows: list[Row], where: str, size: float) -> str:
    seen = Counter(row["seen"] for row in rows if row.get("where") == where and row.get("size") == size)
    total = sum(seen.values())
    return f"{100 * seen[True] / total:.2f} % of {total:,}" if total else "none planted"


def machine() -> str:
    """Say what computed."""
    import torch  # noqa: PLC0415

    flags = torch.backends.cpu.get_cpu_capability()
    return f"{os.cpu_count()} cores of {platform.machine()} ({flags}), torch {torch.__version__}; no NPU and no GPU"


@click.command(help=__doc__)
@click.option("--only", type=click.Choice(list(GROUPS)), help="Judge on one group of devices in this process.")
@click.option("--set", "sets", multiple=True, type=click.Choice(list(SETS)), help="Judge these only.")
@click.option("--sample", default=0, help="How many functions to draw; 0 for all.")
@click.option("--seed", default=0, help="Seed of what is drawn, and of the order.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("judge-accused"), help="Folder of results.")
@click.option("--known", is_flag=True, help="Judge nothing more: show what the results hold.")
@click.option("--write", is_flag=True, help="Put the tables into docs/precision.md.")
def main(**options: Any) -> None:
    """Measure, print, and write where asked to."""
    warnings.simplefilter("ignore")
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # torch_npu is imported where it is wanted, and needs CANN
    options["results"].mkdir(parents=True, exist_ok=True)
    files = {group: options["results"] / f"{group}.jsonl" for group in GROUPS}
    if options["only"]:
        judge(options["only"], units(options), files[options["only"]])
        return
    for group in () if options["known"] else GROUPS:
        in_a_process(group, options)
    rows = [row for file in files.values() for row in rows_of(file)]
    for row in rows:
        if row.get("accused"):
            click.echo(f"{row['device']}: {row['unit']}, {row['part']}, {row['mode']}: {row['said']}", err=True)
    lines = list(tables(rows, options))
    click.echo("\n".join(lines))
    if options["write"]:
        text = PAGE.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        beside = PAGE.with_suffix(".new")
        beside.write_text(f"{head}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
        beside.replace(PAGE)


if __name__ == "__main__":
    main()
