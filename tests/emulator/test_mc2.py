"""Products and collectives in one operator, on ranks that are threads: by plain arithmetic on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from pytest_ascend.emulator.kernels import mc2

from .both import floats
from .ranks import RANKS, Threads, called, drawn, on_all, put_in_place

T = torch.Tensor


@pytest.fixture(autouse=True)
def _ranks_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch)


# --- products ---


@pytest.mark.parametrize("name", ["MatmulAllReduce", "MatmulAllReduceV2", "MatmulAllReduceV3"])
@pytest.mark.parametrize("biased", [False, True])
def test_products_are_summed(name: str, biased: bool) -> None:
    a, b, bias, more = drawn(3, 4), drawn(4, 5, of=1), drawn(5, of=2), drawn(3, 5, of=3)
    adds = name != "MatmulAllReduce" and biased
    found = on_all(
        lambda rank: called(
            name, x1=a[rank], x2=b[rank], bias=bias[rank] if biased else None, **({"x3": more[rank]} if adds else {})
        )
    )
    wanted = sum(a[rank] @ b[rank] + bias[rank] * biased + more[rank] * adds for rank in range(RANKS))
    for each in found:
        torch.testing.assert_close(each, wanted)


def test_a_product_in_half_precision_is_rounded_once() -> None:
    a, b, bias = (each.half() for each in (floats(3, 64), floats(64, 5, seed=1), floats(5, seed=2)))
    assert mc2._product(a, b, bias).equal((a.float() @ b.float() + bias.float()).half())
    assert mc2._product(a, b.T, turned=True).equal((a.float() @ b.float()).half())
    batch = floats(2, 4, 3)
    assert mc2._product(batch.mT, batch).equal(batch.mT @ batch)


@pytest.mark.parametrize("name", ["MatmulReduceScatter", "MatmulReduceScatterV2"])
def test_sums_are_shared_out_by_rows(name: str) -> None:
    a, b, bias = drawn(4, 3), drawn(3, 5, of=1), drawn(5, of=2)
    found = on_all(lambda rank: called(name, x1=a[rank], x2=b[rank], bias=bias[rank]))
    torch.testing.assert_close(torch.cat(found), sum(a[rank] @ b[rank] + bias[rank] for rank in range(RANKS)))


@pytest.mark.parametrize("name", ["AllGatherMatmul", "AllGatherMatmulV2"])
def test_gathered_rows_are_multiplied(name: str) -> None:
    a, b, bias = drawn(2, 3), drawn(3, 5, of=1), drawn(5, of=2)
    found = on_all(lambda rank: called(name, x1=a[rank], x2=b[rank], bias=bias[rank]))
    for rank, (made, whole) in enumerate(found):
        assert whole.equal(torch.cat(a))
        torch.testing.assert_close(made, torch.cat(a) @ b[rank] + bias[rank])
    with pytest.raises(NotImplementedError, match="only x1"):
        called(name, x1=a[0], x2=b[0], gathered=1)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("version", ["", "V2"])
def test_rows_become_columns_before_a_product(version: str, turned: bool) -> None:
    a, b, bias = drawn(4, 3), drawn(3 * RANKS, 5, of=1), drawn(5, of=2)
    found = on_all(
        lambda rank: called(
            f"AlltoAllMatmul{version}", x1=a[rank], x2=b[rank].T if turned else b[rank], bias=bias[rank], turned2=turned
        )
    )
    for rank, (made, received) in enumerate(found):
        assert received.equal(torch.cat([each.chunk(RANKS)[rank] for each in a], 1))
        torch.testing.assert_close(made, received @ b[rank] + bias[rank])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("version", ["", "V2"])
def test_columns_become_rows_after_a_product(version: str, turned: bool) -> None:
    a, b, bias = drawn(4, 3), drawn(3, 6, of=1), drawn(6, of=2)
    found = on_all(
        lambda rank: called(
            f"MatmulAlltoAll{version}", x1=a[rank], x2=b[rank].T if turned else b[rank], bias=bias[rank], turned2=turned
        )
    )
    made = [a[rank] @ b[rank] + bias[rank] for rank in range(RANKS)]
    for rank, each in enumerate(found):
        torch.testing.assert_close(each, torch.cat([its.chunk(RANKS, 1)[rank] for its in made]))


# --- products by expert: each rank has two, and each row goes to one of the four ---

#: Rows of each rank for each expert, some none.
ROWS = ((2, 0, 1, 3), (1, 2, 0, 1))
EXPERTS = 2


def _received(rank: int) -> list[int]:
    """Return how many rows a rank receives, by the rank that sends them and its own expert."""
    return [count for counts in ROWS for count in counts[rank * EXPERTS : (rank + 1) * EXPERTS]]


def _for_expert(rows: Sequence[T], expert: int) -> T:
    """Return the rows of all ranks for one of the four experts."""
    return torch.cat([its.split(list(counts))[expert] for its, counts in zip(rows, ROWS, strict=True)])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("version", ["", "V2"])
def test_rows_go_to_their_experts_and_are_multiplied(version: str, turned: bool) -> None:
    rows = [floats(sum(counts), 3, seed=rank) for rank, counts in enumerate(ROWS)]
    weight, beside, its_weight = drawn(EXPERTS, 3, 5, of=1), drawn(2, 3, of=2), drawn(3, 4, of=3)
    found = on_all(
        lambda rank: called(
            f"AlltoAllvGroupedMatMul{version}",
            rows=rows[rank],
            weight=weight[rank].mT if turned else weight[rank],
            send=list(ROWS[rank]),
            receive=_received(rank),
            turned=turned,
            **(
                {"shared": beside[rank], "shared_weight": its_weight[rank].T, "shared_turned": True}
                if turned
                else {"shared": beside[rank]}
            ),
        )
    )
    for rank, (made, of_shared, ordered) in enumerate(found):
        mine = [_for_expert(rows, rank * EXPERTS + expert) for expert in range(EXPERTS)]
        assert ordered.equal(torch.cat(mine))
        wanted = torch.cat([its @ weight[rank][expert] for expert, its in enumerate(mine)])
        torch.testing.assert_close(made, wanted)
        if turned:
            torch.testing.assert_close(of_shared, beside[rank] @ its_weight[rank])
        else:
            assert of_shared is None, "there is no weight for it"


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("version", ["", "V2"])
def test_rows_are_multiplied_and_come_back(version: str, turned: bool) -> None:
    there = [[floats(count, 3, seed=10 * rank + place) for place, count in enumerate(ROWS[rank])] for rank in (0, 1)]
    weight, beside, its_weight = drawn(EXPERTS, 3, 5, of=1), drawn(2, 3, of=2), drawn(3, 4, of=3)
    by_expert = [
        torch.cat([there[source][rank * EXPERTS + expert] for expert in range(EXPERTS) for source in range(RANKS)])
        for rank in range(RANKS)
    ]
    found = on_all(
        lambda rank: called(
            f"GroupedMatMulAlltoAllv{version}",
            rows=by_expert[rank],
            weight=weight[rank].mT if turned else weight[rank],
            shared=beside[rank],
            shared_weight=its_weight[rank],
            send=_received(rank),
            receive=list(ROWS[rank]),
            turned=turned,
        )
    )
    for rank, (back, of_shared) in enumerate(found):
        wanted = [rows @ weight[expert // EXPERTS][expert % EXPERTS] for expert, rows in enumerate(there[rank])]
        torch.testing.assert_close(back, torch.cat(wanted))
        torch.testing.assert_close(of_shared, beside[rank] @ its_weight[rank])


# --- tokens sent to experts, and back ---

#: The experts of each rank's tokens, two each.
CHOSEN = (((0, 3), (2, 1), (0, 2)), ((3, 2), (0, 1), (3, 0)))
VERSIONS = ("", "V2", "V3", "V4")


def _dispatched(version: str, x: Sequence[T], counted: int = 0) -> list[tuple[T, ...]]:
    def one(rank: int) -> tuple[T, ...]:
        out = (
            torch.full((12, 4), 7.0), torch.empty(12), torch.full((6,), -1, dtype=torch.int32),
            torch.full((EXPERTS,), -1), torch.full((8,), -1, dtype=torch.int32), torch.empty(1), torch.empty(1),
        )  # fmt: skip
        called(
            f"MoeDistributeDispatch{version}",
            x=x[rank], expert_ids=torch.tensor(CHOSEN[rank], dtype=torch.int32), experts=4, ranks=RANKS, rank=rank,
            counted=counted, out=out,
        )  # fmt: skip
        return out

    return on_all(one)


@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_tokens_go_to_their_experts(version: str, counted: int) -> None:
    x = drawn(3, 4)
    for rank, (rows, _, index, tokens, received, *_) in enumerate(_dispatched(version, x, counted)):
        wanted, ends, of_expert = [], [], []
        for expert in range(rank * EXPERTS, (rank + 1) * EXPERTS):
            before = len(wanted)
            for source in range(RANKS):
                wanted += [x[source][token] for token, chosen in enumerate(CHOSEN[source]) if expert in chosen]
                ends.append(len(wanted))
            of_expert.append(len(wanted) - before if counted else len(wanted))
        assert rows[: len(wanted)].equal(torch.stack(wanted))
        assert rows[len(wanted) :].eq(7).all(), "left as they are"
        assert tokens.tolist() == of_expert
        assert received.tolist() == [*ends, *[-1] * 4]
        flat = [expert for chosen in CHOSEN[rank] for expert in chosen]
        assert index.tolist() == [flat[:place].count(expert) for place, expert in enumerate(flat)]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_results_of_experts_come_back_weighted(version: str, shared: bool) -> None:
    """Expert n multiplies by n + 1."""
    x, weights, more = drawn(3, 4), [each.abs() for each in drawn(3, 2, of=1)], drawn(3, 4, of=2)
    adds = shared and version != ""
    sent = _dispatched("", x)

    def one(rank: int) -> T:
        rows, _, index, tokens, received, *_ = sent[rank]
        first, second = tokens.tolist()
        rows[:first] *= 2 * rank + 1
        rows[first:second] *= 2 * rank + 2
        result: T = called(
            f"MoeDistributeCombine{version}",
            rows=rows, expert_ids=torch.tensor(CHOSEN[rank]), index=index, received=received,
            expert_scales=weights[rank], experts=4, ranks=RANKS, rank=rank,
            **({"shared": more[rank]} if adds else {}),
        )  # fmt: skip
        return result

    for rank, found in enumerate(on_all(one)):
        factors = (weights[rank] * (torch.tensor(CHOSEN[rank]) + 1)).sum(1, keepdim=True)
        torch.testing.assert_close(found, x[rank] * factors + more[rank] * adds)


@pytest.mark.parametrize("version", ["", "V2"])
def test_what_came_back_is_added_and_normalized(version: str) -> None:
    x, weights, residual, gamma = drawn(3, 4), drawn(3, 2, of=1), drawn(3, 1, 4, of=2), floats(4, seed=9)
    shared = drawn(3, 4, of=4)
    sent = _dispatched("", x)

    def one(rank: int) -> tuple[T, ...]:
        rows, _, index, _, received, *_ = sent[rank]
        made: tuple[T, ...] = called(
            f"MoeDistributeCombineAddRmsNorm{version}",
            rows=rows, expert_ids=torch.tensor(CHOSEN[rank]), index=index, received=received,
            expert_scales=weights[rank], residual=residual[rank], gamma=gamma, experts=4, ranks=RANKS, rank=rank,
            eps=0.5, shared=shared[rank],
        )  # fmt: skip
        return made

    for rank, (y, rstd, total) in enumerate(on_all(one)):
        whole = (x[rank] * weights[rank].sum(1, keepdim=True) + shared[rank]).unsqueeze(1) + residual[rank]
        torch.testing.assert_close(total, whole)
        torch.testing.assert_close(rstd, (whole.square().mean(-1, keepdim=True) + 0.5).rsqrt())
        torch.testing.assert_close(y, whole * rstd * gamma)


@pytest.mark.parametrize(
    "odd",
    [
        *({name: torch.ones(1)} for name in ("scales", "active", "elastic")),
        *({name: 1} for name in ("quantized", "shared_ranks", "zero_experts", "copy_experts")),
        {"ranks_tp": 2},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_what_experts_are_not_emulated_for_is_named(odd: dict[str, Any]) -> None:
    name = "tensor parallelism" if "ranks_tp" in odd else next(iter(odd))
    given = {"x": torch.ones(1, 4), "expert_ids": torch.tensor([[0, 1]]), "experts": 4, "out": (None,) * 7}
    with pytest.raises(NotImplementedError, match=f"{name} is not implemented"):
        called("MoeDistributeDispatchV4", **given, **odd)
    if next(iter(odd)) in {"ranks_tp", "shared_ranks", "quantized"}:
        with pytest.raises(NotImplementedError, match=f"{name} is not implemented"):
            called("MoeDistributeCombine", experts=4, **odd)
    mc2._only_plain(1, quantized=0)


@pytest.mark.parametrize("version", ["", "V2"])
def test_a_barrier_waits_for_all(version: str) -> None:
    on_all(lambda _: called(f"DistributeBarrier{version}", x=torch.ones(1)))
    assert Threads.called == ["barrier"] * RANKS


def test_parts_are_put_side_by_side_and_below_one_another() -> None:
    x = drawn(4, 6)
    for rank, found in enumerate(on_all(lambda rank: Threads("the group").rows_to_columns(x[rank]))):
        assert found.equal(torch.cat([each[2 * rank : 2 * rank + 2] for each in x], 1))
    for rank, found in enumerate(on_all(lambda rank: Threads("the group").columns_to_rows(x[rank]))):
        assert found.equal(torch.cat([each[:, 3 * rank : 3 * rank + 3] for each in x]))


def test_blocks_of_rows_are_reordered_from_ranks_to_experts_and_back() -> None:
    counts = [1, 0, 2, 3, 1, 1]  # of two ranks for three experts each
    blocks = [torch.full((count, 1), float(place)) for place, count in enumerate(counts)]
    by_rank, by_expert = torch.cat(blocks), torch.cat([blocks[place] for place in (0, 3, 1, 4, 2, 5)])
    send = [[1, 0, 2, 0, 0, 0], [3, 1, 1, 0, 0, 0]]  # all to the first rank
    here = [by_rank[:3], by_rank[3:]]
    none = [0] * 6

    def there_and_back(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        group, receive = Threads("the group"), counts if rank == 0 else none
        found = group.to_experts(here[rank], send[rank], receive)
        return found, group.from_experts(found, receive, send[rank])

    for rank, (found, back) in enumerate(on_all(there_and_back)):
        assert found.equal(by_expert if rank == 0 else by_expert[:0])
        assert back.equal(here[rank])
