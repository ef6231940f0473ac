"""Run cases on faulty devices and on correct ones that are not the CPU: which faults are detected, what fails wrongly.

Arguments after ``--`` go to ``pytest --ascend``: files, ``-k``, ``--ascend-level``, ``--ascend-ranks``. Each device
gets a run of its own. Exits with 1 if a fault is not detected, or a correct device fails a case:

    python -m tools.evaluation devices --hccl -- suites/distributed -k collective --ascend-ranks=3
    python -m tools.evaluation devices --chips 200 -- suites/distributed --ascend-ranks=4
    python -m tools.evaluation devices --chips 1 -- suites/ops --ascend-level=full
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from .support import run_suite

#: HCCL faults that need a setting to have an effect; and faults that end a rank.
SETTINGS = {"ranks-differ": ":rank=1", "at-random": ":rate=0.5"}
ENDS = ("slow", "crash", "kill", "hang")


def _copied_densely(correct: Any) -> Any:
    def copy(x: Any, source: Any) -> None:
        is_plain = x.shape != source.shape or x.dtype != source.dtype or source.is_contiguous()
        correct(x, source if is_plain else source.as_strided(x.shape, x.new_empty(x.shape).stride()))

    return copy


#: Faults in operators that torch_npu calls around a collective: dividing a sum for a mean, and copying strided tensors.
AVERAGE_NOT_DIVIDED = {"aclnnInplaceDivs": lambda _: lambda *_: None}
COPY_IGNORES_STRIDES = {"aclnnInplaceCopy": _copied_densely}


@click.command(help=__doc__.replace("\n\n    ", "\n\n\b\n    "))
@click.argument("arguments", nargs=-1)
@click.option("--fault", "faults", multiple=True, help="A fault, as --ascend-emulate=fault takes it; repeatable.")
@click.option("--hccl", is_flag=True, help="Each fault of the emulated HCCL that changes data.")
@click.option("--chips", default=0, help="So many correct devices with a chip's numerics.")
@click.option("--seed", default=0, help="Of the first of --chips.")
def main(arguments: tuple[str, ...], faults: tuple[str, ...], hccl: bool, chips: int, seed: int) -> None:
    """Run the cases on each device, and print a row for each."""
    faulty = [*faults]
    if hccl:
        from pytest_ascend.emulator.faults import COLLECTIVE_FAULTS, PREFIX

        faulty += [f"{PREFIX}{each}{SETTINGS.get(each, '')}" for each in COLLECTIVE_FAULTS if each not in ENDS]
        faulty += [f"{__name__}:{each}" for each in ("AVERAGE_NOT_DIVIDED", "COPY_IGNORES_STRIDES")]
    devices = [(fault, True) for fault in faulty]
    devices += [(f"chip:{each}", False) for each in range(seed, seed + chips)]
    wrong = 0
    for name, is_faulty in devices:
        option = f"--ascend-emulate={'fault' if is_faulty else 'numerics'}={name}"
        with tempfile.TemporaryDirectory() as folder:
            records = run_suite(Path(folder), option, *arguments).records
        found = [each.case for each in records if each.outcome_name in ("failed", "errored")]
        wrong += bool(found) != is_faulty or not records
        named = ", ".join(sorted({f"{each.subject} {each.dtype}".strip() for each in found})[:20])
        click.echo(f"| {name} | {len(found)} of {len(records)} | {named or '-'} |")
    click.echo(f"{len(devices)} devices, {wrong} not as they should be")
    sys.exit(wrong > 0)
