"""Templates of a folder: files, names, inputs, and problems."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.tools import ToolDeclaration
from dagwright.plans.templates import TemplateFolder, TemplatesUnreadable, open_templates
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.templates import load_templates

_SUM_PLAN = """
plan: 1
title: A small sum
metadata: {description: Adds one to a count.}
inputs:
  count: {type: integer, prompt: How many?}
  unit: {enum: [kg, t], default: kg}
nodes:
  - {id: sum, tool: calculator, arguments: {expression: "{{PLACEHOLDER_count}} + 1"}}
output: "{{sum.result}} {{PLACEHOLDER_unit}}"
"""
_PLAIN_PLAN = '{"plan": 1, "nodes": [{"id": "a", "tool": "calculator", "arguments": {"expression": "1"}}]}'
_BROKEN_PLAN = '{"plan": 1, "nodes": [{"id": "a", "tool": "calculater", "arguments": {}}]}'


@pytest.fixture(scope="module")
def tools() -> Mapping[str, ToolDeclaration]:
    return load_toolset(Settings()).declarations()


Tools = Mapping[str, ToolDeclaration]


def _write_files(path: Path, **files: str) -> Path:
    """Write files into a folder. A `__` in a name of `files` becomes a dot."""
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return path


def test_each_plan_file_is_a_template_named_after_the_file(tmp_path: Path, tools: Tools) -> None:
    plans = {"sum__yaml": _SUM_PLAN, "plain__json": _PLAIN_PLAN, "notes__txt": "no plan", "__hidden__yaml": "no: plan"}
    folder = _write_files(tmp_path, **plans)
    (folder / "parts.yaml").mkdir()
    templates = load_templates(folder, tools)
    expected = [("plain", "plain.json", "plain", None), ("sum", "sum.yaml", "A small sum", "Adds one to a count.")]
    actual = [(name, each.file_name, each.title, each.description) for name, each in templates.items()]
    assert actual == expected


def test_schema_has_prompts_defaults_and_required_inputs(tmp_path: Path, tools: Tools) -> None:
    templates = load_templates(_write_files(tmp_path, sum__yaml=_SUM_PLAN, plain__json=_PLAIN_PLAN), tools)
    schema = {"type": "object", "additionalProperties": False}
    properties = {
        "count": {"type": "integer", "description": "How many?"},
        "unit": {"type": "string", "enum": ["kg", "t"], "default": "kg"},
    }
    assert templates["sum"].input_schema == {**schema, "properties": properties, "required": ["count"]}
    assert templates["plain"].input_schema == {**schema, "properties": {}, "required": []}
    assert templates["sum"].compile({"count": 2}).title == "A small sum"
    assert templates["sum"].source["dialect"] == "plan"


MISSING_INPUT = ("missing_input", "/inputs/count", "add it to the inputs")
UNKNOWN_INPUT = ("invalid_field", "/inputs/unti", "did you mean 'unit'?")


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({}, [MISSING_INPUT]),
        ({"count": "two"}, [("invalid_field", "/inputs/count", None)]),
        ({"count": 2, "unti": "t"}, [UNKNOWN_INPUT]),
        ({"unti": "t"}, [UNKNOWN_INPUT, MISSING_INPUT]),
    ],
)
def test_invalid_inputs_are_reported(tmp_path: Path, tools: Tools, inputs: dict[str, Any], expected: list[Any]) -> None:
    template = load_templates(_write_files(tmp_path, sum__yaml=_SUM_PLAN), tools)["sum"]
    with pytest.raises(PlanInvalid) as error:
        template.compile(inputs)
    assert [(problem.code, problem.pointer, problem.hint) for problem in error.value.problems] == expected


def test_template_is_reloaded_when_its_sub_plan_changes(tmp_path: Path, tools: Tools) -> None:
    outer_plan = "plan: 1\nnodes: [{id: a, plan: parts/inner.json}]"
    folder = TemplateFolder(_write_files(tmp_path, outer__yaml=outer_plan), tools)
    assert [*folder.read().problems] == ["outer"]
    _write_files(tmp_path / "parts", inner__json=_BROKEN_PLAN)
    assert "unknown_tool" in folder.read().problems["outer"][0]
    _write_files(tmp_path / "parts", inner__json=_PLAIN_PLAN)
    assert [list(template.checked.sub_plans) for template in folder.read().templates.values()] == [[0]]


def test_all_problems_of_a_folder_are_reported(tmp_path: Path, tools: Tools) -> None:
    folder = _write_files(tmp_path, a__json=_PLAIN_PLAN, a__yaml=_SUM_PLAN, broken__yaml=_BROKEN_PLAN)
    (folder / "two words.yaml").write_text(_SUM_PLAN, encoding="utf-8")
    with pytest.raises(TemplatesUnreadable) as error:
        load_templates(folder, tools)
    positions = [
        str(error.value).find(start)
        for start in (
            "a.yaml: a.json has the same name before its suffix; rename one of them; ",
            "broken.yaml: unknown_tool at /nodes/0/tool: ",
            "two words.yaml: a template has a name of 1 to 64 letters, digits, - and _; rename the file",
        )
    ]
    assert (positions, min(positions) >= 0) == (sorted(positions), True)


def test_opening_a_folder_logs_invalid_files_and_fails_if_the_folder_is_missing(tmp_path: Path, tools: Tools) -> None:
    folder = _write_files(tmp_path, good__yaml=_SUM_PLAN, broken__yaml="plan: 1\nnodes: [{id: a, tool: calculater}]")
    with capture_logs() as logs:
        opened_folder = open_templates(folder, tools)
    assert list(opened_folder.read().templates) == ["good"]
    assert [line["problem"].split(": ")[:2] for line in logs] == [["broken.yaml", "unknown_tool at /nodes/0/tool"]]
    with capture_logs() as logs, pytest.raises(TemplatesUnreadable, match="cannot be read: No such file or directory"):
        open_templates(tmp_path / "nowhere", tools)
    assert logs == []


def test_unusable_folders_are_rejected(tmp_path: Path, tools: Tools) -> None:
    with pytest.raises(TemplatesUnreadable, match=r"has no file that ends with \.json, \.yaml, \.yml"):
        load_templates(tmp_path, tools)
    with pytest.raises(TemplatesUnreadable, match="cannot be read: No such file or directory"):
        load_templates(tmp_path / "nowhere", tools)
    nodes = ", ".join(f"{{id: n{number}, tool: unknown_{number}}}" for number in range(7))
    with pytest.raises(TemplatesUnreadable, match=r"many.yaml: and 2 more; `dagwright check many.yaml` lists all$"):
        load_templates(_write_files(tmp_path / "many", many__yaml=f"plan: 1\nnodes: [{nodes}]"), tools)
    node = '{"id": "a", "tool": "http_request", "arguments": {"url": "http://localhost"}}'
    plan = f'{{"plan": 1, "metadata": {{"note": "{"x" * 1_000_000}"}}, "nodes": [{node}]}}'
    with pytest.raises(TemplatesUnreadable, match=r"large\.json: too_large"):
        load_templates(_write_files(tmp_path / "large", large__json=plan), tools)


def test_folder_is_reloaded_when_a_file_changes(tmp_path: Path, tools: Tools) -> None:
    folder = TemplateFolder(_write_files(tmp_path, sum__yaml=_SUM_PLAN), tools)
    first_content = folder.read()
    assert folder.read() is first_content
    _write_files(tmp_path, plain__json=_PLAIN_PLAN, broken__json=_BROKEN_PLAN)
    second_content = folder.read()
    assert [*second_content.templates] == ["plain", "sum"]
    assert second_content.templates["sum"] is first_content.templates["sum"]
    assert [line.partition(": ")[0] for line in second_content.problems["broken"]] == ["broken.json"]
    _write_files(tmp_path, sum__yaml=_SUM_PLAN.replace("A small sum", "Another sum"), broken__json=_PLAIN_PLAN)
    (tmp_path / "plain.json").unlink()
    third_content = folder.read()
    titles = {name: template.title for name, template in third_content.templates.items()}
    assert (titles, third_content.problems) == ({"broken": "broken", "sum": "Another sum"}, {})


def test_second_file_with_the_same_name_is_ignored(tmp_path: Path, tools: Tools) -> None:
    folder = TemplateFolder(_write_files(tmp_path, a__json=_PLAIN_PLAN), tools)
    _write_files(tmp_path, a__yaml=_SUM_PLAN)
    assert folder.read().templates["a"].file_name == "a.json"
    assert folder.read().problem_lines == ["a.yaml: a.json has the same name before its suffix; rename one of them"]
