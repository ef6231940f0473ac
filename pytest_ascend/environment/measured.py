"""Measurements of contact kits on real chips: bundled data, one folder per chip in ``baselines/contact``.

Written by ``pytest-ascend collect apply`` from a kit of an NPU; docs/contact.md describes the files.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_ascend.system import bundled
from pytest_ascend.system.errors import AscendError, as_error
from pytest_ascend.system.files import read_regular, strict_json

FOLDER = "contact"
#: Ten times the size of the largest file of a chip.
LARGEST_BYTES = 16 * 2**20


def is_chip(name: str) -> bool:
    """Return whether a name is a possible SoC name, so that it can name a folder."""
    return re.fullmatch(r"Ascend[\w-]{1,32}", name) is not None


def of(chip: str, what: str) -> Mapping[str, Any]:
    """Return one file of a chip such as "Ascend910B3"; empty if it has no kit. Raises AscendError if damaged."""
    return _read(bundled.folder("baselines") / FOLDER / chip / f"{what}.json") if is_chip(chip) else {}


@functools.cache
def _read(path: Path) -> Mapping[str, Any]:
    found: Any = {}
    hint, kinds = "reinstall pytest-ascend", (OSError, ValueError, RecursionError)
    with as_error(f"{path} cannot be read", hint, *kinds, why=str, raises=AscendError), suppress(FileNotFoundError):
        found = strict_json(read_regular(path, LARGEST_BYTES, follow=False))
    if not isinstance(found, dict):
        raise AscendError(f"{path} is no object", hint=hint)
    return found


def memory_bytes(chip: str) -> int:
    """Return the device memory reported by torch.npu, 0 if unknown."""
    return int(of(chip, "chip").get("memory_total_bytes") or 0)


def durations_s(chip: str) -> Mapping[str, float]:
    """Return the durations of cases on a chip, by case id."""
    return {name: seconds for name, seconds in of(chip, "durations").items() if isinstance(seconds, int | float)}


def codes(chips: Iterable[str] = ()) -> Mapping[str, tuple[str, str]]:
    """Return error codes that are in no table, each with its message and the chip that reported it; of all chips."""
    root = bundled.folder("baselines") / FOLDER
    names = chips or sorted(each.name for each in root.iterdir() if is_chip(each.name)) if root.is_dir() else ()
    rows = ((code, row, chip) for chip in names for code, row in of(chip, "codes").items())
    return {code: (str(row["said"]), chip) for code, row, chip in rows if not row["known"]}


def objections(operator: str, dtypes: Iterable[str], chip: str) -> tuple[str, ...] | None:
    """Return the problems seen with a torch operator ("add.Tensor") in some dtypes on a chip; () if there were none.

    None if not all of the dtypes were tried there. ``dtypes`` are torch's names, without "torch.".
    """
    seen = of(chip, "dtypes").get("aten", {}).get(operator, {})
    computed_by = {each: seen.get(each) for each in dtypes}
    if not computed_by or None in computed_by.values():
        return None
    words = {"": "is refused there", "cpu": "is computed by the CPU there"}
    return tuple(f"{dtype} {words[by]} (contact kit)" for dtype, by in computed_by.items() if by in words)
