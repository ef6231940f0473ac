"""Well-formed files for every command and reader, which ``python -m tools.evaluation fuzz`` damages."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, fields
from pathlib import Path
from random import Random
from typing import Any

import torch

from pytest_ascend import cli
from pytest_ascend.certificate import revocation
from pytest_ascend.certificate.judgement import certify
from pytest_ascend.certificate.tiers import TIERS
from pytest_ascend.contact.kit import Kit, pack
from pytest_ascend.golden import Golden, GoldenStore
from pytest_ascend.golden.files import Provenance
from pytest_ascend.performance import baseline
from pytest_ascend.performance.baseline import Baseline, MeasuredRun
from pytest_ascend.records.census import Census
from pytest_ascend.runlog.contents import Selection, digest
from pytest_ascend.runlog.writing import RunLog
from pytest_ascend.verdict.summary import summarise
from tests.unit.certificate import runs
from tests.unit.certificate.authority import root_certificate
from tests.unit.environment.test_npu_smi import A2
from tests.unit.runlog import synthetic
from tests.unit.runlog.synthetic import replace

#: The tensor of the dump.
DUMPED = "Torch.abs.0.forward.input.0.pt"


def _kit_dump_and_cases() -> None:
    """Write a contact kit, one call of a dump, and cases of ATK and TTK."""
    pack(Kit(environ={}, emulated=True, say=lambda _: None), Path("kit.zip"))
    Path("dump/dump_tensor_data").mkdir(parents=True)
    torch.save(torch.ones(3), Path("dump/dump_tensor_data", DUMPED))
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3], "data_name": DUMPED}
    call = {"input_args": [tensor], "input_kwargs": {}, "output": [tensor]}
    Path("dump/dump.json").write_text(json.dumps({"data": {"Torch.abs.0.forward": call}}), encoding="utf-8")
    given = {"name": "self", "type": "tensor", "dtype": "fp32", "shape": [7, 9], "range_values": [-2, 2]}
    row = "add,torch.add,\"((2,3),(2,3))\",\"('float32',)\",{'alpha':2.0}"
    for name, text in {
        "json/a.json": json.dumps([{"id": 1, "name": "torch.softmax", "inputs": [given]}]),
        "csv/a.csv": f"testcase_name,api_name,tensor_view_shapes,tensor_dtypes,attributes\n{row}\n",
    }.items():
        Path("cases", name).parent.mkdir(parents=True)
        Path("cases", name).write_text(text, encoding="utf-8")


def scene(folder: Path) -> None:
    """Write files that are well for every command, with the keys of :mod:`tests.unit.certificate.runs`."""

    os.chdir(folder)
    folder = Path()
    for name in ("one.json", "two.json"):
        _census(Path(name))
    _kit_dump_and_cases()
    Path("sources").mkdir()
    Path("sources/train.py").write_text(PROGRAM, encoding="utf-8")
    one = {"cases": "ops/*", "outcome": "failed", "reason": "r", "source": "s", "expires": "2030-01-01", "cann": ">=8"}
    Path("expectations.json").write_text(json.dumps({"schema": 1, "expectations": [one]}), encoding="utf-8")
    two = {"cause": "c", "outcome": "disputed", "reason": "r", "cases": ["ops/exp/forward/float32"], "source": "s"}
    two |= {"owner": "o", "expires": "2030-01-01", "why": "w"}
    Path("disputes.json").write_text(json.dumps({"schema": 2, "causes": [two]}), encoding="utf-8")
    _baseline(Path("measured.json"))
    _upstream_finding_and_ranks()
    runs.certificate(folder)
    _keys(folder, "key", runs.KEY)
    _keys(folder, "second", runs.OTHER_KEY)
    _second(folder)
    Path("root.pem").write_bytes(root_certificate())
    revocation.add(Path("list.json"), "a" * 32, "because", runs.KEY, on=runs.ISSUED)
    for given, listed in {"key.pub": "keys", "list.json": "revocations"}.items():
        Path("registry", listed).mkdir(parents=True)
        shutil.copy(given, Path("registry", listed))
    shutil.copytree("certificate", "registry/certificates/one")
    shutil.copy(Path(cli.__file__).parent / "environment" / "compatibility.json", "compatibility.json")
    cases = [*synthetic.op_cases(20), *synthetic.other_cases()]
    for name, outcomes in {"log": ("passed", "failed", "errored"), "before": ("passed",)}.items():
        synthetic.write_log(Path(name, "run.jsonl"), cases, outcomes=outcomes, stack=synthetic.HARDWARE)
    _shards(cases)
    _timed()
    _goldens()
    Path("machine/usr/local/Ascend/driver").mkdir(parents=True)
    Path("machine/usr/local/Ascend/driver/version.info").write_text("Version=25.5.1\n", encoding="utf-8")
    Path("machine/etc").mkdir()
    Path("machine/etc/ascend_install.info").write_text(
        "Driver_Install_Path_Param=/usr/local/Ascend\n", encoding="utf-8"
    )
    Path("environ").write_text("ASCEND_HOME_PATH=/usr/local/Ascend\nPATH=/usr/bin\n", encoding="utf-8")
    Path("npu-smi").write_text(A2, encoding="utf-8")


PROGRAM = "import torch\nx = torch.ones(3).cuda()\nwith torch.cuda.amp.autocast():\n    x = x.to('cuda:0')\n"


def _upstream_finding_and_ranks() -> None:
    """Write a list of tests that do not pass, rules made of it, a finding of exploring, and records of a rank."""
    test = "test_ops.py::TestCommonPRIVATEUSE1::test_out_{}_npu_float32"
    lines = {test.format(name): {"reason": "not implemented"} for name in ("add", "mul", "sub", "div")}
    Path("known.json").write_text(json.dumps(lines), encoding="utf-8")
    Path("tests.txt").write_text("\n".join([*lines, test.format("exp")]), encoding="utf-8")
    rule = {"reason": "r", "source": "s", "tests": ["test_out"], "operators": ["add", "mul"], "count": 4, "spared": 0}
    Path("rules.json").write_text(json.dumps([rule]), encoding="utf-8")
    Path("records").mkdir()
    weight = {"kind": "weight", "step": 0, "name": "w", "of": {"sums": [1.0], "sizes": [1.0], "dtype": "float32"}}
    Path("records/rank-0.jsonl").write_text(f"{json.dumps(weight)}\n", encoding="utf-8")
    made = {"operator": "relu", "dtype": "float32", "seed": 1, "call": 2, "resized": [[7, 5]], "backward": False}
    Path("finding.json").write_text(json.dumps({**made, "says": "differs"}), encoding="utf-8")


def _census(path: Path) -> None:
    operators = {"aten::add.Tensor": "native", "npu::npu_swiglu": "native", "aten::foo": "fallback"}
    stack = {each.name: "2.13.0" for each in fields(Census) if each.name != "operators"}
    found = {"schema": 1, "type": "census", "stack": stack, "operators": operators}
    path.write_text(json.dumps(found), encoding="utf-8")


def _baseline(path: Path) -> None:
    times = [100.0 + each % 7 for each in range(40)]
    measured = tuple(MeasuredRun.of([each + run for each in times], [each / 2 for each in times]) for run in range(2))
    made = Baseline(
        recorded="2026-01-01T00:00:00+00:00",
        stack=synthetic.EMULATED,
        settings={},
        benchmarks={"benchmarks/x": measured},
    )
    path.write_text(json.dumps({"schema": baseline.SCHEMA, **asdict(made)}), encoding="utf-8")


def _keys(folder: Path, name: str, key: Any) -> None:
    from cryptography.hazmat.primitives import serialization as form

    pem = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    (folder / name).write_bytes(pem)
    shown = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.pub").write_bytes(shown)


def _second(folder: Path) -> None:
    """Write another issuer's run on the same stack, and the certificate by both."""
    made = {case.id: runs.replace(runs.passed(case), duration_s=0.5) for case in runs.CASES}
    log = runs.write_log(
        folder / "other" / "run.jsonl", made, change=lambda header: runs.replace(header, run_id="second")
    )
    certify(
        log,
        TIERS["performance"],
        runs.RELEASE,
        issuer="Second",
        key=runs.OTHER_KEY,
        folder=folder / "both",
        on=runs.ISSUED,
        confirms=(folder / "certificate", runs.KEY.public_key()),
    )


