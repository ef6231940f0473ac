"""Write which operators, dtypes and ranks CANN accepts on which chips, from the sources of its operators.

    export TORCH_DEVICE_BACKEND_AUTOLOAD=0  # only torch determines how dtypes are promoted
    python tools/chip_operators.py ops-math=CHECKOUT ops-nn=... ops-cv=... ops-transformer=... --used-by aclnn.tsv

Each CHECKOUT is a git repository of CANN's operators, read at its HEAD. The checks of host code take precedence
(``cann_sources.py``), then come definitions of kernels with generated host code, then the pages of the
documentation: a section on products, a table of parameters with their dtypes, and notes that exclude dtypes for a
product. Where a page contradicts the source, the data has both. Nothing is guessed.
``--used-by`` is a table with the columns name and used_by: which torch operators call which function of CANN. Needs
the extra ``dev``.
"""

from __future__ import annotations

import argparse
import csv
import html
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cann_sources import CHIPS, Function, Interpreter, Sources, Tensor, texts

from pytest_ascend.environment.chips import DTYPES as PROBED
from pytest_ascend.environment.chips import MOST_DIMENSIONS
from tools.evaluation.support import git

TARGET = Path(__file__).resolve().parent.parent / "pytest_ascend" / "environment" / "chip_operators.json"

#: ``products``: names on pages, and the families of chips.environment they include; ``alike``: dtypes that host code
#: treats alike unless it names them; ``spelled``: other spellings; ``corrected``: a page's entry for a parameter
#: that host code, not fully understood, contradicts; ``not_followed``: functions whose host code checks inputs that
#: are members of a struct or promoted with a scalar, so the pages' entries for inputs also count.
DATA: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
PRODUCTS: dict[str, str] = DATA["products"]
#: Paths of documentation pages, host code, and kernel definitions.
_READ = r"/docs/aclnn[^/]*\.md$|/op_api/[^/]*\.(cpp|h)$|^(\w+/)?common/.*op_api/.*\.(cpp|h)$|op_host/\w*_def\.cpp$"
#: A note without conditions: "not supported: BFLOAT16, COMPLEX64". Others ("when the input is ...") are left alone.
_WITHOUT = re.compile(
    r"[\s\-*、：:]*(?:(?:\w+的)?数据类型)?不支持((?:[A-Z][A-Z0-9_]*[、，]?)+)(?:数据类型|类型)?[。；;\s]*"
)
_TERM = re.compile(r"<term>(.*?)</term>")
_ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<t[dh][^>]*>(.*?)</t[dh]>", re.DOTALL)


def products(text: str) -> dict[str, bool]:
    """Return whether each family named in the section on products is supported."""
    section = re.search(r"## 产品支持情况(.*?)\n## ", text, re.DOTALL)
    found = {}
    for line in section[1].splitlines() if section else ():
        for name, family in PRODUCTS.items():
            if re.search(rf"<term>{re.escape(name)}</term>|\|\s*{re.escape(name)}\s*\|", line):
                found[family] = bool(re.search("支持|√", line)) and not re.search("不支持|×", line)
    return found


def parameters(text: str) -> dict[str, list[str]]:
    """Return the dtypes of each tensor parameter of the first phase, as listed in its table."""
    found: dict[str, list[str]] = {}
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        rows = [
            [html.unescape(re.sub(r"<[^>]+>", " ", cell)).strip() for cell in _CELL.findall(row)]
            for row in _ROW.findall(table)
        ]
        heads = rows[0] if rows else []
        if "数据类型" not in heads or not heads[0].startswith("参数名"):
            continue
        column = heads.index("数据类型")
        for row in rows[1:]:
            listed = _dtypes(row[column]) if len(row) > column else []
            if (listed and not set(listed) <= {"INT64", "INT32", "BOOL", "UINT64"}) or "Tensor" in "".join(row[:1]):
                found.setdefault(re.split(r"[\s（(]", row[0])[0], listed)
    return {name: listed for name, listed in found.items() if listed}


def without(text: str, listed: set[str]) -> dict[str, list[str]]:
    """Return the listed dtypes that notes exclude for a family."""
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


def _dtypes(text: str) -> list[str]:
    words = (DATA["spelled"].get(word, word) for word in re.findall(r"[A-Z][A-Z0-9_]*", text))
    return [word for word in dict.fromkeys(words) if word in DATA["dtypes"]]


