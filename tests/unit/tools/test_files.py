"""File tools read, write and list files only under one folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagwright.tools import GiveUp
from dagwright.tools.builtin.files import file_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.testing import tool_context


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    root.mkdir()
    (tmp_path / "outside.txt").write_text("secret")
    return root


Tools = dict[str, Callable[..., Any]]


@pytest.fixture
def tools(root: Path) -> Tools:
    return {function.__name__: function for function in file_tools(ToolEnvironment(root))}


def test_written_files_can_be_read(tools: Tools, root: Path) -> None:
    with tool_context():
        assert tools["write_file"](path="a/b.txt", content="é\n") == {"path": "a/b.txt", "bytes": 3}
        assert tools["write_file"](path="a/c.json", content={"x": [1]})["bytes"] == 23
        assert tools["write_file"](path="d.bin", content="AAH/", encoding="base64")["bytes"] == 3
    assert tools["read_file"](path="a/b.txt") == "é\n"
    assert tools["read_file"](path="a/c.json") == '{\n  "x": [\n    1\n  ]\n}\n'
    assert tools["read_file"](path="d.bin", encoding="base64") == "AAH/"
    assert sorted(path.name for path in root.rglob("*")) == ["a", "b.txt", "c.json", "d.bin"]


def test_read_paths_are_recorded_except_missing_files(tools: Tools, root: Path) -> None:
    (root / "a.txt").write_text("a")
    with tool_context() as call:
        tools["read_file"](path="a.txt")
        tools["list_files"]()
        with pytest.raises(GiveUp):
            tools["read_file"](path="b.txt")
    assert call.read_locations == ["a.txt", "."]


@pytest.mark.parametrize("path", ["../outside.txt", "a/../../outside.txt", "link", "folder/outside.txt", "\0", " "])
def test_path_outside_the_root_is_rejected(tools: Tools, root: Path, path: str) -> None:
    (root / "link").symlink_to(root.parent / "outside.txt")
    (root / "folder").symlink_to(root.parent)
    arguments_by_tool = {"read_file": {"path": path}, "write_file": {"path": path, "content": "x"}}
    for name, arguments in {**arguments_by_tool, "list_files": {"folder": path}}.items():
        with tool_context(), pytest.raises(GiveUp):
            tools[name](**arguments)
    assert (root.parent / "outside.txt").read_text() == "secret"


def test_absolute_path_is_rejected_even_under_the_root(tools: Tools, root: Path) -> None:
    (root / "a.txt").write_text("x")
    with pytest.raises(GiveUp, match="outside the files folder"):
        tools["read_file"](path=str(root / "a.txt"))


def test_link_is_rejected_even_if_its_target_is_under_the_root(tools: Tools, root: Path) -> None:
    (root / "a.txt").write_text("x")
    (root / "link").symlink_to("a.txt")
    (root / "dir").mkdir()
    (root / "folder_link").symlink_to("dir")
    with pytest.raises(GiveUp, match="'link' is a symbolic link, which the file tools do not follow"):
        tools["read_file"](path="link")
    for path in ("link", "folder_link/b.txt"):
        with tool_context(), pytest.raises(GiveUp, match="is a symbolic link"):
            tools["write_file"](path=path, content="y")
    assert (root / "a.txt").read_text() == "x"
    assert list((root / "dir").iterdir()) == []


def test_file_of_sixteen_mebibytes_is_read(tools: Tools, root: Path) -> None:
    (root / "large").write_bytes(b"x" * (16 * 1024 * 1024))
    assert len(tools["read_file"](path="large")) == 16 * 1024 * 1024


def test_unreadable_file_is_reported(tools: Tools, root: Path) -> None:
    (root / "folder").mkdir()
    (root / "bytes").write_bytes(b"ok\xff")
    (root / "large").write_bytes(b"x" * (16 * 1024 * 1024 + 1))
    (root / "loop").symlink_to("loop")
    for path, message in (
        ("none", "There is no file 'none'"),
        ("folder", "'folder' is not a file"),
        ("bytes", r"not UTF-8 text \(byte 2\); read it as base64"),
        ("large", "has 16,777,217 bytes, over the limit of 16,777,216 for a result; split it"),
        ("loop", "'loop' is a symbolic link"),
    ):
        with pytest.raises(GiveUp, match=message):
            tools["read_file"](path=path)


def test_unwritable_file_is_reported(tools: Tools, root: Path) -> None:
    (root / "folder").mkdir()
    (root / "file").write_text("x")
    for arguments, message in (
        ({"path": "folder", "content": "x"}, "'folder' is a folder"),
        ({"path": "file/x", "content": "x"}, "is a file, not a folder"),
        ({"path": "b", "content": "%%", "encoding": "base64"}, "content is not base64"),
        ({"path": "b", "content": 3, "encoding": "base64"}, "must be base64 text"),
    ):
        with tool_context(), pytest.raises((GiveUp, ValueError), match=message):
            tools["write_file"](**arguments)


def test_files_that_match_a_pattern_are_listed_in_name_order(tools: Tools, root: Path) -> None:
    (root / "data").mkdir()
    for name in ("south.csv", "north.csv", "notes.txt"):
        (root / "data" / name).write_text("12")
    (root / "data" / "deeper").mkdir()
    (root / "data" / "leak.csv").symlink_to(root.parent / "outside.txt")
    north = {"name": "north.csv", "path": "data/north.csv", "bytes": 2}
    south = {"name": "south.csv", "path": "data/south.csv", "bytes": 2}
    assert tools["list_files"](folder="data", pattern="*.csv") == {"files": [north, south]}
    assert tools["list_files"]() == {"files": []}
    with pytest.raises(GiveUp, match="There is no folder 'none'"):
        tools["list_files"](folder="none")
