"""Count false alarms of the operator suite on a correct device that is not the CPU, by seed.

    python tools/operator_numerics.py chip:1 [--level standard] [--property sweep] [--part 1/1]

Runs the cases in this process (with ``--property`` those of one property, with ``--part 2/5`` a fifth of them), prints
each complaint that is not expected of the combination, and exits with 1 where there is one.
"""

from __future__ import annotations

import re
import sys
import warnings

import click

from pytest_ascend import emulator


@click.command()
@click.argument("numerics")
@click.option("--level", type=click.Choice(["standard", "full"]), default="standard", help="full is what it adds")
@click.option("--property", "property_", default="", help="only the cases of a property, such as sweep")
@click.option("--part", default="1/1", help="K/N: every N-th case, from the K-th on")
def main(numerics: str, level: str, property_: str, part: str) -> None:
    """Run operator cases on an emulated device of these numerics."""
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", part)
    if not match or int(match[1]) > int(match[2]):
        raise click.BadParameter(f"{part!r}: expected K/N, with K from 1 to N", param_hint="--part")
    warnings.simplefilter("ignore")
    emulator.activate(emulator.EmulatorSettings(numerics=numerics))
    import operator_cases  # noqa: PLC0415  (after the activation)

    cases = [case for case in operator_cases.asked() if (case.level == "full") is (level == "full")]
    cases = [case for case in cases if not property_ or case.property == property_]
    cases = cases[int(match[1]) - 1 :: int(match[2])]
    accused = 0
    for case in cases:
        if said := operator_cases.complaint(case):
            accused += 1
            click.echo(f"{case.id}: {said}")
    click.echo(f"{emulator.numerics()}: {accused} of {len(cases)} cases complain")
    sys.exit(accused > 0)


if __name__ == "__main__":
    main()
