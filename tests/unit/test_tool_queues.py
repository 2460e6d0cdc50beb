"""Which queue serves the tools of a file, and on which queue a run starts."""

from pathlib import Path
from typing import Any

import pytest

from dagwright.plan.tools import ToolDeclaration
from dagwright.preparation import check_plan, prepare_plan
from dagwright.settings import Settings
from dagwright.tool_queues import queue_name, queue_of_plan
from dagwright.tools import ToolsUnreadable
from dagwright.toolset import Toolset, load_toolset, references_of

_TOOL = "from dagwright.tools import tool\n\n\n@tool(effects='read')\ndef {name}() -> int:\n    return 1\n"


def _written(folder: Path, *names: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "tools.py"
    file.write_text("".join(_TOOL.format(name=name) for name in names), encoding="utf-8")
    return str(file)


def _loaded(folder: Path, *references: str, **settings: Any) -> Toolset:
    return load_toolset(Settings(state_dir=folder / "state", **settings), references)


def test_name_follows_path_and_workflows_queue_and_not_what_is_in_the_file(tmp_path: Path) -> None:
    first, second = _written(tmp_path / "first", "a"), _written(tmp_path / "second", "b")
    [name] = _loaded(tmp_path, first).own_queues
    assert name.startswith("dagwright:tools-")
    assert name == queue_name(f"{tmp_path}/second/../first/tools.py", task_queue="dagwright")
    assert _loaded(tmp_path, first, second).own_queues == (name, queue_name(second, task_queue="dagwright"))
    assert queue_name(first, task_queue="team") == name.replace("dagwright:", "team:")
    assert queue_name("shop.tools", task_queue="dagwright") == "dagwright:shop.tools"
    assert queue_name(f"agents:{tmp_path}/my desk.yaml", task_queue="q").startswith("q:my_desk-")


def test_link_to_the_newest_release_keeps_its_name(tmp_path: Path) -> None:
    for release in ("1", "2"):
        _written(tmp_path / release, "a")
    names = set()
    for release in ("1", "2"):
        (tmp_path / "current").unlink(missing_ok=True)
        (tmp_path / "current").symlink_to(tmp_path / release)
        names |= {*_loaded(tmp_path, str(tmp_path / "current" / "tools.py")).own_queues}
    assert len(names) == 1


def test_chosen_queue_serves_all_tools_and_travels_with_the_references(tmp_path: Path) -> None:
    files = [_written(tmp_path / "first", "a"), _written(tmp_path / "second", "b")]
    toolset = _loaded(tmp_path, *references_of(files, None, tools_queue="shop"))
    assert (toolset.own_queues, toolset.references) == (("shop",), (*files, "queue:shop"))
    assert _loaded(tmp_path, *files, tools_queue="shop").references == toolset.references
    with pytest.raises(ToolsUnreadable, match="'/_sys/x' cannot be the name of a task queue"):
        _loaded(tmp_path, *files, "queue:/_sys/x")


def _queue_of(*nodes: dict[str, Any], **tools: ToolDeclaration) -> str | None:
    known = {"a": ToolDeclaration("a", task_queue="qa"), "b": ToolDeclaration("b", task_queue="qb"), **tools}
    known["plain"] = ToolDeclaration("plain")
    known["foreign"] = ToolDeclaration("foreign", task_queue="elsewhere", is_foreign=True)
    return queue_of_plan(prepare_plan(check_plan({"plan": 1, "nodes": [*nodes]}, known), {}))


def test_run_starts_on_the_queue_that_most_of_its_nodes_call() -> None:
    nodes = [{"id": f"n{number}", "tool": tool} for number, tool in enumerate(["b", "a", "foreign", "plain", "a"])]
    assert _queue_of(*nodes) == "qa"
    assert _queue_of({"id": "sub", "plan": {"nodes": [{"id": "x", "tool": "b"}]}}) == "qb"
    assert _queue_of({"id": "p", "tool": "plain"}, {"id": "f", "tool": "foreign"}) is None
