"""``pytest-ascend check-dump``: judge every API call of an msprobe dump, and name the first that is wrong."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from torch.utils._pytree import tree_flatten, tree_map

from pytest_ascend import precision
from pytest_ascend.isolation.process import Channel, Deadline, start
from pytest_ascend.parity.dump import Call, Dump, Unreadable, find_dumps, read_dump, statistics, tensors_of
from pytest_ascend.run import allowed
from pytest_ascend.run.reference import cpu_reference
from pytest_ascend.system.programs import memory_limited
from pytest_ascend.system.text import one_line

#: The full name of an operator for the first part of its name in msprobe; torch._VF has functions of torch.
NAMESPACES = {
    "Functional": "torch.nn.functional.",
    "Torch": "torch.",
    "Tensor": "torch.Tensor.",
    "VF": "torch.",
    "Aten": "torch.ops.aten.",
}
AGREES, DISAGREES, NOT_JUDGED = "agrees", "disagrees", "not-judged"
#: The longest time for one call in one direction, and the most threads that compute it: each has a stack.
CALL_LIMIT_S, MOST_THREADS = 120.0, 8
#: The number of calls that the terminal lists.
LINES_LIMIT = 20


@dataclass(frozen=True, slots=True)
class CallVerdict:
    """The verdict on one call in one direction. ``why`` is its headline, or why there is none."""

    call: str
    direction: str
    state: str
    why: str = ""
    limit_used: float | None = None

    @property
    def name(self) -> str:
        """The call and its direction, as msprobe writes it."""
        return f"{self.call}.{self.direction}"

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only."""
        used = self.limit_used if self.limit_used is not None and math.isfinite(self.limit_used) else None
        return {"call": self.name, "state": self.state, "why": self.why, "limit_used": used}


def resolve(name: str) -> Callable[..., Any]:
    """Return the operator of an msprobe name. Raises Unreadable if none may be named so, or the CPU has none."""
    space, _, rest = name.partition(".")
    rest, _, overload = rest.partition(".") if space == "Aten" else (rest, "", "")
    found = allowed.function(f"{NAMESPACES[space]}{rest}") if space in NAMESPACES else None
    if found is None:
        raise Unreadable(f"no reference on the CPU for {one_line(name)[:80]}")
    return getattr(found, overload) if overload and overload in found.overloads() else found  # type: ignore[attr-defined]


