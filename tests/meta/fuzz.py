"""Hostile files: every command, and every reader of what others may have written, takes each or refuses it in words.

``commands`` damages one of a command's files by a seed: by what can stand in the place of a file (a pipe, a folder, a
loop of links, a file of 3 TiB without content), by values that no field takes, or byte by byte. A certificate is
damaged before it is signed, too: its issuer is whom a verifier trusts least. Each command must end with an exit code
and words: no traceback, no hang, no more than 10 seconds of CPU and 500 MiB, no raw escape on the terminal, no
foreign text in a hint.

``readers`` has atheris (libFuzzer; ``pip install atheris``) change bytes, guided by the branches that they reach. A
finding is a traceback, more than 2 GiB of memory or more than 10 seconds for one input, which is kept.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import click

from pytest_ascend import cli
from pytest_ascend.certificate import commands as certifying
from pytest_ascend.certificate import package, programme, signing
from pytest_ascend.coverage import commands
from pytest_ascend.errors import AscendError
from pytest_ascend.runlog import codec
from pytest_ascend.system.files import read_regular
from pytest_ascend.system.text import visible
from pytest_ascend.upstream import rules
from tests.meta.well_formed import DUMPED, scene
from tests.unit.certificate import runs
from tools.evaluation.support import ROOT
from tools.evaluation.support import table as in_markdown

#: Of CPU, of which others take none; and the time until something that takes none has hung.
SECONDS, HUNG_SECONDS, MEMORY_MIB = 10, 120, 500
#: Inputs that one child takes, whose memory is then looked at.
BATCH = 20
#: Largest file that is signed again: those of 1 GiB and 3 TiB of nothing would harm this process, and no reader.
_SIGNED_BYTES = 64 << 20

ESCAPES = "\x1b]0;harmed\x07\x1b[2J; curl evil | sh"
#: Raw JSON for the place of a value.
VALUES = (
    *("null", "-1", "true", "{}", "[]", '""', "NaN", "1e999", "-1e308", "1e308", "5e-324", "9" * 5000, "1" + "0" * 400),
    *("-0.0", "18446744073709551617", '"9999-12-31T23:59:59-12:00"', '"0001-01-01T00:00:00+23:59"', '"9999-12-31"'),
    *("[" * 40 + "]" * 40, "[" * 100_000, '{"a":' * 50 + "1" + "}" * 50, json.dumps(ESCAPES), '"\\ud800"', '"../../x"'),
    *('"' + "x" * 1_000_000 + '"', "[" + "0," * 100_000 + "0]", '{"a":1,"a":2}', '"__class__"', '"\\u0000"', '"%s{0}"'),
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and which of the scene's files may be damaged. ``signed`` ones are signed again afterwards."""

    line: str
    files: tuple[str, ...]
    signed: tuple[str, ...] = ()


