"""Another machine's files are read as that machine would read them, and harm nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_ascend.environment.machine import BINARY, LARGEST_BYTES, LOOP, NOT_A_FILE, TOO_LARGE, Text, Tree


def test_absolute_links_stay_inside(tmp_path: Path) -> None:
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/version").write_text("inside", encoding="utf-8")
    (tmp_path / "link").symlink_to("/opt/version")
    assert Tree(tmp_path).read("/link") == Text("inside", exists=True)


def test_no_number_of_dots_leads_out(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text("outside", encoding="utf-8")
    (tmp_path / "root/link").symlink_to("../../../secret")
    assert Tree(tmp_path / "root").read("/link") == Text()
    assert Tree(tmp_path / "root").read("/../../secret") == Text()


def test_a_loop_is_a_problem_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    tree = Tree(tmp_path)
    assert tree.read("/a").problem == LOOP
    assert tree.problems == {"/a": LOOP}
    assert tree.target("/a") == "/a"
    assert not tree.exists("/a")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert Tree(tmp_path).read("/pipe").problem == NOT_A_FILE


@pytest.mark.parametrize(
    ("content", "problem"), [(b"a\0b", BINARY), (b"x" * (LARGEST_BYTES + 1), TOO_LARGE), (b"\xff", "")]
)
def test_what_is_no_text_says_so(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert Tree(tmp_path).read("/file").problem == problem


def test_what_is_not_there_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    tree = Tree(tmp_path)
    assert tree.read("/gone") == tree.read("/file/below") == Text()
    assert tree.names("/gone") == []
    assert tree.problems == {}
