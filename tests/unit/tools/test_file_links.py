"""Links that lead out of the files folder: existing links, and names that become links while a path is opened."""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dagwright.tools import GiveUp
from dagwright.tools.builtin.file_search import file_search_tools
from dagwright.tools.builtin.files import file_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.testing import tool_context

pytestmark = pytest.mark.waits

Tools = dict[str, Callable[..., Any]]
SECRET = "other owner's secret"
RACE_TIMEOUT_S = 60.0
MIN_CALLS = 50
"""Minimum number of successful calls, and minimum number of rejected calls."""
_AT_FDCWD = -100
"""Linux constant: paths are relative to the current folder."""
_RENAME_EXCHANGE = 2
"""Linux constant: exchange two names atomically, so that both always exist."""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "a.txt").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "files"
    (root / "dir").mkdir(parents=True)
    (root / "dir" / "a.txt").write_text("inside")
    return root


@pytest.fixture
def tools(root: Path) -> Tools:
    environment = ToolEnvironment(root)
    return {tool.__name__: tool for tool in (*file_tools(environment), *file_search_tools(environment))}


def call(tools: Tools, name: str, **arguments: Any) -> Any:
    with tool_context(idempotency_key="key-1"):
        return tools[name](**arguments)


def test_hard_link_is_neither_read_nor_written_nor_found(tools: Tools, root: Path, outside: Path) -> None:
    os.link(outside / "a.txt", root / "dir" / "b.txt")
    message = r"'dir/b\.txt' has several names \(hard links\)"
    with pytest.raises(GiveUp, match=message):
        call(tools, "read_file", path="dir/b.txt")
    with pytest.raises(GiveUp, match=message):
        call(tools, "write_file", path="dir/b.txt", content="x")
    assert (outside / "a.txt").read_text() == SECRET
    assert [file["name"] for file in call(tools, "list_files", folder="dir")["files"]] == ["a.txt"]
    assert [entry["name"] for entry in call(tools, "list_directory", path="dir")["entries"]] == ["a.txt"]
    assert call(tools, "search_files", text="secret")["matches"] == []
    (outside / "a.txt").unlink()
    assert call(tools, "read_file", path="dir/b.txt") == SECRET


def test_write_does_not_follow_a_link_with_the_name_of_its_draft(tools: Tools, root: Path, outside: Path) -> None:
    drafts: list[str] = []
    with recording_drafts(drafts):
        call(tools, "write_file", path="new.txt", content="x")
    for link in (os.link, os.symlink):
        link(outside / "a.txt", root / drafts[0])
        with pytest.raises((GiveUp, OSError)):
            call(tools, "write_file", path="new.txt", content="y")
        assert (outside / "a.txt").read_text() == SECRET
        (root / drafts[0]).unlink(missing_ok=True)


@contextmanager
def recording_drafts(drafts: list[str]) -> Iterator[None]:
    """Record the names of the draft files that are moved to their targets."""
    replace = os.replace

    def record_and_replace(source: str, target: str, **folders: Any) -> None:
        drafts.append(source)
        replace(source, target, **folders)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", record_and_replace)
        yield


@contextmanager
def exchanging_with_link(path: Path, target: Path) -> Iterator[None]:
    """Repeatedly exchange a path with a link to `target`, in a thread."""
    link = path.with_name(".link")
    link.symlink_to(target)
    names = [str(path).encode(), str(link).encode()]
    exchange = partial(
        ctypes.CDLL(None, use_errno=True).renameat2, _AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE
    )
    stop_event = threading.Event()
    error_numbers: list[int] = []

    def swap() -> None:
        while not stop_event.is_set():
            if exchange() != 0:
                error_numbers.append(ctypes.get_errno())

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop_event.set()
        thread.join()
    assert error_numbers == []


@pytest.mark.parametrize("swapped_name", ["dir", "dir/a.txt"])
def test_name_swapped_for_a_link_never_leads_outside(
    tools: Tools, root: Path, outside: Path, swapped_name: str
) -> None:
    contents: list[Any] = []
    counts = {"ok": 0, "rejected": 0}
    deadline = time.monotonic() + RACE_TIMEOUT_S
    with exchanging_with_link(root / swapped_name, outside if swapped_name == "dir" else outside / "a.txt"):
        while min(counts.values()) < MIN_CALLS and time.monotonic() < deadline:
            for name, arguments in (
                ("read_file", {"path": "dir/a.txt"}),
                ("write_file", {"path": "dir/new.txt", "content": "new"}),
                ("search_files", {"text": "secret"}),
                ("list_directory", {"path": "dir"}),
            ):
                try:
                    result = call(tools, name, **arguments)
                    counts["ok"] += 1
                except (GiveUp, OSError):
                    counts["rejected"] += 1
                    continue
                contents += [result] if name == "read_file" else result.get("matches", ())
    assert set(map(str, contents)) == {"inside"}
    assert [path.name for path in outside.iterdir()] == ["a.txt"]
    assert (outside / "a.txt").read_text() == SECRET
    assert min(counts.values()) >= MIN_CALLS, counts
