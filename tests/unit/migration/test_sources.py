"""What keeps a program from an NPU is found in its syntax tree, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_ascend.environment.chips import npu_of
from pytest_ascend.errors import UsageError
from pytest_ascend.migration.analysis import Analysis
from pytest_ascend.migration.output import headlines
from pytest_ascend.migration.sources import BLOCKER, CHANGE, scan, scan_text


def found(text: str) -> list[tuple[int, str, str]]:
    return sorted((each.line, each.what, each.severity) for each in scan_text(text, "program.py"))


@pytest.mark.parametrize(
    "statement",
    [
        "from apex.optimizers import FusedAdam",
        "import bmtrain as bmt",
        "import bitsandbytes",
        "from colossalai.nn.optimizer import HybridAdam",
        "import xformers.ops",
        "from grouped_gemm import ops",
        "from composer import Trainer",
    ],
)
def test_the_known_blockers_are_found_where_they_are_imported(statement: str) -> None:
    findings = scan_text(f"import os\n{statement}\n", "program.py")
    assert [(each.line, each.severity) for each in findings] == [(2, BLOCKER)]
    assert findings[0].instead


def test_a_name_is_followed_through_what_it_is_imported_as() -> None:
    text = "import torch.nn as layers\nfrom torch import nn as also\nlayers.DataParallel(m)\nalso.DataParallel(m)\n"
    assert found(text) == [(3, "torch.nn.DataParallel", CHANGE), (4, "torch.nn.DataParallel", CHANGE)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("model.cuda()", ".cuda()"),
        ("build(x).layers[0].cuda(non_blocking=True)", ".cuda()"),
        ("x.to('cuda:1')", "'cuda:1'"),
        ("def run(device='cuda'): ...", "'cuda'"),
        ("def run(*, device='cuda'): ...", "'cuda'"),
        ("device = 'cuda' if big else 'cpu'", "'cuda'"),
        ("x.to(f'cuda:{rank}')", 'f"cuda:…"'),
        ("init(backend='nccl')", "'nccl'"),
        ("if x.is_cuda: ...", ".is_cuda"),
        ("if x.device.type == 'cuda': ...", "'cuda'"),
        ("import torch\ntorch.cuda.synchronize()", "torch.cuda.synchronize"),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "'CUDA_VISIBLE_DEVICES'"),
        ("os.environ.setdefault('NCCL_DEBUG', 'INFO')", "'NCCL_DEBUG'"),
        ("start(command, env={'NCCL_DEBUG': 'INFO'})", "'NCCL_DEBUG'"),
        ("subprocess.run(['nvidia-smi'])", "'nvidia-smi'"),
        ("Session(path, providers=['CUDAExecutionProvider'])", "'CUDAExecutionProvider'"),
        ("DataLoader(data, pin_memory_device='cuda')", "pin_memory_device='cuda'"),
        ("load(name, attn_implementation='flash_attention_2')", "attn_implementation='flash_attention_2'"),
    ],
)
def test_what_only_cuda_has_is_found(text: str, what: str) -> None:
    assert [(each[1], each[2]) for each in found(text)] == [(what, CHANGE)]


@pytest.mark.parametrize(
    "text",
    [
        "# model.cuda()",
        '"""model.cuda() and torch.nn.DataParallel"""',
        "print('cuda')",
        "log.info('cuda')",
        "x.to('npu:0')",
        "name = 'barracuda'",
        "from .apex import helper",
        "apex = build()\napex.optimizers.FusedAdam()",
        "class DataParallel: ...\nDataParallel()",
        "from torch.nn.parallel import DistributedDataParallel",
    ],
)
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    assert found(text) == []


def test_a_folder_is_scanned_and_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("import apex\n", encoding="utf-8")
    (tmp_path / "broken.py").write_text("def\n", encoding="utf-8")
    (tmp_path / "deep.py").write_text(f"x = {'-' * 100_000}1\n", encoding="utf-8")
    (tmp_path / "deeper.py").write_text(f"x = {'lambda: ' * 3000}1\n", encoding="utf-8")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "theirs.py").write_text("import apex\n", encoding="utf-8")
    findings, notes = scan(tmp_path)
    assert [(each.path, each.line) for each in findings] == [("pkg/train.py", 1)]
    assert [note.partition(" ")[0] for note in notes] == ["broken.py", "deep.py", "deeper.py"]
    assert notes[0].startswith("broken.py was not read: SyntaxError")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        scan(tmp_path / "nowhere")


def test_a_folder_without_anything_to_read_is_no_good_news(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no Python file"):
        scan(tmp_path)
    (tmp_path / "broken.py").write_text("def\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"broken\.py was not read: SyntaxError"):
        scan(tmp_path)


@pytest.mark.parametrize(
    ("line", "what", "severity"),
    [
        ("model.to(memory_format=torch.channels_last)", "torch.channels_last", CHANGE),
        ("y = model(x).double()", ".double()", CHANGE),
        ("M.from_pretrained('x', load_in_4bit=True)", "load_in_4bit=True", BLOCKER),
        ("import deepspeed", "deepspeed", CHANGE),
        ("torch.nn.utils.rnn.pack_padded_sequence(x, n)", "torch.nn.utils.rnn.pack_padded_sequence", CHANGE),
        ("torch.compile(model, mode='max-autotune-no-cudagraphs')", "mode='max-autotune-no-cudagraphs'", CHANGE),
    ],
)
def test_what_runs_otherwise_on_an_npu_is_found(line: str, what: str, severity: str) -> None:
    assert found(f"import torch\n{line}\n") == [(2, what, severity)]


def test_what_only_looks_like_it_is_not() -> None:
    lines = ("M.from_pretrained('x', load_in_4bit=False)", "torch.compile(m, mode='default')", "open('x', mode='rb')")
    assert found("\n".join(("import torch", *lines, "torch.contiguous_format"))) == []


def test_a_package_is_named_once_however_often_it_is_used() -> None:
    text = "import triton\nimport triton.language as tl\n@triton.jit\ndef f(x): tl.store(x, tl.load(x))\n"
    assert found(text) == [(1, "triton", CHANGE)]


def write_project(folder: Path) -> None:
    (folder / "requirements.txt").write_text("torch==2.4.0+cu121\n# apex\nflash-attn>=2\nnumpy\n", encoding="utf-8")
    lists = 'dependencies = [\n  "mamba-ssm",\n]\ntest = ["torch", "xformers>=0.0.2"]\n'
    (folder / "pyproject.toml").write_text(lists, encoding="utf-8")
    (folder / "run.sh").write_text("# nvidia-smi\nCUDA_VISIBLE_DEVICES=0 python train.py\n", encoding="utf-8")
    (folder / "kernel.cu").write_text("__global__ void k() {}\n", encoding="utf-8")
    cells = [
        {"cell_type": "code", "source": ["%pip install apex\n", "import apex\n"]},
        {"cell_type": "markdown", "source": "import bmtrain"},
        {"cell_type": "code", "source": None},
        {"cell_type": "code", "source": 3},
    ]
    (folder / "notes.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")


def test_requirements_scripts_notebooks_and_cuda_sources_are_scanned(tmp_path: Path) -> None:
    write_project(tmp_path)
    findings, notes = scan(tmp_path)
    assert not notes
    assert {(each.path, each.line, each.what) for each in findings} == {
        ("requirements.txt", 1, "torch==2.4.0+cu121"),
        ("requirements.txt", 3, "flash_attn"),
        ("pyproject.toml", 2, "mamba_ssm"),
        ("pyproject.toml", 4, "xformers"),
        ("run.sh", 2, "CUDA_VISIBLE_DEVICES"),
        ("kernel.cu", 1, "kernel.cu"),
        ("notes.ipynb[cell 1]", 2, "apex"),
    }


def test_the_terminal_answers_first_and_groups_findings_by_remedy(tmp_path: Path) -> None:
    write_project(tmp_path)
    (tmp_path / "train.py").write_text("model.cuda()\nx.to('cuda')\n", encoding="utf-8")
    findings, _ = scan(tmp_path)
    lines = list(headlines(Analysis(chip=npu_of("Ascend910B3"), source=".", findings=tuple(findings))))
    assert lines == [
        "It does not run on an NPU unchanged: 5 blockers in the source.",
        ".: blockers 5, changes 4, advice 0",
        "import torch_npu.contrib.transfer_to_npu solves 2 of 9",
    ]
