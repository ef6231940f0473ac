"""Ranks under supervision, on the CPU by gloo; what a diagnosis makes of records; names of faults."""

from __future__ import annotations

import copy
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from pytest_ascend.distributed import finding
from pytest_ascend.distributed.commands import diagnose, page_html, read, terminal_lines
from pytest_ascend.distributed.ranks import Place, RankFailed, Ranks
from pytest_ascend.distributed.recorder import fingerprint
from pytest_ascend.emulator.faults import check
from pytest_ascend.errors import UsageError
from pytest_ascend.isolation import process
from pytest_ascend.system.translation import translated
from suites.distributed import collectives, products, test_failures, training


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    made = Ranks("cpu", 2, within=tmp_path_factory.mktemp("ranks"))
    made.prepare()
    yield made
    torch.set_num_threads(threads)
    made.close()


@pytest.mark.parametrize("how", ["all_gather_into_tensor", "all_to_all_single.async", "scatter.subgroups"])
def test_ranks_answer_by_number(ranks: Ranks, how: str) -> None:
    answers = ranks.run(collectives.run, count=3, how=how, dtype="int32")
    for rank, each in enumerate(answers):
        for name, found in each.tensors.items():
            group, _, size = name.partition(", ")
            members = collectives.members_of(how, 3)[group]
            wanted = collectives.expected_after(collectives.what(how), "int32", collectives.SIZES[size], rank, members)
            assert torch.equal(found, wanted)


def test_a_sum_of_integers_that_float64_cannot_hold_is_checked_to_the_last_bit() -> None:
    parts = [collectives.sent(rank, 1003, "int64") for rank in range(16)]
    wanted, allowed = collectives.expected_reduction(parts, "sum")
    assert collectives.worst(wanted, wanted, allowed) == 0
    assert collectives.worst(wanted + (torch.arange(1003) == 7), wanted, allowed) > 1


@pytest.mark.parametrize("how", ["rank-dies", "rank-raises"])
def test_a_rank_that_fails_is_named_and_the_next_call_works(ranks: Ranks, how: str) -> None:
    with pytest.raises(RankFailed, match="rank 1 of 2"):
        ranks.run(test_failures.failing, how=how, victim=1, limit_s=30.0)
    assert [each["sum"].tolist() for each in ranks.run(test_failures.working)] == [[2.0] * 3] * 2


def seen(place: Place) -> dict[str, Any]:
    """Return which cards a rank may use."""
    return {"cards": os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "all")}


def test_a_new_host_sees_the_cards_that_there_were_before_the_worker_took_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Ranks("cpu", 2, within=tmp_path)
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1")
    assert [each["cards"] for each in made.run(seen)] == ["all", "all"]
    made.close()


def stopping(place: Place) -> dict[str, Any]:
    """Have the last rank stop in the middle, as a debugger or a job control does it, while the others wait for it."""
    torch.distributed.all_reduce(torch.ones(8))
    if place.rank == place.count - 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    torch.distributed.all_reduce(torch.ones(8))
    return {}


def test_of_ranks_that_are_silent_the_stopped_one_is_named(ranks: Ranks) -> None:
    ranks.run(test_failures.working, limit_s=5.0)  # ranks that are new have more time
    with pytest.raises(RankFailed, match="rank 1 of 2"):
        ranks.run(stopping, limit_s=5.0)
    assert [each["sum"].tolist() for each in ranks.run(test_failures.working)] == [[2.0] * 3] * 2


def sleeping(place: Place, seconds: float) -> dict[str, Any]:
    """Have the last rank be busy for so long."""
    time.sleep(seconds if place.rank == place.count - 1 else 0)
    return {}


def test_a_rank_that_waits_for_a_cpu_is_not_late_and_one_that_hangs_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "cpu_waits", lambda _: {"a rank's": 0.8 * time.monotonic()})
    made = Ranks("cpu", 2, within=tmp_path)
    made.prepare()
    made.run(sleeping, seconds=0.0, limit_s=1.0)
    made.run(sleeping, seconds=2.5, limit_s=1.0)
    with pytest.raises(RankFailed, match="rank 1 of 2: gave no answer within 1 s"):
        made.run(sleeping, seconds=300.0, limit_s=1.0)
    made.close()


def test_what_rounding_allows_is_passed_and_a_missing_rank_is_not() -> None:
    parts = [collectives.sent(rank, 1003, "bfloat16") for rank in range(4)]
    wanted, allowed = collectives.expected_reduction(parts, "sum")
    total = parts[2].clone()
    for each in (parts[0], parts[3], parts[1]):
        total += each
    assert collectives.worst(total, wanted, allowed) <= 1
    assert collectives.worst(parts[0] + parts[1] + parts[2], wanted, allowed) > 1


# --- the diagnosis, on records that are made here ---


