"""`list_directory` and `search_files`: which files they find and which they ignore."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagwright.tools import GiveUp
from dagwright.tools.builtin import file_search
from dagwright.tools.builtin.file_search import file_search_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.testing import tool_context

Tools = dict[str, Callable[..., Any]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    (root / "notes" / "old").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "plan.md").write_text("# Plan\nBuy Milk and bread\nmilk again\n")
    (root / "notes" / "a.txt").write_text("no drink\n")
    (root / "notes" / "old" / "b.md").write_text("MILK\n")
    (root / "photo.bin").write_bytes(b"milk\0\xff")
    (root / "latin.txt").write_bytes(b"milk \xe9")
    (root / ".env").write_text("milk=secret")
    (root / ".git" / "config").write_text("milk")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.md").write_text("milk")
    (root / "leak.md").symlink_to(tmp_path / "outside" / "secret.md")
    (root / "away").symlink_to(tmp_path / "outside")
    (root / "loop").symlink_to("loop")
    return root


@pytest.fixture
def tools(root: Path) -> Tools:
    return {function.__name__: function for function in file_search_tools(ToolEnvironment(root))}


def search(tools: Tools, **arguments: Any) -> Any:
    with tool_context():
        return tools["search_files"](**arguments)


def test_folder_is_listed_in_name_order_without_links(tools: Tools) -> None:
    entries = tools["list_directory"]()["entries"]
    expected = [("latin.txt", "file"), ("notes", "folder"), ("photo.bin", "file"), ("plan.md", "file")]
    assert [(entry["name"], entry["type"]) for entry in entries] == expected
    assert tools["list_directory"](path="notes")["entries"] == [
        {"name": "a.txt", "path": "notes/a.txt", "type": "file", "bytes": 9},
        {"name": "old", "path": "notes/old", "type": "folder"},
    ]


def test_files_are_found_by_name_and_by_path(tools: Tools) -> None:
    assert search(tools, pattern="*.md") == {
        "matches": [{"path": "plan.md", "bytes": 37}, {"path": "notes/old/b.md", "bytes": 5}],
        "is_cut": False,
        "skipped_files": 0,
    }
    assert [match["path"] for match in search(tools, pattern="notes/*")["matches"]] == ["notes/a.txt", "notes/old/b.md"]
    assert search(tools, pattern="*.md", path="notes/old")["matches"] == [{"path": "notes/old/b.md", "bytes": 5}]


def test_text_search_ignores_case_and_skips_hidden_and_binary_files(tools: Tools) -> None:
    assert search(tools, text="milk") == {
        "matches": [
            {"path": "plan.md", "line": 2, "text": "Buy Milk and bread"},
            {"path": "plan.md", "line": 3, "text": "milk again"},
            {"path": "notes/old/b.md", "line": 1, "text": "MILK"},
        ],
        "is_cut": False,
        "skipped_files": 2,
    }


def test_matches_over_the_limit_are_cut(tools: Tools) -> None:
    result = search(tools, text="milk", limit=2)
    assert (len(result["matches"]), result["is_cut"]) == (2, True)
    assert search(tools, text="milk", limit=3)["is_cut"] is False


def test_large_files_are_skipped_and_long_lines_are_shortened(
    tools: Tools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_search, "SEARCHED_FILE_LIMIT_BYTES", 1_000)
    (root / "large.txt").write_text("milk\n" * 201)
    (root / "line.txt").write_text("milk" * 200)
    result = search(tools, text="milk", pattern="l*.txt")
    assert (result["skipped_files"], [len(match["text"]) for match in result["matches"]]) == (2, [300])


def test_folder_with_too_many_files_is_rejected(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_search, "SEARCHED_FILES_LIMIT", 3)
    with pytest.raises(GiveUp, match="over 3 files; choose a subfolder"):
        search(tools)


def test_cancelled_search_stops(tools: Tools) -> None:
    with tool_context() as call:
        call.cancellation.request()
        assert tools["search_files"](text="milk")["matches"] == []


@pytest.mark.parametrize("path", ["..", "away", "notes/../..", "/", "\0", ""])
def test_path_outside_the_root_is_rejected(tools: Tools, path: str) -> None:
    with pytest.raises(GiveUp):
        tools["list_directory"](path=path)
    with pytest.raises(GiveUp):
        search(tools, path=path)


def test_invalid_folder_is_reported(tools: Tools) -> None:
    for path, message in (("none", "There is no folder 'none'"), ("plan.md", "'plan.md' is not a folder")):
        with pytest.raises(GiveUp, match=message):
            tools["list_directory"](path=path)
        with pytest.raises(GiveUp, match=message):
            search(tools, path=path)
    with pytest.raises(ValueError, match="text is empty"):
        search(tools, text=" ")


def test_searched_folders_and_matching_files_are_recorded_as_read(tools: Tools) -> None:
    with tool_context() as call:
        tools["list_directory"](path="notes")
        tools["search_files"](pattern="*.md", text="milk")
        tools["search_files"](pattern="*.md")
    assert call.read_locations == ["notes", ".", "plan.md", "notes/old/b.md", "."]
