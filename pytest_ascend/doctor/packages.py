"""Rules on the Python packages that CANN itself needs."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_ascend.doctor.findings import WARNING, Rule, Seen
from pytest_ascend.doctor.survey import TBE_NEEDS, Survey
from pytest_ascend.environment.versions import Version, is_version


def compiler_needs(survey: Survey) -> Iterator[Seen]:
    """Python packages that CANN's compiler of operators imports."""
    missing = [name for name in TBE_NEEDS if name not in survey.packages]
    if survey.home and missing and survey.machine.packages:
        what = f"CANN's compiler of operators lacks {', '.join(missing)}"
        yield Seen(what, ("not in Python's packages",), f"pip install {' '.join(missing)}")


def new_numpy(survey: Survey) -> Iterator[Seen]:
    """numpy 2 under a CANN that was made before it."""
    numpy, cann = survey.packages.get("numpy"), survey.cann
    if numpy and numpy.version[:2] == "2." and is_version(cann) and Version(cann) < Version("8.2.RC1"):
        yield Seen(f"numpy {numpy.version} is newer than CANN {cann}", (numpy.path,), "pip install 'numpy<2'")


RULES = (
    Rule(
        id="python.compiler-needs",
        severity=WARNING,
        look=compiler_needs,
        why="The first operator that has to be compiled fails with 500001.",
        remedy="pip install what is missing",
    ),
    Rule(
        id="python.numpy",
        severity=WARNING,
        look=new_numpy,
        why="The compiler of operators uses what numpy 2 has removed.",
        remedy="pip install 'numpy<2'",
    ),
)
