"""What a group of ranks asks HCCL for, and how it says that it failed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_ascend.emulator.kernels import mc2
from pytest_ascend.emulator.kernels.mc2 import Group

from .both import floats

T = torch.Tensor


class Library:
    """HCCL and the runtime, as far as a group calls them: writes down every call."""

    def __init__(self, *, known: bool = True, code: int = 0, late: int = 0) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.known, self.code, self.late = known, code, late

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*given: Any) -> int:
            plain = tuple(getattr(each, "value", each) for each in given)
            self.calls.append((name, *plain))
            answers = {"HcclGetRankSize": 4, "HcclGetCommAsyncError": self.late}
            if name == "HcomGetCommHandleByGroup":
                given[1]._obj.value = 77
                return int(not self.known)
            if name in answers:
                given[1]._obj.value = answers[name]
                return 0
            return 0 if name == "emu_stream_drain" else self.code

        return call


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Library]:
    def put(**how: Any) -> Library:
        library = Library(**how)
        monkeypatch.setattr(mc2, "library", lambda _: library)
        return library

    return put


def _words(array: Any) -> list[int]:
    return list(array)


def test_a_group_asks_for_each_collective_in_its_terms(libraries: Callable[..., Library]) -> None:
    library = libraries()
    group = Group("of four")
    assert group.ranks == 4
    assert library.calls[0][:2] == ("HcomGetCommHandleByGroup", b"of four")
    x = floats(8, 3)
    for make, name, elements, rows, rest in (
        (group.all_reduce, "HcclAllReduce", 24, 8, (4, 0)),
        (group.reduce_scatter, "HcclReduceScatter", 6, 2, (4, 0)),
        (group.all_gather, "HcclAllGather", 24, 32, (4,)),
    ):
        library.calls.clear()
        out = make(x)
        assert out.shape == (rows, 3)
        collective = next(each for each in library.calls if each[0] == name)
        assert collective[:-1] == (name, x.data_ptr(), out.data_ptr(), elements, *rest, 77)
        assert [each[0] for each in library.calls if each[0].startswith("Hccl")] == [name, "HcclGetCommAsyncError"]
    library.calls.clear()
    out = group.exchange(x.half(), [1, 2, 0, 5], [3, 0, 1, 1])
    assert out.shape == (5, 3)
    (call,) = (each for each in library.calls if each[0] == "HcclAlltoAllV")
    name, _, sent, starts, of, at, received, places, to, *_ = call
    assert (name, of, to, at) == ("HcclAlltoAllV", 7, 7, out.data_ptr())
    assert [_words(each) for each in (sent, starts)] == [[6, 12, 0, 30], [0, 6, 18, 18]]
    assert [_words(each) for each in (received, places)] == [[18, 0, 6, 6], [0, 18, 18, 24]]
    library.calls.clear()
    group.barrier()
    assert next(each for each in library.calls if each[0] == "HcclBarrier")[:2] == ("HcclBarrier", 77)


def test_each_dtype_has_its_number_in_hccl(libraries: Callable[..., Library]) -> None:
    """As hccl_types.h has them: HCCL_DATA_TYPE_INT8 = 0, INT16, INT32, FP16, FP32, INT64, UINT64, UINT8, ..., BFP16."""
    library = libraries()
    numbers = {
        torch.int8: 0, torch.int16: 1, torch.int32: 2, torch.float16: 3, torch.float32: 4, torch.int64: 5,
        torch.uint8: 7, torch.bfloat16: 11,
    }  # fmt: skip
    for dtype, number in numbers.items():
        library.calls.clear()
        Group("g").all_reduce(torch.ones(4, dtype=dtype))
        assert next(each for each in library.calls if each[0] == "HcclAllReduce")[4] == number


def test_errors_of_a_collective_are_raised_at_once_or_late(libraries: Callable[..., Library]) -> None:
    libraries(known=False)
    with pytest.raises(RuntimeError, match="no communicator 'nowhere'"):
        Group("nowhere")
    for how in ({"code": 5}, {"late": 5}):
        libraries(**how)
        with pytest.raises(RuntimeError, match="HcclBarrier failed with HCCL's code 5"):
            Group("g").barrier()


def test_strided_tensors_are_sent_in_order(libraries: Callable[..., Library], monkeypatch: pytest.MonkeyPatch) -> None:
    libraries()
    seen: list[T] = []
    monkeypatch.setattr(mc2, "_at", lambda x: seen.append(x) or ctypes.c_void_p(x.data_ptr()))
    x, group = floats(4, 8).T, Group("g")
    for make in (group.all_reduce, group.reduce_scatter, group.all_gather, lambda y: group.exchange(y, [8], [8])):
        seen.clear()
        make(x)
        assert all(each.is_contiguous() for each in seen)
        assert seen[0].equal(x)
