"""Whom the judge accuses as people call it: small functions and whole models, in four modes, on devices that are right.

    python tools/judge_accused.py [--device chip:1]... [--share 0.2] [--results DIR] [--write]

Each function and architecture is computed on the device, with gradients, and judged by what ``cpu_reference`` and
``precision_compare.module`` take by themselves. Devices: ``cpu`` (the CPU judged by itself), and the emulated one with
the numerics ``exact`` and ``chip:SEED``. Errors are then planted into what the device gave. ``--write`` puts the tables
into ``docs/precision.md``. Needs the extra ``models``.

What was found is added to files in ``--results`` as it is found: a run that was stopped goes on where it was. On one
core of a quiet machine a device takes about half an hour, of which functions and models take half each; ``--share``
takes a part of them, chosen by name.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

PAGE = Path(__file__).parent.parent / "docs" / "precision.md"
BEGIN, END = "<!-- accused: begin -->", "<!-- accused: end -->"
DEVICES = ("cpu", "exact", "chip:1", "chip:2", "chip:3")
MODES = ("float32", "bfloat16", "float16", "autocast")
#: Sizes of planted errors, as multiples of the honest ones, and where they are planted.
SIZES, PLACES = (1.5, 2.0, 3.0, 4.0), ("one element", "everywhere")
#: Tensors of each model into which errors are planted.
SPOILT = 6


def device(numerics: str) -> str:
    """Bring a device up in this process, and return its type."""
    import torch  # noqa: PLC0415 - after the emulated device

    torch.set_num_threads(1)
    if numerics == "cpu":
        sys.modules["torch_npu"] = None  # type: ignore[assignment]  # which transformers would import, and needs CANN
        return "cpu"
    import torch_npu  # noqa: F401, PLC0415

    torch.npu.conv.allow_hf32 = torch.npu.matmul.allow_hf32 = False  # as the plugin sets them
    return "npu"


def of_functions(kind: str, unit: str) -> Iterator[dict[str, Any]]:
    """Judge a function in every mode, and plant errors into its results."""
    import judge_functions  # noqa: PLC0415
    import torch  # noqa: PLC0415

    function = next(each for each in judge_functions.functions() if each.name == unit)
    for mode in MODES:
        dtype = torch.float32 if mode == "autocast" else getattr(torch, mode)
        inputs = tuple(each.to(dtype) for each in function.inputs())
        yield from _judged(function, inputs, mode, kind)


def _judged(function: Any, inputs: Any, mode: str, kind: str) -> Iterator[dict[str, Any]]:
    import torch  # noqa: PLC0415

    from pytest_ascend.precision import compare  # noqa: PLC0415
    from pytest_ascend.run.reference import cpu_reference  # noqa: PLC0415

    autocast = torch.bfloat16 if mode == "autocast" else None

    def gradients(*given: Any) -> Any:
        leaves = [each.detach().requires_grad_() for each in given]
        output = function.call(*leaves)
        seeds = torch.linspace(-1, 2, output.numel()).reshape(output.shape).to(output)
        return torch.autograd.grad(output, leaves, seeds)

    for part, call in (("output", function.call), ("gradient", gradients)):
        try:
            expected = cpu_reference(call, *inputs, autocast=autocast)
            with torch.autocast(kind, dtype=torch.bfloat16, enabled=autocast is not None):
                actual = call(*(each.to(kind) for each in inputs))
        except RuntimeError as error:
            yield {"what": "no kernel", "mode": mode, "part": part, "name": function.name, "said": str(error)[:200]}
            continue
        pairs = zip(actual, expected, strict=True) if part == "gradient" else [(actual, expected)]
        for place, (ours, theirs) in enumerate(pairs):
            name = f"{function.name} {part} {place}" if part == "gradient" else function.name
            verdict = compare(ours.detach(), theirs)
            row = {"mode": mode, "part": part, "name": name}
            yield {"what": "honest", **row, "accused": not verdict.agrees, "said": verdict.headline[:200]}
            yield from ({"what": "planted", **row, **each} for each in planted(ours.detach().cpu(), theirs, compare))


def planted(actual: Any, expected: Any, compare: Any) -> Iterator[dict[str, Any]]:
    """Yield, for errors of each size and place, whether they were seen.

    The honest error is the largest that the device, or one of all honest results that the judge may ask for, has in
    the tensor, and no less than a unit in the last place of its largest value. Its largest element is given an error
    of more than so many times as much; or every element a normal error of so many times the honest root mean square,
    which is no less than 0.6 of that unit.
    """
    import torch  # noqa: PLC0415

    from pytest_ascend.precision.reference import MOST, plain  # noqa: PLC0415

    exact = plain(expected).double()
    if not actual.is_floating_point() or not exact.numel() or not exact.isfinite().all() or not exact.any():
        return
    results = [each for each in (actual, *expected.honest(actual.dtype, MOST)) if each.dtype is actual.dtype]
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
                yield {"size": size, "place": where, "seen": not compare(tensor, expected).agrees}


def _beyond(value: float, error: float, dtype: Any) -> Any:
    """Return the number of a dtype that is next to ``value``, farther from it than ``error``, and away from zero."""
    import torch  # noqa: PLC0415

    away = math.copysign(1.0, value)
    found = torch.tensor(value + away * error, dtype=torch.float64).to(dtype)
    while abs(float(found) - value) <= error and found.isfinite():
        found = torch.nextafter(found, torch.tensor(away * math.inf, dtype=dtype))
    return found


def of_models(kind: str, unit: str) -> Iterator[dict[str, Any]]:
    """Judge an architecture in every mode, and plant errors into some of its outputs and gradients."""
    import judge_models  # noqa: PLC0415
    import torch  # noqa: PLC0415

    from pytest_ascend.precision.nested import mapped, tensors_in  # noqa: PLC0415
    from pytest_ascend.precision.reference import Reference  # noqa: PLC0415
    from pytest_ascend.precision.whole import Both  # noqa: PLC0415

    for mode in MODES:
        dtype = torch.float32 if mode == "autocast" else getattr(torch, mode)
        model, given = judge_models.made(unit)
        given = mapped(given, lambda each, dtype=dtype: each.to(dtype) if each.is_floating_point() else each)
        autocast = torch.bfloat16 if mode == "autocast" else None
        both = Both.of(model.to(dtype), (), given, torch.device(kind), autocast)
        wrong = [leaf for verdict in both.judged() for leaf in (verdict.leaves or (verdict,)) if not leaf.agrees]
        said = "; ".join(f"{each.path}: {each.headline}" for each in wrong)
        row = {"mode": mode, "name": unit}
        yield {"what": "model", **row, "accused": bool(wrong), "said": said[:600]}
        pairs = list(zip(tensors_in(both.actual), tensors_in(both.expected), strict=True))
        pairs = [each for each in pairs if isinstance(each[1], Reference)]
        for ours, theirs in pairs[:: -(-len(pairs) // SPOILT)]:
            yield from ({"what": "planted", **row, **each} for each in planted(ours.cpu(), theirs, both.compare))


SETS = {"functions": of_functions, "models": of_models}


def units(kind: str, share: float) -> list[str]:
    """Return the names of the functions or architectures; a share of them, always the same."""
    import judge_functions  # noqa: PLC0415
    import judge_models  # noqa: PLC0415

    names = [each.name for each in judge_functions.functions()]
    names = names if kind == "functions" else list(judge_models.ARCHITECTURES)
    return [each for each in names if zlib.crc32(each.encode()) % 1000 < 1000 * share]


def judge(numerics: str, kind: str, share: float, file: Path) -> None:
    """Judge what is left of one set on one device, in this process; add to ``file`` what was found of each unit."""
    where, known = device(numerics), {row["unit"] for row in rows_of(file)}
    with file.open("a") as out:
        for unit in units(kind, share):
            if unit not in known:
                found = [{"unit": unit, **row} for row in SETS[kind](where, unit)] or [{"unit": unit, "what": "none"}]
                out.write("".join(json.dumps(row) + "\n" for row in found))
                out.flush()


def rows_of(file: Path) -> list[dict[str, Any]]:
    """Read what was found: whole lines, each of a unit that was judged to its end."""
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def gathered(numerics: str, kind: str, share: float, file: Path) -> list[dict[str, Any]]:
    """Judge one set on one device, in a process of its own."""
    command = [sys.executable, __file__, "--device", numerics, "--only", kind, f"--share={share}", "--results"]
    command.append(str(file.parent))
    if numerics != "cpu":
        command = ["pytest-ascend", "emulate", "--numerics", numerics, "--", *command]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)  # noqa: S603 - ours
    if done.returncode:
        raise click.ClickException(f"{kind} on {numerics}: {done.stderr[-2000:]}")
    return rows_of(file)


def tables(found: dict[str, list[dict[str, Any]]], written: str, share: float) -> Iterator[str]:
    """Yield the lines of the page: accused by device and mode, then the share of planted errors that was seen."""
    part = f" --share {share:g}" if share < 1 else ""
    yield f"Written {written} `python tools/judge_accused.py{part} --write` on {machine()}."
    yield ""
    columns = [f"{what}, {mode}" for what in ("functions", "models") for mode in MODES]
    yield f"| device | {' | '.join(columns)} |"
    yield "|---|" + "---|" * 2 * len(MODES)
    for name, rows in found.items():
        cells = [_accused(rows, what, mode) for what in ("honest", "model") for mode in MODES]
        yield f"| `{name}` | {' | '.join(cells)} |"
    yield ""
    yield f"| errors planted | {' | '.join(f'{size:g} times' for size in SIZES)} |"
    yield "|---|" + "---|" * len(SIZES)
    rows = [row for each in found.values() for row in each if row["what"] == "planted"]
    for where in PLACES:
        yield f"| {where} | {' | '.join(_seen(rows, where, size) for size in SIZES)} |"


def _accused(rows: list[dict[str, Any]], what: str, mode: str) -> str:
    chosen = [row["accused"] for row in rows if row["what"] == what and row["mode"] == mode]
    return f"{sum(chosen)} of {len(chosen)}"


def _seen(rows: list[dict[str, Any]], where: str, size: float) -> str:
    seen = Counter(row["seen"] for row in rows if row["place"] == where and row["size"] == size)
    total = sum(seen.values())
    return f"{100 * seen[True] / max(total, 1):.2f} % of {total}"


def machine() -> str:
    """Say what computed."""
    import torch  # noqa: PLC0415

    flags = torch.backends.cpu.get_cpu_capability()
    return f"{os.cpu_count()} cores of {platform.machine()} ({flags}), torch {torch.__version__}; no NPU and no GPU"


@click.command(help=__doc__)
@click.option("--device", "devices", multiple=True, default=DEVICES, help="cpu, exact or chip:SEED.")
@click.option("--only", type=click.Choice(list(SETS)), help="Judge one set in this process, and print nothing.")
@click.option("--share", default=1.0, help="Which part of the functions and models to take.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("judge-accused"), help="Folder of results.")
@click.option("--known", is_flag=True, help="Judge nothing more: show what the results hold.")
@click.option("--write", is_flag=True, help="Put the tables into docs/precision.md.")
def main(**options: Any) -> None:
    """Measure, print, and write where asked to."""
    devices, only, results, share = (options[each] for each in ("devices", "only", "results", "share"))
    warnings.simplefilter("ignore")
    results.mkdir(parents=True, exist_ok=True)
    files = {(name, kind): results / f"{name.replace(':', '-')}-{kind}.jsonl" for name in devices for kind in SETS}
    if only:
        judge(devices[0], only, share, files[devices[0], only])
        return
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in devices}
    for (name, kind), file in files.items():
        found[name] += rows_of(file) if options["known"] else gathered(name, kind, share, file)
    for name, rows in found.items():
        for row in rows:
            if row.get("accused"):
                click.echo(f"{name}: {row['name']} in {row['mode']}: {row['said']}", err=True)
    lines = list(tables(found, "of an unfinished run of" if options["known"] else "by", share))
    click.echo("\n".join(lines))
    if options["write"]:
        text = PAGE.read_text()
        head, rest = text.split(BEGIN)
        beside = PAGE.with_suffix(".new")
        beside.write_text(f"{head}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{rest.split(END)[1]}")
        beside.replace(PAGE)


if __name__ == "__main__":
    main()
