"""How many different generated calls of a level reach each kernel of the emulated device, and from which operators.

Two calls of a kernel are different if sizes, strides or dtypes of tensors, or any other arguments, differ. An in-place
kernel is not counted if an out-of-place one does the same, as the two are mostly one. Prints the kernels that few calls
reach; then the operators that make many of the calls of such a kernel, which get more calls, and those that make few of
the calls of every kernel, of which recorded ones get fewer. Takes two minutes at level standard.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict

import click

from pytest_ascend.system.bundled import folder
from tests.meta.kernel_cases import asked, complaint
from tests.meta.kernel_switch import SWITCH

os.environ["PYTEST_ASCEND_FAULTS"] = "tests.meta.kernel_switch:EVERY_KERNEL"

#: A kernel is rare if fewer different calls reach it.
FEW = 60
#: An operator gets more calls above this share of a rare kernel's calls, and fewer below this share of every kernel's.
MUCH, LITTLE = 0.2, 0.05


@click.command(help=__doc__)
@click.option("--level", type=click.Choice(["smoke", "standard"]), default="standard", show_default=True)
@click.option("--write", is_flag=True, help="Write both lists of operators: suites/ops/kernel_reach.json.")
def main(level: str, *, write: bool) -> None:
    """Make the generated calls of a level, count, and print."""
    cases = [case for case in asked() if case.property == "sweep" and case.is_in(level)]
    every: defaultdict[str, Counter[str]] = defaultdict(Counter)
    with click.progressbar(cases, label="sweeps") as made:
        for case in made:
            SWITCH.different = defaultdict(set)
            complaint(case, level=level)
            for kernel, calls in SWITCH.different.items():
                every[kernel][case.subject] += len(calls)
    found = {
        kernel: by
        for kernel, by in every.items()
        if "Inplace" not in kernel or kernel.replace("Inplace", "", 1) not in every
    }
    rare = {kernel: by for kernel, by in found.items() if by.total() < FEW}
    for kernel, by in sorted(rare.items(), key=lambda each: each[1].total()):
        click.echo(f"{by.total():4} {kernel}: {', '.join(f'{name} {own}' for name, own in by.most_common(4))}")
    much = {name for by in rare.values() for name, own in by.items() if own >= MUCH * by.total()}
    little = {case.subject for case in cases if all(by[case.subject] < LITTLE * by.total() for by in found.values())}
    names = {"rare": sorted(much), "shared": sorted(little)}
    for kind, those in names.items():
        click.echo(f"with {kind} kernels: {' '.join(those)}")
    if write:
        path = folder("suites") / "ops" / "kernel_reach.json"
        path.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")
