"""From a call of torch_npu to a kernel: read the arguments, compute, write the results, report errors."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import torch

from pytest_ascend.emulator.build import operators_source
from pytest_ascend.emulator.chip import apply_numerics
from pytest_ascend.emulator.choices import CHIP, NUMERICS
from pytest_ascend.emulator.device_faults import SilentFailure
from pytest_ascend.emulator.dtype_support import check_of
from pytest_ascend.emulator.faults import apply_faults, with_faults
from pytest_ascend.emulator.graphs import BODIES, TASK, Graphs, InTask, TaskFailed
from pytest_ascend.emulator.kernels import all_kernels, all_named
from pytest_ascend.emulator.kernels.overflow import computes, saturate
from pytest_ascend.emulator.profiling import Measured
from pytest_ascend.emulator.registry import Kernel, with_kernels_of_float32
from pytest_ascend.emulator.tensors import DTYPES, DeviceMemory, Refused, readers, set_view_shape, write
from pytest_ascend.system.dispatching import uncompiled
from pytest_ascend.system.errors import EmulatorUnavailable

_RUNNER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_KERNEL_FAILED, _NOT_SUPPORTED = 561000, 207000

_lock = threading.Lock()
_installed: list[Any] = []  # keeps the callback alive for the whole process: C holds a pointer to it
_counts: dict[str, int] = {}


def called() -> dict[str, int]:
    """Return the number of calls of each operator in this process."""
    return dict(_counts)


def install(*, again: bool = False) -> None:
    """Register the compute function with the C runtime. Runs at the first call of an operator, in any thread.

    With ``again``, install it again with the environment's current settings.
    """
    with _lock, torch.inference_mode(False):  # tensors created in inference mode could never be written outside of it
        if _installed and not again:
            return
        warnings.filterwarnings("ignore", module=r"pytest_ascend\.emulator\.kernels\.")
        home = Path(os.environ["ASCEND_HOME_PATH"])
        # The compiled entry points refer to kernels by index: other declarations would call a wrong one.
        if (home / "operators.c").read_text(encoding="utf-8") != operators_source(
            kernel.signature for kernel in all_kernels()
        ):
            raise EmulatorUnavailable(
                "the declarations of operators changed after the emulated CANN of this process was compiled",
                hint="start the program again; child processes too, where they inherited ASCEND_HOME_PATH",
            )
        runtime = ctypes.CDLL(str(home / "lib64" / "libascendcl.so"))
        runtime.emu_memory_base.restype = ctypes.c_size_t
        runtime.emu_memory_size.restype = ctypes.c_size_t
        size = runtime.emu_memory_size() * runtime.emu_device_count()
        callback = _RUNNER(uncompiled(_runner(DeviceMemory(runtime.emu_memory_base(), size), runtime)))
        _installed.append(callback)
        runtime.emu_install(callback)


def planted(faults: Iterable[str]) -> list[Kernel]:
    """Return all kernels, by index, then those called by name, with this process's numerics and these faults.

    Raises UsageError as apply_numerics and apply_faults do.
    """
    return apply_faults(apply_numerics([*all_kernels(), *all_named()], os.environ.get(NUMERICS, "")), faults)


def _runner(memory: DeviceMemory, runtime: Any) -> Callable[[int, int, int, int], int]:
    names = [each for each in os.environ.get("PYTEST_ASCEND_FAULTS", "").split(",") if each]
    kernels, count, fail = planted(names), len(all_kernels()), runtime.emu_fail
    mode = ctypes.c_int(0)  # saturation, or Inf and NaN: torch_npu sets the mode before the first operator
    runtime.aclrtGetDeviceSatMode(ctypes.byref(mode))
    saturates = mode.value == 0  # ACL_RT_OVERFLOW_MODE_SATURATION
    by_name = {kernel.name: kernel for kernel in kernels[count:]}

    @functools.cache  # built at the first call: a process uses only a few operators
    def entry(index: int, name: str = "") -> tuple[str, Call] | None:
        kernel = by_name.get(name) if name else kernels[index]
        if kernel is None:
            return None
        last = saturate if saturates and computes(kernel) else None
        return kernel.name, (named_call if name else call_of)(kernel, memory, last)

    measured = Measured(runtime)
    graphs = Graphs(runtime, with_faults(BODIES, names), measured)

    def run(index: int, words: int, into: int, stream: int) -> int:
        if index <= TASK:
            name, call = "a task of a captured graph", None
        elif (found := entry(index, _text_at(words) if index == BY_NAME else "")) is None:
            return _NOT_SUPPORTED
        else:
            name, call = found
            _counts[name] = _counts.get(name, 0) + 1
        try:
            # The user's modes around the operator must not affect the kernel: a default device or another function mode
            # would create its temporaries on the NPU, and CPU autocast would change its arithmetic.
            with torch._C.DisableTorchFunction(), torch._C._DisableAutocast():  # noqa: SLF001  no public names exist
                if call is None:
                    with torch.no_grad():
                        return graphs.answer(index, words, into, stream)
                read, compute = call
                if into:
                    graphs.add(into, name, stream, compute, *read(words, into))
                else:
                    measured(name, stream, compute, *read(words, 0))
        except TaskFailed as error:
            return int(error.args[0])
        except SilentFailure:
            return 0
        except BaseException as error:  # noqa: BLE001  C cannot pass an exception on: it becomes an error code
            code, text = _error_of(*(error.args if isinstance(error, InTask) else (name, error)))
            fail(code, b"%s", text.encode())
            return code
        return 0

    return run


#: Changes the results of a call in place after they were written.
Last: TypeAlias = Callable[[list[Any]], None]


#: torch's messages for errors that CANN's checks report: no room for a result in place, an invalid dimension, a result
#: that cannot be cast to the output's dtype (OP_CHECK_RESULT_DTYPE_CAST_FAILED), two dtypes (OP_CHECK_DTYPE_NOT_MATCH).
_CHECKED = {
    "doesn't match the broadcast shape": "CheckShape failed: ",
    "Dimension out of range": "",
    "can't be cast to": "",
    "did not match": "",
}


class Uncapturable(Exception):
    """An operator whose result has a data-dependent size: torch_npu waits for it, which a capture forbids."""

    CODE = 107030


def _error_of(name: str, error: BaseException) -> tuple[int, str]:
    """Return CANN's error code and message for an operator's exception."""
    prefix = f"emulated CANN: {name}"
    if isinstance(error, Uncapturable):
        return error.CODE, f"{prefix}: the size of its result depends on data, which a capture cannot wait for"
    if isinstance(error, Refused):
        return Refused.CODE, f"{prefix}: EZ1001: {error}"
    for said, first in _CHECKED.items():
        if said in str(error):
            return Refused.CODE, f"{prefix}: EZ1001: {first}{error}"
    if os.environ.get("PYTEST_ASCEND_EMULATED_DEBUG"):
        traceback.print_exception(error)
    if "not implemented for" in str(error):  # torch has no CPU kernel: the emulator lacks it, not the device
        return _KERNEL_FAILED, f"{prefix} is not emulated for these dtypes: {error}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return _KERNEL_FAILED, f"{prefix} failed: {type(error).__name__}: {error} ({where})"


#: A function that reads the arguments at an address, for a list of tasks or 0 (now), and one that computes.
Call: TypeAlias = tuple[Callable[[int, int], tuple[Any, ...]], Callable[..., None]]


def call_of(kernel: Kernel, memory: DeviceMemory, last: Last | None = None) -> Call:
    """Return functions that read the arguments at an address and run the kernel; ``last`` gets the results."""
    read = readers(memory)
    parameters = kernel.signature.parameters
    inputs = [(i, read[each.type]) for i, each in enumerate(parameters) if each.is_input]
    outputs = [(i, read[each.type], each.role == "dynamic") for i, each in enumerate(parameters) if not each.is_input]
    changed = [place for place, (i, _) in enumerate(inputs) if parameters[i].role == "inout"]
    block = ctypes.c_int64 * len(parameters)
    check = check_of(kernel.signature, os.environ.get(CHIP, ""))
    body = with_kernels_of_float32(kernel.signature, kernel.body)
    is_dynamic = any(dynamic for *_, dynamic in outputs)
    is_one_list = [parameters[i].type for i, *_ in outputs] == ["TensorList"]

    def arguments_at(address: int, into: int) -> tuple[list[int], list[Any], list[Any]]:
        words = block.from_address(address)[:]
        if check:
            check(words)
        if into and is_dynamic:
            raise Uncapturable(kernel.name)
        return words, [reader(words[i]) for i, reader in inputs], [reader(words[i]) for i, reader, _ in outputs]

    def run(words: list[int], arguments: list[Any], targets: list[Any]) -> None:
        if kernel.into:
            shapes = _shapes(targets)
            body(*arguments, out=targets[0] if len(targets) == 1 else tuple(targets))
            if (made := _shapes(targets)) != shapes:  # torch resizes an output of the wrong shape
                raise Refused(f"Shape of out should be {made}, but current is {shapes}.")
            written = list(targets)
        else:
            results, written = body(*arguments), []
            results = results if isinstance(results, tuple) and not is_one_list else (results,)
            for target, value, (i, _, dynamic) in zip(targets, results, outputs, strict=False):  # some may be omitted
                if dynamic:
                    _write_dynamic(target, value, words[i])
                else:
                    write(target, value)
                written += [target] * (value is not None)
        if last:
            last([*written, *(arguments[place] for place in changed)])

    return arguments_at, run


def _shapes(targets: list[Any]) -> list[Any]:
    """Return the shapes of outputs: of tensors and lists of them, None for omitted ones."""
    return [_shapes(each) if isinstance(each, list) else getattr(each, "shape", None) for each in targets]


def _write_dynamic(target: torch.Tensor, value: torch.Tensor, descriptor: int) -> None:
    """Write a result of data-dependent size to the start of an output that has room for the largest result."""
    target.as_strided(value.shape, torch.empty(value.shape, device="meta").stride()).copy_(value)
    set_view_shape(descriptor, value.shape)


#: Replaces an operator's index in calls by name.
BY_NAME = -1
#: Operators called by name with results of data-dependent size, or with outputs larger than the result.
_DYNAMIC = ("MaskedSelect", "NonZero", "UniqueWithCountsAndSorting", "DropOutGenMaskV3")


def _text_at(address: int) -> str:
    """Return the text whose address is stored at this address; in a call by name, the operator's name."""
    return ctypes.string_at(ctypes.c_int64.from_address(address).value).decode()


