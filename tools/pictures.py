"""Make the pictures of the documentation, in docs/pictures.

    python tools/pictures.py judge     how the four rules of the judge see four kinds of errors (SVG)
    python tools/pictures.py pages     the pages, photographed in Chromium (PNG); runs the suite on the emulated device

The pictures of the judge show real verdicts: its rule and limit are what ``precision.compare`` said of that tensor.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
#: A panel of a picture, in pixels, and the largest error on its axis, in units in the last place.
WIDTH, HEIGHT, MARGIN = 360, 190, 34
BLUE, RED, GREY = "#2a6fb0", "#c0392b", "#9aa0a6"
TERMS, ELEMENTS, DRAWN = 512, 1024, 160

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
    """Draw signed errors of four results beside reference runs, each with the judge's verdict."""
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    import torch  # noqa: PLC0415 - pages need no torch

    from pytest_ascend.precision import Samples, compare  # noqa: PLC0415

    generator = torch.Generator().manual_seed(7)
    terms = torch.rand(ELEMENTS, TERMS, generator=generator)
    total, product = terms.double().sum(1), terms[:, 0].double() * terms[:, 1].double()
    one, other = terms.sum(1), terms.flip(1).reshape(ELEMENTS, 8, -1).sum(2).sum(1)
    wrong = other.clone()
    wrong[100] *= 1 + 4e-6
    noise = torch.exp2(torch.floor(torch.log2(product)) - 23) * 2.7 * (torch.rand(ELEMENTS, generator=generator) - 0.5)
    rounded = product.float()
    shown = (
        ("A sum in another order", other, total, [one, other]),
        ("A sum, one element wrong", wrong, total, [one, other]),
        ("A product, noise in the last bits", (product + noise).float(), product, [product.float()]),
        (
            "A product, truncated instead of rounded",
            torch.where(rounded.double() > product, torch.nextafter(rounded, torch.zeros(())), rounded),
            product,
            [product.float()],
        ),
    )
    panels = []
    for index, (title, actual, expected, reference_runs) in enumerate(shown):
        verdict = compare(actual, expected, reference_runs=Samples(reference_runs))
        said = "agrees" if verdict.agrees else verdict.headline.split(";")[-1].strip()
        ulp = torch.exp2(torch.floor(torch.log2(expected)) - 23)
        errors = [((each.double() - expected) / ulp)[:DRAWN].tolist() for each in (reference_runs[0], actual)]
        panels.append(_panel(index, title, said, *errors, agrees=verdict.agrees))
    size = f'viewBox="0 0 {2 * WIDTH} {2 * HEIGHT}" width="{2 * WIDTH}"'
    text = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    text += f'<rect width="100%" height="100%" fill="white"/>{"".join(panels)}</svg>\n'
    (PICTURES / "judge.svg").write_text(text, encoding="utf-8")


def _panel(index: int, title: str, said: str, reference_runs: list[float], errors: list[float], *, agrees: bool) -> str:
    left, top = WIDTH * (index % 2), HEIGHT * (index // 2)
    colour = BLUE if agrees else RED
    return "".join(
        (
            f'<g transform="translate({left} {top})"><text x="{MARGIN}" y="16" font-weight="bold">{title}</text>',
            *_axis(max(map(abs, errors))),
            *(_dots(reference_runs, max(map(abs, errors)), GREY)),
            *(_dots(errors, max(map(abs, errors)), colour)),
            f'<text x="{MARGIN}" y="{HEIGHT - 10}" fill="{colour}">{said}</text></g>',
        )
    )


def _axis(largest: float) -> Iterator[str]:
    for value in (-largest, 0.0, largest):
        y = _y(value, largest)
        yield f'<line x1="{MARGIN}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{MARGIN - 4}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>'
    yield f'<text x="{WIDTH - 10}" y="{HEIGHT - 10}" text-anchor="end" fill="{GREY}">ulp, by element</text>'


def _dots(errors: list[float], largest: float, colour: str) -> Iterator[str]:
    step = (WIDTH - MARGIN - 10) / len(errors)
    for place, each in enumerate(errors):
        if math.isfinite(each) and abs(each) <= largest:
            yield f'<circle cx="{MARGIN + step * place:.1f}" cy="{_y(each, largest):.1f}" r="1.6" fill="{colour}"/>'


def _y(value: float, largest: float) -> float:
    top, bottom = 26, HEIGHT - 28
    return (top + bottom) / 2 - (bottom - top) / 2 * value / (largest or 1.0)


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
        shown = {
            "report": "report.html",
            "model": "model/conformance.html",
            "analyze": "a.html",
            "diff": "diff.html",
            "matrix": "matrix.html",
        }
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
    """Make the pictures that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("judge", "pages"))
    parser.add_argument("--report", type=Path, help="a run to show as report.png; the smallest level if not given")
    given = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    if given.what == "judge":
        judge()
    else:
        pages(given.report and given.report.resolve())


if __name__ == "__main__":
    main()
