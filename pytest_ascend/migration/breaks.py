"""Where ``torch.compile`` ends one graph of a model and begins another: each piece is captured on its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from pytest_ascend.migration.running import as_meta, obstacle, quiet
from pytest_ascend.migration.target import TargetModel

_VALUE = "decides by a tensor's value: compute both and choose by torch.where, or decide outside of the graph"
#: How torch's reason begins -> what to do, where torch's own hint is missing or is no help on an NPU.
_REMEDIES = {
    "generic_jump": _VALUE,
    "Data-dependent": _VALUE,
    "Unsupported Tensor.item": "reads a value on the host: keep it on the device, or read it outside of the graph",
    "Failed to trace builtin operator": "calls what torch.compile cannot trace: move it out of the model's forward",
}


def graph_breaks(target: TargetModel, *, reads_values: bool) -> tuple[str, ...]:
    """Return the breaks of a model's forward, with line, torch's reason and what to do.

    Nothing is computed, unless the model reads values: it then runs once on the CPU.
    """
    found: list[str] = []

    def backend(module: torch.fx.GraphModule, _: Any) -> Any:
        reason = getattr(module, "compile_subgraph_reason", None)
        if reason is not None and reason.graph_break:
            own = [each for each in reason.user_stack if "site-packages" not in each.filename] or reason.user_stack
            where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "an unknown line"
            text = reason.reason.strip()
            hint = re.search(r"Hint: (.+)", text)
            otherwise = hint[1] if hint else "move it out of the model's forward"
            remedy = next((remedy for begin, remedy in _REMEDIES.items() if text.startswith(begin)), otherwise)
            found.append(f"{where} breaks the graph ({text.splitlines()[0]}): {remedy}")
        return module.forward

    model, args, kwargs = target.model, target.args, dict(target.kwargs)
    if not reads_values:
        model, (args, kwargs) = as_meta(model), target.mapped(as_meta)
    with quiet(), torch.no_grad():
        torch._dynamo.reset()  # noqa: SLF001 - its only name
        try:
            compiled: Any = torch.compile(model, backend=backend, dynamic=False)
            compiled(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - dynamo raises anything; the breaks until then are known
            found.append(f"torch.compile ends here: {obstacle(error)}")
    return tuple(dict.fromkeys(found))
