"""Mixture of experts: choosing experts for rows, moving rows to them and back, and sampling from the best."""

from __future__ import annotations

import torch

from pytest_ascend.emulator.kernels.quantization import by_row
from pytest_ascend.emulator.registry import L, Optional, T, gap


def gating_top_k(
    x: T, bias: Optional, k: int, k_group: int, groups: int, select: int, renorm: int, norm: int, keep: bool,
    factor: float, eps: float,
) -> tuple[T, T, Optional]:  # fmt: skip
    """Choose by score and bias; weigh by the score alone. ``norm``: softmax (0) or sigmoid (1), normalized to sum 1."""
    scores = x.float().softmax(-1) if norm == 0 else x.float().sigmoid()
    wanted = scores if bias is None else scores + bias.float()
    if groups > 1:
        by_group = wanted.view(len(wanted), groups, -1)  # ranked by their best member, or the best two
        rank = by_group.amax(-1) if select == 0 else by_group.topk(2, -1).values.sum(-1)
        left_out = torch.ones_like(rank, dtype=torch.bool).scatter_(-1, _best(rank, k_group), value=False)
        wanted = by_group.masked_fill(left_out.unsqueeze(-1), float("-inf")).view(wanted.shape)
    experts = _best(wanted, k)
    values = scores.gather(-1, experts)
    if norm == 1 or renorm:
        values = values / (values.sum(-1, keepdim=True) + eps)
    return values * factor, experts, scores if keep else None


def _best(x: T, k: int) -> T:
    """Return the indices of the k largest; of equal ones, the first."""
    return torch.sort(x, dim=-1, descending=True, stable=True).indices[..., :k]


def _slots(experts: T, capacity: int, count: int, drop: int) -> tuple[T, T]:
    """Return which choice of a row each row of the result holds, and where each choice went; -1 for none.

    Rows are sorted by expert. With ``drop`` each expert has ``capacity`` rows, and excess rows are dropped.
    """
    flat = experts.flatten().long()
    order = flat.argsort(stable=True)
    places = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    if not drop:
        return order, places
    tokens = flat.bincount(minlength=count)
    rank = places - (tokens.cumsum(0) - tokens)[flat]
    fits = rank < capacity
    places = torch.where(fits, flat * capacity + rank, -1)
    slots = torch.full((count * capacity,), -1)
    slots[places[fits]] = fits.nonzero().flatten()
    return slots, places


def _chosen(x: T, slots: T, k: int) -> T:
    """Return the rows of some choices, zeros where there is none."""
    return x.float()[slots.clamp(min=0) // k] * (slots >= 0).unsqueeze(-1)


def _quantized(rows: T, of: T, scale: Optional, offset: Optional, quant: int) -> tuple[T, Optional]:
    """Quantize rows by a given scale and offset (0), or each by its maximum, after its expert's scale (1)."""
    if quant == 0 and scale is not None:
        return (rows * scale.float() + (0 if offset is None else offset.float())).round().clamp(-128, 127), None
    if scale is not None:  # one row for all experts, or one for each
        rows = rows * (scale.float()[of] if len(scale) > 1 else scale.float())
    return by_row(rows)


def init_routing_v3(
    x: T, experts: T, scale: Optional, offset: Optional, active: int, capacity: int, count: int, drop: int,
    count_type: int, counts: bool, quant: int, chosen: L | None, row_type: int,
) -> tuple[T, T, Optional, Optional]:  # fmt: skip
    """Route rows to a range of experts; choices of other experts have no position (-1).

    ``count_type``: sums (0), numbers (1), or pairs of expert and number (2) of rows. ``row_type``: the position of each
    choice (0), or the choice in each position (1). ``quant``: none (-1), by scale and offset (0), by each row (1).
    """
    low, high = chosen or (0, count)
    k, flat = experts.shape[1], experts.flatten().long()
    mine = (flat >= low) & (flat < high)
    slots, places = _slots(torch.where(mine, flat - low, high - low), capacity, high - low + 1, drop)
    if drop:
        slots, places = slots[: (high - low) * capacity], places.masked_fill(places >= (high - low) * capacity, -1)
    else:
        valid = int(mine.sum())
        slots = slots.masked_fill(torch.arange(len(slots)) >= valid, -1)
        slots, places = slots[: active if active > 0 else None], places.masked_fill(places >= valid, -1)
    made = _chosen(x, slots, k)
    if quant < 0:
        steps = None if scale is None else _chosen(scale.view(-1, 1), slots, k).flatten()
    else:
        of = (flat[slots.clamp(min=0)] - low).clamp(0, high - low - 1)
        made, steps = _quantized(made, of, scale, offset, quant)
    numbers = (flat[mine] - low).bincount(minlength=high - low)
    pairs = torch.zeros(count, 2, dtype=numbers.dtype)
    used = numbers.nonzero().flatten()
    pairs[: len(used)] = torch.stack((used + low, numbers[used]), 1)
    kinds = {0: numbers.cumsum(0), 1: numbers, 2: pairs}
    index = torch.nn.functional.pad(slots, (0, max(0, len(flat) - len(slots))), value=-1) if row_type else places
    made = made.view(high - low, capacity, -1) if drop else made
    return made, index, kinds[count_type] if counts else None, steps


def finalize_routing(
    rows: T, places: T, x1: Optional, x2: Optional, bias: Optional, scales: Optional, experts: Optional, mode: int = 0
) -> T:
    """Add, for each row, the results of its experts; ``places`` counts rows first, then choices, -1 is none."""
    gap(mode not in (0, 1), f"drop_pad_mode {mode} is not implemented")
    chosen = places.long().view(1 if scales is None else scales.shape[1], -1)
    parts = rows.float().reshape(-1, rows.shape[-1])[chosen.clamp(min=0)] * (chosen >= 0).unsqueeze(-1)
    parts = parts.transpose(0, 1)
    if bias is not None and experts is not None:
        parts = parts + bias.float()[experts.long()]
    total = (parts if scales is None else scales.float().unsqueeze(-1) * parts).sum(1)
    for skipped in (x1, x2):
        total = total if skipped is None else total + skipped.float()
    return total
