"""Evaluations of pytest-ascend itself: what its judge, suites and runner detect, reject wrongly, and cost."""

from __future__ import annotations

import os
import warnings
from importlib import import_module

import click

#: Evaluation: its module, whether it runs on the emulated device in this process, and what it measures.
EVALUATIONS = {
    "judge": ("judge", False, "The judge beside others: correct results rejected, faults seen, time."),
    "accused": ("accused", True, "False alarms on functions and models, by device and mode."),
    "rewritten": ("tests.meta.rewritten_bugs", False, "Changes of a rewritten model that a comparison sees."),
    "operator-faults": ("operator_faults", True, "Random faults of kernels that each level notices."),
    "operator-reach": ("operator_reach", True, "Generated calls that reach each kernel."),
    "blind": ("blind", False, "Cases that accept a wrong result made of the right one, by suite and kind."),
    "npu-operators": ("npu_operators", True, "Operators of torch_npu that the suites call."),
    "classes": ("classes", False, "Faults that no kernel has, by class, and the share that each level notices."),
    "devices": ("devices", False, "Suites on faulty devices and on correct chips: noticed, falsely rejected."),
    "goldens": ("goldens", True, "Each emulated kernel beside the golden that CANN publishes for it."),
    "survival": ("tests.meta.survival", True, "Runs with faults of the device and kill -9 at random moments."),
    "fuzz": ("tests.meta.fuzz", False, "Hostile files for each command and reader."),
    "genuine": ("tests.unit.certificate.kinds", False, "Certificates for genuine logs of each chip and kind."),
    "forger": ("tests.unit.certificate.forger", False, "Forged certificates, and what refuses each."),
    "costs": ("costs", False, "Time and memory of calls and pages."),
}


class _Commands(click.Group):
    """A group that imports an evaluation when it is called: most load torch, some after the emulated device."""

    def list_commands(self, _: click.Context) -> list[str]:
        """Return the names."""
        return list(EVALUATIONS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        """Return an evaluation's command, with its device set up."""
        if name not in EVALUATIONS:
            return None
        module, is_emulated, _ = EVALUATIONS[name]
        warnings.simplefilter("ignore")
        if is_emulated:
            from pytest_ascend import emulator

            emulator.activate()
        else:
            os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")  # torch_npu needs CANN
        command: click.Command = import_module(module if "." in module else f"tools.evaluation.{module}").main
        return command

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """List the evaluations without importing any."""
        with formatter.section("Evaluations"):
            formatter.write_dl([(name, measures) for name, (_, _, measures) in EVALUATIONS.items()])


@click.group(cls=_Commands, help=__doc__)
def main() -> None:
    """Choose an evaluation."""


if __name__ == "__main__":
    main(prog_name="python -m tools.evaluation")
