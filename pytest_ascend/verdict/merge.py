"""Merging the logs of shards into that of the whole run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from msgspec import structs

from pytest_ascend.records.bounds import moment
from pytest_ascend.records.case import Stack
from pytest_ascend.runlog.contents import Header, Part, Run, Shard, TimeStamped, digest
from pytest_ascend.runlog.reading import broken_chain
from pytest_ascend.runlog.writing import RunLog
from pytest_ascend.system import figures
from pytest_ascend.system.errors import RunLogError
from pytest_ascend.verdict.diff import components
from pytest_ascend.verdict.summary import Summary, summarise

#: Options that may differ between shards, because they do not affect results.
_OWN = (
    *("device", "cards", "emulated_devices", "isolation", "shard"),
    *("report", "against", "baselines", "resume", "deadline_s", "case_deadline_s"),
)
#: A run takes hours; a continued or divided run may take days.
LONGEST = timedelta(days=14)
#: Characters of a value that a message repeats.
VALUE_LIMIT = 80


def merge(runs: Sequence[Run], target: Path) -> Summary:
    """Write the log of the whole that ``runs`` are the shards of, and return its summary.

    If a shard was stopped early, so is the whole. Raises RunLogError and writes nothing if a shard is missing, given
    twice or altered, if shards differ in stack, manifest or rules, or if they are more than 14 days apart; the message
    names them.
    """
    header = _whole(runs)
    log = RunLog.create(target, header, durable=False)
    for run in _in_order(runs):
        for record in run.records:
            log.append(record)
        for event in run.events:
            if not isinstance(event, TimeStamped):  # which is over a line of its part
                log.note(event)
    ended = all(run.footer for run in runs)
    summary = summarise(log.contents(ended=ended))
    if ended:
        log.finish(summary.footer(max((run.footer.finished for run in runs if run.footer), key=moment)))
    log.close()
    return summary


def _whole(runs: Sequence[Run]) -> Header:
    """Return the header of the whole run, after checking that the shards belong together."""
    _refuse_gaps(runs)
    _refuse_other_times(runs)
    for run in runs[1:]:
        one = runs[0]
        differences = list(_differences(one, run))
        if differences:
            told = figures.one_line("; ".join(differences))
            _refuse(run, f"it is of another run than {one.path}: {told}")
    ordered = _in_order(runs)
    first, shard = ordered[0].header, _shard(ordered[0])
    manifest = tuple(sorted((case for run in runs for case in run.header.manifest), key=lambda case: case.id))
    if digest(case.id for case in manifest) != shard.digest:
        _refuse(runs[0], f"its whole has {shard.cases} cases, and the shards together have {len(manifest)} others")
    found = [each for run in ordered for each in run.header.doctor.get("findings", ())]
    return structs.replace(
        first,
        run_id=sha256("".join(run.header.run_id for run in ordered).encode()).hexdigest()[:32],
        started=min((run.header.started for run in runs), key=moment),
        stack=replace(first.stack, host="; ".join(dict.fromkeys(run.header.stack.host for run in ordered))),
        selection=shard.selection,
        manifest=manifest,
        options={**first.options, "shards": len(runs)},
        doctor={
            **first.doctor,
            "findings": [each for place, each in enumerate(found) if each not in found[:place]],
            "devices": _devices(ordered),
        },
        shard=None,
        merged=tuple(_part(run) for run in ordered),
    )


def machines(header: Header) -> tuple[str, ...]:
    """Return the machines that the parts of a merged log ran on, each once."""
    return tuple(dict.fromkeys(each.host for each in header.merged))


def _part(run: Run) -> Part:
    header, finished = run.header, run.footer.finished if run.footer else ""
    return Part(run_id=header.run_id, started=header.started, finished=finished, host=header.stack.host, head=run.head)


def _shard(run: Run) -> Shard:
    """Return the shard of a run. Raises RunLogError for a whole run, or an altered log."""
    if run.header.shard is None:
        _refuse(run, "it is no shard of a run", hint="give the logs of runs with --ascend-shard=K/N")
    if run.broken:
        _refuse(run, broken_chain(run.broken), hint="give the log as the run wrote it")
    return run.header.shard


def _in_order(runs: Sequence[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: _shard(run).index)


def _devices(runs: Sequence[Run]) -> list[Any]:
    """Return the devices of all machines; none if those of one machine are unknown, since they may be unhealthy."""
    found = [list(run.header.doctor.get("devices", ())) for run in runs]
    return [device for devices in found for device in devices] if all(found) else []


def _refuse_gaps(runs: Sequence[Run]) -> None:
    count = _shard(runs[0]).count
    seen: dict[int, Run] = {}
    for run in runs:
        index = _shard(run).index
        if _shard(run).count != count:
            _refuse(run, f"it is one of {_shard(run).count} shards, and {runs[0].path} one of {count}")
        if index in seen:
            _refuse(run, f"it is shard {index}/{count}, and so is {seen[index].path}", hint="give each shard once")
        twin = next((each for each in seen.values() if each.header.run_id == run.header.run_id), None)
        if twin:
            _refuse(
                run, f"it is shard {index}/{count} of the very run that wrote {twin.path}", hint="give each shard once"
            )
        seen[index] = run
    missing = [f"{index}/{count}" for index in range(1, count + 1) if index not in seen]
    if missing:
        hint = "run what is missing, on the same stack, and give all logs"
        _refuse(runs[0], f"of its whole, these shards are missing: {', '.join(missing)}", hint=hint)


def _refuse_other_times(runs: Sequence[Run]) -> None:
    """Raise RunLogError if shards are too far apart in time."""
    first = min(runs, key=lambda run: moment(run.header.started))
    last = max(runs, key=lambda run: moment(run.footer.finished if run.footer else run.header.started))
    ended = last.footer.finished if last.footer else last.header.started
    span = moment(ended) - moment(first.header.started)
    if span > LONGEST:
        when = f"{first.path} started on {first.header.started[:10]}, and {last.path} ended on {ended[:10]}"
        hint = "run the older shards again, and merge those of one run"
        _refuse(last, f"{when}: shards of one run are at most {LONGEST.days} days apart", hint=hint)


def _differences(one: Run, other: Run) -> Iterator[str]:
    """Return the forbidden differences of two shards; machine names may differ."""
    left, right = one.header, other.header
    for name, (first, second) in components(_without_host(left.stack), _without_host(right.stack)).items():
        yield f"another stack, {name} {first or 'unknown'} and {second or 'unknown'}"
    mine, theirs = _shard(one), _shard(other)
    if mine.digest != theirs.digest:
        yield f"another manifest, of {mine.cases} and {theirs.cases} cases"
    if left.level != right.level:
        yield f"another level, {left.level} and {right.level}"
    if mine.selection != theirs.selection:
        first, second = (each.selection.reason or each.selection.kind for each in (mine, theirs))
        yield f"another selection, {first} and {second}"
    yield from _other_rules(left.options, right.options)
    yield from _other_rules(left.used, right.used)


def _other_rules(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*one, *other} - set(_OWN)):
        if one.get(name) != other.get(name):
            left, right = _apart(one.get(name), other.get(name))
            yield f"another rule, {name} {left} and {right}"


def _apart(one: Any, other: Any) -> tuple[str, str]:
    """Return two values as text: of lists only what the other lacks, shortened to what differs."""
    if isinstance(one, list) and isinstance(other, list):
        one, other = [each for each in one if each not in other], [each for each in other if each not in one]
    return _short(one), _short(other)


def _short(value: Any) -> str:
    text = str(value)
    return f"{text[:VALUE_LIMIT]}…" if len(text) > VALUE_LIMIT else text


def _without_host(stack: Stack) -> Stack:
    return replace(stack, host="")


def _refuse(run: Run, message: str, *, hint: str = "merge the shards of one run on one stack") -> NoReturn:
    raise RunLogError(f"{run.path} cannot be merged: {message}", path=run.path, hint=hint)
