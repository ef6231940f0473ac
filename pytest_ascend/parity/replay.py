"""``pytest-ascend check-dump``: judge every API call of an msprobe dump, and name the first wrong one.

A dump is untrusted input. Its format is msprobe's own, ``dump_path/step*/rank*/{dump.json, dump_tensor_data/*.pt}``,
level L1 or mix (Ascend/msprobe, docs/en/dump/pytorch_data_dump_instruct.md). Tensors are read by torch's restricted
unpickler, which builds tensors only.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from torch.utils._pytree import tree_map

from pytest_ascend import precision
from pytest_ascend.isolation.process import Channel, Deadline, start
from pytest_ascend.run import allowed
from pytest_ascend.run.reference import cpu_reference
from pytest_ascend.system.dispatching import tensors_in
from pytest_ascend.system.errors import UsageError
from pytest_ascend.system.files import read_regular, strict_json
from pytest_ascend.system.programs import memory_limited
from pytest_ascend.system.text import one_line

DUMP, DUMP_LIMIT_BYTES, TENSOR_LIMIT_BYTES = "dump.json", 512 << 20, 8 << 30

_CALL = re.compile(r"(?P<function>[A-Za-z]\w*(?:\.\w+)+)\.(?P<index>\d+)\.(?P<direction>forward|backward)")


class Unreadable(ValueError):
    """A value that is not in the dump, or cannot be rebuilt."""


@dataclass(frozen=True, slots=True)
class Call:
    """One API call: ``name`` is msprobe's (``Functional.relu.0``), ``function`` is the same without the call's number.

    ``forward`` and ``backward`` are the entries of the dump, empty if it has none.
    """

    name: str
    function: str
    forward: Mapping[str, Any] = field(default_factory=dict)
    backward: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dump:
    """One rank of one step. ``calls`` are in call order; ``path`` is its dump.json."""

    path: Path
    calls: tuple[Call, ...]

    def value(self, entry: Any) -> Any:
        """Rebuild a value: tensors, numbers, strings, dtypes, slices, lists and mappings. Raises Unreadable."""
        if entry is None or isinstance(entry, (bool, int, float, str)):
            return entry
        if isinstance(entry, list):
            return [self.value(each) for each in entry]
        if not isinstance(entry, Mapping):
            raise Unreadable(f"a value of type {type(entry).__name__}")
        typed = "type" in entry
        return self._typed(entry) if typed else {str(key): self.value(each) for key, each in entry.items()}

    def _typed(self, entry: Mapping[str, Any]) -> Any:
        kind, value = str(entry["type"]), entry.get("value", entry.get("Max"))
        if kind.endswith(("Tensor", "Parameter")):
            return self.tensor(entry)
        if kind in _NUMBERS and isinstance(value, (bool, int, float, str)):
            return _NUMBERS[kind](value)
        if kind == "slice" and isinstance(value, list) and len(value) == 3:
            return slice(*value)
        if kind in {"torch.Size", "tuple", "list"} and isinstance(value, list):
            return tuple(self.value(each) for each in value)
        if kind == "torch.dtype" and isinstance(found := getattr(torch, str(value)[6:], None), torch.dtype):
            return found
        if kind not in _CONSTANTS:
            raise Unreadable(f"a value of type {kind[:40]}")
        return _CONSTANTS[kind]

    def tensor(self, entry: Mapping[str, Any]) -> torch.Tensor:
        """Read one tensor onto the CPU. Raises Unreadable if the dump has only statistics, or the file is invalid."""
        path = self._file(entry)
        if path is None:
            raise Unreadable("only statistics of a tensor (dump with task 'tensor')")
        name = path.name
        try:
            data = read_regular(path, TENSOR_LIMIT_BYTES)
            with memory_limited(allowed.memory_bytes(len(data))):
                loaded = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except OSError as error:
            raise Unreadable(f"{name}: {error.strerror or error}") from None
        except Exception as error:  # noqa: BLE001 - the unpickler may raise anything for a file not written by torch
            raise Unreadable(f"{name} is damaged or holds more than a tensor: {type(error).__name__}") from None
        if not isinstance(loaded, torch.Tensor):
            raise Unreadable(f"{name} holds no tensor")
        if loaded.numel() * loaded.element_size() > allowed.memory_bytes(len(data)):
            raise Unreadable(f"{name} has {loaded.numel():,} elements in {len(data):,} bytes")
        return loaded.detach().requires_grad_(entry.get("requires_grad") is True and loaded.is_floating_point())

    def bytes(self, entry: Any) -> int:
        """Return the total size of the files of all tensors in a part of a call."""
        found = (self._file(each) for each in tensors_of(entry))
        return sum(path.stat().st_size for path in found if path is not None and path.is_file())

    def _file(self, entry: Mapping[str, Any]) -> Path | None:
        """Return a tensor's file, inside the dump's own folder; None if it has none."""
        name = entry.get("data_name")
        if not isinstance(name, str) or not name.endswith(".pt") or name != Path(name).name or "\0" in name:
            return None
        return self.path.parent / "dump_tensor_data" / name


_NUMBERS: Mapping[str, Any] = {"int": int, "float": float, "bool": bool, "str": str, "complex": complex}
_CONSTANTS: Mapping[str, Any] = {"NoneType": None, "None": None, "ellipsis": ...}


def find_dumps(path: Path) -> list[Path]:
    """Return every dump.json of a path: the file itself, or those in the folder of a rank, a step, or an entire run.

    Raises UsageError if there is none.
    """
    if path.name == DUMP:
        return [path]
    # A process without a rank dumps into "proc" followed by its number.
    for pattern in (DUMP, f"*/{DUMP}", f"*/*/{DUMP}"):
        if found := sorted(path.glob(pattern)):
            return found
    message = f"{path}: there is no {DUMP} in it, its ranks or its steps"
    raise UsageError(message, hint="name the folder that msprobe wrote into")


def read_dump(path: Path) -> Dump:
    """Read one dump.json. Raises UsageError for anything not written by msprobe."""
    try:
        content = strict_json(read_regular(path, DUMP_LIMIT_BYTES), constants=True)
        data = content["data"] if isinstance(content, Mapping) else None
        why = "" if isinstance(data, Mapping) else "it has no 'data'"
    except (OSError, ValueError, KeyError) as error:
        said = (error.strerror or str(error)) if isinstance(error, OSError) else ""
        why = said or f"{type(error).__name__}: {str(error)[:200]}"
    if why or data is None:
        hint = "name the dump.json that msprobe wrote, level L1 or mix"
        raise UsageError(f"{path} is not an msprobe dump: {why}", hint=hint)
    entries: dict[str, dict[str, Any]] = {}
    for name, entry in data.items():
        if (found := _CALL.fullmatch(name)) and not name.startswith("Module.") and isinstance(entry, Mapping):
            call = entries.setdefault(f"{found['function']}.{found['index']}", {"function": found["function"]})
            call[found["direction"]] = entry
    return Dump(path, tuple(Call(name, **fields) for name, fields in entries.items()))


def tensors_of(entry: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of all tensors in a part of a call, in order."""
    if isinstance(entry, Mapping) and str(entry.get("type", "")).endswith(("Tensor", "Parameter")):
        yield entry
    elif isinstance(entry, Mapping | Sequence) and not isinstance(entry, str):
        for each in entry.values() if isinstance(entry, Mapping) else entry:
            yield from tensors_of(each)