def judge(dump: Dump) -> Iterator[CallVerdict]:
    """Judge each call with the device's own inputs, in the order of the run.

    Calls run in a process of their own with bounds of time and memory: arguments come from a file, and some would make
    torch compute for days, take all memory, or crash. This process must not have computed in several threads before:
    a fork does not copy OpenMP's.
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
        deadline, why = Deadline(child.pid, CALL_LIMIT_S), ""
        while done < len(work) and not why:
            over = child.code()
            found = [CallVerdict(**each) for each in child.read()]
            if found:
                yield from found
                done += len(found)
                deadline.allow(CALL_LIMIT_S)
            elif over is not None:
                why = f"the CPU: its process ended with {over}"
            elif deadline.is_over():
                why = f"the CPU: it took more than {CALL_LIMIT_S:g} s"
            else:
                time.sleep(0.005)
        child.end(0)
        if why:
            yield CallVerdict(work[done][0].name, work[done][1], NOT_JUDGED, why)
            done += 1


def _judged(dump: Dump, call: Call, direction: str) -> CallVerdict:
    try:
        verdict = _forward(dump, call) if direction == "forward" else _backward(dump, call)
    except Unreadable as error:
        return CallVerdict(call.name, direction, NOT_JUDGED, str(error))
    except Exception as error:  # noqa: BLE001 - whatever torch raises for a call that the dump does not fully contain
        why = f"the CPU: {type(error).__name__}: {one_line(str(error))[:200]}"
        return CallVerdict(call.name, direction, NOT_JUDGED, why)
    state = AGREES if verdict.agrees else DISAGREES
    return CallVerdict(call.name, direction, state, verdict.headline, verdict.metrics.get("limit_used"))


def _forward(dump: Dump, call: Call) -> precision.Verdict:
    function, args, kwargs = _call(dump, call)
    actual = [dump.tensor(each) for each in tensors_of(call.forward.get("output"))]
    results = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            results.append(cpu_reference(function, *args, **kwargs))
    if not precision.compare(_flat(results[0]), _flat(results[1]), standard="binary").agrees:
        raise Unreadable("draws random numbers")
    return _compare(call.name, actual, results[0])


def _backward(dump: Dump, call: Call) -> precision.Verdict:
    if not call.forward:
        raise Unreadable("the dump lacks the forward of this call")
    function, args, kwargs = _call(dump, call)
    grad_outputs = [dump.tensor(each) for each in tensors_of(call.backward.get("input"))]
    actual = [dump.tensor(each) for each in tensors_of(call.backward.get("output"))]
    gradients = partial(_gradients, function, [each.shape for each in actual])
    return _compare(call.name, actual, cpu_reference(gradients, args, kwargs, grad_outputs))


def _call(dump: Dump, call: Call) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
    function = resolve(call.function)
    args = dump.value(call.forward.get("input_args", []))
    kwargs = dump.value(call.forward.get("input_kwargs", {}))
    return function, list(args or ()), dict(kwargs or {})


def _gradients(
    function: Callable[..., Any],
    shapes: Sequence[torch.Size],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    above: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Return the gradients computed by the last node of the call's graph from those of its results.

    That is what msprobe dumps: not the gradients of the call's inputs, if a call consists of several nodes. They have
    the shapes before broadcasting, as autograd gives them after the node. Raises Unreadable.
    """
    args, kwargs = tree_map(lambda each: each.clone() if isinstance(each, torch.Tensor) else each, (args, kwargs))
    outputs = [each for each in _flat(function(*args, **kwargs)) if each.grad_fn is not None]
    nodes = {each.grad_fn for each in outputs}
    if len(nodes) != 1 or [each.shape for each in outputs] != [each.shape for each in above]:
        raise Unreadable("the gradients in the dump do not belong to the call's results")
    node: Any = nodes.pop()
    found = node(*above)
    gradients = [each for each in (found if isinstance(found, tuple) else (found,)) if each is not None]
    try:
        return [each.sum_to_size(shape) for each, shape in zip(gradients, shapes, strict=True)]
    except (RuntimeError, ValueError):
        raise Unreadable("the gradients in the dump are not those that the CPU computes here") from None


def _compare(name: str, actual: Sequence[torch.Tensor], expected: Any) -> precision.Verdict:
    if not actual:
        raise Unreadable("the dump has no result of this call")
    return precision.compare(list(actual), _flat(expected), name=name)


def _flat(tree: Any) -> list[torch.Tensor]:
    return [each for each in tree_flatten(tree)[0] if isinstance(each, torch.Tensor)]


def part(first: Dump, second: Dump) -> tuple[str, str] | None:
    """Return the first call with equal inputs and different results, and the difference; None without any.

    Values are compared bit for bit if both dumps have them, else msprobe's statistics.
    """
    theirs = {call.name: call for call in second.calls}
    for call in first.calls:
        other = theirs.get(call.name)
        if other is None:
            return call.name, "the other dump has no such call"
        for direction, inputs in (("forward", ("input_args", "input_kwargs")), ("backward", ("input",))):
            mine, its = getattr(call, direction), getattr(other, direction)
            alike = not any(_difference(first, mine.get(each), second, its.get(each)) for each in inputs)
            difference = _difference(first, mine.get("output"), second, its.get("output"))
            if alike and difference:
                return f"{call.name}.{direction}", f"the inputs are alike, {difference}"
    return None


def _difference(first: Dump, mine: Any, second: Dump, its: Any) -> str:
    ours, others = list(tensors_of(mine)), list(tensors_of(its))
    if len(ours) != len(others):
        return f"{len(ours)} tensors beside {len(others)}"
    for index, (a, b) in enumerate(zip(ours, others, strict=True)):
        try:
            verdict = precision.compare(first.tensor(a), second.tensor(b), standard="binary")
        except Unreadable:
            pairs = zip(statistics(a), statistics(b), strict=True)
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
        parting = part(read_dump(find_dumps(dump)[0]), read_dump(find_dumps(against)[0]))
        if as_json:
            text = json.dumps({"parts": dict(zip(("at", "why"), parting, strict=True)) if parting else None})
        elif parting:
            text = f"the dumps part at {one_line(parting[0])}: {parting[1]}"
        else:
            text = "every result of every call is alike"
        click.echo(text)
        context.exit(1 if parting else 0)
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
