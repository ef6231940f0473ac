"""Names and addresses are planted in every place of a kit, and none of them is in any of its files."""

from __future__ import annotations

import json
import os
import stat
import sys
import zipfile
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from pytest_ascend.contact import kit, redaction
from pytest_ascend.contact.kit import Kit
from pytest_ascend.contact.redaction import Redaction
from pytest_ascend.system.programs import MARK

Person = namedtuple("Person", "pw_name pw_uid pw_dir")

#: What is somebody's, in the words in which it may stand there; long enough that nothing else has it by chance.
PRIVATE = {
    "Serial Number                  : 102230000123": "102230000123",
    "\tProduct Serial Number: 2102313NNN10N5000042 ": "2102313NNN10N5000042",
    "SN                             : 033EFS10P4000123": "033EFS10P4000123",
    "VDie ID                        : 42C711D4 20B03704 0F10C8D4 44CC040C 9A102003": "9A102003",
    "NDie ID : 5A1B0E00 21C07B04 9C31D8D4 A0CC040C 1F103003": "1F103003",
    "Asset Tag=AT-7781, Model: 2280": "AT-7781",
    '{"uuid": "0f3d-22", "name": "x"}': "0f3d-22",
    "_NPUDeviceProperties(name='Ascend910B1', uuid=4e50552d3530, L2_cache_size=9)": "4e50552d3530",
    "inet 10.44.3.18/24": "10.44.3.18",
    "server 8.8.8.8 and peer 14.215.177.38:5000": "14.215.177.38",
    "resolver 8.8.4.4": "8.8.4.4",
    "rank_table server_id 172.16.0.9": "172.16.0.9",
    "HCCL_IF_IP=192.168.100.101": "192.168.100.101",
    "ether fa:16:3e:aa:bb:cc": "fa:16:3e:aa:bb:cc",
    "MAC Addr 0 : FA-16-3E-AA-BB-CD": "FA-16-3E-AA-BB-CD",
    "inet6 fe80:0:0:0:f816:3eff:feaa:bbcc": "f816:3eff",
    "inet6 fe80::f816:3eff:feaa:bbce%eth0 scope link": "feaa:bbce",
    "peer [2001:db8:85a3::8a2e:370:7334]:22": "8a2e:370",
    "WAN 2001:470::1": "2001:470",
    "::ffff:192.0.2.128": "192.0.2.128",
    "/home/zhang/model.pt": "zhang",
    "/home/\u5f20\u4e09/model.pt": "\u5f20\u4e09",
    '"/home/\\u5f20\\u4e09/model.pt"': "u5f20",
    "File '/data1/li.wei/x.py', line 3": "li.wei",
    "/mnt/share/limei/cann": "limei",
    "zhang@example.com": "example.com",
    "limei@gpu-box": "gpu-box",
    "on worker-7.ascend as builder": "worker-7",
    "WORKER-7 calls": "WORKER-7",
    "rank 3 on storage-9": "storage-9",
    "built by builder": "builder",
    "git clone https://builder:hunter2@git.secret-corp.example/ascend/x.git": "secret-corp",
    "http://mirror.secret-corp.example:8080/simple": "secret-corp",
    "node-12.prod.internal answered": "prod.internal",
    "pod 6f0a3c1e-3c52-4f6e-9a94-0f7e3b3c9d21 of kubelet": "0f7e3b3c9d21",
    "1:name=systemd:/kubepods-pod6f0a3c1e_3c52_4f6e_9a94_0f7e3b3c9d22.slice/x": "0f7e3b3c9d22",
    "0::/kubepods/burstable/pod6f0a3c1e-3c52-4f6e-9a94-0f7e3b3c9d23/x": "0f7e3b3c9d23",
    f"0::/docker/{'ab12' * 16}": "ab12" * 16,
    f"12:cpuset:/kubepods/pod1/cri-containerd-{'cd34' * 16}.scope": "cd34" * 16,
    "password: hunter3": "hunter3",
}
#: What is nobody's, and says something of the machine.
KEPT = (
    "driver 24.1.0.3",
    '"name": "driver", "version": "24.1.0.3"',
    "npu-smi 24.1.0.3                 Version: 24.1.0.3",
    "bus 0000:C1:00.0",
    "| 0                         | 0000:C1:00.0  | 0           0    / 0          3382 / 65536         |",
    "507899 EL0005: The resources are busy.",
    "2026-11-22T03:00:00+00:00",
    "[ERROR] 2026-11-22-10:04:34 (PID:8639, Device:0, RankID:-1) ERR00100 PTA call acl api failed.",
    "torch 2.13.0, torch_npu 2.7.1.post2, CANN 8.3.RC1, 7.6.0.1.220",
    "/usr/local/Ascend/ascend-toolkit/latest/opp",
    "operator():../third_party/op-plugin/op_plugin/ops/opapi/IndexKernelNpuOpApi.cpp:40",
    "listening on 127.0.0.1:29500 and [::1]:29500",
    "https://github.com/Ascend/pytorch and https://www.hiascend.com/document",
    '{"by": "npu", "of": ["aten::add.Tensor"]}',
    "Aicore curFreq(MHZ)            : 800",
    "a3:00.0, 12:30:45, std::vector, c10::Error",
)