def statistics(entry: Mapping[str, Any]) -> tuple[float, ...]:
    """Return msprobe's statistics of a tensor, NaN for missing ones; for comparing tensors without values."""
    found = (entry.get(name) for name in ("Max", "Min", "Mean", "Norm"))
    return tuple(float(each) if isinstance(each, (int, float)) else math.nan for each in found)


#: Prefix of an operator's full name, by the first part of its msprobe name; torch._VF has functions of torch.
NAMESPACES = {
    "Functional": "torch.nn.functional.",
    "Torch": "torch.",
    "Tensor": "torch.Tensor.",
    "VF": "torch.",
    "Aten": "torch.ops.aten.",
}
AGREES, DISAGREES, NOT_JUDGED = "agrees", "disagrees", "not-judged"
#: Longest time for one call in one direction, and most threads that compute it: each has a stack.
CALL_LIMIT_S, MOST_THREADS = 120.0, 8
#: Most calls that the terminal lists.
LINES_LIMIT = 20


@dataclass(frozen=True, slots=True)
class CallVerdict:
    """The verdict on one call in one direction, named as in msprobe. ``why`` is its headline, or why there is none."""

    name: str
    state: str
    why: str = ""
    limit_used: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only."""
        used = self.limit_used if self.limit_used is not None and math.isfinite(self.limit_used) else None
        return {"call": self.name, "state": self.state, "why": self.why, "limit_used": used}


def resolve(name: str) -> Callable[..., Any]:
    """Return the operator of an msprobe name. Raises Unreadable if it is not allowed, or missing on the CPU."""
    space, _, rest = name.partition(".")
    rest, _, overload = rest.partition(".") if space == "Aten" else (rest, "", "")
    found = allowed.function(f"{NAMESPACES[space]}{rest}") if space in NAMESPACES else None
    if found is None:
        raise Unreadable(f"no reference on the CPU for {one_line(name)[:80]}")
    return getattr(found, overload) if overload and overload in found.overloads() else found  # type: ignore[attr-defined]


def judge(dump: Dump) -> Iterator[CallVerdict]:
    """Judge each call with the device's own inputs, in the order of the run.

    Calls run in a process of their own with limits on time and memory: arguments come from a file, and some would make
    torch compute for days, use all memory, or crash. This process must not have computed in several threads before,
    since a fork does not copy OpenMP's.
    """
    work = [(call, each) for call in dump.calls for each in ("forward", "backward") if getattr(call, each)]
    done = 0

    def judge_rest(channel: Channel) -> None:
        torch.set_num_threads(min(torch.get_num_threads(), MOST_THREADS))
        for call, direction in work[done:]:
            with memory_limited(allowed.memory_bytes(dump.bytes(call.forward) + dump.bytes(call.backward))):
                channel.send(**asdict(_judged(dump, call, direction)))

    while done < len(work):
        child = start(judge_rest)
        deadline = Deadline(child.pid, CALL_LIMIT_S)
        while done < len(work) and (found := child.wait(deadline)):
            yield from (CallVerdict(**each) for each in found)
            done += len(found)
            deadline.allow(CALL_LIMIT_S)
        code = child.code()
        child.end(0)
        if done < len(work):
            why = f"it took more than {CALL_LIMIT_S:g} s" if code is None else f"its process ended with {code}"
            yield CallVerdict(f"{work[done][0].name}.{work[done][1]}", NOT_JUDGED, f"the CPU: {why}")
            done += 1


def _judged(dump: Dump, call: Call, direction: str) -> CallVerdict:
    name = f"{call.name}.{direction}"
    try:
        actual, expected = _results(dump, call, direction)
        if not actual:
            raise Unreadable("the dump has no result of this call")
        verdict = precision.compare(actual, tensors_in(expected), name=call.name)
    except Unreadable as error:
        return CallVerdict(name, NOT_JUDGED, str(error))
    except Exception as error:  # noqa: BLE001 - torch may raise anything for a call that the dump holds only in part
        return CallVerdict(name, NOT_JUDGED, f"the CPU: {type(error).__name__}: {one_line(str(error))[:200]}")
    state = AGREES if verdict.agrees else DISAGREES
    return CallVerdict(name, state, verdict.headline, verdict.metrics.get("limit_used"))


def _results(dump: Dump, call: Call, direction: str) -> tuple[list[torch.Tensor], Any]:
    """Return the device's result tensors, and the CPU's results for the same inputs."""
    if not call.forward:
        raise Unreadable("the dump lacks the forward of this call")
    function = resolve(call.function)
    args = list(dump.value(call.forward.get("input_args", [])) or ())
    kwargs = dict(dump.value(call.forward.get("input_kwargs", {})) or {})
    if direction == "backward":
        grad_outputs = [dump.tensor(each) for each in tensors_of(call.backward.get("input"))]
        actual = [dump.tensor(each) for each in tensors_of(call.backward.get("output"))]
        return actual, cpu_reference(partial(_gradients, function, actual), args, kwargs, grad_outputs)
    actual, results = [dump.tensor(each) for each in tensors_of(call.forward.get("output"))], []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            results.append(cpu_reference(function, *args, **kwargs))
    if not precision.compare(*(tensors_in(each) for each in results), standard="binary").agrees:
        raise Unreadable("draws random numbers")
    return actual, results[0]


def _gradients(
    function: Any, like: Sequence[torch.Tensor], args: Any, kwargs: Any, grad_outputs: Any
) -> list[torch.Tensor]:
    """Return the gradients computed by the last node of the call's graph from the gradients of its results.

    These are what msprobe dumps: not the gradients of the call's inputs, if a call consists of several nodes. They have
    the shapes before broadcasting, as autograd gives them after the node. Raises Unreadable.
    """
    args, kwargs = tree_map(lambda each: each.clone() if isinstance(each, torch.Tensor) else each, (args, kwargs))
    outputs = [each for each in tensors_in(function(*args, **kwargs)) if each.grad_fn is not None]
    nodes = {each.grad_fn for each in outputs}
    if len(nodes) != 1 or [each.shape for each in outputs] != [each.shape for each in grad_outputs]:
        raise Unreadable("the gradients in the dump do not belong to the call's results")
    node: Any = nodes.pop()
    found = node(*grad_outputs)
    gradients = [each for each in (found if isinstance(found, tuple) else (found,)) if each is not None]
    try:
        return [each.sum_to_size(one.shape) for each, one in zip(gradients, like, strict=True)]
    except (RuntimeError, ValueError):
        raise Unreadable("the gradients in the dump are not those that the CPU computes here") from None


def part(first: Dump, second: Dump) -> tuple[tuple[str, str] | None, list[bool]]:
    """Return the first call with equal inputs and different results, and the difference; None if there is none.

    Values are compared bit for bit if both dumps have them, else msprobe's statistics. The list tells, for each call
    and direction up to that one, whether it could be compared because its inputs are equal.
    """
    theirs, are_alike = {call.name: call for call in second.calls}, list[bool]()
    for call in first.calls:
        other = theirs.get(call.name)
        if other is None:
            return (call.name, "the other dump has no such call"), are_alike
        for direction, inputs in (("forward", ("input_args", "input_kwargs")), ("backward", ("input",))):
            mine, its = getattr(call, direction), getattr(other, direction)
            try:
                alike = not any(_difference(first, mine.get(each), second, its.get(each)) for each in inputs)
                difference = _difference(first, mine.get("output"), second, its.get("output")) if alike else ""
            except Unreadable:
                alike, difference = False, ""
            are_alike += [alike] if mine or its else []
            if difference:
                return (f"{call.name}.{direction}", f"the inputs are alike, {difference}"), are_alike
    return None, are_alike


def _difference(first: Dump, mine: Any, second: Dump, its: Any) -> str:
    """Describe how the tensors of two parts of a call differ. Raises Unreadable without values and statistics."""
    ours, others = list(tensors_of(mine)), list(tensors_of(its))
    if len(ours) != len(others):
        return f"{len(ours)} tensors beside {len(others)}"
    for index, (a, b) in enumerate(zip(ours, others, strict=True)):
        try:
            verdict = precision.compare(first.tensor(a), second.tensor(b), standard="binary")
        except Unreadable:
            pairs = [*zip(statistics(a), statistics(b), strict=True)]
            if all(math.isnan(x) and math.isnan(y) for x, y in pairs):
                raise
            if not all(x == y or (math.isnan(x) and math.isnan(y)) for x, y in pairs):
                return f"the statistics of result {index} differ"
            continue
        if not verdict.agrees:
            return f"result {index}: {verdict.headline}"
    return ""


@click.command()
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("--against", type=click.Path(path_type=Path), help="A second dump of the same program, or another rank.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.pass_context
def replay(context: click.Context, dump: Path, against: Path | None, *, as_json: bool) -> None:
    """Judge each API call of DUMP, written by msprobe, against float64 on the CPU; name the first wrong one.

    Every call gets the device's own inputs, so that one wrong call does not affect the verdicts on later ones. With
    --against, two dumps are compared instead: the first call with equal inputs and different results is named. Exits
    with 1 if a call is wrong or the dumps diverge, with 5 if nothing could be judged.
    """
    if against is not None:
        parting, are_alike = part(read_dump(find_dumps(dump)[0]), read_dump(find_dumps(against)[0]))
        if as_json:
            text = json.dumps({"parts": dict(zip(("at", "why"), parting, strict=True)) if parting else None})
        elif parting:
            text = f"the dumps part at {one_line(parting[0])}: {parting[1]}"
        elif are_alike and all(are_alike):
            text = "every result of every call is alike"
        else:
            counted = f"{sum(are_alike):,} of {len(are_alike):,} calls are alike"
            text = f"{counted}; the others have other inputs, or cannot be compared"
        click.echo(text)
        context.exit(1 if parting else 0 if any(are_alike) else 5)
    results = {path: list(judge(read_dump(path))) for path in find_dumps(dump)}
    if as_json:
        click.echo(json.dumps({str(path): [each.to_dict() for each in found] for path, found in results.items()}))
    else:
        click.echo("\n".join(line for path, found in results.items() for line in _lines(path, found)))
    states = {each.state for found in results.values() for each in found}
    context.exit(1 if DISAGREES in states else 0 if AGREES in states else 5)


def _lines(path: Path, found: Sequence[CallVerdict]) -> Iterator[str]:
    counts = Counter(each.state for each in found)
    tally = ", ".join(f"{counts[name]:,} {name}" for name in (DISAGREES, AGREES, NOT_JUDGED) if counts[name])
    yield f"{one_line(str(path))}: {tally or 'no API call'}"
    wrong = [each for each in found if each.state == DISAGREES]
    if wrong:
        yield f"first wrong: {one_line(wrong[0].name)}: {one_line(wrong[0].why)}"
    for each in wrong[1:LINES_LIMIT]:
        yield f"  also: {one_line(each.name)}: {one_line(each.why)}"
    if len(wrong) > LINES_LIMIT:
        yield f"  and {len(wrong) - LINES_LIMIT:,} more (--json has them)"
    reasons = Counter(one_line(each.why) for each in found if each.state == NOT_JUDGED)
    for why, count in reasons.most_common(LINES_LIMIT):
        yield f"  not judged: {count:,} {'call' if count == 1 else 'calls'}: {why}"
