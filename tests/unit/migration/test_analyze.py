"""``pytest-ascend analyze``: operators with their standing, memory, and a page on which nothing can act."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from pytest_ascend.environment.chips import npu_of
from pytest_ascend.errors import UsageError
from pytest_ascend.migration import output
from pytest_ascend.migration.analysis import Analysis, Memory, Operator
from pytest_ascend.migration.analyze import analyze
from pytest_ascend.migration.census import encode
from pytest_ascend.migration.running import largest_batch
from pytest_ascend.migration.sources import CUDA_SOURCE, KEYWORDS, METHODS, NAMES, STRINGS, Finding
from pytest_ascend.records.census import Census
from pytest_ascend.system.files import write_file
from pytest_ascend.system.translation import translated
from tests import forks

NATIVE = ("aten::convolution", "aten::convolution_backward", "aten::native_group_norm", "aten::add.Tensor")


@pytest.fixture
def census(tmp_path: Path) -> Path:
    operators = dict.fromkeys(NATIVE, "native") | {"aten::silu": "fallback", "aten::silu_backward": "missing"}
    path = tmp_path / "census.json"
    write_file(path, encode(Census(torch="2.13.0", torch_npu="2.13.0", torch_npu_commit="", operators=operators)))
    return path


def asked(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(analyze, [*arguments, "--json"], catch_exceptions=False)
    return result.exit_code, json.loads(result.output)


def test_operators_are_counted_by_phase_with_standing_and_shapes(census: Path) -> None:
    code, said = asked("tests.architectures:unet", "--census", str(census))
    operators = {each["name"]: each for each in said["operators"]}
    assert operators["aten::convolution"]["calls"] == {"forward": 6}
    assert operators["aten::convolution_backward"]["calls"] == {"backward": 6}
    assert operators["aten::silu"]["standing"] == "fallback"
    assert operators["aten::silu_backward"]["standing"] == "missing"
    assert operators["aten::cat"]["standing"] == "unknown"
    assert ["float32[2, 8, 16, 16]", 2] in operators["aten::silu"]["signatures"]
    assert (code, said["traced_with"]) == (1, "meta")


def test_memory_is_what_the_tensors_take(census: Path) -> None:
    _, said = asked("torch.nn:Flatten", "-i", "4x10", "-b", "4,8", "--census", str(census))
    assert [each["parameters"] for each in said["memory"]] == [0, 0]
    _, said = asked("tests.architectures:unet", "-b", "2,6", "--census", str(census), "--optimizer", "adamw")
    first, last = said["memory"]
    parameters = sum(each.numel() * 4 for each in subject_parameters())
    assert first["parameters"] == first["gradients"] == parameters
    assert 2 * parameters <= first["optimizer"] <= 2.2 * parameters
    assert (first["batch"], last["batch"]) == (2, 6)
    assert last["activations"] == 3 * first["activations"]
    assert said["largest_batch"] > 6


def subject_parameters() -> list[nn.Parameter]:
    from tests import architectures

    return list(architectures.unet()[0].parameters())


def test_a_model_that_reads_values_is_traced_without_what_only_the_cpu_calls(census: Path) -> None:
    model = ("tests.architectures:experts", "-i", "tests.architectures:experts_inputs")
    _, said = asked(*model, "--census", str(census))
    assert said["traced_with"] == "meta"
    assert "its values are those of a run on the CPU" in said["notes"][0]
    assert any(each["name"] == "aten::nonzero" for each in said["operators"])


class Attention(nn.Module):
    """Attention, which a CPU computes by an operator of its own; ``reads`` looks at values before."""

    def __init__(self, *, reads: bool = True) -> None:
        super().__init__()
        self.project, self.reads = nn.Linear(16, 48), reads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.reads and int(torch.bincount((x[0, 0] > 0).long())[-1]) > 16:
            return x
        query, key, value = self.project(x)[:, None].chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(query, key, value)


def attention_without_values() -> nn.Module:
    return Attention(reads=False)


def test_a_value_that_is_read_changes_no_other_operator(census: Path) -> None:
    reads, plain = (
        asked(f"{__name__}:{name}", "-i", "2x8x16", "--census", str(census))[1]
        for name in ("Attention", "attention_without_values")
    )
    names = [{each["name"] for each in said["operators"]} for said in (reads, plain)]
    assert names[0] >= names[1]
    reading = {"aten::bincount", "aten::_local_scalar_dense", "aten::gt.Scalar", "aten::select.int", "aten::_to_copy"}
    assert names[0] - names[1] <= reading
    assert reads["memory"][0]["training_peak"] <= 1.1 * plain["memory"][0]["training_peak"]


def test_without_training_there_is_no_backward_pass(census: Path) -> None:
    _, said = asked("tests.architectures:unet", "--census", str(census), "--no-training")
    assert all(set(each["calls"]) == {"forward"} for each in said["operators"])
    assert said["memory"][0]["training_peak"] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to analyze"),
        (("tests.architectures:unet", "-b", "2,x"), "no batch sizes"),
        (("tests.architectures:unet", "-b", f"1{'0' * 30}"), "no batch sizes"),
        (("torch.nn:Identity", "-i", "2x300", "-b", "100000000"), "more than 1,073,741,824 elements"),
        (("tests.architectures:unet", "--chip", "H100"), "no chip"),
        (("tests.architectures:tagger", "-i", "2x3"), "does not run"),
        (("tests.unit.migration.test_analyze:failing",), "cannot be made: OSError at test_analyze.py:.*no weights"),
    ],
)
def test_bad_input_is_said(arguments: tuple[str, ...], said: str, census: Path) -> None:
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(analyze, [*arguments, "--census", str(census)], catch_exceptions=False)


def test_the_source_alone_can_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import apex\n", encoding="utf-8")
    code, said = asked("--source", str(tmp_path))
    assert (code, len(said["findings"]), said["operators"]) == (1, 1, [])


def test_on_the_installed_torch_npu_its_own_operators_are_seen() -> None:
    command = ["analyze", "tests.architectures:decoder", "-i", "tests.architectures:decoder_inputs", "--json"]
    done = forks.run("pytest_ascend.cli", *command)
    said = json.loads(done.stdout)
    standings = {each["name"]: each["standing"] for each in said["operators"]}
    assert (said["traced_with"], done.returncode) == ("npu", 0)
    assert any(name.startswith("npu::npu_fusion_attention") for name in standings)
    assert "torch_npu 2.13" in said["standings_of"]


def test_an_analysis_is_said_in_chinese(census: Path, tmp_path: Path) -> None:
    arguments = ("tests.architectures:unet", "-i", "1x3x16x16", "--census", str(census), "--language", "zh")
    result = CliRunner().invoke(analyze, [*arguments, "--html", str(tmp_path / "a.html")], catch_exceptions=False)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    for said in ("不修改就不能在 NPU 上运行", "个算子 NPU 没有", "批大小", "由 CPU 计算：张量往返主机"):
        assert said in result.output
        assert said in page


def test_a_census_takes_the_place_of_a_torch_npu_that_does_not_load(
    census: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "")
    monkeypatch.delenv("TORCH_DEVICE_BACKEND_AUTOLOAD")
    asked("--census", str(census), "torch.nn:Identity", "-i", "2x3")
    assert os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"


def test_names_of_files_neither_act_on_a_terminal_nor_break_it(tmp_path: Path) -> None:
    for name in (b"\xff.py", b"\x1b[31m.py"):
        (tmp_path / os.fsdecode(name)).write_text("import flash_attn\n", encoding="utf-8")
    (tmp_path / "bad.py").write_text("(", encoding="utf-8")
    result = CliRunner().invoke(analyze, ["--source", str(tmp_path), "--language", "zh"])
    assert result.exit_code == 1, result.exception
    assert r"\udcff.py:1" in result.output
    assert r"\x1b[31m.py:1" in result.output
    assert "注意：未读取 bad.py" in result.output


@pytest.mark.parametrize(
    "found", [*(each for some in (NAMES, METHODS, KEYWORDS, STRINGS) for each in some.values()), CUDA_SOURCE]
)
def test_what_a_blocker_says_has_chinese_words(found: dict[str, str]) -> None:
    said = translated(found["instead"], "zh", "analysis")
    assert translated(found["says"], "zh", "analysis") != found["says"]
    assert said != found["instead"] or re.fullmatch(r"[\w. :-]+(, [\w. ]+)?", said)


HOSTILE = "<script>alert(1)</script>"


def test_everything_on_the_page_is_escaped() -> None:
    memory = Memory(
        batch=1,
        parameters=10,
        buffers=0,
        gradients=10,
        optimizer=20,
        activations=5,
        training_peak=50,
        inference_peak=12,
    )
    operator = Operator(
        name=HOSTILE,
        standing="fallback",
        calls={"forward": 1},
        flops=0,
        moved_bytes=8,
        signatures=((HOSTILE, 1),),
    )
    finding = Finding(
        path=HOSTILE, line=1, what=HOSTILE, severity="blocker", says=HOSTILE, instead=HOSTILE, source=HOSTILE
    )
    text = output.render(
        Analysis(
            chip=npu_of("910b3"),
            model=HOSTILE,
            mode="meta",
            standings_of=HOSTILE,
            optimizer="adamw",
            operators=(operator,),
            memory=(memory,),
            source=HOSTILE,
            findings=(finding,),
            notes=(HOSTILE, "\u202eevil"),
        )
    )
    assert "<script" not in text
    assert "\u202e" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 10
    assert not re.search(r"(src|href)\s*=", text)


@pytest.mark.parametrize(("capacity", "expected"), [(10_000, 995), (300, 25), (99, 0)])
def test_the_largest_batch_is_found_where_another_phase_has_the_peak(capacity: int, expected: int) -> None:
    found = largest_batch(lambda batch: max(100 + batch, 50 + 10 * batch), capacity)
    assert found is not None
    assert 0.97 * expected <= found <= expected


def test_a_peak_that_hides_the_growth_does_not_hide_the_batch() -> None:
    assert largest_batch(lambda batch: max(5000, 8 * batch), 10_000) == 1250


def test_memory_that_does_not_grow_says_nothing_on_batches() -> None:
    assert largest_batch(lambda _: 100, 1000) is None


def failing() -> nn.Module:
    raise OSError("there are no weights")


def recurrent() -> nn.Module:
    return nn.GRU(4, 4)


def test_no_batch_is_searched_along_the_steps_of_a_sequence(census: Path) -> None:
    _, said = asked("tests.unit.migration.test_analyze:recurrent", "-i", "3x2x4", "--census", str(census))
    assert said["largest_batch"] is None
    assert any("grows with the first dimension" in each for each in said["notes"])
    assert "the model (DynamicGRUV2)" in said["uncapturable"][0]


class Experts(nn.Module):
    """Routes each row to one of two layers, as mixtures of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            (rows,) = torch.where((x[:, 0] > 0) == bool(index))
            out = out.index_add(0, rows, expert(x[rows]))
        return out


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(8, 3), nn.Flatten(), nn.LazyLinear(4))


