"""Merge the logs of shards into the log of the whole run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

from msgspec import structs

from pytest_ascend.records.bounds import moment
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
#: A run takes hours; a resumed or sharded run may take days.
LONGEST = timedelta(days=14)


def merge(runs: Sequence[Run], target: Path) -> Summary:
    """Write the log of the whole run whose shards are ``runs``, and return its summary.

    If a shard was stopped early, so is the whole. Raises RunLogError and writes nothing if a shard is missing, given
    twice or altered, or shards differ in stack, manifest or rules, or are over 14 days apart; the message names them.
    """
    ordered = _checked(runs)
    log = RunLog.create(target, _whole(ordered, ordered[0].header), durable=False)
    for run in ordered:
        for record in run.records:
            log.append(record)
        for event in run.events:
            if not isinstance(event, TimeStamped):  # a time stamp covers a line of its own shard's log
                log.note(event)
    footers = [run.footer for run in ordered if run.footer]
    ended = len(footers) == len(ordered)
    summary = summarise(log.contents(ended=ended))
    if ended:
        log.finish(summary.footer(max((footer.finished for footer in footers), key=moment)))
    log.close()
    return summary


def _checked(runs: Sequence[Run]) -> list[Run]:
    """Return the shards in their order. Raises RunLogError if they do not belong together."""
    count, seen = _shard(runs[0]).count, dict[int, Run]()
    for run in runs:
        index = _shard(run).index
        if _shard(run).count != count:
            _refuse(run, f"it is one of {_shard(run).count} shards, and {runs[0].path} one of {count}")
        if index in seen:
            _refuse(run, f"it is shard {index}/{count}, and so is {seen[index].path}", hint="give each shard once")
        if twin := next((each for each in seen.values() if each.header.run_id == run.header.run_id), None):
            says = f"it is shard {index}/{count} of the very run that wrote {twin.path}"
            _refuse(run, says, hint="give each shard once")
        seen[index] = run
    if missing := [f"{index}/{count}" for index in range(1, count + 1) if index not in seen]:
        hint = "run what is missing, on the same stack, and give all logs"
        _refuse(runs[0], f"of its whole, these shards are missing: {', '.join(missing)}", hint=hint)
    first = min(runs, key=lambda run: moment(run.header.started))
    ends = [(run.footer.finished if run.footer else run.header.started, run) for run in runs]
    end, last = max(ends, key=lambda each: moment(each[0]))
    if moment(end) - moment(first.header.started) > LONGEST:
        when = f"{first.path} started on {first.header.started[:10]}, and {last.path} ended on {end[:10]}"
        hint = "run the older shards again, and merge those of one run"
        _refuse(last, f"{when}: shards of one run are at most {LONGEST.days} days apart", hint=hint)
    for run in runs[1:]:
        if differences := "; ".join(_differences(runs[0], run)):
            _refuse(run, f"it is of another run than {runs[0].path}: {figures.one_line(differences)}")
    return [run for _, run in sorted(seen.items())]


def _whole(ordered: Sequence[Run], first: Header) -> Header:
    headers, shard = [run.header for run in ordered], _shard(ordered[0])
    manifest = tuple(sorted((case for each in headers for case in each.manifest), key=lambda case: case.id))
    if digest(case.id for case in manifest) != shard.digest:
        _refuse(ordered[0], f"its whole has {shard.cases} cases, and the shards together have {len(manifest)} others")
    found = [finding for each in headers for finding in each.doctor.get("findings", ())]
    # None if one machine's devices are unknown, since they may be unhealthy.
    devices: list[list[Any]] = [list(each.doctor.get("devices", ())) for each in headers]
    ends = [run.footer.finished if run.footer else "" for run in ordered]
    parts = tuple(
        Part(run_id=of.run_id, started=of.started, finished=end, host=of.stack.host, head=run.head)
        for run, of, end in zip(ordered, headers, ends, strict=True)
    )
    return structs.replace(
        first,
        run_id=sha256("".join(each.run_id for each in headers).encode()).hexdigest()[:32],
        started=min((each.started for each in headers), key=moment),
        stack=replace(first.stack, host="; ".join(dict.fromkeys(each.stack.host for each in headers))),
        selection=shard.selection,
        manifest=manifest,
        options={**first.options, "shards": len(ordered)},
        doctor={
            **first.doctor,
            "findings": [each for place, each in enumerate(found) if each not in found[:place]],
            "devices": [each for some in devices for each in some] if all(devices) else [],
        },
        shard=None,
        merged=parts,
    )


def machines(header: Header) -> tuple[str, ...]:
    """Return the distinct machines on which the parts of a merged log ran."""
    return tuple(dict.fromkeys(each.host for each in header.merged))


def _shard(run: Run) -> Shard:
    """Return the shard of a run. Raises RunLogError for a whole run, or an altered log."""
    if run.header.shard is None:
        _refuse(run, "it is no shard of a run", hint="give the logs of runs with --ascend-shard=K/N")
    if run.broken:
        _refuse(run, broken_chain(run.broken), hint="give the log as the run wrote it")
    return run.header.shard


def _differences(one: Run, other: Run) -> Iterator[str]:
    """Yield the forbidden differences of two shards; machine names may differ."""
    left, right = one.header, other.header
    for name, (first, second) in components(replace(left.stack, host=""), replace(right.stack, host="")).items():
        yield f"another stack, {name} {first or 'unknown'} and {second or 'unknown'}"
    mine, theirs = _shard(one), _shard(other)
    if mine.digest != theirs.digest:
        yield f"another manifest, of {mine.cases} and {theirs.cases} cases"
    if left.level != right.level:
        yield f"another level, {left.level} and {right.level}"
    if mine.selection != theirs.selection:
        first, second = (each.selection.reason or each.selection.kind for each in (mine, theirs))
        yield f"another selection, {first} and {second}"
    for here, there in ((left.options, right.options), (left.used, right.used)):
        for name in sorted({*here, *there} - set(_OWN)):
            values: list[Any] = [here.get(name), there.get(name)]
            if values[0] == values[1]:
                continue
            if all(isinstance(each, list) for each in values):  # only entries that the other lacks
                values = [[each for each in a if each not in b] for a, b in (values, values[::-1])]
            first, second = (f"{text[:80]}…" if len(text) > 80 else text for text in map(str, values))
            yield f"another rule, {name} {first} and {second}"


def _refuse(run: Run, message: str, *, hint: str = "merge the shards of one run on one stack") -> NoReturn:
    raise RunLogError(f"{run.path} cannot be merged: {message}", path=run.path, hint=hint)