#: In place of a command: the reader of what an option of pytest names, or of what a command reads before long work.
READ = "read"
_EVIDENCE = tuple(f"certificate/{name}" for name in package.FILES)
_LISTED = tuple(f"certificates/one/{name}" for name in package.FILES)
_BOTH = tuple(f"{folder}/{name}" for folder in ("both", "both/confirmed") for name in package.FILES)
_GOLDENS = tuple(f"baselines/golden/{name}" for name in ("manifest.json", "ops/one.safetensors", "revoked.json"))
_MACHINE = tuple(f"machine/{name}" for name in ("usr/local/Ascend/driver/version.info", "etc/ascend_install.info"))
COMMANDS: Mapping[str, Command] = {
    "certify": Command("certify run --key key --tier performance --issuer me -o made", ("key", "run/run.jsonl")),
    "verify": Command(
        "verify certificate --key key.pub --revocations list.json --compatibility compatibility.json "
        "--authority root.pem",
        ("key.pub", "list.json", "compatibility.json", "root.pem", *_EVIDENCE),
        ("certificate.json", "run.jsonl", "manifest.json", "list.json"),
    ),
    "verify both": Command(
        "verify both --key second.pub --key key.pub",
        ("second.pub", *_BOTH),
    ),
    "certify confirms": Command(
        "certify other --key second --tier performance --issuer me -o made "
        "--confirms certificate --confirms-key key.pub",
        ("key.pub", "other/run.jsonl", *_EVIDENCE),
        ("certificate.json", "run.jsonl"),
    ),
    "certificate-export xlsx": Command(
        "certificate-export certificate --format xlsx --key key.pub -o made.xlsx",
        _EVIDENCE,
        ("certificate.json", "run.jsonl"),
    ),
    "certificate-export in-toto": Command(
        "certificate-export certificate --format in-toto --key key -o made.json",
        _EVIDENCE,
        ("certificate.json", "run.jsonl"),
    ),
    "revoke": Command(f"revoke {'a' * 32} --key key --reason because --list list.json", ("key", "list.json")),
    "certificate-key": Command("certificate-key key", ("key", "key.pub")),
    "dispute": Command(
        "dispute ops/relu/forward/float32 --reason r --evidence environ --by me --list disputes.json",
        ("disputes.json", "environ"),
    ),
    "registry": Command(
        "registry registry -o made.md",
        ("registry/keys/key.pub", "registry/revocations/list.json", *(f"registry/{each}" for each in _LISTED)),
    ),
    "report history": Command("report history log before -o made", ("log/run.jsonl", "before/run.jsonl")),
    "report render": Command("report render log -o page.html --against before", ("log/run.jsonl", "before/run.jsonl")),
    **{
        f"report export {form}": Command(f"report export log --format {form}", ("log/run.jsonl",))
        for form in ("junit", "csv", "json", "crcr", "github")
    },
    "report summary": Command("report summary log", ("log/run.jsonl",)),
    "report diff": Command("report diff before log --format html -o diff.html", ("log/run.jsonl", "before/run.jsonl")),
    "report diff terminal": Command("report diff before log", ("log/run.jsonl", "before/run.jsonl")),
    "report matrix": Command("report matrix log before run", ("log/run.jsonl", "before/run.jsonl", "run/run.jsonl")),
    "report merge": Command("report merge part-1 part-2 -o whole", ("part-1/run.jsonl", "part-2/run.jsonl")),
    "baseline verify": Command("baseline verify --baselines baselines", _GOLDENS),
    "baseline show": Command("baseline show ops/one --baselines baselines", _GOLDENS),
    "baseline revoke": Command("baseline revoke ops/one --reason r --baselines baselines", _GOLDENS),
    "baseline record": Command(
        "baseline record timed-1 timed-2 timed-3 --baselines baselines", ("timed-1/run.jsonl", "timed-2/run.jsonl")
    ),
    "census diff": Command("census diff one.json two.json", ("one.json", "two.json")),
    "doctor": Command(
        "doctor --root machine --environ environ --npu-smi npu-smi --compatibility compatibility.json",
        ("environ", "npu-smi", "compatibility.json", *_MACHINE),
    ),
    "collect apply": Command("collect apply kit.zip -o made", ("kit.zip",)),
    "check-dump": Command("check-dump dump", ("dump/dump.json", f"dump/dump_tensor_data/{DUMPED}")),
    "check-dump two": Command("check-dump dump --against dump", ("dump/dump.json",)),
    "upstream compare": Command("upstream compare log/run.jsonl --list known.json", ("log/run.jsonl", "known.json")),
    "upstream import": Command("upstream import known.json --tests tests.txt -o made", ("known.json", "tests.txt")),
    "upstream export": Command(
        "upstream export rules.json --as ids --tests tests.txt -o made", ("rules.json", "tests.txt")
    ),
    **{
        name: Command(f"{READ} {reader}", files)
        for name, reader, files in (
            ("add-findings", "finding", ("finding.json",)),
            ("diagnose --against", "records", ("records/rank-0.jsonl",)),
            ("--ascend-expectations", "expectations", ("expectations.json",)),
            ("--ascend-expectations, disputes", "disputes", ("disputes.json",)),
            ("--ascend-cases, ATK", "cases-json", ("cases/json/a.json",)),
            ("--ascend-cases, TTK", "cases-csv", ("cases/csv/a.csv",)),
            ("--ascend-baselines, figures", "baseline", ("measured.json",)),
            ("--ascend-baselines, goldens", "golden", ("baselines/golden/ops/one.safetensors",)),
            ("--ascend-resume", "torn-log", ("log/run.jsonl",)),
        )
    },
    "manifest": Command("manifest --durations log", ("log/run.jsonl",)),
    "analyze": Command("analyze --source sources --census one.json", ("sources/train.py", "one.json")),
}


# --- damage ---