def named_call(kernel: Kernel, memory: DeviceMemory, last: Last | None = None) -> Call:
    """Return functions that read the arguments at an address and run the kernel; ``last`` gets the results."""
    body = with_kernels_of_float32(kernel.signature, kernel.body)

    def arguments_at(words: int, into: int) -> tuple[list[int], list[Any], list[Any], dict[str, Any]]:
        _, n, inputs, m, outputs, count, attributes = _items(words, 7)
        if into and kernel.name in _DYNAMIC:
            raise Uncapturable(kernel.name)
        given = [_tensor(each, memory) for each in _items(inputs, n)]
        if into:  # host data exists only during the call
            given = [each if each is None or memory.holds(each.data_ptr()) else each.clone() for each in given]
        descriptors, how = _items(outputs, m), {}
        for place in range(attributes, attributes + 32 * count, 32):
            _, kind, size, items = _items(place, 4)  # the first word is the address of the name
            how[_text_at(place)] = _KINDS[kind](items, size)
        return descriptors, given, [_tensor(each, memory) for each in descriptors], how

    def run(descriptors: list[int], given: list[Any], targets: list[Any], attributes: dict[str, Any]) -> None:
        made = body(*given, **attributes)
        results = made if isinstance(made, tuple) else (made,)
        for target, value, descriptor in zip(targets, results, descriptors, strict=True):
            if target is None or value is None:
                continue
            if kernel.name in _DYNAMIC:
                _write_dynamic(target, value, descriptor)
            else:
                # A scalar may be one element of any shape.
                write(target, value.reshape(target.shape) if target.numel() == value.numel() == 1 else value)
        if last:
            last(targets)

    return arguments_at, run


