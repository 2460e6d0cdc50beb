"""Templates: which files of a folder are published under which names, and what a wrong folder tells."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dagwright.core.model.errors import PlanInvalid
from dagwright.core.model.tools import ToolDeclaration
from dagwright.plans.templates import TemplateFolder, TemplatesUnreadable, open_templates
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.templates import load_templates

_SUM = """
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
_PLAIN = '{"plan": 1, "nodes": [{"id": "a", "tool": "calculator", "arguments": {"expression": "1"}}]}'


@pytest.fixture(scope="module")
def tools() -> Mapping[str, ToolDeclaration]:
    return load_toolset(Settings()).declarations()


def _folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return path


def test_each_plan_file_is_a_template_named_after_it(tmp_path: Path, tools: Mapping[str, ToolDeclaration]) -> None:
    folder = _folder(tmp_path, sum__yaml=_SUM, plain__json=_PLAIN, notes__txt="no plan", __hidden__yaml="no: plan")
    (folder / "parts.yaml").mkdir()
    templates = load_templates(folder, tools)
    assert [(name, each.file, each.title, each.description) for name, each in templates.items()] == [
        ("plain", "plain.json", "plain", None),
        ("sum", "sum.yaml", "A small sum", "Adds one to a count."),
    ]


def test_schema_has_prompts_defaults_and_what_is_required(tmp_path: Path, tools: Mapping[str, ToolDeclaration]) -> None:
    templates = load_templates(_folder(tmp_path, sum__yaml=_SUM, plain__json=_PLAIN), tools)
    assert templates["sum"].input_schema == {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "description": "How many?"},
            "unit": {"type": "string", "enum": ["kg", "t"], "default": "kg"},
        },
        "required": ["count"],
        "additionalProperties": False,
    }
    assert templates["plain"].input_schema == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def test_template_is_compiled_with_its_inputs(tmp_path: Path, tools: Mapping[str, ToolDeclaration]) -> None:
    template = load_templates(_folder(tmp_path, sum__yaml=_SUM), tools)["sum"]
    assert template.compiled({"count": 2}).title == "A small sum"
    assert template.source["dialect"] == "plan"


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({}, [("missing_input", "/inputs/count", "give it among the inputs")]),
        ({"count": "two"}, [("invalid_field", "/inputs/count", None)]),
        ({"count": 2, "unti": "t"}, [("invalid_field", "/inputs/unti", "did you mean 'unit'?")]),
        (
            {"unti": "t"},
            [
                ("invalid_field", "/inputs/unti", "did you mean 'unit'?"),
                ("missing_input", "/inputs/count", "give it among the inputs"),
            ],
        ),
    ],
)
def test_wrong_inputs_are_told_all_at_once(
    tmp_path: Path, tools: Mapping[str, ToolDeclaration], inputs: dict[str, Any], told: list[Any]
) -> None:
    template = load_templates(_folder(tmp_path, sum__yaml=_SUM), tools)["sum"]
    with pytest.raises(PlanInvalid) as refused:
        template.compiled(inputs)
    assert [(each.code, each.pointer, each.hint) for each in refused.value.problems] == told


def test_sub_plan_in_a_file_below_is_a_part_of_its_template(
    tmp_path: Path, tools: Mapping[str, ToolDeclaration]
) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "inner.json").write_text(_PLAIN, encoding="utf-8")
    folder = _folder(tmp_path, outer__yaml="plan: 1\nnodes: [{id: a, plan: parts/inner.json}]")
    template = load_templates(folder, tools)["outer"]
    assert list(template.checked.sub_plans) == [0]


def test_everything_wrong_with_a_folder_is_told_at_once(tmp_path: Path, tools: Mapping[str, ToolDeclaration]) -> None:
    folder = _folder(
        tmp_path,
        a__json=_PLAIN,
        a__yaml=_SUM,
        broken__yaml="plan: 1\nnodes: [{id: a, tool: calculater}]",
    )
    (folder / "two words.yaml").write_text(_SUM, encoding="utf-8")
    with pytest.raises(TemplatesUnreadable) as refused:
        load_templates(folder, tools)
    words = str(refused.value)
    begins = [
        "a.yaml: a.json has the same name before its suffix; rename one of them; ",
        "broken.yaml: unknown_tool at /nodes/0/tool: ",
        "two words.yaml: a template has a name of 1 to 64 letters, digits, - and _; rename the file",
    ]
    assert [words.find(begin) >= 0 for begin in begins] == [True] * 3
    assert sorted(map(words.find, begins)) == [*map(words.find, begins)]


