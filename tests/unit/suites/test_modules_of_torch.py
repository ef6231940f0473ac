"""suites/programs/modules.json: what PyTorch's own tests give each module of torch.nn, without their numbers.

python -m tests.unit.suites.test_modules_of_torch writes it anew. Tensors of floating point are told by their shape and
the range of their numbers, others by their elements. Left out are what draws random numbers, and what torch_npu does
not compute.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from pytest_ascend.system.bundled import folder
from pytest_ascend.system.files import write_file
from tools.ops.database import opinfo

PATH = folder("suites") / "programs" / "modules.json"
#: Inputs of a module that are kept, evenly chosen from all.
AT_MOST = 20
#: Computed on the CPU by torch_npu; there in the newest torch only, with hundreds of inputs; and without a size yet.
LEFT_OUT = ("HuberLoss", "MultiMarginLoss", "MultiLabelMarginLoss", "Fractional", "LinearCrossEntropyLoss", "Lazy")


def told(given: Any) -> Any:
    """Return what is written of an argument. Raises TypeError or ValueError for one that JSON does not have."""
    if isinstance(given, (list, tuple)):
        return [told(each) for each in given]
    if isinstance(given, dict):
        return {key: told(each) for key, each in given.items() if each is not None}
    if not isinstance(given, torch.Tensor):
        return json.loads(json.dumps(given, allow_nan=False))
    if not given.is_floating_point():
        return {"elements": given.tolist()}
    if given.isinf().any():
        raise ValueError("infinities in a mask")
    kinds = {"signs": given.abs() == 1, "shares": (given >= 0) & (given <= 1), "low": given <= 0, "high": given > 0}
    return {"shape": list(given.shape), "numbers": next((kind for kind, held in kinds.items() if held.all()), "any")}


def inputs_of(info: Any) -> list[Any]:
    """Return whether each trains, what makes the module, and what it is given: arguments by place, then by name."""
    found = []
    for training in (True, False) if info.train_and_eval_differ else (True,):
        torch.manual_seed(0)
        how = {"dtype": torch.float32, "requires_grad": False, "training": training}
        for each in info.module_inputs_func(info, device="cpu", **how):
            made, given = each.constructor_input, each.forward_input
            try:
                row = [training, *(told(x) for x in (made.args, made.kwargs, given.args, given.kwargs))]
            except (TypeError, ValueError):
                continue
            # torch_npu's LSTM has no projections, and its indices of maxima another form.
            if row not in found and not made.kwargs.get("proj_size") and not made.kwargs.get("return_indices"):
                found.append(row)
    return [found[len(found) * i // AT_MOST] for i in range(AT_MOST)] if len(found) > AT_MOST else found


def of_torch() -> dict[str, list[Any]]:
    """Return the inputs of each module."""
    known = {info.name.removeprefix("nn."): info for info in opinfo("common_modules").module_db}
    made = {name: inputs_of(info) for name, info in sorted(known.items()) if not name.startswith(LEFT_OUT)}
    return {name: rows for name, rows in made.items() if rows}


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="inputs are those of torch 2.13")
def test_the_file_has_the_settings_that_pytorch_asks_its_modules_in() -> None:
    assert json.loads(PATH.read_text(encoding="utf-8")) == of_torch()


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in of_torch().items())
    write_file(PATH, f"{{\n{lines}\n}}\n")
