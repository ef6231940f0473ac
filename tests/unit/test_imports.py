"""What may be imported before the device is up loads neither torch nor torch_npu, whose autoload needs CANN."""

import subprocess
import sys

import pytest

NAMES = [
    "pytest_ascend",
    "pytest_ascend.plugin",
    "pytest_ascend.plugin.hooks",
    "pytest_ascend.plugin.startup",
    "pytest_ascend.cli",
    "pytest_ascend.page.commands",
    "pytest_ascend.certificate.commands",
    "pytest_ascend.doctor.commands",
]


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_no_torch(name):
    script = f"import sys, {name}; sys.exit(' '.join(sorted({{'torch', 'torch_npu'}} & set(sys.modules))) or 0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pytest_that_has_nothing_to_do_with_ascend_pays_for_a_handful_of_small_modules():
    script = """if True:
        import sys, pytest
        before = set(sys.modules)
        import pytest_ascend.plugin
        print(*sorted(set(sys.modules) - before))
    """
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    ours = [name for name in loaded if name.startswith("pytest_ascend")]
    assert len(ours) <= 14, ours
    heavy = {"torch", "numpy", "msgspec", "rich", "click", "jinja2", "pytest_ascend.emulator.bootstrap"}
    assert not heavy & set(loaded)
