"""How many different generated calls of a level reach each kernel of the emulated device, and who makes them.

    python tools/operator_reach.py [--level standard] [--write]

Two calls of a kernel are different if sizes, strides or dtypes of their tensors are, or one of their other arguments. A
kernel that works in place is not counted where another does the same, since they are mostly one. Prints the kernels
that few calls reach; then the operators that make much of the calls of one of these, which have more calls, and those
that make little of the calls of any, of which recorded ones have fewer. ``--write`` puts both into
``suites/ops/kernel_reach.json``. Takes two minutes at level standard.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import click

from pytest_ascend import emulator

emulator.activate()
os.environ["PYTEST_ASCEND_FAULTS"] = "operator_switch:EVERY_KERNEL"

from operator_cases import asked, complaint  # noqa: E402  (after the activation)
from operator_switch import SWITCH  # noqa: E402

from pytest_ascend.records.case import Case  # noqa: E402
from pytest_ascend.system.bundled import folder  # noqa: E402

#: A kernel is rare that fewer different calls reach.
FEW = 60
#: The share of a rare kernel whose operator has more calls, and that of every kernel below which one has fewer.
MUCH, LITTLE = 0.2, 0.05


def reach(cases: Sequence[Case], level: str) -> dict[str, Counter[str]]:
    """Make the generated calls of a level; return by kernel how many different ones each operator made."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    with click.progressbar(cases, label="sweeps") as made:
        for case in made:
            SWITCH.different = defaultdict(set)
            complaint(case, level=level)
            for kernel, calls in SWITCH.different.items():
                found[kernel][case.subject] += len(calls)
    return found


def is_twin(kernel: str, found: Mapping[str, object]) -> bool:
    """Whether a kernel works in place where another does the same: aclnnInplaceAdd beside aclnnAdd."""
    return kernel.replace("Inplace", "", 1) in found and "Inplace" in kernel


def with_rare_kernels(found: Mapping[str, Counter[str]]) -> list[str]:
    """Return the operators that make much of the calls of a rare kernel."""
    rare = [by for by in found.values() if by.total() < FEW]
    return sorted({name for by in rare for name, own in by.items() if own >= MUCH * by.total()})


def with_shared_kernels(found: Mapping[str, Counter[str]], names: Iterable[str]) -> list[str]:
    """Return which operators make little of the calls of each of their kernels, or call none."""
    return sorted(name for name in names if all(by[name] < LITTLE * by.total() for by in found.values()))


@click.command(help=__doc__)
@click.option("--level", type=click.Choice(["smoke", "standard"]), default="standard", show_default=True)
@click.option("--write", is_flag=True, help="Write which operators have more generated calls, and which fewer.")
def main(level: str, *, write: bool) -> None:
    """Count, and print."""
    warnings.simplefilter("ignore")
    cases = [case for case in asked() if case.property == "sweep" and case.is_in(level)]
    every = reach(cases, level)
    found = {kernel: by for kernel, by in every.items() if not is_twin(kernel, every)}
    for kernel, by in sorted(found.items(), key=lambda each: each[1].total()):
        if by.total() < FEW:
            click.echo(f"{by.total():4} {kernel}: {', '.join(f'{name} {own}' for name, own in by.most_common(4))}")
    names = {
        "rare": with_rare_kernels(found),
        "shared": with_shared_kernels(found, {case.subject for case in cases}),
    }
    for kind, those in names.items():
        click.echo(f"with {kind} kernels: {' '.join(those)}")
    if write:
        path = folder("suites") / "ops" / "kernel_reach.json"
        path.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