def damage(path: Path, chance: Random) -> str:
    """Do something to a file, and say what."""
    data = path.read_bytes()
    way = chance.random()
    if way < 0.2:
        name = chance.choice(list(NO_FILES))
        path.unlink()
        NO_FILES[name](path)
        return name
    if way < 0.7 and data[:1] in b"{[" and data:
        return _other_value(path, data, chance)
    for _ in range(chance.randrange(1, 5)):
        place = chance.randrange(len(data) + 1)
        data = data[:place] + chance.choice(PIECES) + data[place + chance.choice((0, 0, 1, 40)) :]
    path.write_bytes(data)
    return "bytes"


NO_FILES: Mapping[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a loop of links": lambda path: path.symlink_to(path.name),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link elsewhere": lambda path: path.symlink_to(Path("../elsewhere").resolve()),
    "a zip bomb": lambda path: path.write_bytes(_bomb()),
    "nothing": lambda _: None,
    "empty": lambda path: path.write_bytes(b""),
    "3 TiB": lambda path: (path.touch(), os.truncate(path, 3 << 40)),
    "1 GiB of nothing": lambda path: (path.touch(), os.truncate(path, 1 << 30)),
    "deep": lambda path: path.write_text("[" * 1_000_000, encoding="utf-8"),
    "wide": lambda path: path.write_text("[" + "[]," * 5_000_000 + "[]]\n", encoding="utf-8"),
    "half a gigabyte of lines": lambda path: path.write_text("{}\n" * 2_000_000, encoding="utf-8"),
    "UTF-16": lambda path: path.write_bytes("{}".encode("utf-16")),
}


