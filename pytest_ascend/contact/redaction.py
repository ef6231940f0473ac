"""Removes from texts what identifies a person, a machine or a network; versions, buses and codes stay."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import platform
import pwd
import re
import socket
from collections.abc import Iterable, Iterator
from getpass import getuser
from pathlib import Path
from typing import Any

#: The kit is full of these words: names of persons or machines equal to one are only removed from paths and addresses.
_COMMON = {
    *("admin", "ascend", "build", "bus", "card", "chip", "cpu", "data", "davinci", "device", "docker", "dev", "done"),
    *("driver", "failed", "home", "host", "huawei", "late", "local", "localhost", "model", "node", "npu", "pytest"),
    *("python", "root", "runner", "server", "smoke", "system", "test", "torch", "user", "work", "worker"),
}
_STRUCK_OUT = "[struck out]"

#: The text after these names, up to the end of the line or text, is private.
_KEY = r"""\b (?: (?:product[ _-]?)? serial [ _-]? (?:number|num|no\.?|id)? | sn | chip[ _-]?sn | uuid | guid
    | [nv]? die [ _-]? id | asset [ _-]? tag | bar ?code | (?:node|host|user|machine|login) [ _-]? name
    | mac (?:[ _-]? addr (?:ess)?)? | passw (?:or)? d | secret | token | api[ _-]?key ) \b"""
_KEYED = re.compile(
    rf"""(?ix) ({_KEY} (?: \s* \([^()\n]{{0,20}}\) )? \\? ["']? \s* [:=]+ \s* \\? ["']?)
    (?! \[struck\ out\]) [^\s"',;\\|)\]] [^\n"',;\\|)\]]*"""
)
_PATTERNS = (
    (_KEYED, rf"\1{_STRUCK_OUT}"),
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*"), "[address]"),
    (re.compile(r"\b(?:[0-9a-fA-F]{2}([:-]))(?:[0-9a-fA-F]{2}\1){4}[0-9a-fA-F]{2}\b"), "[address]"),
    # systemd writes the UID of a pod with underscores, after "pod".
    (re.compile(r"[0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}(?![0-9a-fA-F])"), "[id]"),
    (re.compile(r"(?<=[/-])[0-9a-f]{64}(?![0-9a-f])"), "[id]"),
    (re.compile(r"(/(?:home|Users)/)(?:[^/\s\"':;,\\]|\\u[0-9a-f]{4})+"), r"\1[user]"),
    (re.compile(r"\b[\w-]+(?:\.[\w-]+)*\.(?:local|internal|lan|corp|intra|svc|cluster)\b"), "[host]"),
)
#: Sites that do not identify those who mention them.
_KNOWN_SITES = re.compile(
    r"(?:[\w-]+\.)*(?:github\.com|gitee\.com|gitcode\.com|hiascend\.com|huawei\.com|pytorch\.org|python\.org|pypi\.org"
    r"|debian\.org|ubuntu\.com|openeuler\.org|w3\.org|readthedocs\.io)"
)
_SITE = re.compile(r"\b(https?|ftp|ssh|git|tcp)://(?:[^/\s\"'@]*@)?([^/\s\"':\\]+)")
_QUAD = r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"
_VERSION = re.compile(rf"(?i)(?:version|npu-smi|driver|firmware|hdk|cann|release)\W{{1,12}}({_QUAD})")
_COLONS = re.compile(r"(?<![\w:.])[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?:%\w+)?(?![\w])")


class Redaction:
    """Removes names and addresses: of this machine, its users and its folders, and anything that looks like one.

    ``texts`` are all texts of a kit: a version in one of them is not an address in another.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._versions = {each for text in texts for each in _VERSION.findall(text) if _may_be_version(each)}
        # People's home folders, longest first; then names of machines and of people.
        people: list[pwd.struct_passwd] = []
        with contextlib.suppress(OSError):
            people = [each for each in pwd.getpwall() if 1000 <= each.pw_uid < 65534]  # people, excluding nobody
        homes = {each.pw_dir.rstrip("/") for each in people}
        with contextlib.suppress(RuntimeError):  # a user unknown in a container
            homes.add(str(Path.home()).rstrip("/"))
        homes -= {"", "/root", "/nonexistent", "/home"}
        folders = (re.escape(each) for each in sorted(homes, key=len, reverse=True))
        self._own = [(re.compile(rf"{each}(?![\w-])"), "[home]") for each in folders]
        users = [os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")]
        users += [each.pw_name for each in people]
        with contextlib.suppress(OSError, KeyError):
            users.append(getuser())
        self._own += [*_named(_hosts(), "[host]"), *_named(users, "[user]")]

    def __call__(self, text: str) -> str:
        """Return the text without names and addresses."""
        for pattern, name in (*_PATTERNS, *self._own):
            text = pattern.sub(name, text)
        text = _SITE.sub(lambda found: found[0] if _KNOWN_SITES.fullmatch(found[2]) else f"{found[1]}://[host]", text)
        text = re.sub(_QUAD, self._quad, text)
        return _COLONS.sub(_colons, text)

    def in_data(self, value: Any, name: str = "") -> Any:
        """Return builtins with every text redacted; the value of a key such as "uuid" is removed."""
        if isinstance(value, dict):
            return {self(str(key)): self.in_data(each, str(key)) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.in_data(each) for each in value]
        if not isinstance(value, str):
            return value
        return _STRUCK_OUT if value and re.fullmatch(_KEY, name, re.IGNORECASE | re.VERBOSE) else self(value)

    def in_lines(self, text: str) -> str:
        """Return lines of JSON with every text redacted; a line that is not JSON counts as text."""
        return "".join(f"{self._in_line(line)}\n" for line in text.splitlines())

    def _in_line(self, line: str) -> str:
        try:
            return json.dumps(self.in_data(json.loads(line)), ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError):
            return self(line)

    def _quad(self, found: re.Match[str]) -> str:
        is_kept = found[0] in self._versions or found[0].startswith(("127.", "0.0.0.", "255."))
        return found[0] if is_kept else "[address]"


def _may_be_version(text: str) -> bool:
    """Return whether four numbers may be a version: drivers' begin with 1 to 30, and 10 is a private network."""
    first, *others = map(int, text.split("."))
    return 0 < first <= 30 and first != 10 and max(others) < 100


def _colons(found: re.Match[str]) -> str:
    """Remove an IPv6 address, but not a time, a bus or the loopback address."""
    try:
        address = ipaddress.IPv6Address(found[0].partition("%")[0])
    except ValueError:
        return found[0]
    return found[0] if address.is_loopback or address.is_unspecified else "[address]"


def _named(names: Iterable[str], instead: str) -> Iterator[tuple[re.Pattern[str], str]]:
    for name in sorted({each for each in names if len(each) > 2}, key=len, reverse=True):
        text = re.escape(name)
        anywhere, in_paths = rf"(?<![\w-]){text}(?![\w-])", rf"(?<=/){text}(?=/)|(?<=@){text}\b|\b{text}(?=@)"
        yield re.compile(in_paths if name.lower() in _COMMON else anywhere, re.IGNORECASE), instead


def _hosts() -> Iterator[str]:
    for each in (socket.gethostname(), platform.node()):
        yield from (each, each.partition(".")[0])
    with contextlib.suppress(OSError):
        for line in Path("/etc/hosts").read_text(encoding="utf-8", errors="replace").splitlines()[:4096]:
            yield from (name for name in line.partition("#")[0].split()[1:] if not re.match("local|ip6-", name))
