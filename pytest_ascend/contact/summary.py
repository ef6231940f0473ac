"""The page of a kit: a summary of the machine, and below it every answer unchanged."""

from __future__ import annotations

import contextlib
import html
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pytest_ascend.environment.npu_smi import parse_common

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#1c2733}
h1{margin-bottom:.2em}h2{margin-top:1.6em}table{border-collapse:collapse}
td,th{padding:.25em 1em .25em 0;text-align:left;vertical-align:top;border-bottom:1px solid #dde3ea}
pre{background:#f4f6f8;padding:1em;overflow:auto;max-height:40em;font-size:13px}summary{cursor:pointer;padding:.3em 0}
.failed,.late{color:#a40000;font-weight:600}.emulated{background:#fff3cd;padding:.6em 1em}
"""
_SHOWN = 400_000


def page(about: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], log: str = "") -> Iterator[str]:
    """Yield the page: ``about`` describes the kit, ``answers`` are its steps, ``log`` is that of the run."""
    data = {each["name"]: each["data"] for each in answers if isinstance(each["data"], dict | list)}
    yield "<!doctype html><html lang='en'><meta charset='utf-8'><title>One machine with an NPU</title>"
    yield f"<style>{_STYLE}</style><h1>One machine</h1>"
    version = _text(about["pytest_ascend"])
    yield f"<p>Made {_text(about['made'])} in {about['seconds']:.0f} s by pytest-ascend {version}. "
    yield "Names and addresses are removed; look through it before you send it.</p>"
    if about["emulated"]:
        yield "<p class='emulated'><b>THE EMULATED DEVICE:</b> says nothing about any NPU.</p>"
    yield "<h2>In short</h2><table>"
    for name, says in _IN_SHORT.items():
        yield f"<tr><th>{name}<td>{_text(_summary_line(says, data))}</tr>"
    yield f"<tr><th>Level smoke<td>{_text(_smoke(log))}</tr></table>"
    yield "<h2>Steps</h2><table><tr><th>step<th>status<th>seconds<th>output</tr>"
    for each in answers:
        yield f"<tr class='{_text(each['status'])}'><td><a href='#{_text(each['name'])}'>{_text(each['name'])}</a>"
        yield f"<td>{_text(each['status'])}<td>{each['seconds']:.1f}<td>{_text(_last_line(each['output']))}</tr>"
    yield "</table><h2>All answers</h2>"
    for each in answers:
        shown = json.dumps(each["data"], indent=1, ensure_ascii=False) if each["data"] is not None else ""
        printed = f"\n\n{each['output']}" if each["output"] else ""
        yield f"<details id='{_text(each['name'])}'><summary>{_text(each['name'])}</summary>"
        yield f"<pre>{_text(f'{shown}{printed}'[:_SHOWN])}</pre></details>"
    yield "</html>"


def _last_line(text: str) -> str:
    return next((line.strip()[:160] for line in reversed(text.splitlines()) if line.strip()), "")


def _text(value: object) -> str:
    return html.escape(str(value))


def _summary_line(says: Callable[[Mapping[str, Any]], str], data: Mapping[str, Any]) -> str:
    """Return one line, or why there is none."""
    try:
        return says(data) or "nothing is known"
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return "not answered"


def _chip(data: Mapping[str, Any]) -> str:
    start = data["start-up"]
    return (
        f"{start['count']} x {start['chip']}, {start['memory_total_bytes'] / 2**30:.1f} GiB each; "
        f"torch {start['torch']}, torch_npu {start['torch_npu']}"
    )


def _versions(data: Mapping[str, Any]) -> str:
    known = [f"{each['name']} {each['version']}" for each in data["doctor"]["components"] if each["version"]]
    found = [each["id"] for each in data["doctor"]["findings"] if each["severity"] in ("error", "warning")]
    return f"{', '.join(known)}. The doctor's findings: {', '.join(found) or 'none'}"


def _cards(data: Mapping[str, Any]) -> str:
    rows = (
        f"npu:{each['index']} = logical {each['logical']}, /dev/davinci{each['physical']}, "
        f"npu-smi {each['npu']} chip {each['chip']}, bus {each['bus'] or 'unknown'}"
        for each in data["identity"]
    )
    return "; ".join(rows).replace("davinci-1", "davinci?").replace(" -1", " ?")


def _start(data: Mapping[str, Any]) -> str:
    start = data["start-up"]
    return (
        f"import torch {start['import_torch_s']:.1f} s, torch_npu {start['import_torch_npu_s']:.1f} s, first use "
        f"{start['first_use_s']:.1f} s; a context takes {start['memory_used_by_context_bytes'] / 2**20:.0f} MiB"
    )


def _threads(data: Mapping[str, Any]) -> str:
    stages = list(data["threads"].items())
    counts = ", ".join(f"{len(stage['threads'])} {when}" for when, stage in stages)
    handlers = sorted({*stages[-1][1]["caught"]} - {*stages[0][1]["caught"]})
    forks = "; ".join(f"a fork {when}: {outcome[:80]}" for when, outcome in data["forks"].items())
    return f"threads: {counts}. Signal handlers added: {', '.join(handlers) or 'none'}. {forks}"


def _recovery(data: Mapping[str, Any]) -> str:
    recovery = data["recovery"]
    after = recovery["usable_after_s"]
    refused = f", after {len(recovery['said'])} refusals: {recovery['said'][0][:120]}" if recovery["said"] else ""
    return f"the card could be used {after:.1f} s after a kill{refused}" if after else "the card did not come back"


def _times(data: Mapping[str, Any]) -> str:
    times = data["times"]
    pairs = [each for each in times["calls_s"].values() if all(isinstance(one, float) for one in each)]
    first, second = (sorted(each[place] for each in pairs)[len(pairs) // 2] * 1e3 for place in (0, 1))
    return (
        f"first call {first:.1f} ms, second {second:.2f} ms (medians of {len(pairs)}); "
        f"launch {times['launch_us']:.0f} us, wait {times['synchronize_us']:.0f} us; "
        f"50 products: {times['events_ms']:.1f} ms by events, {times['host_ms']:.1f} ms by the host"
    )


def _clock(data: Mapping[str, Any]) -> str:
    clock = data["clock"]
    found = {when: parse_common(clock[when]) for when in ("idle", "loaded")}
    clocks = (f"{when} {each['Aicore curFreq(MHZ)']:.0f}" for when, each in found.items())
    return f"{', '.join(clocks)} of {found['idle'].get('Aicore Freq(MHZ)', 0):.0f} MHz"


def _dtypes(data: Mapping[str, Any]) -> str:
    dtypes = data["dtypes"]
    by = Counter(each["by"] for row in dtypes.values() for each in row.values())
    return f"{len(dtypes)} operators: {by['npu']} taken by the NPU, {by['cpu']} by the CPU, {by['']} refused"


def _determinism(data: Mapping[str, Any]) -> str:
    by_switch: dict[str, list[str]] = {}
    for name, sizes in data["determinism"].items():
        for size, switches in sizes.items():
            for switch, count in switches.items():
                operator = f"{name} ({size}){' refused' if isinstance(count, str) else ''}"
                by_switch.setdefault(switch, []).extend([operator] if count != 1 else [])
    return "; ".join(f"{switch}: {', '.join(each) or 'all bits equal'}" for switch, each in by_switch.items())


def _special(data: Mapping[str, Any]) -> str:
    special = data["special"]
    keeps = special["denormals float32 * 1"][0] != 0
    rests = {mode: special[f"bits of a product of float32, hf32 {mode}"] for mode in _MODES}
    bits = {mode: 7 + sum(each != 0 for each in rest) for mode, rest in rests.items()}
    overflow, large = special["overflow float16 60000 * 2"], special["int64 + 1"][1]
    return (
        f"denormals are {'kept' if keeps else 'flushed'}; float16 60000 * 2 is {overflow}; "
        f"products of float32 keep {bits[False]} bits, {bits[True]} with HF32; 2^53 + 1 plus 1 is {large}"
    )


_MODES = (False, True)


def _ulps(data: Mapping[str, Any]) -> str:
    worst = {
        f"{name} ({dtype})": max(map(int, counts))
        for name, by_dtype in data["ulps"].items()
        for dtype, counts in by_dtype.items()
        if isinstance(counts, dict)
    }
    beyond = sorted((each for each in worst if worst[each] > 1), key=lambda each: -worst[each])
    shown = ", ".join(f"{each} {'64 or more' if worst[each] == 64 else worst[each]}" for each in beyond[:12])
    return f"{len(worst)} histograms; more than one ulp off: {shown or 'none'}"


def _errors(data: Mapping[str, Any]) -> str:
    words = {True: "the process goes on", False: "the process is lost"}
    errors = ((name.removeprefix("error-"), answer) for name, answer in data.items() if name.startswith("error-"))
    return "; ".join(f"{name}: {answer['raised']} raised, {words[answer['goes_on']]}" for name, answer in errors)


def _smoke(log: str) -> str:
    outcomes: Counter[str] = Counter()
    planned = 0
    for line in log.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            kind = record.get("type") if isinstance(record, dict) else ""
            planned = len(record.get("manifest", ())) if kind == "header" else planned
            outcomes.update([str(record.get("outcome"))] if kind == "record" else [])
    counts = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    return f"{counts}, of {planned} cases" if counts else "did not run"


#: The lines at the top of the page.
_IN_SHORT: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "Chip": _chip,
    "Versions": _versions,
    "Cards": _cards,
    "Start": _start,
    "Threads and forks": _threads,
    "After a kill": _recovery,
    "Times": _times,
    "Clock": _clock,
    "Dtypes": _dtypes,
    "Equal bits, the switch": _determinism,
    "Numbers": _special,
    "Functions": _ulps,
    "Errors": _errors,
}
