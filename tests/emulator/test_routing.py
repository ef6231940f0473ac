"""Kernels of a mixture of experts by themselves: each by plain arithmetic on one row at a time."""

from __future__ import annotations

import math

import pytest
import torch

from .kernel import T, called, close, floats, gradients


def _softmax(row: list[float]) -> list[float]:
    parts = [math.exp(each) for each in row]
    return [each / sum(parts) for each in parts]


def _best(row: list[float], k: int) -> list[int]:
    return sorted(range(len(row)), key=lambda place: -row[place])[:k]


@pytest.mark.parametrize("finished", [None, [False, True, False]])
def test_the_most_probable_experts(finished: list[bool] | None) -> None:
    x = floats(3, 5)
    done = None if finished is None else torch.tensor(finished)
    values, experts, rows = called("MoeGatingTopKSoftmax", x, done, 2)
    shares = [_softmax(row) for row in x.tolist()]
    best = [_best(row, 2) for row in shares]
    close(values, torch.tensor([[row[place] for place in its] for row, its in zip(shares, best, strict=True)]))
    wanted = [[5, 5] if finished and finished[row] else its for row, its in enumerate(best)]
    assert experts.tolist() == wanted
    assert rows.tolist() == [[0, 3], [1, 4], [2, 5]], "numbered by column"
    for renorm in (0, 1):
        again, experts, whole = called("MoeGatingTopKSoftmaxV2", x, done, 2, renorm, True)
        close(again, values / values.sum(-1, keepdim=True) if renorm else values)
        if renorm:
            assert whole is None, "shares are kept only without renormalisation"
        else:
            close(whole, torch.tensor(shares))
        assert experts.tolist() == wanted


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("renorm", [0, 1])
@pytest.mark.parametrize("norm", [0, 1], ids=["softmax", "sigmoid"])
@pytest.mark.parametrize("groups", [None, (3, 1, 0), (3, 2, 0), (3, 1, 1), (3, 2, 1)], ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_experts_are_chosen_with_a_bias_and_weighed_without(
    biased: bool, groups: tuple[int, int, int] | None, norm: int, renorm: int, keep: bool
) -> None:
    x, bias = floats(4, 9), floats(9, seed=1) if biased else None
    count, best, select = groups or (1, 1, 0)
    found = called(
        "MoeGatingTopK", x, bias, k=3, kGroup=best, groupCount=count, groupSelectMode=select, renorm=renorm,
        normType=norm, outFlag=keep, routedScalingFactor=2.5, eps=0.25,
    )  # fmt: skip
    for row, (numbers, values, experts) in enumerate(zip(x.tolist(), found[0], found[1], strict=True)):
        scores = _softmax(numbers) if norm == 0 else [1 / (1 + math.exp(-each)) for each in numbers]
        wanted = [score + (bias[place].item() if bias is not None else 0) for place, score in enumerate(scores)]
        size = 9 // count
        members = [sorted(wanted[group * size : (group + 1) * size]) for group in range(count)]
        rank = [each[-1] if select == 0 else each[-1] + each[-2] for each in members]
        open_ = [place for group in _best(rank, best) for place in range(group * size, (group + 1) * size)]
        chosen = sorted(open_, key=lambda place: -wanted[place])[:3]
        assert experts.tolist() == chosen
        parts = [scores[place] for place in chosen]
        total = sum(parts) + 0.25 if norm == 1 or renorm else 1
        close(values, torch.tensor([each / total * 2.5 for each in parts]))
        if keep:
            close(found[2][row], torch.tensor(scores))
    assert keep or found[2] is None


def test_rows_in_order_of_their_experts() -> None:
    x = floats(3, 4)
    rows = torch.tensor([[0, 3], [1, 4], [2, 5]], dtype=torch.int32)
    experts = torch.tensor([[2, 0], [1, 2], [0, 1]], dtype=torch.int32)
    expanded, places, ordered = called("MoeInitRouting", x, rows, experts, 3)
    pairs = sorted((int(expert), place) for place, expert in enumerate(experts.flatten()))
    assert ordered.tolist() == [expert for expert, _ in pairs] == [0, 0, 1, 1, 2, 2]
    source = [int(rows.flatten()[place]) for _, place in pairs]
    assert expanded.equal(x[[each % 3 for each in source]])
    assert places.tolist() == [source.index(each) for each in range(6)]
    assert called("MoeInitRouting", x, rows, experts, 1)[0].equal(expanded[:2])
    assert called("MoeInitRouting", x, rows, experts, 9)[0].equal(expanded)


def test_of_equal_experts_the_first_is_chosen() -> None:
    equal = torch.zeros(2, 64)
    experts = called("MoeGatingTopK", equal, k=3, kGroup=2, groupCount=4, normType=1, routedScalingFactor=1.0)[1]
    assert experts.tolist() == [[0, 1, 2]] * 2
    equal[:, 40] = equal[:, 20] = 1
    experts = called("MoeGatingTopK", equal, k=3, kGroup=2, groupCount=4, normType=1, routedScalingFactor=1.0)[1]
    assert experts.tolist() == [[20, 40, 16]] * 2


#: Four rows with two choices among three experts.
CHOICES = torch.tensor([[2, 0], [0, 1], [2, 0], [0, 2]], dtype=torch.int32)
#: The choices in order of their experts, numbered row by row.
IN_ORDER = [1, 2, 5, 6, 3, 0, 4, 7]


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("active", [0, 5])
def test_rows_are_routed_to_their_experts(active: int, mode: int) -> None:
    x = floats(4, 3)
    rows, places, tokens, _ = called("MoeInitRoutingV2", x, CHOICES, active, 0, 3, 0, mode)
    kept = IN_ORDER[: active or None]
    assert rows.tolist() == [x[each // 2].tolist() for each in kept]
    assert places.tolist() == [IN_ORDER.index(each) for each in range(8)]
    assert tokens.tolist() == ([4, 5, 8] if mode == 1 else [4, 1, 3])


def test_an_expert_takes_as_many_rows_as_it_can() -> None:
    x = floats(4, 3)
    rows, places, _, before = called("MoeInitRoutingV2", x, CHOICES, 0, 2, 3, 1)
    assert rows.tolist() == [
        [x[0].tolist(), x[1].tolist()],
        [x[1].tolist(), [0.0] * 3],
        [x[0].tolist(), x[2].tolist()],
    ]
    assert places.tolist() == [4, 0, 1, 2, 5, -1, -1, -1]
    assert before.tolist() == [4, 1, 3]


@pytest.mark.parametrize("smooth", [None, 1, 3])
def test_routed_rows_in_int8_by_their_largest(smooth: int | None) -> None:
    x, scale = floats(4, 3), None if smooth is None else floats(smooth, 3, seed=1).abs() + 0.5
    rows, _, _, _, steps = called("MoeInitRoutingQuantV2", x, CHOICES, scale, None, 0, 0, 3, 0, 2, False, 1)
    for row, step, choice in zip(rows.tolist(), steps.tolist(), IN_ORDER, strict=True):
        expert = CHOICES.flatten()[choice] if smooth == 3 else 0
        wanted = x[choice // 2] if scale is None else x[choice // 2] * scale[expert]
        assert step == pytest.approx(wanted.abs().max().item() / 127)
        assert row == [round(each / step) for each in wanted.tolist()]


def test_routed_rows_in_int8_by_a_given_scale() -> None:
    x = torch.tensor([[0.04, -3.0, 0.26], [1.0, 0.0, -0.5]])
    choices = torch.tensor([[1], [0]], dtype=torch.int32)
    scale, offset = torch.tensor([50.0]), torch.tensor([-3.0])
    rows, *_, steps = called("MoeInitRoutingQuantV2", x, choices, scale, offset, 0, 0, 2, 0, 2, False, 0)
    assert (rows.tolist(), steps) == ([[47, -3, -28], [-1, -128, 10]], None)
    with pytest.raises(NotImplementedError, match="without offset"):
        called("MoeInitRoutingQuantV2", x, choices, scale, None, 0, 0, 2, 0, 2, False, 0)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("skips", [0, 1, 2])
def test_results_of_experts_are_added(skips: int, biased: bool) -> None:
    rows, scales, bias = floats(6, 4), floats(3, 2, seed=1), floats(5, 4, seed=2)
    x1, x2 = (floats(3, 4, seed=3 + each) if each < skips else None for each in range(2))
    places = torch.tensor([5, 2, 0, 1, 4, 3], dtype=torch.int32)
    experts = torch.tensor([[4, 1], [0, 2], [3, 3]], dtype=torch.int32)
    wanted = torch.zeros(3, 4)
    for row in range(3):
        for choice in range(2):
            part = rows[places[choice * 3 + row]] + (bias[experts[row, choice]] if biased else 0)
            wanted[row] += scales[row, choice] * part
        for skipped in (x1, x2):
            wanted[row] += 0 if skipped is None else skipped[row]
    given = (x1, x2, bias if biased else None, scales)
    close(called("MoeFinalizeRouting", rows, *given, places, experts), wanted)
    close(called("MoeFinalizeRoutingV2", rows, places, *given, experts, 0), wanted)
    if biased:  # without the experts nobody knows whose
        close(called("MoeFinalizeRouting", rows, *given, places, None),
              called("MoeFinalizeRouting", rows, x1, x2, None, scales, places, experts))  # fmt: skip


def test_results_that_were_dropped_count_as_zero_but_have_a_bias() -> None:
    rows, skip, bias, experts = floats(2, 2, 3), floats(4, 3, seed=1), floats(2, 3, seed=2), torch.tensor([1, 0, 1, 1])
    places = torch.tensor([2, -1, 0, -1], dtype=torch.int32)
    found = called("MoeFinalizeRoutingV2", rows, places, skip, None, bias, None, experts.view(4, 1), 1)
    for row, place in enumerate(places.tolist()):
        own = rows.view(4, 3)[place] if place >= 0 else torch.zeros(3)
        close(found[row], own + bias[experts[row]] + skip[row])
    with pytest.raises(NotImplementedError, match="drop_pad_mode 2"):
        called("MoeFinalizeRoutingV2", rows, places, skip, None, bias, None, experts.view(4, 1), 2)


def test_tokens_of_experts_are_counted_up() -> None:
    assert called("MoeComputeExpertTokens", torch.tensor([0, 0, 2, 2, 2, 3]), 3).tolist() == [2, 2, 5]
    assert called("MoeComputeExpertTokens", torch.tensor([0, 1], dtype=torch.int32), 4).tolist() == [1, 2, 2, 2]


INDICES = torch.tensor([[2, 0], [1, 2], [0, 1]], dtype=torch.int32)


@pytest.mark.parametrize("weighted", [False, True])
def test_permuted_tokens_come_back_with_their_gradients(weighted: bool) -> None:
    x = floats(3, 4)
    indices = INDICES if weighted else INDICES[:, 0]
    permuted, places = called("MoeTokenPermute", x, indices, 0, False)
    flat = indices.flatten().tolist()
    order = sorted(range(len(flat)), key=lambda place: flat[place])
    copies = 2 if weighted else 1
    assert permuted.equal(x[[place // copies for place in order]])
    assert places.tolist() == [order.index(each) for each in range(len(flat))]
    assert called("MoeTokenPermute", x, indices, 2, False)[0].equal(permuted[:2])
    assert called("MoeTokenPermute", x[:0], indices[:0], 0, False)[0].shape == (0, 4)

    def there(x: T) -> T:
        return x[[place // copies for place in order]]

    dy = floats(*permuted.shape, seed=1)
    close(called("MoeTokenPermuteGrad", dy, places, copies, False), gradients(there, dy, x)[0])

    probs = floats(3, 2, seed=2) if weighted else None
    back = [order.index(each) for each in range(len(flat))]

    def again(permuted: T, *probs: T) -> T:
        rows = permuted[back]
        return (rows.view(3, 2, 4) * probs[0].unsqueeze(-1)).sum(1) if probs else rows

    given = [permuted, *([] if probs is None else [probs])]
    close(called("MoeTokenUnpermute", permuted, places, probs), again(*given))
    grad = floats(3, 4, seed=3)
    found = called("MoeTokenUnpermuteGrad", permuted, grad, places, probs)
    wanted = gradients(again, grad, *given)
    close(found, (wanted[0], wanted[1] if weighted else None))


@pytest.mark.parametrize("k", [None, [5, 2, 1]])
@pytest.mark.parametrize("p", [None, [0.9, 0.3, 1.0]])
def test_sampling_keeps_the_best_of_each_row(p: list[float] | None, k: list[int] | None) -> None:
    logits = torch.tensor([[0.0, 2, 1, -1, 3], [1, 0, 3, 2, -2], [4, 1, 0, 2, 3]])
    found = called(
        "ApplyTopKTopP",
        logits,
        None if p is None else torch.tensor(p),
        None if k is None else torch.tensor(k, dtype=torch.int32),
    )
    for place, row in enumerate(logits.tolist()):
        kept = _best(row, k[place] if k else 5)
        if p:
            shares = dict(zip(kept, _softmax([row[each] for each in kept]), strict=True))
            chosen, total = [], 0.0
            for each in kept:
                if total >= p[place]:
                    break
                chosen.append(each)
                total += shares[each]
            kept = chosen
        assert found[place].tolist() == [row[each] if each in kept else -math.inf for each in range(5)]
