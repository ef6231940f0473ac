"""Whom the judge accuses as people call it: small functions and whole models, in four modes, on devices that are right.

    python tools/judge_accused.py [--device chip:1]... [--write]

Each function and architecture is computed on the device, with gradients, and judged by what ``cpu_reference`` and
``precision_compare.module`` take by themselves. Devices: ``cpu`` (the CPU judged by itself), and the emulated one with
the numerics ``exact`` and ``chip:SEED``. Errors are then planted into what the device gave. ``--write`` puts the tables
into ``docs/precision.md``. Needs the extra ``models``. On a machine with two cores it takes about an hour.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import warnings
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
SIZES, PLACES = (1.5, 2.0, 3.0, 4.0, 8.0, 16.0), ("one element", "everywhere")


def device(numerics: str) -> str:
    """Bring a device up in this process, and return its type."""
    import torch  # noqa: PLC0415 - after the emulated device

    torch.set_num_threads(1)
    if numerics == "cpu":
        return "cpu"
    import torch_npu  # noqa: F401, PLC0415

    torch.npu.conv.allow_hf32 = torch.npu.matmul.allow_hf32 = False  # as the plugin sets them
    return "npu"


def of_functions(numerics: str) -> Iterator[dict[str, Any]]:
    """Judge every function in every mode, and plant errors into its results."""
    import judge_functions  # noqa: PLC0415
    import torch  # noqa: PLC0415

    kind = device(numerics)
    for function in judge_functions.functions():
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
            yield from ({"what": "planted", **row, **each} for each in planted(ours.detach().cpu(), theirs))


def planted(actual: Any, expected: Any) -> Iterator[dict[str, Any]]:
    """Yield, for errors of each size and place, whether they were seen.

    The honest error is the largest that the device or an honest result has in the tensor, and no less than a unit in
    the last place of its largest value. One element, a large one, is moved by so many times as much; or every element
    by a normal error of so many times the honest root mean square, which is no less than 0.6 of that unit.
    """
    import torch  # noqa: PLC0415

    from pytest_ascend.precision import compare  # noqa: PLC0415
    from pytest_ascend.precision.reference import plain  # noqa: PLC0415

    exact = plain(expected)
    if not actual.is_floating_point() or not exact.numel() or not exact.isfinite().all() or not exact.any():
        return
    results = [actual, *expected.honest(actual.dtype)]
    errors = torch.stack([(each.double() - exact).abs() for each in results])
    ulp = float(2.0 ** exact.abs().max().log2().floor()) * torch.finfo(actual.dtype).eps
    largest, root = max(float(errors.max()), ulp), max(float(errors.square().mean(-1).sqrt().max()), 0.6 * ulp)
    noise = torch.randn(exact.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for size in SIZES:
        one = actual.double().clone().reshape(-1)
        place = int(exact.abs().argmax())
        one[place] = exact.reshape(-1)[place] + size * largest
        everywhere = exact + size * root * noise
        for where, spoilt in (("one element", one.reshape(exact.shape)), ("everywhere", everywhere)):
            if where == "everywhere" and exact.numel() < 64:
                continue
            yield {"size": size, "place": where, "seen": not compare(spoilt.to(actual.dtype), expected).agrees}


def of_models(numerics: str) -> Iterator[dict[str, Any]]:
    """Judge every architecture in every mode."""
    import judge_models  # noqa: PLC0415
    import torch  # noqa: PLC0415

    from pytest_ascend.precision import whole  # noqa: PLC0415
    from pytest_ascend.precision.nested import mapped  # noqa: PLC0415

    kind = device(numerics)
    for name in judge_models.ARCHITECTURES:
        for mode in MODES:
            dtype = torch.float32 if mode == "autocast" else getattr(torch, mode)
            model, given = judge_models.made(name)
            given = mapped(given, lambda each, dtype=dtype: each.to(dtype) if each.is_floating_point() else each)
            verdict = whole(
                model.to(dtype),
                device=kind,
                autocast=torch.bfloat16 if mode == "autocast" else None,
                locate=False,
                **given,
            )
            wrong = [each for each in verdict.leaves if not each.agrees]
            said = "; ".join(f"{each.path}: {each.headline}" for each in wrong)
            yield {"what": "model", "mode": mode, "name": name, "accused": bool(wrong), "said": said[:600]}


SETS = {"functions": of_functions, "models": of_models}


def gathered(numerics: str, kind: str) -> list[dict[str, Any]]:
    """Judge one set on one device, in a process of its own."""
    command = [sys.executable, __file__, "--device", numerics, "--only", kind]
    if numerics != "cpu":
        command = ["pytest-ascend", "emulate", "--numerics", numerics, "--", *command]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)  # noqa: S603 - ours
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not rows:
        raise click.ClickException(f"{kind} on {numerics}: {done.stderr[-2000:]}")
    return rows


def tables(found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yield the lines of the page: accused by device and mode, then the share of planted errors that was seen."""
    yield f"Written by `python tools/judge_accused.py --write` on {machine()}."
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
@click.option("--only", type=click.Choice(list(SETS)), help="Judge one set in this process, and print what was found.")
@click.option("--write", is_flag=True, help="Put the tables into docs/precision.md.")
def main(devices: tuple[str, ...], only: str | None, write: bool) -> None:
    """Measure, print, and write where asked to."""
    warnings.simplefilter("ignore")
    if only:
        for row in SETS[only](devices[0]):
            click.echo(json.dumps(row))
        return
    found = {name: [row for kind in SETS for row in gathered(name, kind)] for name in devices}
    for name, rows in found.items():
        for row in rows:
            if row.get("accused"):
                click.echo(f"{name}: {row['name']} in {row['mode']}: {row['said']}", err=True)
    lines = list(tables(found))
    click.echo("\n".join(lines))
    if write:
        text = PAGE.read_text()
        head, rest = text.split(BEGIN)
        beside = PAGE.with_suffix(".new")
        beside.write_text(f"{head}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{rest.split(END)[1]}")
        beside.replace(PAGE)


if __name__ == "__main__":
    main()
