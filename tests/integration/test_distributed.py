"""The suite of several ranks: figures by their definition, runs of some of its cases, and the tier that asks for it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pytest_ascend.runlog.reading import read
from suites.distributed import SPEEDS, speed
from tests.conftest import AT_START
from tests.forks import ROOT, records, run
from tests.unit.certificate import genuine


def test_every_case_is_one_that_can_be_measured() -> None:
    assert tuple(speed.BUS) == SPEEDS


@pytest.mark.parametrize(("ranks", "wanted"), [(2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (6, [1, 2, 4, 6])])
def test_steps_are_taken_on_powers_of_two_and_on_all_ranks(ranks: int, wanted: list[int]) -> None:
    assert speed.counts(ranks) == wanted


@pytest.mark.parametrize("how", SPEEDS)
@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_bus_bandwidth_is_what_a_link_carries(how: str, ranks: int) -> None:
    """Of a message of n shares, a ring has each rank send so many of them to its neighbour."""
    sends = {"all_reduce": 2 * (ranks - 1), "broadcast": ranks, "send_recv": ranks}.get(how, ranks - 1)
    draw = random.Random(ranks)  # noqa: S311
    sizes = [1 << 12, 1 << 20]
    by_rank = [[[draw.uniform(1, 2) for _ in range(3)] for _ in sizes] for _ in range(ranks)]
    found = dict(speed.figures_of_collective(how, sizes, by_rank))
    for at, size in enumerate(sizes):
        rounds = sorted(max(by_rank[rank][at][one] for rank in range(ranks)) for one in range(3))
        assert found["latency_by_size_us"][at] == pytest.approx(rounds[1] * 1e6)
        sent = size / ranks * sends
        assert found["bus_bandwidth_by_size_gb_per_s"][at] == pytest.approx(sent / rounds[1] * 1e-9)


def test_the_slowest_rank_counts_and_waiting_is_what_goes_without_communication() -> None:
    def of(*by_count: float) -> dict[str, list[list[float]]]:
        seconds = [[each] * 3 for each in by_count]
        silent = [[each / 2] * 3 for each in by_count]
        return {"seconds": seconds, "silent": silent, "peak of seconds": [10 * (at + 1) for at in range(len(by_count))]}

    ranks = [of(1.0, 2.0, 2.0), of(1.0, 4.0), of(3.0), of(2.0)]
    found = dict(speed.figures_of_steps(ranks, batch=8))
    assert found["rank_count"] == [1, 2, 4]
    assert found["latency_by_ranks_us"] == [1e6, 2e6, 4e6]
    assert found["scaling_efficiency"] == 0.25
    assert found["exposed_communication"] == 0.5
    assert found["throughput_items_per_s"] == 8
    assert found["peak_memory_by_card_bytes"] == [30, 20, 10, 10]


COMPUTED = {
    "distributed/all_reduce.sum/collective/float32": "test_collectives.py::test_collective",
    "distributed/npu_mm_all_reduce_base/product/float16": "test_collectives.py::test_product",
    "distributed/ddp/training/float32": "test_training.py::test_training",
}


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("planted", "lost"), [("", set()), ("--ascend-emulate=fault=hccl-rank-left-out", {"failures"})]
)
def test_what_a_run_shows_decides_the_tier(tmp_path: Path, planted: str, lost: set[str]) -> None:
    nodes = [f"distributed/{test}[{case}]" for case, test in COMPUTED.items()]
    records(tmp_path / "report", nodes, "--ascend-ranks=2", *filter(None, [planted]))
    shown = {each.case.id: each for each in read(tmp_path / "report" / "run.jsonl").records}
    assert set(shown) == set(COMPUTED)
    log = genuine.as_npu(genuine.parsed((tmp_path / "report" / "run.jsonl").read_bytes()))
    assert {*genuine.refused(tmp_path / "npu.jsonl", log, tier="distributed")} == lost
    assert {*genuine.refused(tmp_path / "npu.jsonl", log, tier="performance")} == set()
    if planted:
        return
    environ = {**AT_START, "PYTHONPATH": str(ROOT)}
    run("pytest_ascend.cli", "certificate-key", "vendor.key", where=tmp_path, environ=environ)
    given = ("--key=vendor.key", "--tier=distributed", "--issuer=A Vendor", "--output=certificate")
    refused = run("pytest_ascend.cli", "certify", "report", *given, where=tmp_path, environ=environ)
    assert refused.returncode == 1
    assert not (tmp_path / "certificate").exists()
    for reason in ("emulated", "subset", "did not run"):
        assert reason in refused.stdout + refused.stderr


@pytest.mark.drawn(4, "long")
def test_a_run_measures_them_and_shows_a_collective_that_is_slow(tmp_path: Path) -> None:
    cases = {name: f"distributed/decoder-{name}/step/float32" for name in ("plain", "sharded")}
    nodes = ["distributed/test_collectives.py::test_speed[distributed/all_reduce/speed/float32]"]
    nodes += [f"distributed/test_training.py::test_step[{case}]" for case in cases.values()]
    planted = "--ascend-emulate=fault=hccl-slow:seconds=0.02:collective=AllReduce"
    found = records(tmp_path / "report", nodes, "--ascend-level=full", "--ascend-ranks=2", planted)
    assert {each["outcome"] for each in found.values()} == {"passed"}
    summed = found["distributed/all_reduce/speed/float32"]
    assert min(summed["series"]["latency_by_size_us"]) >= 20_000
    plain, sharded = (found[case]["measurements"] for case in cases.values())
    assert plain["latency_p50_us"] >= 20_000
    assert 0 <= plain["exposed_communication"] <= 1
    assert sharded["peak_memory_bytes"] < plain["peak_memory_bytes"]
