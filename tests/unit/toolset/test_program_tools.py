"""Tools and agents that programs pass as objects, and the task queues that serve them."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from dagwright.settings import Settings
from dagwright.tools import ToolLoadError, declare_activity, tool
from dagwright.tools.queue_names import queue_name
from dagwright.toolset.program_tools import read_program_tools
from dagwright.toolset.toolset import load_toolset, merge_toolsets
from tests.support.agent_harness import card_of


@tool(effects="read")
def stock(item: str) -> int:
    """Count an article."""
    return len(item)


def _create_tool(name: str) -> Callable[..., Any]:
    @tool(name=name, effects="read")
    def count(item: str, amount: int = 1) -> int:
        return len(item) * amount

    return count


def plain_function(item: str) -> int:
    return len(item)


def test_functions_have_the_queue_of_their_module(tmp_path: Path) -> None:
    """A process that loads the same module by name serves the same queue."""
    settings = Settings(state_dir=tmp_path)
    toolset = load_toolset(settings, program_tools=read_program_tools([stock, declare_activity("charge", "billing")]))
    assert {name: spec.declaration.task_queue for name, spec in toolset.user_tools.specs.items()} == {
        "stock": queue_name(__name__, task_queue=settings.task_queue),
        "charge": "billing",
    }
    assert toolset.references == (__name__,)


def test_tools_of_the_main_program_have_the_queue_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function = _create_tool("main_tool")
    monkeypatch.setattr(function, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "script.py"), raising=False)
    toolset = load_toolset(Settings(state_dir=tmp_path), program_tools=read_program_tools([function]))
    assert toolset.user_queues == (queue_name(str(tmp_path / "script.py"), task_queue="dagwright"),)
    # Another process must not load these tools from the file: importing the file would run the program.
    assert toolset.references == ()


def test_explicit_task_queue_serves_functions_and_agents(tmp_path: Path) -> None:
    card = card_of("service", service_url="http://127.0.0.1:9/")
    program_tools = read_program_tools([stock], [card], task_queue="gpu")
    toolset = load_toolset(Settings(state_dir=tmp_path), program_tools=program_tools)
    assert (toolset.user_queues, [*toolset.user_tools.specs]) == (("gpu",), ["stock", "agent.helper"])
    assert [*toolset.agents] == [card]


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([plain_function], "the function 'plain_function' is not a tool: decorate it with @tool"),
        ([3], "'3' has the type int and is not a tool: pass functions with @tool, modules or files"),
        ([stock, _create_tool("stock")], "Duplicate tool 'stock': two of the tools have this name; rename one"),
        ([sys], "the module sys has no tool: decorate a function with @tool"),
    ],
)
def test_invalid_or_duplicate_tools_are_rejected(tools: Any, message: str) -> None:
    with pytest.raises(ToolLoadError) as error:
        read_program_tools(tools)
    assert str(error.value) == message


class _Shop:
    def count(self, item: str) -> int:
        return len(item)


def test_function_that_cannot_be_a_tool_is_rejected_with_a_hint() -> None:
    def count(item):  # type: ignore[no-untyped-def]
        return len(item)

    def sell(shop: _Shop) -> None: ...

    missing_type_message = "Tool 'count': parameter 'item' has no type annotation; write `item: str`"
    wrong_type_message = (
        "Tool 'sell': parameter 'shop' cannot be filled from JSON: .*_Shop'>; use JSON types, dataclasses"
    )
    for function, message in (
        (count, missing_type_message),
        (sell, wrong_type_message),
        (_Shop.count, "Tool 'count': it is a method; decorate a function that calls the method"),
        (_Shop().count, "@tool takes a function, not a method: write a function that calls it"),
        (partial(count, 1), "@tool takes a function, not a partial: write a function that calls it"),
    ):
        with pytest.raises(TypeError, match=f"^{message}"):
            tool(cast("Any", function))


def test_merged_toolset_has_the_tools_of_all_parts(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    program_toolset = load_toolset(settings, program_tools=read_program_tools([stock]))
    merged_toolset = merge_toolsets(load_toolset(settings), [program_toolset])
    assert ([*merged_toolset.user_tools.specs], merged_toolset.references) == (["stock"], (__name__,))