def recorded() -> dict[int, list[dict[str, Any]]]:
    """Return records of two correct ranks: two steps, two parameters."""
    generator = torch.Generator().manual_seed(0)
    lines: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
    for mine in lines.values():
        model = {"wrapped": "DistributedDataParallel", "sharded": False, "frozen": [], "local_batch_norm": []}
        mine.append({"kind": "model", "step": 0, **model})
    for step in range(2):
        grads = {name: [torch.randn(100, generator=generator) for _ in lines] for name in ("a", "b")}
        for rank, mine in lines.items():
            mine.append({"kind": "data", "step": step, "rows": [10 * step + 100 * rank + each for each in range(4)]})
            for name, parts in grads.items():
                used = fingerprint((parts[0] + parts[1]) / 2)
                gradient = {"name": name, "local": fingerprint(parts[rank]), "used": used}
                mine.append({"kind": "gradient", "step": step, **gradient})
            mine.append({"kind": "stepped", "step": step, "passes": step + 1})
    return lines


def test_correct_ranks_are_accused_of_nothing() -> None:
    assert finding.findings(recorded()) == []


@pytest.mark.parametrize("where", [0, 7])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_gradients_that_overflowed_are_not_said_to_be_reduced_wrongly(where: int, value: float) -> None:
    ranks = recorded()
    for lines in ranks.values():
        for each in of_kind(lines, "gradient"):
            for of in (each["local"], each["used"]):
                of["sums"][where // 2] = of["sizes"][where // 2] = of["tail"][where] = value
    assert finding.findings(ranks) == []


def of_kind(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in lines if each["kind"] == kind]


def spoil(how: str, ranks: dict[int, list[dict[str, Any]]]) -> None:
    for lines in ranks.values():
        for each in of_kind(lines, "gradient"):
            if how == "a tail":
                each["used"]["tail"][-1] += 1e-3
            elif how == "sums":
                each["used"]["sums"] = [2 * x for x in each["used"]["sums"]]
                each["used"]["tail"] = [2 * x for x in each["used"]["tail"]]
    if how == "other gradients":
        of_kind(ranks[1], "gradient")[0]["used"]["crc"] += 1
    if how == "same data":
        for mine, other in zip(of_kind(ranks[0], "data"), of_kind(ranks[1], "data"), strict=True):
            other["rows"] = list(mine["rows"])
    if how == "a step left out":
        for each in of_kind(ranks[1], "stepped"):
            each["passes"] += 1


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("a tail", "gradients not reduced: a part of a bucket"),
        ("sums", "norm scaled by the number of ranks"),
        ("other gradients", "gradients not reduced"),
        ("same data", "data shards overlap"),
        ("a step left out", "a rank skipped a step alone"),
    ],
)
def test_each_cause_is_named(how: str, cause: str) -> None:
    ranks = copy.deepcopy(recorded())
    spoil(how, ranks)
    found = finding.findings(ranks)
    assert [each.cause for each in found][:1] == [cause]
    assert any(cause in line for line in terminal_lines(found, 2, 0.01))
    assert cause in page_html(found, 2, 0.01)
    said = partial(translated, language="zh", of="ranks")
    assert not [text for each in found for text in (each.cause, each.words, each.remedy) if said(text) == text]
    assert said(cause) in page_html(found, 2, 0.01, "zh")


def test_a_page_shows_names_as_text() -> None:
    ranks = recorded()
    of_kind(ranks[1], "gradient")[0]["used"]["crc"] += 1
    for lines in ranks.values():
        of_kind(lines, "gradient")[0]["name"] = "<script>"
    assert "<script>" not in page_html(finding.findings(ranks), 2, 0.0)


#: A training whose data comes from processes of its own, which call modules too.
TRAINING = """
import sys, torch
from torch.utils.data import DataLoader, Dataset

class Scaled(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, place):
        return torch.nn.Dropout(0.0)(torch.full((4,), float(place)))

if __name__ == "__main__":
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for start in ("spawn", "fork"):
        for x in DataLoader(Scaled(), batch_size=2, num_workers=1, multiprocessing_context=start):
            model(x).sum().backward()
            optimizer.step()
"""


def test_processes_that_a_rank_starts_leave_its_record_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(TRAINING, encoding="utf-8")
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}.items():
        monkeypatch.setenv(name, value)
    command = ["distributed", "--output", str(tmp_path), "--", sys.executable, str(tmp_path / "train.py")]
    done = CliRunner().invoke(diagnose, command)
    assert (done.exit_code, "no cause found" in done.output) == (0, True), done.output
    kinds = [each["kind"] for each in read(tmp_path)[0]]
    assert [kinds[0], *(kinds.count(each) for each in ("model", "stepped", "end"))] == ["start", 1, 2, 1]
    (tmp_path / "train.py").write_text(TRAINING.replace("0.1", "0.2"), encoding="utf-8")
    done = CliRunner().invoke(diagnose, [*command[:1], "--against", str(tmp_path), *command[1:]])
    assert (done.exit_code, "parameter" in done.output) == (1, True), done.output


def test_an_output_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(diagnose, ["distributed", "--output", str(tmp_path / "file"), "--", "true"])
    assert isinstance(done.exception, UsageError)
    assert "file: File exists" in str(done.exception)


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing was recorded"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["hccl-nonsense", "hccl-crash:rank", "hccl-crash:rank=x", "hccl-crash:wrong=1"])
def test_a_misspelt_fault_of_collectives_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check(name)


