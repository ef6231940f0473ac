"""The recipes for CI systems: valid by their published schemas, and their steps work when run as scripts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = {
    "vendor.github-workflows": [*(ROOT / ".github" / "workflows").glob("*.yml")],
    "vendor.github-actions": [ROOT / "action.yml"],
    "vendor.gitlab-ci": [ROOT / "ci" / "gitlab.yml"],
}


def load(*place):
    return next(load_all(*place))


def load_all(*place):
    return YAML(typ="safe").load_all(ROOT.joinpath(*place).read_text(encoding="utf-8"))


def bash(script, folder, **environment):
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environment}
    return subprocess.run(  # noqa: PLW1510 - the caller looks at the code
        ["bash", "-e", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_are_valid_by_the_published_schema(schema):
    assert SCHEMAS[schema]
    checked = subprocess.run(  # noqa: PLW1510 - looked at below
        [Path(sys.executable).with_name("check-jsonschema"), "--builtin-schema", schema, *SCHEMAS[schema]],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout


#: Linters that are not in the extra "test", with what each is given. hadolint and kubernetes-validate are in "lint";
#: actionlint is a program of its own.
LINTERS = {
    "hadolint": [*(ROOT / "ci").glob("*.Dockerfile")],
    "kubernetes-validate": ["--strict", ROOT / "ci" / "kubernetes.yaml"],
    "actionlint": SCHEMAS["vendor.github-workflows"],
}


@pytest.mark.parametrize("linter", LINTERS)
def test_linters_find_nothing(linter):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which(linter, path=path)
    if program is None:
        pytest.skip(f"needs {linter}")
    checked = subprocess.run([program, *LINTERS[linter]], capture_output=True, text=True)  # noqa: PLW1510
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_steps_of_the_action_run_as_scripts(tmp_path):
    steps = {step["name"]: step for step in load("action.yml")["runs"]["steps"]}
    output, summary = tmp_path / "output", tmp_path / "summary"
    given = {
        "DEVICE": "cpu",
        "LEVEL": "smoke",
        "SHARD": "",
        "AGAINST": "",
        "ARGUMENTS": "-k\nops/abs/sweep\n",
        "REPORT": "ascend-report",
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    assert set(steps["Run"]["env"]) <= {*given, "PYTEST_ASCEND_CACHE"}
    ran = bash(steps["Run"]["run"], tmp_path, **given)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert output.read_text(encoding="utf-8") == "exit-code=0\n"
    told = bash(steps["Summary and annotations"]["run"], tmp_path, **given)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("::notice title=pytest-ascend::")
    assert summary.read_text(encoding="utf-8").startswith("### pytest-ascend")
    assert (tmp_path / "ascend-report" / "junit.xml").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("code", "gate", "expected"),
    [("0", "true", 0), ("1", "true", 1), ("1", "false", 0), ("7", "false", 7), ("", "true", 3)],
)
def test_the_gate_lets_through_what_it_says(code, gate, expected, tmp_path):
    script = next(step["run"] for step in load("action.yml")["runs"]["steps"] if step["name"] == "Gate")
    assert bash(script, tmp_path, CODE=code, GATE=gate).returncode == expected


def test_no_step_puts_an_expression_into_a_script():
    for path in (["action.yml"], [".github", "workflows", "conformance.yml"], [".github", "workflows", "release.yml"]):
        found = load(*path)
        steps = found.get("runs", {}).get("steps") or [each for job in found["jobs"].values() for each in job["steps"]]
        assert not [step["run"] for step in steps if "${{" in step.get("run", "")], "inputs come through env"


def test_a_shard_of_the_kubernetes_job_is_the_one_of_its_index():
    job = load("ci", "kubernetes.yaml")["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert str(job["completions"]) == container["env"][0]["value"]
    (script,) = container["args"]
    echoed = script.replace("exec python3 -m pytest", "echo")
    said = bash(echoed, ROOT, JOB_COMPLETION_INDEX="2", SHARDS="4").stdout
    assert "--ascend-shard=3/4 --ascend-report=/reports/2" in said


def test_the_kubernetes_job_that_merges_waits_for_every_shard(tmp_path):
    shards, merge = load_all("ci", "kubernetes.yaml")
    (container,) = merge["spec"]["template"]["spec"]["containers"]
    assert container["env"][0]["value"] == str(shards["spec"]["completions"])
    for shard in range(3):
        (tmp_path / str(shard)).mkdir()
        (tmp_path / str(shard) / "conformance.html").touch()
    (script,) = container["args"]
    echoed = script.replace("pytest-ascend", "echo").replace("/reports", str(tmp_path))
    said = bash(echoed, tmp_path, SHARDS="3").stdout
    assert said.split() == [
        "report",
        "merge",
        *(str(tmp_path / str(each)) for each in range(3)),
        "-o",
        f"{tmp_path}/whole",
    ]
    assert not [*tmp_path.glob("[0-9]*")], "the next run would take them for its own"
    failed = echoed.replace("echo report merge", "bash -c 'exit 1' merge")
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "conformance.html").touch()
    assert bash(failed, tmp_path, SHARDS="1").returncode == 1


@pytest.mark.parametrize(
    ("device", "install", "installed"),
    [
        ("npu", "pytest-ascend", "pytest-ascend"),
        ("emulated", "pytest-ascend", "pytest-ascend[emulated]"),
        ("emulated", "pytest-ascend[emulated]", "pytest-ascend[emulated]"),
    ],
)
def test_the_action_installs_what_its_device_and_options_need(device, install, installed, tmp_path):
    script = next(step["run"] for step in load("action.yml")["runs"]["steps"] if step["name"] == "Install")
    echoed = script.replace("python3 -m pip install --quiet", "echo")
    assert bash(echoed, tmp_path, DEVICE=device, INSTALL=install).stdout == f"{installed} pytest-xdist\n"


def test_gitlab_shards_by_its_own_counters(tmp_path):
    script = [line for line in load("ci", "gitlab.yml")[".pytest-ascend"]["script"] if line.startswith("shard=")]
    said = bash("\n".join([*script, 'echo "$shard"']), tmp_path, CI_NODE_INDEX="2", CI_NODE_TOTAL="3").stdout
    assert said == "2/3\n"


def test_the_json_export_gates(tmp_path):
    from tests.unit.runlog import synthetic

    log = synthetic.write_log(tmp_path / "run.jsonl", synthetic.op_cases(3), outcomes=["failed"])
    done = bash(f"pytest-ascend report export {log} --format json --gate", tmp_path)
    assert (done.returncode, json.loads(done.stdout)["counts"]["failed"]) == (1, 3)