def test_what_stood_in_the_way_of_experts_is_said_with_its_line(census: Path) -> None:
    _, answer = asked(f"{__name__}:Experts", "-i", "6x4", "--census", str(census))
    assert len(answer["notes"]) == 1
    assert re.search(
        r"nonzero at test_analyze.py:\d+ gives a tensor whose size depends on the data", answer["notes"][0]
    )


def test_lazy_modules_are_analyzed(census: Path) -> None:
    code, answer = asked(f"{__name__}:lazy", "-i", "2x3x8x8", "--census", str(census), "--dtype", "float16")
    assert (code, answer["notes"]) == (0, [])


@pytest.mark.parametrize(
    ("chip", "beginnings"),
    [
        ("Ascend910B3", ["float32 convolutions on Ascend910B3 round their factors to HF32"]),
        (
            "Ascend310P3",
            [
                "float32 matrix products on Ascend310P3 round their factors to float16",
                "float32 convolutions on Ascend310P3 round their factors to float16",
            ],
        ),
    ],
)
def test_what_becomes_of_float32_in_products_is_said_of_a_chip(chip: str, beginnings: list[str], census: Path) -> None:
    _, answer = asked(f"{__name__}:lazy", "-i", "2x3x8x8", "--census", str(census), "--chip", chip)
    said = [note for note in answer["notes"] if note.startswith("float32 ")]
    assert [note.partition(" by default")[0].partition(";")[0] for note in said] == beginnings


def test_no_name_is_broken_on_a_narrow_terminal(census: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = CliRunner().invoke(analyze, [f"{__name__}:lazy", "-i", "2x3x8x8", "--census", str(census)])
    assert "aten::convolution_backward" in ran.stdout
    assert "activations" in ran.stdout
    assert max(map(len, ran.stdout.splitlines())) <= 80
    assert not ran.stderr
