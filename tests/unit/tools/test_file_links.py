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
RACE_S = 60.0
TRIES = 50
"""Required number of successful and of rejected calls; on a busy machine they take longer."""
_AT_FDCWD = -100
"""Constant of Linux: paths are relative to the current folder."""
_RENAME_EXCHANGE = 2
"""Constant of Linux: two names are exchanged, and both exist at any time."""


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
    (root / "dir" / "a.txt").write_text("own")
    return root


@pytest.fixture
def tools(root: Path) -> Tools:
    environment = ToolEnvironment(root)
    return {tool.__name__: tool for tool in (*file_tools(environment), *file_search_tools(environment))}


def call(tools: Tools, name: str, **arguments: Any) -> Any:
    with tool_context(idempotency_key="key-1"):
        return tools[name](**arguments)


def test_a_hard_link_is_neither_read_nor_written_nor_found(tools: Tools, root: Path, outside: Path) -> None:
    os.link(outside / "a.txt", root / "dir" / "b.txt")
    words = r"'dir/b\.txt' has several names \(hard links\)"
    with pytest.raises(GiveUp, match=words):
        call(tools, "read_file", path="dir/b.txt")
    with pytest.raises(GiveUp, match=words):
        call(tools, "write_file", path="dir/b.txt", content="x")
    assert (outside / "a.txt").read_text() == SECRET
    assert [file["name"] for file in call(tools, "list_files", folder="dir")["files"]] == ["a.txt"]
    assert [entry["name"] for entry in call(tools, "list_directory", path="dir")["entries"]] == ["a.txt"]
    assert call(tools, "search_files", text="secret")["matches"] == []
    (outside / "a.txt").unlink()
    assert call(tools, "read_file", path="dir/b.txt") == SECRET


def test_a_leftover_draft_that_is_a_link_is_not_written_through(tools: Tools, root: Path, outside: Path) -> None:
    drafts: list[str] = []
    with swapped_replace(drafts):
        call(tools, "write_file", path="new.txt", content="x")
    for link in (os.link, os.symlink):
        link(outside / "a.txt", root / drafts[0])
        with pytest.raises((GiveUp, OSError)):
            call(tools, "write_file", path="new.txt", content="y")
        assert (outside / "a.txt").read_text() == SECRET
        (root / drafts[0]).unlink(missing_ok=True)


@contextmanager
def swapped_replace(drafts: list[str]) -> Iterator[None]:
    """Record the names of drafts."""
    replace = os.replace

    def noting(source: str, target: str, **folders: Any) -> None:
        drafts.append(source)
        replace(source, target, **folders)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", noting)
        yield


@contextmanager
def swapping(place: Path, target: Path) -> Iterator[None]:
    """Repeatedly replace a file by a link to another place and back, in a thread."""
    link = place.with_name(".link")
    link.symlink_to(target)
    names = [str(place).encode(), str(link).encode()]
    exchange = partial(
        ctypes.CDLL(None, use_errno=True).renameat2, _AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE
    )
    is_over = threading.Event()
    failures: list[int] = []

    def swap() -> None:
        while not is_over.is_set():
            if exchange() != 0:
                failures.append(ctypes.get_errno())

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    assert failures == []


@pytest.mark.parametrize("swapped", ["dir", "dir/a.txt"])
def test_a_name_swapped_for_a_link_never_leads_outside(tools: Tools, root: Path, outside: Path, swapped: str) -> None:
    seen: list[Any] = []
    ends = {"ok": 0, "refused": 0}
    until = time.monotonic() + RACE_S
    with swapping(root / swapped, outside if swapped == "dir" else outside / "a.txt"):
        while min(ends.values()) < TRIES and time.monotonic() < until:
            for name, arguments in (
                ("read_file", {"path": "dir/a.txt"}),
                ("write_file", {"path": "dir/new.txt", "content": "new"}),
                ("search_files", {"text": "secret"}),
                ("list_directory", {"path": "dir"}),
            ):
                try:
                    actual = call(tools, name, **arguments)
                    ends["ok"] += 1
                except (GiveUp, OSError):
                    ends["refused"] += 1
                    continue
                seen += [actual] if name == "read_file" else actual.get("matches", ())
    assert set(map(str, seen)) == {"own"}
    assert [path.name for path in outside.iterdir()] == ["a.txt"]
    assert (outside / "a.txt").read_text() == SECRET
    assert min(ends.values()) >= TRIES, ends
