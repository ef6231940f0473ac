"""Why ranks differ: compares the records of all ranks, and states the cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import isfinite
from typing import Any

from pytest_ascend.system.bundled import table
from pytest_ascend.system.groups import by_key

#: Half a unit in the last place, by dtype: the error of one rounding.
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
#: Extra roundings allowed for a reduction, beside one per rank.
SPARE = 8.0
#: Steps in which data must overlap, and the share of rows, to count as a fault: a sampler repeats a few at its end.
STEPS, SHARE = 2, 0.25

#: By kind of finding: its cause, its wording, and what to do.
_ROWS: Mapping[str, Mapping[str, Any]] = table("distributed/findings.json")

Line = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A cause. A ``note`` explains why a result differs from a single process's, although nothing is wrong."""

    cause: str
    step: int
    where: str
    words: str
    remedy: str
    is_note: bool = False


def _found(what: str, step: int, where: str, **facts: Any) -> Finding:
    row = _ROWS[what]
    words = row["words"].format(step=step, where=where, **facts)
    return Finding(**{**row, "words": words}, step=step, where=where)


def findings(ranks: Mapping[int, Sequence[Line]]) -> list[Finding]:
    """Return causes, for each kind the first one found, earliest step first, then notes."""
    checks = (_data, _epochs, _skipped, _collectives, _gradients, _buffers, _random, _batch_norm)
    found = [each for check in checks for each in islice(check(ranks), 1)]
    if all(each.is_note for each in found):
        found += islice(_weights(ranks), 1)
    return sorted(found, key=lambda each: (each.is_note, each.step))


def cost(ranks: Mapping[int, Sequence[Line]]) -> float:
    """Return the share of its time that the slowest rank spent on recording."""
    ends = [each for lines in ranks.values() for each in lines if each["kind"] == "end"]
    return max((each["spent_s"] / max(each["whole_s"] - each["spent_s"], 1e-9) for each in ends), default=0.0)


def _of(ranks: Mapping[int, Sequence[Line]], kind: str) -> dict[int, list[Line]]:
    return {rank: [each for each in lines if each["kind"] == kind] for rank, lines in ranks.items()}


def _is_sharded(ranks: Mapping[int, Sequence[Line]]) -> bool:
    return any(each["sharded"] for lines in _of(ranks, "model").values() for each in lines)


def _by_step(lines: Iterable[Line]) -> dict[int, list[Line]]:
    return by_key((each["step"], each) for each in lines)


# --- data ---