Lists = dict[str, list[str]]


def of_host(interpreter: Interpreter, function: Function) -> dict[str, Any]:
    """Return the dtypes that host code accepts by parameter, those it refuses for several at once, and ranks.

    Empty if the code is not understood: if it seems to refuse a call with unknown tensors, or accepts everything.
    """
    tensors = [name for name, kind in function.parameters.items() if "aclTensor" in kind and name.isidentifier()]
    inputs = [name for name in tensors if "const" in function.parameters[name] or name.endswith("Ref")]
    if interpreter.refuses(function, {}):
        return {}

    told_apart = interpreter.sources.mentions[function.file]

    def taken(names: Sequence[str]) -> list[str]:
        known: dict[str, str] = {}
        for each in PROBED:
            alike = each if f"DT_{each}" in told_apart else DATA["alike"].get(each, each)
            if alike not in known:
                given = dict.fromkeys(names, Tensor(dtype=f"DT_{each}"))
                known[alike] = interpreter.refuses(function, given, kernels=list(names) == inputs)
            known[each] = known[alike]
        return [each for each in PROBED if not known[each]]

    alone = {name: taken([name]) for name in tensors}
    takes = {name: listed for name, listed in alone.items() if 0 < len(listed) < len(PROBED)}
    found: dict[str, Any] = {"takes": takes} if takes else {}
    if len(inputs) == 2 and not any("ind" in name for name in inputs):  # two that are promoted
        together = set(taken(inputs))
        each_takes = set(PROBED).intersection(*(takes.get(name, PROBED) for name in inputs))
        if together and (lost := [each for each in PROBED if each in each_takes - together]):
            found["together"] = {" ".join(inputs): lost}
    within, beyond = (
        [name for name in tensors if interpreter.refuses(function, {name: Tensor(rank=rank)})]
        for rank in (MOST_DIMENSIONS, MOST_DIMENSIONS + 1)
    )
    if ranks := [name for name in beyond if name not in within]:
        found["rank"] = ranks
    return found


def differences(source: Lists, page: Lists) -> Lists:
    """Return the dtypes that a page lists in addition to the source (+) or lacks (-), by parameter."""
    both = {name: (page.get(name) or listed, listed) for name, listed in source.items()}
    more = {name: [f"+{each}" for each in said if each not in listed] for name, (said, listed) in both.items()}
    less = {name: [f"-{each}" for each in listed if each not in said] for name, (said, listed) in both.items()}
    return {name: more[name] + less[name] for name in both if more[name] or less[name]}


#: Chips treated like others unless the file of a function has a word that distinguishes them.
_LIKE = {"A3": "A2", "310B": "310P", "910": "310P"}