def test_file_that_is_wrong_is_logged_and_the_others_are_published(
    tmp_path: Path, tools: Mapping[str, ToolDeclaration]
) -> None:
    folder = _folder(tmp_path, good__yaml=_SUM, broken__yaml="plan: 1\nnodes: [{id: a, tool: calculater}]")
    with capture_logs() as logs:
        opened = open_templates(folder, tools)
    assert list(opened.read().templates) == ["good"]
    assert [line["problem"].split(": ")[:2] for line in logs] == [["broken.yaml", "unknown_tool at /nodes/0/tool"]]
    with capture_logs() as logs, pytest.raises(TemplatesUnreadable, match="cannot be read: No such file or directory"):
        open_templates(tmp_path / "nowhere", tools)
    assert logs == []


def test_template_with_many_problems_tells_the_first_and_how_to_see_all(
    tmp_path: Path, tools: Mapping[str, ToolDeclaration]
) -> None:
    nodes = ", ".join(f"{{id: n{number}, tool: nobody_{number}}}" for number in range(7))
    with pytest.raises(TemplatesUnreadable, match=r"many.yaml: and 2 more; `dagwright check many.yaml` tells all$"):
        load_templates(_folder(tmp_path, many__yaml=f"plan: 1\nnodes: [{nodes}]"), tools)


def test_folder_without_plans_is_refused(tmp_path: Path, tools: Mapping[str, ToolDeclaration]) -> None:
    with pytest.raises(TemplatesUnreadable, match=r"holds no file that ends with \.json, \.yaml, \.yml"):
        load_templates(tmp_path, tools)
    with pytest.raises(TemplatesUnreadable, match="cannot be read: No such file or directory"):
        load_templates(tmp_path / "nowhere", tools)


def test_plan_that_no_run_could_hold_is_no_template(tmp_path: Path, tools: Mapping[str, ToolDeclaration]) -> None:
    nodes = '[{"id": "a", "tool": "http_request", "arguments": {"url": "http://localhost"}}]'
    plan = f'{{"plan": 1, "metadata": {{"note": "{"x" * 1_000_000}"}}, "nodes": {nodes}}}'
    with pytest.raises(TemplatesUnreadable, match=r"large\.json: too_large"):
        load_templates(_folder(tmp_path, large__json=plan), tools)


_BROKEN = '{"plan": 1, "nodes": [{"id": "a", "tool": "calculater", "arguments": {}}]}'


def test_folder_is_read_again_when_a_file_changes(tmp_path: Path, tools: Mapping[str, ToolDeclaration]) -> None:
    folder = TemplateFolder(_folder(tmp_path, sum__yaml=_SUM), tools)
    first = folder.read()
    assert folder.read() is first
    _folder(tmp_path, plain__json=_PLAIN, broken__json=_BROKEN)
    second = folder.read()
    assert [*second.templates] == ["plain", "sum"]
    assert second.templates["sum"] is first.templates["sum"]
    assert [line.partition(": ")[0] for line in second.problems["broken"]] == ["broken.json"]
    _folder(tmp_path, sum__yaml=_SUM.replace("A small sum", "Another sum"), broken__json=_PLAIN)
    (tmp_path / "plain.json").unlink()
    third = folder.read()
    assert [(name, each.title) for name, each in third.templates.items()] == [
        ("broken", "broken"),
        ("sum", "Another sum"),
    ]
    assert third.problems == {}


def test_template_is_read_again_when_the_file_of_a_sub_plan_changes(
    tmp_path: Path, tools: Mapping[str, ToolDeclaration]
) -> None:
    (tmp_path / "parts").mkdir()
    folder = TemplateFolder(_folder(tmp_path, outer__yaml="plan: 1\nnodes: [{id: a, plan: parts/inner.json}]"), tools)
    assert [*folder.read().problems] == ["outer"]
    _folder(tmp_path / "parts", inner__json=_BROKEN)
    assert "unknown_tool" in folder.read().problems["outer"][0]
    _folder(tmp_path / "parts", inner__json=_PLAIN)
    assert [*folder.read().templates] == ["outer"]


def test_folder_that_goes_away_comes_back(tmp_path: Path, tools: Mapping[str, ToolDeclaration]) -> None:
    place = tmp_path / "plans"
    place.mkdir()
    folder = TemplateFolder(_folder(place, plain__json=_PLAIN), tools)
    assert [*folder.read().templates] == ["plain"]
    (place / "plain.json").unlink()
    place.rmdir()
    gone = folder.read()
    assert (gone.templates, [*gone.problems]) == ({}, [""])
    assert folder.read() is gone
    place.mkdir()
    _folder(place, plain__json=_PLAIN)
    assert folder.read().problems == {}
    assert [*folder.read().templates] == ["plain"]


def test_second_file_of_a_name_leaves_the_first_alone(tmp_path: Path, tools: Mapping[str, ToolDeclaration]) -> None:
    folder = TemplateFolder(_folder(tmp_path, a__json=_PLAIN), tools)
    _folder(tmp_path, a__yaml=_SUM)
    assert folder.read().templates["a"].file == "a.json"
    assert folder.read().lines == ["a.yaml: a.json has the same name before its suffix; rename one of them"]