def _items(address: int, count: int, of: Any = ctypes.c_int64) -> list[Any]:
    return (of * count).from_address(address)[:] if count else []


def _tensor(descriptor: int, memory: DeviceMemory) -> torch.Tensor | None:
    """Return a tensor on the device, or on the host, where torch_npu keeps small tensors with parameters."""
    if not descriptor:
        return None
    code, ndim, _, data = _items(descriptor, 4)
    if code == -1:  # ACL_DT_UNDEFINED
        return None
    if not data or memory.holds(data):
        return memory.tensor(descriptor)
    shape, dtype = torch.Size(_items(descriptor + 40, ndim)), DTYPES[code]
    buffer = (ctypes.c_char * (shape.numel() * dtype.itemsize)).from_address(data)
    return torch.frombuffer(buffer, dtype=dtype).view(shape)


def _lists(address: int, count: int) -> list[list[int]]:
    pairs = (_items(address + 16 * place, 2) for place in range(count))
    return [_items(items, size) for size, items in pairs]


#: In the order of the kinds in aclop.c: bool, int, float, string, dtype, and lists of them.
_KINDS: tuple[Callable[[int, int], Any], ...] = (
    lambda address, count: bool(_items(address, count)[0]),
    lambda address, count: _items(address, count)[0],
    lambda address, count: _items(address, count, ctypes.c_double)[0],
    lambda address, _: ctypes.string_at(address).decode(),
    lambda address, count: DTYPES.get(_items(address, count)[0]),
    lambda address, count: [bool(each) for each in _items(address, count)],
    _items,
    functools.partial(_items, of=ctypes.c_double),
    _lists,
)
