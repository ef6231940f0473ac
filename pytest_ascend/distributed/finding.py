"""Why ranks differ: compares what each recorded, and states the cause."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Half a unit in the last place, by dtype: the error of one rounding.
UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
#: Extra roundings allowed for a reduction, beside one per rank.
SPARE = 8.0
#: Steps in which data has to overlap, and the share of rows, to count as a fault: a sampler repeats a few at its end.
STEPS, SHARE = 2, 0.25

UNKNOWN = "the wrapper that reduces the others misses them: frozen or unused when wrapped, added later, or ignored"

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


def findings(ranks: Mapping[int, Sequence[Line]]) -> list[Finding]:
    """Return causes, earliest step first, then notes."""
    found = [
        *_data(ranks),
        *_epochs(ranks),
        *_skipped(ranks),
        *_collectives(ranks),
        *_gradients(ranks),
        *_buffers(ranks),
        *_random(ranks),
        *_batch_norm(ranks),
    ]
    if not any(not each.is_note for each in found):
        found += _weights(ranks)
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
    found: dict[int, list[Line]] = defaultdict(list)
    for each in lines:
        found[each["step"]].append(each)
    return found


# --- data ---


def _data(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    rows = {
        rank: {step: [row for each in lines for row in each["rows"]] for step, lines in _by_step(lines).items()}
        for rank, lines in _of(ranks, "data").items()
    }
    hits = []
    for (a, of_a), (b, of_b) in itertools.combinations(sorted(rows.items()), 2):
        for step in sorted(set(of_a) & set(of_b)):
            mine, theirs = set(of_a[step]), set(of_b[step])
            if len(mine) > 1 and len(mine & theirs) >= SHARE * len(mine):
                hits.append((step, a, b, len(mine & theirs), len(mine)))
    if len({step for step, *_ in hits}) < STEPS:
        return
    step, a, b, common, of = min(hits)
    everything = common == of
    yield Finding(
        cause="data shards overlap",
        step=step,
        where=f"ranks {a} and {b}",
        words=f"ranks {a} and {b} have {'the same data' if everything else f'{common} of {of} rows in common'}"
        f" in step {step}: the effective batch is smaller than it seems",
        remedy="give the DataLoader a DistributedSampler, with num_replicas and rank of this group"
        if everything
        else "check how indices are split by rank: no two ranks may take the same ones",
    )


def _epochs(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    for rank, lines in _of(ranks, "epoch").items():
        seen: set[tuple[int, int]] = set()
        for each in lines:
            key = (each["sampler"], each["epoch"])
            if each["shuffle"] and key in seen:
                yield Finding(
                    cause="sampler not told of the epoch",
                    step=each["step"],
                    where=f"rank {rank}",
                    words=f"the DistributedSampler starts epoch {each['epoch']} twice: every epoch has the same order",
                    remedy="call sampler.set_epoch(epoch) before each epoch",
                )
                return
            seen.add(key)


# --- steps that some ranks skip ---


def _skipped(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    passes = {rank: [each["passes"] for each in lines] for rank, lines in _of(ranks, "stepped").items()}
    for step, counts in enumerate(zip(*passes.values(), strict=False)):
        if len(set(counts)) > 1:
            usual = min(counts)
            alone = [rank for rank, mine in zip(passes, counts, strict=True) if mine != usual]
            who = f"rank{'s' if len(alone) > 1 else ''} {', '.join(map(str, alone))}"
            yield Finding(
                cause="a rank skipped a step alone",
                step=step,
                where=who,
                words=f"before step {step}, {who} ran {max(counts) - usual} more forward passes than the others:"
                " it skipped a step, as after an overflow that the others did not have",
                remedy="reduce found_inf over all ranks (ShardedGradScaler), or check for overflow after the reduction",
            )
            return


# --- gradients and collectives ---


def _close(
    total: Sequence[float], found: Sequence[float], sizes: Sequence[float], unit: float, ranks: int
) -> list[bool]:
    return [abs(a - b) <= (ranks + SPARE) * unit * size + 1e-30 for a, b, size in zip(total, found, sizes, strict=True)]


def _reduced(locals_: Sequence[Line], used: Line, scale: float, unit: float) -> tuple[list[bool], list[bool]]:
    """Return for each piece, and each of the last elements, whether it is the sum over all ranks times ``scale``."""
    count = len(locals_)
    total = [scale * sum(each) for each in zip(*(one["sums"] for one in locals_), strict=True)]
    sizes = [scale * sum(each) for each in zip(*(one["sizes"] for one in locals_), strict=True)]
    tail = [scale * sum(each) for each in zip(*(one["tail"] for one in locals_), strict=True)]
    tail_sizes = [scale * sum(map(abs, each)) for each in zip(*(one["tail"] for one in locals_), strict=True)]
    return (
        _close(total, used["sums"], sizes, unit, count),
        _close(tail, used["tail"], tail_sizes, unit, count),
    )


def _gradients(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    if _is_sharded(ranks) or len(ranks) < 2:
        return
    steps = {rank: _by_step(lines) for rank, lines in _of(ranks, "gradient").items()}
    for step in sorted(set.intersection(*(set(each) for each in steps.values()))):
        by_name: dict[str, dict[int, Line]] = defaultdict(dict)
        for rank, by_step in steps.items():
            for each in by_step[step]:
                by_name[each["name"]][rank] = each
        if found := _of_step(step, by_name, len(ranks)):
            yield found
            return


def _of_step(step: int, by_name: Mapping[str, Mapping[int, Line]], ranks: int) -> Finding | None:
    apart = [
        n for n, each in by_name.items() if len(each) < ranks or len({x["used"]["crc"] for x in each.values()}) > 1
    ]
    if apart:
        every = len(apart) == len(by_name)
        return Finding(
            cause="gradients not reduced",
            step=step,
            where=f"parameter {apart[0]}",
            words=f"in step {step} ranks use different gradients of {', '.join(apart[:5]) if not every else 'all'}: "
            + ("nothing reduces them" if every else UNKNOWN),
            remedy="wrap the model in DistributedDataParallel, and leave no_sync before the last part of a batch"
            if every
            else "wrap the model once all parameters exist and require gradients; check which ones are ignored",
        )
    checked = {n: each for n, each in by_name.items() if all(x["local"] for x in each.values())}
    return _wrongly_reduced(step, checked, ranks) if checked else None


def _wrongly_reduced(step: int, by_name: Mapping[str, Mapping[int, Line]], ranks: int) -> Finding | None:
    first = {
        name: ([x["local"] for x in each.values()], next(iter(each.values()))["used"]) for name, each in by_name.items()
    }
    scale = _scale(first.values())
    if scale is None:
        return None
    if any(abs(scale * ranks - factor) < 1e-3 * factor for factor in (float(ranks), 1.0 / ranks)):
        return Finding(
            cause="norm scaled by the number of ranks",
            step=step,
            where="all parameters",
            words=f"in step {step} all gradients are"
            f" {'the sum over ranks' if scale * ranks > 1 else 'divided by the ranks twice'}: their norm is off by the"
            f" number of ranks, {ranks}",
            remedy="divide once: DDP averages by itself; after all_reduce with SUM divide by the world size",
        )
    bad = {}
    for name, (locals_, used) in first.items():
        unit = UNITS.get(used["dtype"], 2.0**-24)
        pieces, tail = _reduced(locals_, used, scale, unit * 4)
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
            return Finding(
                cause="dtype of the reduction",
                step=step,
                where=f"parameter {name}",
                words=f"in step {step} gradients in float32 are reduced in {dtype}: they are the mean over all ranks"
                f" only within the rounding of {dtype}",
                remedy="remove the compression hook or reduce_dtype, or accept the loss of precision",
            )
    where = (
        "the last elements"
        if not all(tail) and sum(pieces) >= len(pieces) - 1
        else "parts"
        if any(pieces)
        else "everything"
    )
    return Finding(
        cause="gradients reduced wrongly" if where == "everything" else "gradients not reduced: a part of a bucket",
        step=step,
        where=f"parameter {name}",
        words=f"in step {step} all ranks use the same gradient of {name}, but {where} of it is not the mean over"
        f" ranks ({len(bad)} of {len(first)} parameters are wrong): the all_reduce of a bucket is wrong",
        remedy="test the collectives: pytest --ascend suites/distributed; loss curves do not show this",
    )


def _scale(pairs: Iterable[tuple[Sequence[Line], Line]]) -> float | None:
    """Return the factor applied to the sum of all ranks' gradients: the median over all pieces."""
    ratios = []
    for locals_, used in pairs:
        totals = [sum(each) for each in zip(*(one["sums"] for one in locals_), strict=True)]
        ratios += [b / a for a, b in zip(totals, used["sums"], strict=True) if abs(a) > 1e-12]
    ratios.sort()
    return ratios[len(ratios) // 2] if ratios else None


def _collectives(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    """Check each all_reduce over all ranks with SUM or AVG."""
    calls = _of(ranks, "collective")
    for index, several in enumerate(zip(*calls.values(), strict=False)):
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
            used = several[0]["after"][0]
            pieces, tail = _reduced(
                [each["before"][0] for each in several], used, scale, 4 * UNITS.get(used["dtype"], 2.0**-24)
            )
            if not all(pieces) or not all(tail):
                words = f"the result is not the {'sum' if op == 'SUM' else 'mean'} of the ranks' inputs"
        if words:
            yield Finding(
                cause="a collective is wrong",
                step=step,
                where=f"all_reduce number {index + 1}, {op}",
                words=f"in step {step}, all_reduce number {index + 1} ({op}): {words}",
                remedy="test the collectives: pytest --ascend suites/distributed",
            )
            return


# --- other state of the ranks ---


def _buffers(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    for several in zip(*_of(ranks, "buffers").values(), strict=False):
        for name in several[0]["of"]:
            known = {each["of"][name]["crc"] for each in several if name in each["of"]}
            if len(known) > 1:
                yield Finding(
                    cause="buffers not broadcast",
                    step=several[0]["step"],
                    where=f"buffer {name}",
                    words=f"at the start of step {several[0]['step']} ranks have different values of the buffer {name}:"
                    " each saves and evaluates a different model",
                    remedy="keep broadcast_buffers=True of DistributedDataParallel, or use SyncBatchNorm",
                )
                return


def _random(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    states = {rank: [each for each in lines if each["device"] != "cpu"] for rank, lines in _of(ranks, "random").items()}
    if len(states) < 2 or not all(states.values()):
        return
    series = [[each["crc"] for each in lines] for lines in states.values()]
    moves = all(len(set(each)) > 1 for each in series)
    if moves and all(each == series[0] for each in series):
        yield Finding(
            cause="seeds alike",
            step=0,
            where="all ranks",
            words="all ranks draw the same random numbers on their devices in every step: dropout drops the same"
            " elements on each rank",
            remedy="include the rank in the seed once the model is built: torch.manual_seed(seed + rank)",
        )


def _batch_norm(ranks: Mapping[int, Sequence[Line]]) -> Iterator[Finding]:
    for lines in _of(ranks, "model").values():
        for each in lines:
            if each["local_batch_norm"] and len(ranks) > 1:
                yield Finding(
                    cause="BatchNorm local",
                    step=0,
                    where=f"module {each['local_batch_norm'][0].removeprefix('module.')}",
                    words=f"{len(each['local_batch_norm'])} BatchNorm layers use the statistics of each rank's part of"
                    " the batch: the result differs from one process's, which is no error",
                    remedy="SyncBatchNorm.convert_sync_batchnorm(model), if the parts are small",
                    is_note=True,
                )
                return


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
            words = f"after step {key[0]} the ranks {odd} have different weights {key[1]} from rank {min(known)}"
            yield Finding(
                cause="weights differ",
                step=key[0],
                where=f"parameter {key[1]}",
                words=words,
                remedy="start all ranks from the same weights, and use the same optimizer",
            )
            return


def against(ranks: Mapping[int, Sequence[Line]], reference: Mapping[int, Sequence[Line]]) -> list[Finding]:
    """Return where the weights of rank 0 differ from those of a run on one process by more than rounding explains."""
    mine, theirs = (
        {(e["step"], e["name"]): e["of"] for e in _of(each, "weight")[min(each)]} for each in (ranks, reference)
    )
    for key in [each for each in mine if each in theirs]:
        a, b = mine[key], theirs[key]
        off = max(abs(x - y) / max(size, 1e-30) for x, y, size in zip(a["sums"], b["sums"], b["sizes"], strict=True))
        if off > 64 * (key[0] + 1) * UNITS.get(a["dtype"], 2.0**-24):
            words = f"after step {key[0]} {key[1]} differs by {off:.2g} of its size from the run on one process"
            return [
                Finding(
                    cause="differs from one process",
                    step=key[0],
                    where=f"parameter {key[1]}",
                    words=words,
                    remedy="look at the causes above, if any",
                )
            ]
    return []
