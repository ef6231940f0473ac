"""Write the operators that community cases and dumps may name: ``pytest_ascend/run/allowed.txt``.

Its sources are torch's database of operators (OpInfo; the extra ``corpus``), the operators that torch
tags as core, backward operators, and torch_npu's public ones. By their schemas, operators take and return tensors and
plain values; those that open, save, share or set a tensor's memory or state are excluded by name. Run this on the
emulated device: ``pytest-ascend emulate -- python tools/operator_names.py``.
"""

from __future__ import annotations

import functools
import operator
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch_npu
from torch.overrides import get_overridable_functions
from torch.testing._internal import common_methods_invocations as operators

ROOT = Path(__file__).parents[1]
LIST = ROOT / "pytest_ascend" / "run" / "allowed.txt"
#: Argument types in a schema: tensors and plain values, in lists, or optional; a generator must be optional.
PLAIN = re.compile(r"(Optional\[|List\[)*(Tensor|int|float|bool|number|complex|str|Device)\]*|Optional\[Generator\]")
#: Changes of memory or state, uninitialised results, waiting for other processes, and names of files or groups.
STATE = re.compile(
    r"_?(empty|new_empty|from_file|set|resize|pin_memory|record_stream|requires_grad|retain_grad|rename|share_memory)"
    r"(_.*)?|__(dlpack.*|reduce.*|setstate|deepcopy|array.*)__|numpy|data_ptr|.*with_distance_loss|item|tolist|map_|map2_|apply_|backward"
    r"|.*(distribute|hcom|all_gather|all_reduce|all_to_all|alltoall|reduce_scatter|format_cast|change_data|prefetch|npugraph|cudnn|miopen|mkldnn|mps|cuda).*"
)
#: Operators with an in-place variant, and Python 2's division, which torch still has.
ARITHMETIC = {each[1:] for each in operator.__all__ if each[0] == "i" and hasattr(operator, f"__{each[1:]}__")}
ARITHMETIC = ARITHMETIC - {"concat"} | {"div"}
DUNDER = {f"__{side}{name}__" for name in ARITHMETIC for side in ("", "r", "i")} | {
    f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge", "invert", "neg", "pos", "abs", "getitem")
}

#: Functions that the database covers only through the modules that call them.
MORE = {
    *("hardsigmoid", "hardswish", "fold", "one_hot", "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_unpool1d", "zero"),
    *("fill_diagonal", "copy", "range", "_pdist_forward", "affine_grid", "affine_grid_generator", "upsample"),
    *("adaptive_max_pool1d_with_indices", "clamp_min", "clamp_max"),
}


def main() -> None:
    """Write the list."""
    names = sorted({*_public(), *_aten(), *_npu()})
    LIST.write_text("\n".join(names) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(names)} names in {LIST.relative_to(ROOT)}\n")


@functools.cache
def _known() -> frozenset[str]:
    names = {each.name for each in operators.op_db} | {alias.name for each in operators.op_db for alias in each.aliases}
    plain = {name.removeprefix("nn.functional.").removeprefix("ops.aten.").removesuffix(".default") for name in names}
    last = {name.rpartition(".")[2] for name in plain}
    return frozenset(last | {name.replace(".", "_") for name in plain} | MORE)


def _takes(name: str) -> bool:
    known = name in DUNDER or name.removesuffix("_") in _known() or name.startswith("_foreach_")
    return known and not STATE.fullmatch(name)


def _public() -> Iterator[str]:
    """Yield functions and methods by every public name."""
    taking = {id(each) for group in get_overridable_functions().values() for each in group}
    for place in ("torch", "torch.Tensor", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft"):
        held: Any = torch
        for part in place.split(".")[1:]:
            held = getattr(held, part)
        for name in dir(held):
            function = getattr(held, name)
            factory = place == "torch.nn.functional" or isinstance(function, type(torch.zeros))
            if _takes(name) and callable(function) and (id(function) in taking or factory or name in DUNDER):
                yield f"{place}.{name}"


def _aten() -> Iterator[str]:
    for name, packet in _packets("aten"):
        core = any(torch.Tag.core in getattr(packet, each).tags for each in packet.overloads())
        if (_takes(name) or core or name.endswith("_backward")) and not STATE.fullmatch(name):
            yield f"torch.ops.aten.{name}"


def _npu() -> Iterator[str]:
    for name, _ in _packets("npu"):
        if name.startswith("npu_") and not STATE.fullmatch(name) and hasattr(torch_npu, name):
            yield f"torch_npu.{name}"


def _packets(space: str) -> Iterator[tuple[str, Any]]:
    """Yield the operators of a namespace with a schema of plain values that return tensors."""
    schemas: dict[str, list[Any]] = {}
    for each in torch._C._jit_get_all_schemas():  # noqa: SLF001
        if each.name.startswith(f"{space}::"):
            schemas.setdefault(each.name.partition("::")[2], []).append(each)
    for name, found in schemas.items():
        packet = getattr(getattr(torch.ops, space), name, None)
        named = set(packet.overloads()) if packet is not None else set()
        ours = [each for each in found if (each.overload_name or "default") in named]
        plain = (each for each in ours if all(PLAIN.fullmatch(str(of.type)) for of in each.arguments))
        if any("Tensor" in str(of.type) for each in plain for of in each.returns):
            yield name, packet


if __name__ == "__main__":
    main()
