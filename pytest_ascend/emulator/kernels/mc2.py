"""Fused products and collectives (MC2): the product in float32, rounded, then HCCL's collective."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

import torch

from pytest_ascend.emulator.kernels.linear import over_rows, scaled_product
from pytest_ascend.emulator.kernels.normalization import rounded_rms_norm
from pytest_ascend.emulator.kernels.quantization import by_row, to_int8
from pytest_ascend.emulator.registry import L, T, gap
from pytest_ascend.emulator.system import library

#: torch's dtype -> HcclDataType.
_CODES = {
    torch.int8: 0, torch.int16: 1, torch.int32: 2, torch.float16: 3, torch.float32: 4, torch.int64: 5, torch.uint8: 7,
    torch.bfloat16: 11,
}  # fmt: skip
_BYTES, _SUM = 7, 0


@functools.cache
def _stream(_: int) -> ctypes.c_void_p:
    """Return a stream of this process for collectives: an operator of a captured graph may run in another thread."""
    made = ctypes.c_void_p()
    library("libascendcl.so").aclrtCreateStream(ctypes.byref(made))
    return made


class Group:
    """The ranks of a communicator, by torch_npu's name. Every call waits for the collective, and raises its error."""

    def __init__(self, name: str) -> None:
        self._comm, ranks = ctypes.c_void_p(), ctypes.c_uint32()
        if library("libhccl.so").HcomGetCommHandleByGroup(name.encode(), ctypes.byref(self._comm)):
            raise RuntimeError(f"there is no communicator {name!r} in this process")
        library("libhccl.so").HcclGetRankSize(self._comm, ctypes.byref(ranks))
        self.ranks = ranks.value

    def _call(self, function: str, *arguments: Any) -> None:
        stream, late = _stream(os.getpid()), ctypes.c_int()
        code = getattr(library("libhccl.so"), function)(*arguments, self._comm, stream)
        library("libascendcl.so").emu_stream_drain(stream)
        library("libhccl.so").HcclGetCommAsyncError(self._comm, ctypes.byref(late))
        if code or late.value:
            raise RuntimeError(f"{function} failed with HCCL's code {code or late.value}")

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._call("HcclBarrier")

    def _collected(self, function: str, x: T, rows: int, *operation: int) -> T:
        """Call a collective, whose count is that of the smaller of its two tensors, and return this many rows."""
        x = x.contiguous()
        out = x.new_empty(rows, *x.shape[1:])
        count = ctypes.c_uint64(min(x.numel(), out.numel()))
        self._call(function, _at(x), _at(out), count, _CODES[x.dtype], *operation)
        return out

    def all_reduce(self, x: T) -> T:
        """Return the sum of all ranks' tensors."""
        return self._collected("HcclAllReduce", x, len(x), _SUM)

    def reduce_scatter(self, x: T) -> T:
        """Return this rank's share of the rows of the sum."""
        return self._collected("HcclReduceScatter", x, len(x) // self.ranks, _SUM)

    def all_gather(self, x: T) -> T:
        """Return the rows of all ranks."""
        return self._collected("HcclAllGather", x, len(x) * self.ranks)

    def exchange(self, x: T, send: L, receive: L) -> T:
        """Send each rank its number of rows, in order of ranks, and return the rows received."""
        x, row = x.contiguous(), x.shape[1:].numel() * x.itemsize
        out = x.new_empty(sum(receive), *x.shape[1:])
        there, back = _counted(send, row), _counted(receive, row)
        self._call("HcclAlltoAllV", _at(x), *there, _BYTES, _at(out), *back, _BYTES)
        return out

    def rows_to_columns(self, x: T) -> T:
        """Send each rank its part of the rows, and return the received parts side by side."""
        rows = [len(x) // self.ranks] * self.ranks
        return torch.cat(self.exchange(x, rows, rows).chunk(self.ranks), 1)

    def columns_to_rows(self, x: T) -> T:
        """Send each rank its part of the columns, and return the received parts stacked by rows."""
        rows = [len(x)] * self.ranks
        return self.exchange(torch.cat(x.chunk(self.ranks, 1)), rows, rows)

    def to_experts(self, x: T, send: L, receive: L) -> T:
        """Send rows to the experts' ranks, and return those received, in the order of this rank's experts.

        Counts are the rows sent or received by rank and by expert of a rank.
        """
        received = self.exchange(x, self._by_rank(send), self._by_rank(receive))
        return received[self._by_expert(receive)]

    def from_experts(self, x: T, send: L, receive: L) -> T:
        """Send rows in the order of experts back to the tokens' ranks, and return those received, by rank."""
        return self.exchange(x[self._by_expert(send).argsort()], self._by_rank(send), self._by_rank(receive))

    def _by_rank(self, counts: L) -> L:
        return [int(each) for each in torch.tensor(counts).view(self.ranks, -1).sum(1)]

    def _by_expert(self, counts: L) -> T:
        """Return the positions of rows, which are in the order of ranks, in the order of experts."""
        expert = torch.arange(len(counts) // self.ranks).repeat(self.ranks)
        return expert.repeat_interleave(torch.tensor(counts)).argsort(stable=True)


def _at(x: T) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.data_ptr())


def _counted(rows: L, row: int) -> tuple[Any, Any]:
    """Return counts and offsets, in bytes, as HCCL takes them."""
    words = ctypes.c_uint64 * len(rows)
    return words(*(row * each for each in rows)), words(*(row * sum(rows[:each]) for each in range(len(rows))))


def _product(x1: T, x2: T, bias: T | None = None, *, turned: bool = False) -> T:
    made = x1.float() @ (x2.float().mT if turned else x2.float())
    return (made if bias is None else made + bias.float()).to(x1.dtype)


def matmul_all_reduce(x1: T, x2: T, bias: T | None, group: str, x3: T | None = None) -> T:
    made = _product(x1, x2, bias)
    return Group(group).all_reduce(made if x3 is None else made + x3)


def matmul_reduce_scatter(x1: T, x2: T, bias: T | None, group: str) -> T:
    return Group(group).reduce_scatter(_product(x1, x2, bias))


def all_gather_matmul(x1: T, x2: T, bias: T | None, group: str, gathered: int) -> tuple[T, T | None]:
    gap(gathered, "only x1 can be gathered")
    whole = Group(group).all_gather(x1)
    return _product(whole, x2, bias), whole


#: How x1 is scaled, by CANN's numbers: per row, with given scales, or with scales computed from the rows.
_BY_ROW, _FOUND = 3, 7
#: How x2 is scaled: per column.
_BY_COLUMN = 2
#: ACL's dtype -> torch's, for the dtypes that rows can be quantized to: int8, and float8 if torch has it.
_QUANTIZED = {2: torch.int8, 35: torch.float8_e5m2, 36: torch.float8_e4m3fn}


def _known(mode1: int, mode2: int, group_size: int, *modes: int) -> None:
    is_known = mode1 in modes and mode2 == _BY_COLUMN and not group_size
    gap(not is_known, f"quantization of x1 by mode {mode1}, of x2 by mode {mode2}: not implemented")


def all_to_all_matmul(
    x1: T, x2: T, bias: T | None, axes: L | None, group: str, turned2: bool, scale1: T | None = None,
    scale2: T | None = None, mode1: int = _BY_ROW, mode2: int = _BY_COLUMN, to: int = 0, group_size: int = 0,
) -> tuple[T, T]:  # fmt: skip
    """Send each rank its part of the rows, put the received parts side by side, and multiply; optionally quantized."""
    del axes  # only one value is possible
    _known(mode1, mode2, group_size, _BY_ROW, _FOUND)
    received = Group(group).rows_to_columns(x1)
    if scale2 is None:
        return _product(received, x2, bias, turned=turned2), received
    a, scale = (received, scale1) if mode1 == _BY_ROW else by_row(received, _QUANTIZED[to])
    return scaled_product(a, x2.T if turned2 else x2, scale, scale2, bias), received


def matmul_all_to_all(
    x1: T, x2: T, bias: T | None, axes: L | None, group: str, turned2: bool, scale1: T | None = None,
    scale2: T | None = None, mode1: int = _BY_ROW, mode2: int = _BY_COLUMN, group_size: int = 0,
) -> T:  # fmt: skip
    """Multiply, send each rank its part of the columns, and stack the received parts by rows."""
    del axes  # only one value is possible
    _known(mode1, mode2, group_size, _BY_ROW)
    if scale2 is None:
        return Group(group).columns_to_rows(_product(x1, x2, bias, turned=turned2))
    return Group(group).columns_to_rows(scaled_product(x1, x2.T if turned2 else x2, scale1, scale2, bias))


# --- products by expert ---


def _of_experts(x: T, weight: T, counts: L, ranks: int, *, turned: bool) -> T:
    experts = len(counts) // ranks
    rows = [sum(counts[expert::experts]) for expert in range(experts)]
    return torch.cat([_product(a, b, turned=turned) for a, b in zip(torch.split(x, rows), weight, strict=True)])


def _beside(x: T | None, weight: T | None, *, turned: bool) -> T | None:
    """Return the product of the shared expert, computed on the tokens' rank."""
    return None if x is None or weight is None else _product(x, weight, turned=turned)


def all_to_all_grouped_matmul(
    rows: T, weight: T, shared: T | None, shared_weight: T | None, group: str, send: L, receive: L,
    turned: bool, shared_turned: bool,
) -> tuple[T, T | None, T]:  # fmt: skip
    us = Group(group)
    ordered = us.to_experts(rows, send, receive)
    made = _of_experts(ordered, weight, receive, us.ranks, turned=turned)
    return made, _beside(shared, shared_weight, turned=shared_turned), ordered


def grouped_matmul_all_to_all(
    rows: T, weight: T, shared: T | None, shared_weight: T | None, group: str, send: L, receive: L,
    turned: bool, shared_turned: bool,
) -> tuple[T, T | None]:  # fmt: skip
    us = Group(group)
    made = _of_experts(rows, weight, send, us.ranks, turned=turned)
    return us.from_experts(made, send, receive), _beside(shared, shared_weight, turned=shared_turned)


# --- experts: send every token to the experts chosen for it, and the results back ---


def _order(expert_ids: T, experts: int) -> tuple[T, L]:
    """Return the positions of tokens' copies sorted by expert, and how many go to each expert."""
    flat = expert_ids.flatten().long()
    return flat.argsort(stable=True), torch.bincount(flat, minlength=experts).tolist()


def _only_plain(ranks_tp: int, **given: int) -> None:
    """Raise NotImplementedError for numbers that are not 0."""
    if wrong := ", ".join(name for name, value in given.items() if value):
        raise NotImplementedError(f"{wrong} is not implemented")
    gap(ranks_tp > 1, "tensor parallelism is not implemented")


def dispatch(
    x: T, expert_ids: T, group: str, experts: int, ranks_tp: int, shared_ranks: int, quantized: int, counted: int,
    expert_scales: T | None = None, performance: T | None = None, zero_experts: int = 0, copy_experts: int = 0,
    *, out: tuple[T, ...],
) -> None:  # fmt: skip
    """Copy each token to its experts' ranks: rows by expert, then by rank; and their cumulative counts."""
    del expert_scales, performance  # what a chip sends along for a later phase, and measurements
    odd = {"quantized": quantized, "shared_ranks": shared_ranks}
    _only_plain(ranks_tp, **odd, zero_experts=zero_experts, copy_experts=copy_experts)
    us = Group(group)
    order, send = _order(expert_ids, experts)
    local = [experts // us.ranks] * us.ranks
    receive = us.exchange(torch.tensor(send).view(-1, 1), local, local).flatten().tolist()
    came = us.to_experts(x[order // expert_ids.shape[1]], send, receive)
    rows, _, index, tokens, received, *_ = out
    rows[: len(came)] = came
    by_expert = torch.tensor(receive).view(us.ranks, -1).T
    index.view(-1)[: len(order)] = order.argsort() - torch.tensor([0, *send]).cumsum(0)[expert_ids.flatten().long()]
    tokens.copy_(by_expert.sum(1) if counted else by_expert.sum(1).cumsum(0))
    received.view(-1)[:experts] = by_expert.flatten().cumsum(0)


def combine(
    rows: T, expert_ids: T, index: T, received: T, expert_scales: T, received_tp: T | None, spread_scales: T | None,
    group: str, experts: int, ranks_tp: int, shared_ranks: int, quantized: int, shared: T | None = None,
    *, dtype: torch.dtype | None = None,
) -> T:  # fmt: skip
    """Send the experts' results back to the tokens' ranks, and add them, weighted; ``dtype`` is that of the rows."""
    del index, received_tp, spread_scales  # what dispatch returned about rows follows from the experts
    _only_plain(ranks_tp, shared_ranks=shared_ranks, quantized=quantized)
    us = Group(group)
    order, mine = _order(expert_ids, experts)
    ends = received.view(-1)[:experts].long()
    counts = torch.diff(ends, prepend=ends.new_zeros(1)).view(-1, us.ranks).T.flatten().tolist()
    back = us.from_experts(rows[: sum(counts)], counts, mine)
    copies = back.float()[order.argsort()].view(*expert_ids.shape, -1)
    summed = (copies * expert_scales.float().unsqueeze(-1)).sum(1)
    return (summed if shared is None else summed + shared.float()).to(dtype or rows.dtype)


def combine_add_rms_norm(
    rows: T, expert_ids: T, index: T, received: T, expert_scales: T, residual: T, gamma: T, received_tp: T | None,
    spread_scales: T | None, group: str, experts: int, ranks_tp: int, shared_ranks: int, quantized: int, eps: float,
    shared: T | None = None,
) -> tuple[T, T, T]:  # fmt: skip
    """Combine, add the residual, and normalize the unrounded sum, as the kernel of ops-transformer does."""
    combined = combine(
        rows, expert_ids, index, received, expert_scales, received_tp, spread_scales, group, experts, ranks_tp,
        shared_ranks, quantized, shared, dtype=torch.float32,
    )  # fmt: skip
    total = combined.view_as(residual) + residual.float()
    return (*rounded_rms_norm(total, gamma, eps, residual.dtype), total)


def barrier(x: T, group: str) -> None:  # noqa: ARG001
    Group(group).barrier()


# --- on quantized numbers ---


def quant_matmul_all_reduce(
    x1: T, x2: T, bias: T | None, x3: T | None, scale: T, group: str, token_scale: T | None = None,
    there: T | None = None, back: T | None = None, group_size: int = 0,
) -> T:  # fmt: skip
    """Multiply quantized numbers, scale, round, and sum over ranks, in transit quantized if there are scales for it."""
    gap(group_size, "scales of blocks are not implemented")
    rows = None if token_scale is None else token_scale.view(x1.shape[:-1])
    made = scaled_product(x1, x2, rows, scale, bias)
    made = made.to(torch.bfloat16 if scale.dtype is torch.bfloat16 else torch.float16)
    made = made if x3 is None else made + x3
    if there is None or back is None:
        return Group(group).all_reduce(made)
    # Parts of rows are sent with one scale per column, their sums with another.
    us, rows = Group(group), made.view(-1, made.shape[-1])
    padded = torch.nn.functional.pad(to_int8(rows.float() / there.float()), (0, 0, 0, -len(rows) % us.ranks))
    share = [len(padded) // us.ranks] * us.ranks
    received = us.exchange(padded, share, share).view(us.ranks, share[0], -1)
    summed = us.all_gather(to_int8((received.float() * there.float()).sum(0) / back.float()))
    return (summed[: len(rows)].float() * back.float()).to(made.dtype).view_as(made)


def weight_quant_matmul_all_reduce(
    x1: T, x2: T, bias: T | None, scale: T, offset: T | None, x3: T | None, group: str, group_size: int
) -> T:
    """Multiply by int8 weights; the offset is added before scaling.

    There is one scale per column, one for all columns, or one per ``group_size`` rows of a column.
    """
    shift = 0 if offset is None else over_rows(offset, len(x2), group_size)
    weight = (x2.float() + shift) * over_rows(scale, len(x2), group_size)
    return matmul_all_reduce(x1, weight, bias, group, x3)