def _data(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    rows = {
        rank: {step: [row for each in lines for row in each["rows"]] for step, lines in _by_step(lines).items()}
        for rank, lines in _of(ranks, "data").items()
    }
    hits = []
    for (a, of_a), (b, of_b) in combinations(sorted(rows.items()), 2):
        for step in sorted(set(of_a) & set(of_b)):
            mine, theirs = set(of_a[step]), set(of_b[step])
            if len(mine) > 1 and len(mine & theirs) >= SHARE * len(mine):
                hits.append((step, a, b, len(mine & theirs), len(mine)))
    if len({step for step, *_ in hits}) >= STEPS:
        step, a, b, common, of = min(hits)
        what = "shards-alike" if common == of else "shards-overlap"
        yield _found(what, step, f"ranks {a} and {b}", common=common, of=of)


def _epochs(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    for rank, lines in _of(ranks, "epoch").items():
        seen: set[tuple[int, int]] = set()
        for each in lines:
            key = (each["sampler"], each["epoch"])
            if each["shuffle"] and key in seen:
                yield _found("epoch", each["step"], f"rank {rank}", epoch=each["epoch"])
            seen.add(key)


# --- steps that some ranks skip ---


def _skipped(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    passes = {rank: [each["passes"] for each in lines] for rank, lines in _of(ranks, "stepped").items()}
    for step, counts in enumerate(zip(*passes.values(), strict=False)):
        if len(set(counts)) > 1:
            usual = min(counts)
            alone = [rank for rank, mine in zip(passes, counts, strict=True) if mine != usual]
            who = f"rank{'s' if len(alone) > 1 else ''} {', '.join(map(str, alone))}"
            yield _found("skipped", step, who, more=max(counts) - usual)


# --- gradients and collectives ---


def _reduced(locals_: Sequence[Line], used: Line, scale: float, unit: float) -> tuple[list[bool], list[bool]]:
    """Return for each piece, and each of the last elements, whether it is the sum over all ranks times ``scale``."""
    most = (len(locals_) + SPARE) * unit
    found = []
    for name, size_name in (("sums", "sizes"), ("tail", "tail")):
        totals = [scale * sum(each) for each in zip(*(one[name] for one in locals_), strict=True)]
        sizes = [scale * sum(map(abs, each)) for each in zip(*(one[size_name] for one in locals_), strict=True)]
        pairs = zip(totals, used[name], sizes, strict=True)
        found.append([abs(a - b) <= most * size + 1e-30 or not isfinite(a) for a, b, size in pairs])
    return found[0], found[1]


def _gradients(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    if _is_sharded(ranks) or len(ranks) < 2:
        return
    steps = {rank: _by_step(lines) for rank, lines in _of(ranks, "gradient").items()}
    for step in sorted(set.intersection(*(set(each) for each in steps.values()))):
        last = ({each["name"]: each for each in by_step[step]} for by_step in steps.values())
        by_name = by_key(pair for of_rank in last for pair in of_rank.items())
        apart = [
            name
            for name, lines in by_name.items()
            if len(lines) < len(ranks) or len({each["used"]["crc"] for each in lines}) > 1
        ]
        if apart:
            what = "nothing-reduced" if len(apart) == len(by_name) else "some-not-reduced"
            yield _found(what, step, f"parameter {apart[0]}", names=", ".join(apart[:5]))
        checked = {name: lines for name, lines in by_name.items() if all(each["local"] for each in lines)}
        if found := _wrongly_reduced(step, checked, len(ranks)):
            yield found


def _wrongly_reduced(step: int, by_name: Mapping[str, list[Line]], ranks: int) -> Finding | None:
    first = {name: ([each["local"] for each in lines], lines[0]["used"]) for name, lines in by_name.items()}
    # The factor applied to the sum of all ranks' gradients: the median over all pieces.
    ratios = []
    for locals_, used in first.values():
        totals = [sum(each) for each in zip(*(one["sums"] for one in locals_), strict=True)]
        pairs = zip(totals, used["sums"], strict=True)
        ratios += [b / a for a, b in pairs if abs(a) > 1e-12 and isfinite(a) and isfinite(b)]
    if not ratios:
        return None
    scale = sorted(ratios)[len(ratios) // 2]
    if any(abs(scale * ranks - factor) < 1e-3 * factor for factor in (float(ranks), 1.0 / ranks)):
        how = "the sum over ranks" if scale * ranks > 1 else "divided by the ranks twice"
        return _found("scaled", step, "all parameters", how=how, ranks=ranks)
    bad = {}
    for name, (locals_, used) in first.items():
        pieces, tail = _reduced(locals_, used, scale, 4 * UNITS.get(used["dtype"], 2.0**-24))
        if not all(pieces) or not all(tail):
            bad[name] = (pieces, tail, locals_, used)
    if not bad:
        return None
    name, (pieces, tail, locals_, used) = next(iter(bad.items()))
    # Another dtype changes almost every piece of every parameter; a fault in a tail does not.
    is_everywhere = 2 * len(bad) > len(first) and all(2 * sum(of[0]) <= len(of[0]) for of in bad.values())
    for dtype in ("float16", "bfloat16"):
        coarse = [_reduced(of, to, scale, 4 * UNITS[dtype]) for _, _, of, to in bad.values()]
        if used["dtype"] == "float32" and is_everywhere and all(all(p) and all(t) for p, t in coarse):
            return _found("dtype", step, f"parameter {name}", dtype=dtype)
    what, part = "part-wrong", "parts"
    if not all(tail) and sum(pieces) >= len(pieces) - 1:
        part = "the last elements"
    elif not any(pieces):
        what, part = "all-wrong", "everything"
    return _found(what, step, f"parameter {name}", name=name, part=part, wrong=len(bad), all=len(first))


def _collectives(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    """Check each all_reduce over all ranks with SUM or AVG."""
    for index, several in enumerate(zip(*_of(ranks, "collective").values(), strict=False)):
        names = {(each["name"], each["op"], each["group"]) for each in several}
        if len(names) > 1 or several[0]["group"] or several[0]["name"] != "all_reduce":
            continue
        op, step = several[0]["op"], several[0]["step"]
        outs = {each["after"][0]["crc"] for each in several}
        scale = {"SUM": 1.0, "AVG": 1.0 / len(several)}.get(op)
        words = ""
        if len(outs) > 1:
            words = "ranks get different results"
        elif scale and several[0]["before"][0]["numel"] and "float" in several[0]["before"][0]["dtype"]:
            given, used = [each["before"][0] for each in several], several[0]["after"][0]
            pieces, tail = _reduced(given, used, scale, 4 * UNITS.get(used["dtype"], 2.0**-24))
            if not all(pieces) or not all(tail):
                words = f"the result is not the {'sum' if op == 'SUM' else 'mean'} of the ranks' inputs"
        if words:
            where = f"all_reduce number {index + 1}, {op}"
            yield _found("collective", step, where, number=index + 1, op=op, words=words)


# --- other state of the ranks ---


def _buffers(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    for several in zip(*_of(ranks, "buffers").values(), strict=False):
        for name in several[0]["of"]:
            known = {each["of"][name]["crc"] for each in several if name in each["of"]}
            if len(known) > 1:
                yield _found("buffers", several[0]["step"], f"buffer {name}")


def _random(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    states = {rank: [each for each in lines if each["device"] != "cpu"] for rank, lines in _of(ranks, "random").items()}
    if len(states) < 2 or not all(states.values()):
        return
    first, *others = ([each["crc"] for each in lines] for lines in states.values())
    if len(set(first)) > 1 and all(each == first for each in others):
        yield _found("seeds", 0, "all ranks")


def _batch_norm(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    models = [each for lines in _of(ranks, "model").values() for each in lines if each["local_batch_norm"]]
    if models and len(ranks) > 1:
        layers = models[0]["local_batch_norm"]
        yield _found("batch-norm", 0, f"module {layers[0].removeprefix('module.')}", count=len(layers))


def _weights(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    if _is_sharded(ranks):
        return
    steps = {
        rank: {(e["step"], e["name"]): e["of"]["crc"] for e in lines} for rank, lines in _of(ranks, "weight").items()
    }
    for key in sorted(set.intersection(*(set(each) for each in steps.values()))):
        known = {rank: each[key] for rank, each in steps.items()}
        if len(set(known.values())) > 1:
            odd = [rank for rank, crc in known.items() if crc != known[min(known)]]
            yield _found("weights", key[0], f"parameter {key[1]}", odd=odd, name=key[1], first=min(known))


def against(ranks: Mapping[int, Sequence[Line]], reference: Mapping[int, Sequence[Line]]) -> list[Finding]:
    """Return where the weights of rank 0 differ from those of a run on one process by more than rounding errors."""
    mine, theirs = (
        {(e["step"], e["name"]): e["of"] for e in _of(each, "weight")[min(each)]} for each in (ranks, reference)
    )
    for key in [each for each in mine if each in theirs]:
        a, b = mine[key], theirs[key]
        off = max(abs(x - y) / max(size, 1e-30) for x, y, size in zip(a["sums"], b["sums"], b["sizes"], strict=True))
        if off > 64 * (key[0] + 1) * UNITS.get(a["dtype"], 2.0**-24):
            return [_found("one-process", key[0], f"parameter {key[1]}", name=key[1], off=off)]
    return []
