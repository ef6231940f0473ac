"""Format numbers and foreign text for people."""

from __future__ import annotations

import math
import unicodedata
from datetime import datetime, timezone
from functools import lru_cache

from pytest_ascend.system import text as texts

one_line, visible = texts.one_line, texts.visible

#: Suffixes of names that give their unit -> how the unit is written. The longest suffix counts.
UNITS = {
    "_gflop_per_s": "GFLOP/s",
    "_gb_per_s": "GB/s",
    "_per_s": "/s",
    "_us": "µs",
    "_ms": "ms",
    "_s": "s",
    "_w": "W",
    "_db": "dB",
    "_percent": "%",
    "_bytes": "B",
}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def number(value: float) -> str:
    """Format a number with four significant digits; whole numbers in full, with digits grouped by three."""
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:.4g}"


def rounded(value: float) -> float | str:
    """Return a number with four significant digits for a script to display; a non-finite one by name."""
    if not math.isfinite(value):
        return str(float(value))
    return int(value) if value % 1 == 0 and abs(value) < 1e15 else float(f"{value:.4g}")


@lru_cache(maxsize=1024)
def words(name: str) -> str:
    """Return a name without its unit: "latency_us" -> "latency"."""
    return one_line(name.removesuffix(_ending(name))).replace("_", " ")


def quantity(name: str, value: float) -> str:
    """Format a measurement with the unit in its name: ("latency_us", 1234.5) -> "1,234 µs"; bytes as KiB, MiB ..."""
    written = unit(name)
    if written == "B" and math.isfinite(value) and value >= 1024:
        power = min(int(math.log2(value) // 10), len(_BINARY) - 1)
        return f"{value / 1024**power:.3g} {_BINARY[power]}"
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else number(value)
    return f"{text}/s" if written == "/s" else f"{text} {written}".rstrip()


def brief(name: str, value: float) -> str:
    """Format a measurement briefly, for an axis: ("latency_us", 400000.0) -> "400 ms"."""
    if unit(name) == "µs" and abs(value) >= 1000:
        return quantity("_s", value / 1e6) if abs(value) >= 1e6 else quantity("_ms", value / 1e3)
    return quantity(name, value)


def unit(name: str) -> str:
    """Return the unit given by a name's suffix; empty for none."""
    return UNITS.get(_ending(name), "")


@lru_cache(maxsize=1024)
def _ending(name: str) -> str:
    return next((ending for ending in UNITS if name.endswith(ending)), "")


def share(part: float, whole: float) -> str:
    """Format a share in percent. Only the whole is 100 %, and only nothing is 0 %."""
    if part in (0, whole) or not whole:
        return "100 %" if part and whole else "0 %"
    percent = 100 * part / whole
    return "< 0.1 %" if percent < 0.1 else "> 99.9 %" if percent > 99.9 else f"{percent:.1f} %"


def used(fraction: float) -> str:
    """Format the share of a limit that was used: 0.123 -> "12 %", 25.0 -> "2,500 %"."""
    if math.isnan(fraction):
        return "nan"
    if fraction >= 1e6:
        return "beyond measure"
    if 0 < fraction < 0.001:
        return "< 0.1 %"
    return f"{100 * fraction:.1f} %" if 0 < fraction < 0.1 else f"{100 * fraction:,.0f} %"


def duration(seconds: float) -> str:
    """Format a duration: 0.0123 -> "12 ms", 83.4 -> "1 min 23 s"."""
    if seconds < 1:
        return f"{seconds * 1000:.2g} ms" if seconds * 1000 < 10 else f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def moment(when: datetime) -> str:
    """Format a point in time in UTC, to the second."""
    return f"{when.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def sort_key(text: str) -> tuple[str, str]:
    """Return the key by which names are sorted for people: case and accents count last."""
    return unicodedata.normalize("NFKD", text).casefold(), text
