"""Write the table of CANN's own error codes: every code with its official name, and the revision it comes from.

    python tools/cann_codes.py RUNTIME.git > pytest_ascend/environment/cann_codes.json

RUNTIME.git is a clone of CANN's runtime (hicann/runtime). The sources are its header of return codes, its error code
reference and its message table; only names are taken, no prose.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator

from tools.evaluation.support import git

HEADER = "include/external/acl/error_codes/rt_error_codes.h"
RETURNED = "docs/zh/api_ref/25-01_aclError.md"
REFERENCE = "docs/en/error_code_ref"
MESSAGES = "src/dfx/error_manager/error_code.json"
#: Families in the message table that a run of operators meets; the others belong to model compilers.
FAMILIES = ("EE", "EH", "EI", "EJ", "EL", "EZ")


def _rows(repository: str) -> Iterator[tuple[str, str, str]]:
    header, returned = (git(repository, "show", f"HEAD:{each}").decode() for each in (HEADER, RETURNED))
    for name, code in re.findall(r"#define\s+(ACL_\w+)[\s\\]+(\d{6})\b", header):
        yield code, name, HEADER
    for name, code in re.findall(r"(ACL_\w+) = (\d{6});", returned):
        yield code, name, RETURNED
    for path in git(repository, "ls-tree", "-r", "--name-only", "HEAD", REFERENCE).decode().splitlines():
        if found := re.search(r"/([EW][A-Z]?\d{4,5})-([^/]+)\.md$", path):
            yield found[1], found[2], REFERENCE
    for row in json.loads(git(repository, "show", f"HEAD:{MESSAGES}"))["error_info_list"]:
        if row["ErrCode"].startswith(FAMILIES):
            yield row["ErrCode"], row["errTitle"], MESSAGES


def main(repository: str) -> None:
    """Print the table, sorted, each code once, from the first source that lists it."""
    rows: dict[str, tuple[str, str]] = {}
    for code, name, place in _rows(repository):
        rows.setdefault(code, (name, place))
    revision = git(repository, "rev-parse", "HEAD").decode().strip()[:12]
    lines = ",\n".join(json.dumps([code, *rows[code]]) for code in sorted(rows))
    sys.stdout.write(f'{{"source": "hicann/runtime@{revision}", "codes": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(sys.argv[1])
