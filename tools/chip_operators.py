"""Write the data on which operators and dtypes CANN takes on which chips, from the operators' official documentation.

    python tools/chip_operators.py ops-math=CHECKOUT ops-nn=... ops-cv=... ops-transformer=... --used-by aclnn.tsv

Each CHECKOUT is a git repository of CANN's operators, read at its HEAD. The pages
are regular: a section on products, a table of parameters with their dtypes, and notes that take dtypes back for a
product. What a page does not say is not guessed: the operator is left out for that product.
``--used-by`` is a table with the columns name and used_by: which operators of torch call which function of CANN.
"""

from __future__ import annotations

import argparse
import csv
import html
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "pytest_ascend" / "environment" / "chip_operators.json"

#: What a page calls the products, and the families of chips.environment that are in them.
PRODUCTS = {
    "Ascend 950PR/Ascend 950DT": "950",
    "Atlas A3 训练系列产品/Atlas A3 推理系列产品": "A3",
    "Atlas A2 训练系列产品/Atlas A2 推理系列产品": "A2",
    "Atlas 200I/500 A2 推理产品": "310B",
    "Atlas 推理系列产品": "310P",
    "Atlas 训练系列产品": "910",
}
DTYPES = frozenset(
    (
        *("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "BOOL", "COMPLEX32", "COMPLEX64", "COMPLEX128"),
        *("INT4", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
        *("HIFLOAT8", "FLOAT8_E5M2", "FLOAT8_E4M3FN", "FLOAT8_E8M0", "FLOAT4_E2M1", "FLOAT4_E1M2"),
    )
)
_PAGE = re.compile(r"(?<!experimental)/docs/aclnn[^/]*\.md$")
#: A note without conditions: "not supported: BFLOAT16, COMPLEX64". Others ("when the input is ...") are left alone.
_WITHOUT = re.compile(
    r"[\s\-*、：:]*(?:(?:\w+的)?数据类型)?不支持((?:[A-Z][A-Z0-9_]*[、，]?)+)(?:数据类型|类型)?[。；;\s]*"
)
_TERM = re.compile(r"<term>(.*?)</term>")
_ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<t[dh][^>]*>(.*?)</t[dh]>", re.DOTALL)


def git(repository: Path, *arguments: str) -> str:
    """Return what git says about a repository."""
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603


def pages(repository: Path) -> Iterator[tuple[str, str]]:
    """Yield the functions that a page is about, by its file's name, and its text."""
    for path in git(repository, "ls-tree", "-r", "HEAD", "--name-only").splitlines():
        if _PAGE.search(path) and not path.startswith("experimental"):
            text = git(repository, "show", f"HEAD:{path}")
            for name in Path(path).stem.split("&"):
                yield name.strip().removeprefix("aclnn"), text


def products(text: str) -> dict[str, bool]:
    """Return, for each family that the section on products names, whether it is supported."""
    section = re.search(r"## 产品支持情况(.*?)\n## ", text, re.DOTALL)
    found = {}
    for line in section[1].splitlines() if section else ():
        for name, family in PRODUCTS.items():
            if re.search(rf"<term>{re.escape(name)}</term>|\|\s*{re.escape(name)}\s*\|", line):
                found[family] = bool(re.search("支持|√", line)) and not re.search("不支持|×", line)
    return found


def parameters(text: str) -> dict[str, list[str]]:
    """Return the dtypes of each tensor among the parameters of the first phase, as its table lists them."""
    found: dict[str, list[str]] = {}
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        rows = [[_plain(cell) for cell in _CELL.findall(row)] for row in _ROW.findall(table)]
        heads = rows[0] if rows else []
        if "数据类型" not in heads or not heads[0].startswith("参数名"):
            continue
        column = heads.index("数据类型")
        for row in rows[1:]:
            listed = _dtypes(row[column]) if len(row) > column else []
            if (listed and not set(listed) <= {"INT64", "INT32", "BOOL", "UINT64"}) or "Tensor" in "".join(row[:1]):
                found.setdefault(_parameter(row[0]), listed)
    return {name: listed for name, listed in found.items() if listed}


def without(text: str, listed: set[str]) -> dict[str, list[str]]:
    """Return the dtypes that are listed and that notes take back for a family."""
    found: dict[str, set[str]] = {}
    of: list[str] = []
    body = text[text.find("GetWorkspaceSize\n") :].split("返回值", maxsplit=1)[0]
    for line in body.splitlines():
        if terms := _TERM.findall(line):
            of = [PRODUCTS[term] for term in terms if term in PRODUCTS]
        elif line.startswith("<!-- end") or "<!-- end" in line or not line.strip():
            of = []
        if not of:
            continue
        if said := _WITHOUT.fullmatch(_TERM.sub("", line)):
            for family in of:
                found.setdefault(family, set()).update(listed.intersection(_dtypes(said[1])))
    return {family: sorted(lost) for family, lost in sorted(found.items()) if lost}


def _plain(cell: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", cell)).strip()


def _parameter(cell: str) -> str:
    return re.split(r"[\s（(]", cell)[0]


def _dtypes(text: str) -> list[str]:
    return [word for word in re.findall(r"[A-Z][A-Z0-9_]*", text) if word in DTYPES]


def used_by(path: Path) -> dict[str, list[str]]:
    """Return which operators of torch call a function, by its name without ``aclnn``."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {
        row["name"].removeprefix("aclnn"): sorted({name for name in re.split(r"[,; ]+", row["used_by"]) if name})
        for row in rows
    }


def main() -> None:
    """Read the pages and write the data."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkouts", nargs="+", metavar="NAME=CHECKOUT")
    parser.add_argument("--used-by", required=True, type=Path)
    parser.add_argument("--output", type=Path, default=TARGET)
    given = parser.parse_args()
    callers = used_by(given.used_by)
    operators, sources = {}, []
    for each in given.checkouts:
        name, _, path = each.partition("=")
        checkout = Path(path)
        commit, day = git(checkout, "log", "-1", "--format=%H %cs").split()
        sources.append(f"CANN's {name}, the operators' documentation, {day}, commit {commit[:12]}")
        for function, text in pages(checkout):
            if not (on := products(text)):
                continue
            tensors = parameters(text)
            lost = without(text, {each for listed in tensors.values() for each in listed})
            operators[function] = {
                "not_on": sorted(family for family, is_there in on.items() if not is_there),
                "on": sorted(family for family, is_there in on.items() if is_there),
                **({"dtypes": tensors} if tensors else {}),
                **({"without": lost} if lost else {}),
                **({"used_by": callers[function]} if callers.get(function) else {}),
            }
    lines = (f"  {json.dumps(name)}: {json.dumps(operators[name], ensure_ascii=True)}" for name in sorted(operators))
    head = json.dumps({"schema": 1, "sources": sources})[:-1]
    given.output.write_text(f'{head}, "operators": {{\n' + ",\n".join(lines) + "\n}}\n", encoding="utf-8")
    sys.stdout.write(f"{len(operators)} operators, {given.output.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
