"""Photograph the pages of the documentation in Chromium, into docs/pictures. Runs the suite on the emulated device."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"

MODEL = """import torch


def make_model():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
"""
TRAINING = """import torch
from my_model import make_model

model = torch.nn.DataParallel(make_model().cuda())
torch.backends.cudnn.benchmark = True
"""


def pages(report: Path | None) -> None:
    """Run what the README shows on the emulated device, and photograph the pages. ``report``: a run of level smoke."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "my_model.py").write_text(MODEL, encoding="utf-8")
        (here / "train.py").write_text(TRAINING, encoding="utf-8")
        model = ("--ascend-model=my_model:make_model", "--ascend-model=input=2x16")
        fault = "--ascend-emulate=fault=gelu-by-sigmoid"
        run = ("pytest", "--ascend", "--ascend-device=emulated", "--ascend-level=smoke")
        if report is None:
            _run(here, *run, "--ascend-report=smoke")
        _run(here, *run[:3], *model, fault, "--ascend-report=model")
        _run(here, *run, "-k", "gelu or tanh", "--ascend-report=before")
        _run(here, *run, "-k", "gelu or tanh", fault, "--ascend-report=after")
        _run(here, "pytest-ascend", "analyze", "my_model:make_model", "-i", "2x16", "--source", ".", "--html", "a.html")
        _run(here, "pytest-ascend", "report", "diff", "before", "after", "--format", "html", "-o", "diff.html")
        _run(here, "pytest-ascend", "report", "matrix", "before", "after", report or "smoke", "-o", "matrix.html")
        _run(here, "pytest-ascend", "report", "render", report or "smoke", "-o", "report.html")
        shown = {"model": "model/conformance.html", "analyze": "a.html"}
        shown |= {name: f"{name}.html" for name in ("report", "diff", "matrix")}
        photograph({name: here / path for name, path in shown.items()})


def _run(folder: Path, *command: str | Path) -> None:
    """Run a program of this environment; that a run finds faults is what is to be shown."""
    program = Path(sys.executable).with_name(str(command[0]))
    ran = subprocess.run(  # noqa: S603 - our own commands
        [program, *command[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode not in {0, 1}:
        raise SystemExit(
            f"{' '.join(map(str, command))}: exit code {ran.returncode}\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"
        )


def photograph(paths: dict[str, Path], *, size: tuple[int, int] = (1080, 680)) -> None:
    """Save the first screen of each page as docs/pictures/NAME.png."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of the extra 'test'

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme="light", locale="en")
        for name, path in paths.items():
            page.goto(path.resolve().as_uri())
            page.wait_for_timeout(300)
            page.screenshot(path=PICTURES / f"{name}.png")
        browser.close()


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, help="a run to show as report.png; the smallest level if not given")
    given = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    pages(given.report and given.report.resolve())


if __name__ == "__main__":
    main()
