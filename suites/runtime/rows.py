"""Shared by the suites: the device under test, comparisons that name a cause, and work that keeps the device busy."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import torch

from pytest_ascend.operators.calling import on_tensors
from pytest_ascend.precision import Samples
from pytest_ascend.precision.orders import other_order
from pytest_ascend.records.case import Case
from pytest_ascend.run.comparing import PrecisionCompare, agrees, in_time
from pytest_ascend.system.programs import for_now

T = torch.Tensor
MIB = 2**20
#: A call may take this many times as long as its peers; shorter times in seconds are ignored.
TIMES, NOTHING_S = 20, 2e-4
#: Seconds for which :meth:`At.busy` keeps the device busy, and the least duration of one of its products.
BUSY_S, PRODUCT_S = 0.01, 0.001


@dataclass(frozen=True, slots=True)
class At:
    """The device under test, and the judge."""

    device: torch.device
    judge: PrecisionCompare

    @property
    def backend(self) -> Any:
        """Return the module torch.npu or torch.cuda. Raise NotImplementedError for the CPU, which has no streams."""
        if self.device.type == "cpu":
            raise NotImplementedError("streams and device memory are not supported on cpu")
        return getattr(torch, self.device.type)

    def wait(self) -> None:
        if self.device.type != "cpu":
            self.backend.synchronize()

    def same(self, actual: Any, expected: Any, cause: str) -> None:
        """Require equal bits. ``cause`` says what is wrong with the device if they differ."""
        self.judge(actual, expected, standard="binary", name=cause, locate=lambda _: cause)

    def holds(self, condition: object, cause: str) -> None:
        """Require a condition. ``cause`` says what is wrong with the device if it does not hold."""
        self.same(bool(condition), True, cause)

    def defined(self, function: Callable[..., Any], *dtypes: torch.dtype, orders: int = 1, **settings: Any) -> None:
        """Compare ``function(device, dtype)``, a dict of tensors, with what it returns on the CPU in float64.

        Reference runs are those of the CPU in the same dtype. If these reject a result, it is judged against ``orders``
        reference runs with other accumulation orders, which take long: of hundreds of correct results, one now and then
        exceeds the limit from a single run. ``settings`` are passed to the judge.
        """
        for dtype in dtypes or (torch.float32,):
            self._defined(function, dtype, orders, settings)

    def _defined(self, function: Callable[..., Any], dtype: torch.dtype, orders: int, how: Mapping[str, Any]) -> None:
        name, start = str(dtype).removeprefix("torch."), time.perf_counter()
        runs = [fetched(function(CPU, dtype))]
        usual_s = time.perf_counter() - start
        exact = fetched(function(CPU, torch.float64))
        # There may be hundreds of small calls, each ten times as slow to launch on an accelerator as on the CPU.
        actual = in_time(lambda: fetched(function(self.device, dtype)), usual_s, 100 * usual_s + 0.05, name)

        def judge(compare: PrecisionCompare) -> None:
            compare(actual, exact, reference_runs=Samples(runs), name=name, **how)

        if orders == 1 or not agrees(judge, self.judge):
            for order in range(1, orders):
                with other_order(order):
                    runs.append(fetched(function(CPU, dtype)))
            judge(self.judge)

    def busy(self, card: torch.device | None = None) -> None:
        """Enqueue about 10 ms of work on the current stream (of ``card``), which delays later work on such a device."""
        size, count = _work(card or self.device)
        matrix = torch.zeros(size, size, device=card or self.device)  # not kept: it would count as leaked memory
        for _ in range(count):
            torch.mm(matrix, matrix)


CPU = torch.device("cpu")
#: A row of a table: its level and the function that checks.
Row: TypeAlias = tuple[str, Callable[[At], None]]
SMOKE, STANDARD = "smoke", "standard"


@cache
def _work(device: torch.device) -> tuple[int, int]:
    """Return the size of matrices whose product takes a millisecond, and how many products keep the device busy."""
    size, took = 128, 0.0
    while took < PRODUCT_S and size < 8192:
        size *= 2
        matrix = torch.zeros(size, size, device=device)
        torch.mm(matrix, matrix)[0, 0].item()
        start = time.perf_counter()
        torch.mm(matrix, matrix)[0, 0].item()
        took = time.perf_counter() - start
    return size, max(1, round(BUSY_S / took))


def deterministic(wanted: bool = True) -> contextlib.AbstractContextManager[None]:
    before: Any = torch.get_deterministic_debug_mode()
    # Like use_deterministic_algorithms, which also imports torch's compiler.
    return for_now(torch.set_deterministic_debug_mode, "error" if wanted else "default", before)


@contextlib.contextmanager
def forked(backend: Any, side: Any) -> Iterator[None]:
    """Use a stream that waits for the work so far, and have the current stream wait for it afterwards."""
    before = backend.current_stream()
    side.wait_stream(before)
    with backend.stream(side):
        yield
    before.wait_stream(side)


def fetched(results: Mapping[str, Any]) -> dict[str, Any]:
    return {name: on_tensors(lambda each: each.detach().cpu(), each) for name, each in results.items()}


def described(tensors: Mapping[str, T]) -> dict[str, list[Any]]:
    """Return values, layout, dtype and class of each tensor, and the first that is the same or shares its memory."""
    first: dict[tuple[str, int], str] = {}
    return {
        name: [
            x.detach().clone(),
            [str(x.dtype), type(x).__name__, x.stride(), x.storage_offset(), x.requires_grad, x.is_leaf],
            first.setdefault(("tensor", id(x)), name),
            first.setdefault((x.device.type, x.untyped_storage().data_ptr()), name),
        ]
        for name, x in tensors.items()
    }


def saved(state: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def joined(tensors: Iterable[T]) -> T:
    """Return all elements of a list in one tensor, as judging hundreds of small ones takes long."""
    return torch.cat([each.detach().flatten() for each in tensors])


def least_s(wait: Callable[[], object], call: Callable[[], object], rounds: int, enough_s: float = 0.0) -> float:
    """Return the seconds of the fastest of ``rounds`` calls, or of the first that is below ``enough_s``.

    ``wait`` returns when the device is idle.
    """
    found = []
    for _ in range(rounds + 1):  # the first call may load the kernel
        wait()
        start = time.perf_counter()
        call()
        wait()
        found.append(time.perf_counter() - start)
        if len(found) > 1 and found[-1] < enough_s:
            break
    return min(found[1:])


def numbered(count: int, start: int = 0) -> T:
    """Return int32 numbers that differ by position and by ``start``, so that a lost or moved block shows."""
    places = torch.arange(start, start + count, dtype=torch.int64)
    return ((places * 2654435761) & 0x7FFFFFFF).to(torch.int32)


def alike(level: str, run: Callable[[torch.device], Mapping[str, Any]], cause: str) -> Row:
    """Return a row that requires the same bits from ``run`` as on the CPU; differences are reported by name."""
    return level, lambda at: at.same(fetched(run(at.device)), fetched(run(CPU)), cause)


def early(rows: Mapping[str, Callable[[At], None]], *names: str) -> dict[str, Row]:
    """Return rows of level standard, except that the given names are of level smoke."""
    return {name: (SMOKE if name in names else STANDARD, check) for name, check in rows.items()}


def cases_of(suite: str, tables: Mapping[str, Mapping[str, Row]]) -> Iterator[Case]:
    for property_, rows in tables.items():
        for subject, (level, _) in rows.items():
            yield Case(suite=suite, subject=subject, property=property_, family=property_, level=level)