def of_chips(
    sources: Sources, interpreters: Mapping[str, Interpreter], operator: str
) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return the parameters of an operator and the checks of its host code, by chip."""
    functions = sources.functions.get(f"aclnn{operator}GetWorkspaceSize", [])
    if not functions:
        return [], {}
    function = functions[0]
    mentioned = sources.mentions[function.file]
    tells = any(re.search("DAV_|ASCEND|IsRegBase|Arch|Soc", each) for each in mentioned)
    found: dict[str, dict[str, Any]] = {}
    for chip in sorted(CHIPS, key=_LIKE.__contains__):
        (arch, soc, _), like = CHIPS[chip], _LIKE.get(chip, chip) if tells else "A2"
        is_apart = chip == like or (tells and (soc in mentioned or arch in mentioned - {CHIPS[like][0]}))
        found[chip] = of_host(interpreters[chip], function) if is_apart else found[like]
    names = [name for name in function.parameters if name not in ("workspaceSize", "executor")]
    return names, {chip: found[chip] for chip in CHIPS}


def merged(by_chip: Mapping[str, Any]) -> dict[str, Any]:
    """Return values keyed by the names of all chips that share them."""
    found: dict[str, Any] = {}
    for value in {json.dumps(each): each for each in by_chip.values()}.values():
        if value:
            found[" ".join(chip for chip, each in by_chip.items() if each == value)] = value
    return found


def row(operator: str, page: str, sources: Sources, host: tuple[list[str], dict[str, Any]]) -> dict[str, Any]:
    """Return the entry of an operator."""
    functions = sources.functions.get(f"aclnn{operator}GetWorkspaceSize", [])
    scalars = {"cubeMathType", "alpha", "beta", "dtype", "value"}.union(
        name for each in functions for name, kind in each.parameters.items() if "aclTensor" not in kind
    )
    on, tensors = products(page), {**parameters(page), **DATA["corrected"].get(operator, {})}
    lost = without(page, {each for listed in tensors.values() for each in listed})
    tensors = {name: listed for name, listed in tensors.items() if name not in scalars}
    names, checked = host
    takes, differs, by = {}, {}, {}
    for chip in CHIPS:
        documented, own = {}, checked.get(chip, {})
        for name, listed in tensors.items() if on.get(chip) else ():
            if left := [each for each in PROBED if each in listed and each not in lost.get(chip, ())]:
                documented[name] = left
        defined = sources.kernels.get(operator, {}).get(CHIPS[chip][2], {}).items()
        made = {name: [each for each in PROBED if f"DT_{each}" in listed] for name, listed in defined if listed}
        mine = own.get("takes", {}) if names else made  # without host code, the definition is used
        is_understood = bool(mine or own.get("together"))
        takes[chip] = mine if is_understood else documented
        if operator in DATA["not_followed"]:
            takes[chip] = {**documented, **mine}
        differs[chip] = differences(mine, documented)
        if takes[chip] or is_understood:
            by[chip] = "page" if not is_understood else "host" if names else "definition"
    found: dict[str, Any] = {
        "not_on": sorted(family for family, is_there in on.items() if not is_there),
        "on": sorted(family for family, is_there in on.items() if is_there),
        "parameters": names or (sources.orders.get(operator, []) if "definition" in by.values() else []),
        "takes": merged(takes),
        "together": merged({chip: each.get("together", {}) for chip, each in checked.items()}),
        "rank": merged({chip: each.get("rank", []) for chip, each in checked.items()}),
        "by": merged(by),
        "page_differs": merged(differs),
        "multiplies": "cubeMathType" in page.split("GetWorkspaceSize", 1)[-1],
    }
    return {name: value for name, value in found.items() if value or (name in ("on", "not_on") and page)}


def main() -> None:
    """Read the sources and pages and write the data."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("checkouts", nargs="+", metavar="NAME=CHECKOUT")
    parser.add_argument("--used-by", required=True, type=Path)
    parser.add_argument("--output", type=Path, default=TARGET)
    given = parser.parse_args()
    with given.used_by.open(newline="", encoding="utf-8") as file:
        pairs = [(each["name"], each["used_by"]) for each in csv.DictReader(file, delimiter="\t")]
    callers = {name.removeprefix("aclnn"): sorted({*re.split(r"[,; ]+", by)} - {""}) for name, by in pairs}
    checkouts = {each.partition("=")[0]: Path(each.partition("=")[2]) for each in given.checkouts}
    said, origins, read = {}, [], Sources()
    for repository, checkout in checkouts.items():
        commit, day = git(checkout, "log", "-1", "--format=%H %cs").decode().split()
        origins.append(f"CANN's {repository}, host code, definitions and documentation, {day}, commit {commit[:12]}")
        for path, text in texts(checkout, _READ, "*.md", "*.cpp", "*.h"):
            if path.endswith(".md"):
                names = (name.strip().removeprefix("aclnn") for name in Path(path).stem.split("&"))
                said.update(dict.fromkeys(names, text))
            elif path.endswith("_def.cpp"):
                read.define(text)
            else:
                read.read(f"{repository}/{path}", text)
    interpreters, operators = {chip: Interpreter(read, chip) for chip in CHIPS}, {}
    for name in sorted({*said, *callers}):
        host = of_chips(read, interpreters, name) if callers.get(name) else ([], {})
        made = row(name, said.get(name, ""), read, host)
        made = {**made, **({"used_by": callers[name]} if callers.get(name) else {})}
        if set(made) - {"used_by", "parameters"}:
            operators[name] = made
    lines = (f"  {json.dumps(name)}: {json.dumps(operators[name], ensure_ascii=True)}" for name in sorted(operators))
    head = json.dumps({"schema": 2, "sources": origins})[:-1]
    given.output.write_text(f'{head}, "operators": {{\n' + ",\n".join(lines) + "\n}}\n", encoding="utf-8")
    sys.stdout.write(f"{len(operators)} operators, {given.output.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