@cache
def _bomb() -> bytes:
    """Return an archive of 12 KB with 72 MiB in it, under names of a contact kit."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_LZMA) as archive:
        for name in ("kit.json", "answers.json", "npu-smi.txt"):
            archive.writestr(name, b"[" * (24 << 20))
    return made.getvalue()


PIECES = (b"", b"\0", b"\xff", b"\x1b]0;harmed\x07", b"{", b"]", b'"', b"\n", b"9" * 5000, b"=", b"|", b"\\ud800")


def _other_value(path: Path, data: bytes, chance: Random) -> str:
    """Put a value that nobody expects in place of one of JSON, of one line where each is JSON of its own."""
    lines = data.splitlines(keepends=True) if path.suffix == ".jsonl" else [data]
    index = min(int(chance.expovariate(0.3)), len(lines) - 1) if chance.random() < 0.8 else len(lines) - 1
    found = json.loads(lines[index])
    where, holder, key = chance.choice(list(_places(found))[:4000])
    raw = chance.choice(VALUES)
    holder[key] = "@"
    lines[index] = json.dumps(found).replace('"@"', raw).encode() + b"\n"
    if chance.random() < 0.1:
        lines.insert(index, lines[index])
    path.write_bytes(_chained_anew(lines) if chance.random() < 0.7 else b"".join(lines))
    return f"{where} is {raw[:20]}"


def _chained_anew(lines: list[bytes]) -> bytes:
    """Chain the lines of a log again, as one who altered it can; what is no log stays as it is."""
    made: list[bytes] = []
    for line in lines:
        named = codec.digest_of(made[-1][:-1]) if made else ""
        made.append(re.sub(rb'("previous":\s*")[0-9a-f]{64}"', rb"\g<1>" + named.encode() + b'"', line))
    return b"".join(made)


def _places(value: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield f"{path}.{key}", value, key
        yield from _places(inner, f"{path}.{key}")


def sign_again(name: str) -> None:
    """Sign a damaged part of the certificate, or the list, as their issuer can; if they can."""
    if name == "list.json":
        body = json.loads(read_regular(Path(name), _SIGNED_BYTES))
        del body["signature"]
        body["signature"] = signing.sign(runs.KEY, "revocations", _digest(json.dumps(body)))
        Path(name).write_text(json.dumps(body), encoding="utf-8")
        return
    folder = Path("certificate")
    content = read_regular(folder / "certificate.json", _SIGNED_BYTES)
    if name != "certificate.json":
        said, part = json.loads(content), read_regular(folder / name, _SIGNED_BYTES)
        said["parts"][name] = {"sha256": sha256(part).hexdigest(), "size_bytes": len(part)}
        said["id"] = package.identity({key: value for key, value in said.items() if key != "id"})
        content = package.encoded(said)
        (folder / "certificate.txt").write_text(package.words(said), encoding="utf-8")
    with contextlib.suppress(ValueError, TypeError):
        said = json.loads(content)
        identity = package.identity({key: value for key, value in said.items() if key != "id"})
        content = content.replace(str(said["id"]).encode(), identity.encode())
        (folder / "certificate.txt").write_text(package.words(json.loads(content)), encoding="utf-8")
    (folder / "certificate.json").write_bytes(content)
    digest_ = sha256(content).hexdigest()
    key = signing.fingerprint(runs.KEY.public_key())
    signature = {"sha256": digest_, "key": key, "signature": signing.sign(runs.KEY, "certificate", digest_)}
    (folder / "certificate.sig").write_bytes(package.encoded(signature))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


#: A file that no command is told of, but by a link.
ELSEWHERE = b'{"somebody": "else"}'


@dataclass(frozen=True, slots=True)
class Tried:
    """What a command made of a hostile file: its exit code, the time that it took, and what is wrong with that."""

    command: str
    code: int
    seconds: float
    found: list[str]


def tried(seed: int, names: tuple[str, ...] = ()) -> Tried:
    """Run one command on one hostile file, in the scene that is the current folder."""
    chance = Random(seed)  # noqa: S311
    name = chance.choice(sorted(names or COMMANDS))
    command = COMMANDS[name]
    file = chance.choice(command.files)
    what = damage(Path(file), chance)
    if Path(file).name in command.signed and Path(file).is_file() and chance.random() < 0.7:
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError, OSError, MemoryError):
            sign_again(Path(file).name)
    elsewhere, beside = Path("../elsewhere"), sorted(Path("..").iterdir())
    began = time.process_time()
    code, said = _run(command.line.split())
    took = time.process_time() - began
    about = f"seed {seed}: {name}, {file}, {what}"
    found = [f"{about}: {said[-1500:]}"] if code not in range(8) else []
    if sorted(Path("..").iterdir()) != beside or elsewhere.read_bytes() != ELSEWHERE:
        found.append(f"{about}: a file elsewhere was made or altered")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", plain):
        found.append(f"{about}: raw characters on the terminal: {plain[:300]!a}")
    if re.search(r"hint:.*curl", said):
        found.append(f"{about}: a hint that repeats foreign text: {plain[-300:]!a}")
    if code > 1 and not plain.strip():
        found.append(f"{about}: exit code {code} without a word")
    if took > SECONDS:
        found.append(f"{about}: took {took:.0f} s of CPU")
    return Tried(name, code, took, found)


class _TooLongError(BaseException):
    pass


def _run(line: list[str]) -> tuple[int, str]:
    """Run a command line here; -1 for a traceback, -2 for a hang."""

    def late(*_: object) -> None:
        raise _TooLongError

    signal.signal(signal.SIGALRM, late)
    out = io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        signal.alarm(HUNG_SECONDS)
        try:
            if line[0] == READ:
                code = _read(line[1])
            else:
                sys.argv = ["pytest-ascend", *line]
                cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else bool(end.code)
        except _TooLongError:
            code = -2
            out.write(f"no end within {HUNG_SECONDS} s")
        except BaseException:  # noqa: BLE001
            code = -1
            out.write(traceback.format_exc())
        finally:
            signal.alarm(0)
    return code, out.getvalue()


def _read(name: str) -> int:
    """Read a file as an option does; return the exit code of a refusal, whose words are on the terminal."""
    path, use = _readers()[name]
    try:
        use(Path(path))
    except AscendError as error:
        click.echo(f"ERROR: {visible(error.message)}\n  hint: {visible(error.hint)}")
        return error.exit_code
    return 0


def table(all_tried: list[Tried]) -> Iterator[str]:
    """Yield rows of Markdown: each command with its files, how many it took and refused, and the longest time."""
    rows = []
    for name in sorted({each.command for each in all_tried}):
        mine = [each for each in all_tried if each.command == name]
        taken, found = sum(each.code == 0 for each in mine), sum(len(each.found) for each in mine)
        longest = max(each.seconds for each in mine)
        rows.append((f"`{name}`", len(mine), taken, len(mine) - taken, found, f"{longest:.1f} s"))
    heads = ("command", "hostile files", "accepted", "refused with a message", "findings", "longest")
    yield from in_markdown(heads, rows)


def attack(count: int, names: tuple[str, ...], first: int = 0) -> tuple[list[Tried], list[str], int]:
    """Give commands ``count`` hostile files.

    Return what became of each, what is wrong beside that, and the most memory that a process took, in MiB.
    """
    home = tempfile.mkdtemp(prefix="hostile-")
    well = Path(home, "well")
    well.mkdir()
    scene(well)
    _show_escapes()
    for module, _ in cli.COMMANDS.values():  # once, and not again in each child
        import_module(module.partition(":")[0])
    _readers()
    all_tried: list[Tried] = []
    found: list[str] = []
    most = 0
    for start in range(first, first + count, BATCH):
        reading, writing = os.pipe()
        if not os.fork():
            try:
                _batch(well, range(start, min(start + BATCH, first + count)), names, writing)
            finally:  # whatever it is, it must not go on as if it were the parent
                os._exit(1)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            lines = [json.loads(line) for line in pipe]
        os.wait()
        if not lines or not isinstance(lines[-1], int):
            found.append(f"seeds from {start}: the process died")
        else:
            most = max(most, lines[-1])
            all_tried += [Tried(**each) for each in lines[:-1]]
            found += [f"seeds from {start}: {lines[-1]} MiB"] if lines[-1] > MEMORY_MIB else []
    os.chdir(ROOT)
    shutil.rmtree(home)
    return all_tried, found, most


def _batch(well: Path, seeds: range, names: tuple[str, ...], writing: int) -> None:
    """Take some inputs, each in a fresh copy of the scene, and end this process."""
    with os.fdopen(writing, "w") as pipe, tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
        Path(scratch, "elsewhere").write_bytes(ELSEWHERE)
        for seed in seeds:
            here = Path(scratch, str(seed))
            shutil.copytree(well, here)
            os.chdir(here)
            commands.folder = lambda _, here=here: here
            rules.operators_of_torch = lambda: {"add": "add", "mul": "mul"}  # whose list takes ten seconds to load
            certifying.installed = programme.installed = lambda: runs.RELEASE
            pipe.write(f"{json.dumps(asdict(tried(seed, names)))}\n")
            os.chdir(scratch)
            shutil.rmtree(here, ignore_errors=True)
        pipe.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}\n")
        pipe.flush()
        os.chdir(ROOT)
    os._exit(0)


def _show_escapes() -> None:
    """Have click hand on what a terminal would get: it takes escapes out where it writes to a file."""
    click.utils.should_strip_ansi = lambda *_, **__: False  # type: ignore[attr-defined]


@click.group(help=__doc__)
def main() -> None:
    """Choose what is attacked."""


@main.command("commands")
@click.option("--files", default=2000, show_default=True)
@click.option("--first", default=0, show_default=True, help="The first seed; a file again: --files 1 --first SEED.")
@click.option("--command", "names", multiple=True, help="Only this command; repeatable.")
def _commands(files: int, first: int, names: tuple[str, ...]) -> None:
    """Give commands hostile files, a seed each; exit with 1 where there is a finding."""
    began = time.monotonic()
    tried, beside, most = attack(files, names, first)
    found = [*(each for one in tried for each in one.found), *beside]
    click.echo("\n".join([*found, *table(tried)]))
    click.echo(f"{files} hostile files in {time.monotonic() - began:.0f} s, {most} MiB at most: {len(found)} findings")
    sys.exit(bool(found))


# --- readers ---


def _past_its_hash(read: Callable[[bytes], object], path: Path) -> None:
    """Read as for one who can write the manifest as well; a store names the file besides."""
    with contextlib.suppress(OSError, ValueError):
        read(read_regular(path, _SIGNED_BYTES))


def _readers() -> Mapping[str, tuple[str, Callable[[Path], object]]]:
    """Return by name a well-formed file of the scene, and how the tool reads one. Imported where it is instrumented."""
    from pytest_ascend.certificate import revocation
    from pytest_ascend.coverage import expectations
    from pytest_ascend.distributed import commands as ranks
    from pytest_ascend.environment.npu_smi import parse
    from pytest_ascend.golden.files import decode, decode_manifest
    from pytest_ascend.migration import census
    from pytest_ascend.migration.sources import scan
    from pytest_ascend.operators import community, exploring
    from pytest_ascend.page import html
    from pytest_ascend.page.matrix import render_matrix
    from pytest_ascend.page.matrix import scan as scan_run
    from pytest_ascend.performance import baseline
    from pytest_ascend.runlog.reading import whole_part
    from pytest_ascend.runlog.writing import read
    from pytest_ascend.verdict.summary import summarise
    from tests.unit.runlog import synthetic

    def community_cases(path: Path) -> None:
        community.read.cache_clear()
        community.read(path.parent)

    def torn(path: Path) -> None:
        with contextlib.suppress(OSError):
            whole_part(path)

    return {
        "log": ("log/run.jsonl", lambda path: html.render(summarise(read(path)))),
        "torn-log": ("log/run.jsonl", torn),
        "matrix": ("log/run.jsonl", lambda path: render_matrix([scan_run(path)])),
        "golden": ("baselines/golden/ops/one.safetensors", lambda path: _past_its_hash(decode, path)),
        "manifest": ("baselines/golden/manifest.json", lambda path: _past_its_hash(decode_manifest, path)),
        "expectations": ("expectations.json", lambda path: expectations.load([path], synthetic.EMULATED)),
        "disputes": ("disputes.json", lambda path: expectations.load([path], synthetic.EMULATED)),
        "finding": ("finding.json", exploring.read),
        "records": ("records/rank-0.jsonl", lambda path: ranks.compared(*[ranks.read(path.parent)] * 2, path)),
        "baseline": ("measured.json", baseline.read),
        "revocations": ("list.json", lambda path: revocation.read(path, runs.KEY.public_key())),
        "census": ("one.json", census.read),
        "npu-smi": ("npu-smi", lambda path: parse(path.read_text("utf-8", "replace"))),
        "cases-json": ("cases/json/a.json", community_cases),
        "cases-csv": ("cases/csv/a.csv", community_cases),
        "source": ("sources/train.py", lambda path: list(scan(path.parent))),
    }


def fuzz(name: str, seconds: int, findings: Path) -> None:
    """Fuzz one reader in this process, which ends with it."""
    import atheris  # (only here; what is to be instrumented is imported after it)

    for module in [each for each in sys.modules if each.startswith("pytest_ascend")]:
        del sys.modules[module]
    with atheris.instrument_imports(include=["pytest_ascend"]):
        from pytest_ascend.errors import AscendError

        well, use = _readers()[name]
    folder = Path(tempfile.mkdtemp(prefix=f"fuzzing-{name}-"))
    for each in ("scene", "seeds", "given"):
        (folder / each).mkdir()
    scene(folder / "scene")
    path = folder / "given" / ("given.py" if name == "source" else "given")
    for copy in (folder / "seeds" / "well", path):
        shutil.copy(folder / "scene" / well, copy)
    use(path)  # what is well-formed must be taken

    def once(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(AscendError):
            use(path)

    limits = [f"-max_total_time={seconds}", "-rss_limit_mb=2048", f"-timeout={SECONDS}", f"-max_len={1 << 16}"]
    kept = f"-artifact_prefix={findings}/{name}-"
    atheris.Setup([sys.argv[0], *limits, kept, "-print_final_stats=1", str(folder / "seeds")], once)
    atheris.Fuzz()


@main.command("readers")
@click.argument("names", nargs=-1)
@click.option("--seconds", default=120, show_default=True, help="For each reader.")
@click.option("--findings", default="fuzzing", type=click.Path(path_type=Path), help="Where inputs are kept.")
@click.option("--here", is_flag=True, hidden=True)
def _fuzz_readers(names: tuple[str, ...], seconds: int, findings: Path, *, here: bool) -> None:
    """Fuzz readers by name, or all: each in a process of its own, as libFuzzer ends the one that it runs in."""
    findings.mkdir(parents=True, exist_ok=True)
    if here:
        fuzz(names[0], seconds, findings.resolve())
        return
    failed = []
    for name in names or _readers():
        command = [sys.executable, "-m", "tools.evaluation", "fuzz", "readers", name, "--here", f"--seconds={seconds}"]
        began = time.monotonic()
        done = subprocess.run([*command, f"--findings={findings}"], capture_output=True, text=True, check=False)
        executed = [line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line]
        said = f"{executed[-1]} inputs" if executed else "did not start"
        click.echo(f"{name}: {said} in {time.monotonic() - began:.0f} s, exit code {done.returncode}")
        if done.returncode or not executed:
            failed.append(name)
            click.echo("\n".join([*done.stdout.splitlines(), *done.stderr.splitlines()][-40:]))
    sys.exit(bool(failed))
