"""Goldens that nobody shall be judged by any more: a list beside the manifest, with the reason of each.

What is revoked is the content, by its hash: a golden that is made anew with other content is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pytest_ascend.errors import GoldenError
from pytest_ascend.golden.codec import canonical_json
from pytest_ascend.golden.files import damaged, read_bounded, write_if_new
from pytest_ascend.golden.manifest import is_id
from pytest_ascend.system.untrusted import strict_json

NAME = "revoked.json"
SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Revocation:
    """Why a golden is revoked, and the SHA-256 of the file that is."""

    sha256: str
    reason: str


def load(root: Path) -> dict[str, Revocation]:
    """Read the list of a store, by id; a store without one has revoked nothing. Raises GoldenError on a damaged one."""
    path = root / NAME
    if not path.exists():
        return {}
    try:
        data = strict_json(read_bounded(root, path, ""))
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']!r}, not {SCHEMA}")
        return {name: _revocation(name, given) for name, given in data["revoked"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(path, str(error), "") from error


def save(root: Path, revoked: Mapping[str, Revocation]) -> Path:
    """Write the list of a store anew, and give its path."""
    data = {"schema": SCHEMA, "revoked": {name: asdict(each) for name, each in revoked.items()}}
    write_if_new(root / NAME, (canonical_json(data, indent=1) + "\n").encode())
    return root / NAME


def refusal(path: Path, golden_id: str, revocation: Revocation) -> GoldenError:
    """Say that a golden is not to be judged by."""
    hint = "there is no verdict until it is corrected and made anew, see baselines/README.md"
    return GoldenError(f"the golden {golden_id!r} is revoked: {revocation.reason}", path=str(path), hint=hint)


def _revocation(name: str, given: Mapping[str, str]) -> Revocation:
    found = Revocation(**given)
    if not is_id(name) or not isinstance(found.sha256, str) or not isinstance(found.reason, str) or not found.reason:
        raise TypeError(f"of {name!r}")
    return found
