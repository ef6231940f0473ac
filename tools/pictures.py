"""Make the pictures of the documentation, in docs/pictures.

python tools/pictures.py judge     the judge's verdicts on four kinds of errors (SVG); needs matplotlib
python tools/pictures.py pages     the pages, photographed in Chromium (PNG); runs the suite on the emulated device
"""

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


def judge() -> None:
    """Draw signed errors of four results and a reference run, each with the judge's verdict."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - pages need neither it nor torch
    import torch  # noqa: PLC0415

    from pytest_ascend.precision import Samples, compare  # noqa: PLC0415

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "judge", "font.family": "sans-serif", "font.size": 8})
    generator = torch.Generator().manual_seed(7)
    terms = torch.rand(1024, 512, generator=generator)
    total, product = terms.double().sum(1), terms[:, 0].double() * terms[:, 1].double()
    one, other, rounded = terms.sum(1), terms.flip(1).reshape(1024, 8, -1).sum(2).sum(1), product.float()
    noise = torch.exp2(product.log2().floor() - 23) * 2.7 * (torch.rand(1024, generator=generator) - 0.5)
    below = torch.where(rounded.double() > product, torch.nextafter(rounded, torch.zeros(())), rounded)
    wrong = torch.where(torch.arange(1024) == 100, other * (1 + 4e-6), other)
    shown = {
        "A sum in another order": (other, total, [one, other]),
        "A sum, one element wrong": (wrong, total, [one, other]),
        "A product, noise in the last bits": ((product + noise).float(), product, [rounded]),
        "A product, truncated instead of rounded": (below, product, [rounded]),
    }
    figure, panels = plt.subplots(2, 2, figsize=(7.5, 4.2), layout="constrained")
    for axes, (title, (actual, expected, runs)) in zip(panels.flat, shown.items(), strict=True):
        verdict = compare(actual, expected, reference_runs=Samples(runs))
        ulp = torch.exp2(expected.log2().floor() - 23)
        for each, colour in ((runs[0], "#9aa0a6"), (actual, "#2a6fb0" if verdict.agrees else "#c0392b")):
            axes.plot(((each.double() - expected) / ulp)[:110], ".", color=colour, markersize=3)
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set_ylabel("error in ulp")
        said = "agrees" if verdict.agrees else verdict.headline.split(";")[-1].strip()
        axes.set_xlabel(said, color="#2a6fb0" if verdict.agrees else "#c0392b")
    figure.savefig(PICTURES / "judge.svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))


def pages(report: Path | None) -> None:
    """Run the README's example on the emulated device, and take screenshots. ``report``: a run of level smoke."""
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
    """Run a program of this environment; exit codes are ignored, as the pictures are to show failures."""
    program, environment = Path(sys.executable).with_name(str(command[0])), {**os.environ, "PYTHONPATH": "."}
    ran = subprocess.run([program, *command[1:]], cwd=folder, env=environment, check=False)  # noqa: S603 - our own
    if ran.returncode not in {0, 1}:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {ran.returncode}")


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
    """Make the requested pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("judge", "pages"))
    parser.add_argument("--report", type=Path, help="a run to show as report.png; the smallest level if not given")
    given = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    judge() if given.what == "judge" else pages(given.report and given.report.resolve())


if __name__ == "__main__":
    main()