def test_a_fault_of_collectives_with_settings_is_taken() -> None:
    check("hccl-crash:rank=2:collective=AllReduce:after=10:rate=0.5")


# --- quantized products with a collective, judged without a device ---


def multiplied(rank: int, how: str, dtype: str, count: int, wrong: str = "") -> torch.Tensor:
    """Return what a rank's chip makes of its part before the sum: integers exactly, scaled, rounded once."""
    given = products.quantized(how, dtype, rank, count)
    scale = products._scale(rank, given["x2"].shape[1])
    if wrong == "scale":
        scale = scale.roll(1)
    if "weight" in how:
        offset = torch.zeros(1) if wrong == "offset" else given["antiquant_offset"].float()
        scale = given["antiquant_scale"].roll(1, -1) if wrong == "scale" else given["antiquant_scale"]
        if scale.ndim > 1:
            rows = torch.arange(len(given["x2"])) // 32 if wrong != "group" else torch.arange(len(given["x2"])) % 4
            scale, offset = scale[rows], offset[rows]
        made = given["x1"].float() @ ((given["x2"].float() + offset) * scale.float())
    else:
        made = (given["x1"].long() @ given["x2"].long()).float() * scale.float()
        if "pertoken_scale" in given and wrong != "token":
            made = made * given["pertoken_scale"].unsqueeze(1)
    return made.to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("how", "wrongs"),
    [
        ("int8", ("scale", "rank")),
        ("int8-token", ("scale", "token", "rank")),
        ("int8-way", ("scale", "token", "rank", "way")),
        ("int8-weight", ("scale", "offset")),
        ("int8-weight-groups", ("scale", "group")),
    ],
)
def test_a_correct_quantized_product_passes_and_a_wrong_one_does_not(
    how: str, wrongs: tuple[str, ...], dtype: str
) -> None:
    count, name = 4, f"npu_mm_all_reduce_base.{how}"
    wanted, allowed = products.expected(name, dtype, 0, count)

    def judged(wrong: str) -> float:
        parts = [multiplied(rank, name, dtype, count, wrong) for rank in range(count)]
        if how == "int8-way":
            there = products.quantized(name, dtype, 0, count)["comm_quant_scale_1"].float() * (1 + (wrong == "way"))
            parts = [torch.fake_quantize_per_channel_affine(
                each.float(), there, torch.zeros(len(there), dtype=torch.int32), 1, -128, 127,
            ) / (1 + (wrong == "way")) for each in parts]  # fmt: skip
        total = parts[0]
        for each in parts[1 : count - (wrong == "rank")]:
            total = total + each
        return collectives.worst(total, wanted, allowed)

    assert judged("") <= 1
    assert all(judged(wrong) > 1 for wrong in wrongs)


def test_what_is_normalized_after_it_was_combined_is_judged_by_both_results() -> None:
    name, count = products.NORMALIZED, 2
    wanted, allowed = products.expected(name, "bfloat16", 0, count)
    normalizing = products._normalizing(0, "bfloat16")
    residual, gamma = normalizing["residual_x"].squeeze(1), normalizing["gamma"]
    combined = products.expected("npu_moe_distribute_dispatch_v2", "bfloat16", 0, count)[0].bfloat16()

    def judged(x: torch.Tensor, eps: float = 1e-6, by: torch.Tensor = gamma) -> float:
        y = torch.nn.functional.rms_norm(x.float(), x.shape[-1:], by.float(), eps).bfloat16()
        return collectives.worst(torch.cat([y, x], 1), wanted, allowed)

    assert judged(combined + residual) <= 1
    assert judged(combined) > 1
    assert judged(combined + residual, eps=0.1) > 1
    assert judged(combined + residual, by=gamma.roll(1)) > 1


@pytest.mark.parametrize("name", ["resnet50", "vit_b_16"])
def test_a_model_of_the_suite_is_the_same_numbers_on_every_rank(name: str) -> None:
    # torch.empty gives what was in memory: NaN now and then, and something else on each rank.
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        first, again = (dict(training.vision(name)[0].state_dict()) for _ in range(2))
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = filled
        torch.use_deterministic_algorithms(False)
    assert all(x.isfinite().all() and torch.equal(x, again[key]) for key, x in first.items())


def test_a_line_that_is_no_record_is_refused_before_the_next_is_read(tmp_path: Path) -> None:
    (tmp_path / "rank-0.jsonl").write_text('{"kind": "end"}\n{}\n{', encoding="utf-8")
    with pytest.raises(UsageError, match="does not say of what kind it is"):
        read(tmp_path)


def test_a_line_that_a_killed_rank_did_not_end_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "rank-0.jsonl").write_text('{"kind": "end"}\n{"kind": "weight", "of": {"crc": 1}', encoding="utf-8")
    assert read(tmp_path) == {0: [{"kind": "end"}]}


def test_a_line_without_an_end_is_refused_before_it_is_whole(tmp_path: Path) -> None:
    with (tmp_path / "rank-0.jsonl").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UsageError, match="a line has more than 16,777,216 bytes"):
        read(tmp_path)