def _shards(cases: list[Any]) -> None:
    whole = {"count": 2, "cases": len(cases), "digest": digest(case.id for case in cases)}
    for index in (1, 2):
        mine = cases[index - 1 :: 2]
        header = synthetic.header(mine, stack=synthetic.HARDWARE, selection=Selection("subset", f"shard {index}/2"))
        shard = {**whole, "index": index, "selection": {"kind": "full", "reason": ""}}
        log = RunLog.create(
            Path(f"part-{index}", "run.jsonl"), replace(header, shard=shard, run_id=f"run-{index}"), durable=False
        )
        for case in mine:
            log.append(synthetic.passed(case))
        log.finish(summarise(log.contents()).footer(synthetic.FINISHED))
        log.close()


def _timed() -> None:
    case, chance = synthetic.other_cases()[-2], Random(1)  # noqa: S311
    for index in (1, 2, 3):
        log = RunLog.create(Path(f"timed-{index}", "run.jsonl"), synthetic.header([case]), durable=False)
        times = [100 + chance.random() for _ in range(20)]
        figures = {"latency_p50_us": times[10]}
        log.append(replace(synthetic.passed(case), series={"latency_us": times}, measurements=figures))
        log.finish(summarise(log.contents()).footer(synthetic.FINISHED))
        log.close()


def _goldens() -> None:
    import torch

    store = GoldenStore(Path("baselines", "golden"))
    made = Provenance(how="h", generator="g@1", seed="0", torch="2", numpy="2", machine="m")
    for name in ("ops/one", "ops/two"):
        store.stage(Golden(name, {"x": torch.ones(3)}, {"a": 1}), made)
    store.flush()
    store.revoke("ops/two", "because")
