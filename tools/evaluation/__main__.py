"""Evaluations of pytest-ascend itself: what its judge, suites and runner notice, reject by mistake, and cost."""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import NamedTuple

import click

#: Where an evaluation runs: on the emulated device of this process, or without one.
EMULATED, HERE = True, False


class Evaluation(NamedTuple):
    """A command: its module, where it runs, and what it measures."""

    module: str
    is_emulated: bool
    measures: str


EVALUATIONS = {
    "judge": Evaluation("judge", HERE, "The judge beside others: correct results rejected, faults seen, time."),
    "accused": Evaluation("accused", HERE, "False alarms on functions and models, by device and mode."),
    "operator-faults": Evaluation("operator_faults", EMULATED, "Random faults of kernels that each level notices."),
    "operator-reach": Evaluation("operator_reach", EMULATED, "Generated calls that reach each kernel."),
    "devices": Evaluation("devices", HERE, "Suites on faulty devices and on correct chips: noticed, falsely rejected."),
    "ranks": Evaluation("ranks", EMULATED, "Ranks that are killed or stopped at random moments."),
    "causes": Evaluation("causes", HERE, "Mistakes in a distributed training, and the causes that are named."),
    "survival": Evaluation(
        "tests.meta.survival", EMULATED, "Runs with faults of the device and kill -9 at random moments."
    ),
    "fuzz": Evaluation("fuzz", HERE, "Hostile files for each command and reader."),
    "forger": Evaluation("tests.unit.certificate.forger", HERE, "Forged certificates, and what refuses each."),
    "slowdowns": Evaluation("slowdowns", HERE, "Slower kernels that the verdict on speed notices, and false alarms."),
    "costs": Evaluation("costs", HERE, "Time and memory of timing, emulation, isolation, calls and pages."),
}


class _Commands(click.Group):
    """Imports an evaluation when it is called: most load torch, some after the emulated device."""

    def list_commands(self, _: click.Context) -> list[str]:
        """Return the names."""
        return list(EVALUATIONS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        """Return an evaluation's command, on its device."""
        found = EVALUATIONS.get(name)
        if found is None:
            return None
        warnings.simplefilter("ignore")
        if found.is_emulated:
            from pytest_ascend import emulator

            emulator.activate()
        else:
            os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")  # torch_npu needs CANN
        command: click.Command = import_module(
            found.module if "." in found.module else f"tools.evaluation.{found.module}"
        ).main
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List the evaluations without importing any."""
        with formatter.section("Evaluations"):
            formatter.write_dl([(name, each.measures) for name, each in EVALUATIONS.items()])


@click.group(cls=_Commands, help=__doc__)
def main() -> None:
    """Choose an evaluation."""


if __name__ == "__main__":
    main(prog_name="python -m tools.evaluation")
