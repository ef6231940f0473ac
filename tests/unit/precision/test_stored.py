"""Tensors that stay in their file while they are judged."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pytest_ascend.precision import compare

#: Elements of the stored tensors (64 MiB), and what judging them may hold in memory besides, in MiB.
ELEMENTS, CAP_MIB = 1 << 24, 24


def in_memory_mib():
    """Memory of this process that is no page of a file."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024


def risen(task):
    """How far memory rises while a task runs, in MiB."""
    task()
    over, before = threading.Event(), in_memory_mib()
    peak = [before]

    def watch():
        while not over.wait(0.001):
            peak[0] = max(peak[0], in_memory_mib())

    watcher = threading.Thread(target=watch)
    watcher.start()
    task()
    over.set()
    watcher.join()
    return peak[0] - before


@pytest.fixture
def stored(tmp_path):
    save_file({"rows": torch.linspace(1, 2, ELEMENTS).reshape(64, -1), "one": torch.tensor(3.0)}, tmp_path / "stored")
    return tmp_path / "stored"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux' /proc")
def test_slices_of_safetensors_files_are_judged_piece_by_piece(stored):
    with safe_open(stored, "pt") as one, safe_open(stored, "pt") as other:
        sides = [each.get_slice("rows") for each in (one, other)]
        assert compare(*sides).metrics["count"] == ELEMENTS
        assert risen(lambda: compare(*sides)) < CAP_MIB


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux' /proc")
def test_mapped_arrays_are_judged_piece_by_piece(tmp_path):
    np.linspace(1, 2, ELEMENTS, dtype=np.float32).tofile(tmp_path / "mapped")
    mapped = np.memmap(tmp_path / "mapped", dtype=np.float32, mode="r")
    assert risen(lambda: compare(mapped, mapped)) < CAP_MIB


def test_a_slice_of_one_number_and_one_side_in_a_file(stored):
    with safe_open(stored, "pt") as file:
        assert compare(torch.tensor(3.0), file.get_slice("one")).agrees
        assert compare({"one": file.get_slice("one")}, {"one": torch.tensor(3.0, dtype=torch.float64)}).agrees
        assert not compare(torch.ones(64, ELEMENTS // 64), file.get_slice("rows")).agrees
