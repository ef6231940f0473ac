"""Where torch_npu has no CANN below it, torch can be imported all the same."""

from pathlib import Path

import pytest

from pytest_ascend.environment.signs import VARIABLE, disable_backend_autoload


def test_torch_leaves_torch_npu_alone_where_nothing_speaks_of_ascend(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    disable_backend_autoload(environ, tmp_path)
    assert environ == {VARIABLE: "0"}


@pytest.mark.parametrize(
    "environ", [{VARIABLE: "1"}, {"ASCEND_HOME_PATH": "/usr/local/Ascend"}, {"PYTEST_ASCEND_EMULATED": "1"}]
)
def test_what_is_set_and_what_works_stays(environ: dict[str, str], tmp_path: Path) -> None:
    before = dict(environ)
    disable_backend_autoload(environ, tmp_path)
    assert environ == before


def test_a_device_file_keeps_torch_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "davinci0").touch()
    environ: dict[str, str] = {}
    disable_backend_autoload(environ, tmp_path)
    assert environ == {}