@pytest.fixture(autouse=True)
def _somebodys_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    people = [Person("li.wei", 1001, "/data1/li.wei"), Person("limei", 1002, "/mnt/share/limei")]
    monkeypatch.setattr(redaction.socket, "gethostname", lambda: "worker-7.ascend")
    monkeypatch.setattr(redaction.platform, "node", lambda: "worker-7.ascend")
    monkeypatch.setattr(redaction.pwd, "getpwall", lambda: [Person("root", 0, "/root"), *people])
    monkeypatch.setattr(redaction, "getuser", lambda: "builder")
    hosts = redaction._hosts
    monkeypatch.setattr(redaction, "_hosts", lambda: [*hosts(), "storage-9"])


@pytest.mark.parametrize("text", PRIVATE)
def test_names_and_addresses_are_struck_out(text: str) -> None:
    assert PRIVATE[text] not in Redaction()(text)


@pytest.mark.parametrize("text", KEPT)
def test_what_says_something_of_the_machine_is_kept(text: str) -> None:
    assert Redaction([text, "driver 24.1.0.3"])(text) == text


@pytest.mark.parametrize("text", [*PRIVATE, *KEPT])
def test_striking_out_twice_is_striking_out_once(text: str) -> None:
    strike = Redaction(["driver 24.1.0.3"])
    once = strike(text)
    assert strike(once) == once


def test_people_without_a_home_leave_the_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction.pwd, "getpwall", lambda: [Person("somebody", 1000, ""), Person("other", 1001, "//")])
    monkeypatch.setattr(redaction.Path, "home", lambda: Path("~nobody").expanduser())
    assert Redaction()("aclnnAdd, 3.5 ms") == "aclnnAdd, 3.5 ms"


def test_a_common_word_for_a_name_leaves_the_kit_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "getuser", lambda: "npu")
    strike = Redaction()
    assert strike('{"by": "npu", "status": "done"}') == '{"by": "npu", "status": "done"}'
    assert strike("/srv/npu/x and npu@box-1") == "/srv/[user]/x and [address]"


#: Answers as npu-smi does, with every private text in each of its forms.
NPU_SMI = f"""#!{sys.executable}
import sys
print("| npu-smi 24.1.0.3                 Version: 24.1.0.3                    |")
print("| 0     910B3               | OK            | 98.9        38                0    / 0             |")
print("| 0                         | 0000:C1:00.0  | 0           0    / 0          3382 / 65536         |")
print("\\n".join({list(PRIVATE)!r}))
sys.exit(3 if "ecc" in sys.argv else 0)
"""


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the files of a kit of a machine on which everything is full of names."""
    program = tmp_path / "bin" / "npu-smi"
    program.parent.mkdir()
    program.write_text(NPU_SMI, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    said = json.dumps({text: [text, {"in": text}] for text in PRIVATE})
    step = f"import sys; print({said!r}); print('\\n{MARK}' + {said!r}); sys.exit(len(sys.argv) % 2)"
    environ = {
        **os.environ,
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "ASCEND_PLANTED": "; ".join(PRIVATE),
        "ASCEND_REGISTRY_TOKEN": "hunter4",
    }
    monkeypatch.setattr(kit, "DEADLINES_S", {})
    monkeypatch.setattr(kit, "LAST_S", {})
    monkeypatch.setattr(kit, "_WARM_S", 0.1)
    monkeypatch.setattr(kit, "smoke", lambda made: made.files.update({"smoke/run.jsonl": said}))
    monkeypatch.setattr(kit, "_read", lambda path: "; ".join(PRIVATE))
    made = Kit(environ=environ, emulated=False, say=lambda line: None)
    monkeypatch.setattr(
        Kit, "step", lambda self, name, limit_s: self.ask(name, [sys.executable, "-c", f"{step}", name], 30)
    )
    kit.gather(made)
    for name in ("start-up", "error-index"):
        made.step(name, 30)
    kit.pack(made, tmp_path / "contact.zip")
    with zipfile.ZipFile(tmp_path / "contact.zip") as archive:
        assert not archive.comment
        return {each: archive.read(each).decode() for each in archive.namelist()}


def test_no_file_of_a_kit_has_what_is_somebodys(packed: dict[str, str]) -> None:
    assert len(packed) > 12
    assert sum(name.startswith("raw/") for name in packed) > 10
    everything: dict[str, Any] = {**dict.fromkeys(PRIVATE.values()), "hunter2": 0, "hunter4": 0}
    left = [(name, each) for name, text in packed.items() for each in everything if each in text]
    assert not left


def test_a_kit_of_a_machine_full_of_names_is_still_read(packed: dict[str, str]) -> None:
    assert "24.1.0.3" in packed["raw/npu-smi_info.txt"]
    assert "3382 / 65536" in packed["raw/npu-smi_info.txt"]
    steps = {name: json.loads(text) for name, text in packed.items() if name.startswith("steps/")}
    assert steps["steps/npu-smi.json"]["data"]["npu-smi info"] == "answered"
    assert "code 3" in steps["steps/npu-smi.json"]["data"]["npu-smi info -t ecc -i 0"]
    assert steps["steps/machine.json"]["data"]["variables"]["ASCEND_REGISTRY_TOKEN"] == "[struck out]"  # noqa: S105
    assert "In short" in packed["summary.html"]
