"""torch_npu's own operators that the suite fused calls, counted by the dispatcher: those that serving needs, and all.

Each operator of the suite is called once, and its backward, on the emulated chip (PYTEST_ASCEND_EMULATED_CHIP).
"""

from __future__ import annotations

from typing import Any

import click
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from pytest_ascend.operators import InputFactory
from suites.fused import OPERATORS

#: What carries the serving of language models, by the number of calls in vLLM Ascend (August 2026).
SERVING = frozenset((
    *("npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2", "npu_quant_matmul", "npu_format_cast"),
    *("npu_dynamic_quant", "npu_grouped_matmul", "npu_grouped_matmul_swiglu_quant", "npu_dynamic_mx_quant"),
    *("npu_moe_init_routing", "npu_moe_init_routing_v2", "npu_moe_re_routing", "npu_moe_gating_top_k"),
    *("npu_moe_gating_top_k_softmax", "npu_scatter_pa_kv_cache", "npu_gather_pa_kv_cache", "_npu_reshape_and_cache"),
    *("_npu_paged_attention", "_npu_flash_attention", "npu_mrope", "npu_interleave_rope"),
    *("npu_kv_rmsnorm_rope_cache", "npu_mla_prolog", "npu_mla_prolog_v2", "npu_mla_prolog_v3"),
    *("npu_transpose_batchmatmul", "npu_transpose_quant_batchmatmul", "npu_convert_weight_to_int4pack"),
    *("npu_weight_quant_batchmatmul", "npu_lightning_indexer", "npu_quant_lightning_indexer"),
    *("npu_sparse_flash_attention", "npu_kv_quant_sparse_flash_attention", "npu_chunk_gated_delta_rule"),
    *("npu_recurrent_gated_delta_rule", "npu_fused_causal_conv1d", "npu_attention_update", "npu_add_rms_norm_quant"),
    *("npu_add_rms_norm_dynamic_quant", "npu_add_rms_norm_dynamic_mx_quant", "npu_dequant_swiglu_quant"),
    *("npu_dynamic_block_quant", "npu_kronecker_quant"),
))  # fmt: skip


class _Called(TorchDispatchMode):
    """Notes the operators of torch_npu that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.namespace in ("npu", "atb"):
            self.names.add(func.name().partition("::")[2])
        return made


def called() -> set[str]:
    """Call each operator once, and return the names of those that arrive at the dispatcher."""
    with _Called() as mode:
        for operator in OPERATORS:
            dtype = getattr(torch, operator.dtypes[0])
            sample = next(iter(operator.inputs(InputFactory(operator.name, dtype))))
            args, kwargs = tree_map(
                lambda x: x.detach().npu().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x,
                (sample.args, sample.kwargs),
            )
            try:
                made = operator.function(*args, **kwargs)
                if operator.grad:
                    first = made if isinstance(made, torch.Tensor) else made[0]
                    first.float().sum().backward()
            except (NotImplementedError, RuntimeError) as error:
                click.echo(f"{operator.name}: {str(error).splitlines()[0][:120]}")
    return mode.names


@click.command(help=__doc__)
def main() -> None:
    """Call, and print both numbers."""
    names = called()
    click.echo(f"{len(names)} operators of torch_npu, {len(names & SERVING)} of {len(SERVING)} that serving needs")
    click.echo(f"of those not: {' '.join(sorted(SERVING - names)) or 'none'}")
