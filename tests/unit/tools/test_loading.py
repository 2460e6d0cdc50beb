"""Loading of tools from the modules and files of `--tools`: registries, errors, and shared resources of tools."""

import sys
from pathlib import Path

import pytest

from dagwright.tools import ToolLoadError, ToolRegistry, load_tools, tool
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import SharedResources, ToolEnvironment

TWO_TOOLS_SOURCE = '''
from __future__ import annotations
from dataclasses import dataclass
from dagwright.tools import declare_activity, tool

@dataclass
class Amount:
    cents: int

@tool(effects="read")
def price(amount: Amount, currency: str = "EUR") -> dict:
    """Prices an amount."""
    return {"cents": amount.cents}

charge = declare_activity("charge_card", "billing")
'''


def write_file(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return name


def test_alias_that_belongs_to_another_tool_is_rejected(tmp_path: Path) -> None:
    text = TWO_TOOLS_SOURCE + '\n\n@tool(aliases=["price"])\ndef cost(x: int) -> int:\n    return x\n'
    file = write_file(tmp_path, "twice.py", text)
    with pytest.raises(ToolLoadError, match="Tool 'cost': its alias 'price' also belongs to the tool 'price'"):
        load_tools([file], base=tmp_path)


def test_with_queue_does_not_change_the_queue_of_foreign_activities(tmp_path: Path) -> None:
    registry = load_tools([write_file(tmp_path, "shop.py", TWO_TOOLS_SOURCE)], base=tmp_path).with_queue("q")
    expected = {"price": "q", "charge_card": "billing"}
    assert {name: declaration.task_queue for name, declaration in registry.declarations().items()} == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "bad.py has no tool in it: decorate a function with @tool"),
        (
            "import nowhere_to_be_found\n",
            "bad.py cannot be imported: it needs the module 'nowhere_to_be_found', which is not installed: "
            f"{sys.executable} -m pip install nowhere_to_be_found (bad.py, line 1)",
        ),
        ("def broken(:\n", "bad.py cannot be read: invalid syntax (bad.py, line 1)"),
        ("x = y\n", "bad.py cannot be imported: name 'y' is not defined (bad.py, line 1)"),
        ("x = {}['y']\n", "bad.py cannot be imported: KeyError: 'y' (bad.py, line 1)"),
        (
            "\n\nraise SystemExit(3)\n",
            "bad.py cannot be imported: it exits when imported; put that code under "
            "`if __name__ == '__main__':` (bad.py, line 3)",
        ),
        (
            "from dagwright.tools import tool\n@tool(effects='x')\ndef f(): ...\n",
            "'pure', 'read', 'idempotent', 'write', not 'x' (bad.py, line 2)",
        ),
    ],
)
def test_file_without_usable_tools_is_reported_on_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ToolLoadError) as caught:
        load_tools([write_file(tmp_path, "bad.py", text)], base=tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_modules_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ToolLoadError, match=r"The tools file none\.py does not exist"):
        load_tools(["none.py"], base=tmp_path)
    with pytest.raises(ToolLoadError, match=r"^There is no module no_such_module\.tools$"):
        load_tools(["no_such_module.tools"], base=tmp_path)


def test_tool_with_the_name_of_an_internal_activity_is_rejected(tmp_path: Path) -> None:
    file = write_file(tmp_path, "one.py", TWO_TOOLS_SOURCE.replace("price", "notify"))
    message = "The tool name 'notify' belongs to an activity of Dagwright; rename the tool"
    with pytest.raises(ToolLoadError, match=message):
        load_tools([file], base=tmp_path)


def test_two_files_with_the_same_tool_name_are_rejected(tmp_path: Path) -> None:
    names = [write_file(tmp_path, "one.py", TWO_TOOLS_SOURCE), write_file(tmp_path, "two.py", TWO_TOOLS_SOURCE)]
    with pytest.raises(ToolLoadError, match=r"Duplicate tool 'price': in one\.py and in two\.py"):
        load_tools(names, base=tmp_path)


def test_registry_rejects_duplicates_and_non_tools_and_merge_prefers_the_later_tool() -> None:
    def registry_with_answer(answer: int) -> ToolRegistry:
        @tool
        def get_answer() -> int:
            return answer

        return ToolRegistry.of(get_answer)

    first_registry, second_registry = registry_with_answer(1), registry_with_answer(2)
    assert first_registry.merge(second_registry)["get_answer"] is second_registry["get_answer"]
    with pytest.raises(ValueError, match="Duplicate tool 'get_answer'"):
        ToolRegistry.of(first_registry["get_answer"], second_registry["get_answer"])
    with pytest.raises(TypeError, match="is not a tool"):
        ToolRegistry.of(len)


CLOSED_RESOURCES: list[str] = []


class FirstResource:
    async def close(self) -> None:
        CLOSED_RESOURCES.append(type(self).__name__)


class SecondResource(FirstResource):
    """A second type of resource."""


async def test_resources_are_created_once_and_closed_in_reverse_order() -> None:
    resources = SharedResources()
    first_resource, second_resource = resources.get(FirstResource), resources.get(SecondResource)
    assert resources.get(FirstResource) is first_resource
    assert resources.get(SecondResource) is second_resource
    await resources.close()
    assert CLOSED_RESOURCES == ["SecondResource", "FirstResource"]
    assert resources.get(FirstResource) is not first_resource


def test_every_built_in_tool_and_parameter_has_a_description() -> None:
    for spec in builtin_tools(ToolEnvironment(Path())):
        schema = spec.declaration.input_schema
        assert spec.declaration.description, spec.name
        assert schema is not None
        for name, parameter in schema["properties"].items():
            assert parameter.get("description"), f"{spec.name}: {name}"
