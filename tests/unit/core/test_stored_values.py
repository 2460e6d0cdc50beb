"""Stored values: their references, the parts that a plan uses, serialization, and hydration of arguments."""

from typing import Any

import pydantic_core
import pytest

from dagwright.core.expressions import projection
from dagwright.core.expressions.compute_budget import ComputeBudget
from dagwright.core.expressions.hydration import MisplacedBinding, hydrate, secret_names, stored_refs, value_at_paths
from dagwright.core.expressions.projection import PREVIEW_CHARACTERS, preview_of, project_value
from dagwright.core.expressions.references import UnresolvedReference
from dagwright.core.expressions.stored_values import (
    MAX_COMBINED_RESULTS_BYTES,
    MAX_DECISION_PARTS_BYTES,
    MAX_FOREIGN_RESULT_BYTES,
    MAX_SMALL_VALUE_BYTES,
    MAX_VALUE_PARTS_BYTES,
    DeferredText,
    Path,
    ProjectedPart,
    Projection,
    Secret,
    Shape,
    StoredValue,
    find_value_refs,
    is_inline_value,
    stored_from_json,
    stored_to_json,
)
from dagwright.core.expressions.value_refs import (
    bindings_of,
    format_value_refs,
    ref_for_display,
    value_from_json,
    value_to_json,
)
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.map_items import StoredList
from dagwright.core.scheduler.propagation import largest_result_bytes
from tests.support.plan_building import compiled_plan, node, plan_of

_LARGE_TEXT = "x" * (MAX_SMALL_VALUE_BYTES + 1)
_LARGER_TEXT = "y" * (MAX_VALUE_PARTS_BYTES + 1)
_MAX_BYTES_WITH_PARTS = MAX_SMALL_VALUE_BYTES + MAX_VALUE_PARTS_BYTES
_IDS_QUERY = '$["list"][*]["id"]'
_VALUE = {"id": 7, "text": _LARGE_TEXT, "list": [{"n": 1}, {"n": 2, "text": _LARGE_TEXT}], "rows": [_LARGER_TEXT]}


def project_parts(value: Any, *projections: Projection) -> StoredValue:
    return project_value(value, "r", size_bytes=1, projections=projections, name="a.result")


def _stored_value(*projections: Projection) -> StoredValue:
    size_bytes = len(pydantic_core.to_json(_VALUE))
    return project_value(_VALUE, "sha256-v", size_bytes=size_bytes, projections=projections, name="a.result")


def test_large_value_reports_its_shape_and_its_projections() -> None:
    stored_value = _stored_value((("id",), "value"), (("text",), "value"), (("rows",), "whole"), (("no",), "value"))
    large_shape = Shape("text", len(_LARGE_TEXT) + 2, len(_LARGE_TEXT), _LARGE_TEXT[:PREVIEW_CHARACTERS])
    whole_shape = Shape("list", len(_LARGER_TEXT) + 4, 1, f'["{_LARGER_TEXT}'[:PREVIEW_CHARACTERS])
    assert stored_value.parts == {
        ("rows",): ProjectedPart("whole", [_LARGER_TEXT], whole_shape),
        ("id",): ProjectedPart("small", 7),
        ("text",): ProjectedPart("large", shape=large_shape),
        ("no",): ProjectedPart("missing", reason="'no' not found in a.result; it has id, list, rows, text"),
    }
    shape = stored_value.shape
    assert shape is not None
    assert (shape.type, shape.length, shape.preview[:9]) == ("object", 4, '{"id": 7,')


def test_parts_over_the_size_limit_or_the_compute_budget_are_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    value = [f"{number}{'x' * 8_000}" for number in range(10)]
    stored_value = project_parts(value, *(((number,), "value") for number in range(10)))
    assert list(stored_value.parts) == [(0,), (1,), (2,), (3,)]
    assert isinstance(stored_value.part_at((7,))[0], StoredValue)
    monkeypatch.setattr(projection, "worker_budget", lambda: ComputeBudget(100))
    objects = [{"a": number} for number in range(1_000)]
    stored_value = project_parts(objects, ("$..a", "value"), ((0, "a"), "value"))
    assert stored_value.parts == {(0, "a"): ProjectedPart("small", 0)}


_PARTS: dict[Path, ProjectedPart] = {
    ("id",): ProjectedPart("small", 7),
    ("list",): ProjectedPart("small", [{"n": 1}]),
    ("big",): ProjectedPart("large"),
    ("big", "id"): ProjectedPart("small", 1),
}
_PARTS_RELATIVE_TO_BIG: dict[Path, ProjectedPart] = {(): ProjectedPart("large"), ("id",): ProjectedPart("small", 1)}


@pytest.mark.parametrize(
    ("path", "expected", "remaining_path"),
    [
        (("id",), ProjectedPart("small", 7), ()),
        (("list", 0, "n"), ProjectedPart("small", [{"n": 1}]), (0, "n")),
        ((), StoredValue("r", name="a.result", parts=_PARTS), ()),
        (("other", 1), StoredValue("r", name="a.result", paths=(("other", 1),)), ()),
        ("$..id", StoredValue("r", name="a.result", paths=("$..id",)), ()),
        (("big",), StoredValue("r", name="a.result", paths=(("big",),), parts=_PARTS_RELATIVE_TO_BIG), ()),
    ],
    ids=str,
)
def test_path_finds_a_projected_part_or_continues_in_the_store(path: Path, expected: Any, remaining_path: Path) -> None:
    assert StoredValue("r", name="a.result", parts=_PARTS).part_at(path) == (expected, remaining_path)


def test_parts_of_each_item_of_a_list_are_reported() -> None:
    rows = [{"id": f"r{number}", "some": {"n": number}, "text": "x" * 900} for number in range(400)]
    queries = [f'$["rows"][*]{part}' for part in ('["id"]', '["some"]["n"]', '["text"]', '["not there"]')]
    projections: list[Projection] = [(("rows",), "whole"), *((query, "whole") for query in queries)]
    stored_value = project_value({"rows": rows}, "r", size_bytes=400_000, projections=projections, name="a.result")
    actual, _ = stored_value.part_at(("rows",))
    assert isinstance(actual, StoredValue)
    items = StoredList(actual, 0, 400)
    parts: dict[Path, ProjectedPart] = {("id",): ProjectedPart("small", "r7"), ("some", "n"): ProjectedPart("small", 7)}
    assert items[7] == StoredValue("r", name="a.result", paths=(("rows", 7),), parts=parts)
    assert items[2:9].without_parts()[5] == StoredValue("r", name="a.result", paths=(("rows", 7),))


def test_path_after_a_query_is_a_separate_path_of_the_stored_value() -> None:
    value: Any = StoredValue("r", paths=(("list",),))
    for path in ("$[*]", (0,), ("id",)):
        value, _ = value.part_at(path)
    assert value == StoredValue("r", paths=(("list",), "$[*]", (0, "id")))


def test_preview_encodes_no_more_than_it_shows() -> None:
    class Endless(list[int]):
        def __iter__(self) -> Any:
            yield from range(1_000)
            raise AssertionError("the rest is not needed")

    assert preview_of(Endless([1])) == str(list(range(1_000)))[:PREVIEW_CHARACTERS]


@pytest.mark.parametrize(
    ("node", "tool", "size"),
    [
        (CompiledNode("a"), ToolDeclaration("t", is_foreign=True), MAX_FOREIGN_RESULT_BYTES),
        (CompiledNode("a", kind="plan"), None, MAX_COMBINED_RESULTS_BYTES),
        (CompiledNode("a", kind="region"), None, MAX_COMBINED_RESULTS_BYTES),
        (CompiledNode("a"), ToolDeclaration("t", Effects.READ), MAX_SMALL_VALUE_BYTES),
        (CompiledNode("a", projections=((("id",), "value"),)), None, _MAX_BYTES_WITH_PARTS),
        (CompiledNode("a", projections=((("id",), "whole"),)), None, MAX_DECISION_PARTS_BYTES + _MAX_BYTES_WITH_PARTS),
    ],
    ids=["foreign", "sub_plan", "region", "small", "parts", "whole"],
)
def test_largest_result_size_depends_on_the_kind_of_the_call(
    node: CompiledNode, tool: ToolDeclaration | None, size: int
) -> None:
    assert largest_result_bytes(node, tool) == size


_INVALID_PATHS: list[Any] = [[{}], 1, [[1.5]]]
_INVALID_PROJECTIONS: list[Any] = [[["$", None]], [[["a"], {"missing": 1}]], [["$"]]]


@pytest.mark.parametrize(
    "encoded",
    [
        *(None, [], {}, {"ref": 1}, {"ref": "r", "name": 1}),
        *({"ref": "r", "paths": paths} for paths in _INVALID_PATHS),
        {"ref": "r", "type": "number", "bytes": 1, "length": 1},
        *({"ref": "r", "type": "list", **fields} for fields in ({"bytes": "many", "length": 1}, {})),
        *({"ref": "r", "projections": projections} for projections in _INVALID_PROJECTIONS),
    ],
    ids=str,
)
def test_object_that_is_not_a_stored_value_is_rejected(encoded: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        stored_from_json(encoded)


def test_stored_values_are_encoded_and_decoded() -> None:
    stored_value = _stored_value((("id",), "value"), (("text",), "value"), (("rows",), "whole"), (("no",), "value"))
    encoded = pydantic_core.from_json(pydantic_core.to_json(stored_to_json(stored_value)))
    assert stored_from_json(encoded) == stored_value
    assert stored_from_json(encoded, name="b.result").name == "b.result"
    for value in (StoredValue("r"), DeferredText(["a"])):
        with pytest.raises(pydantic_core.PydanticSerializationError):
            pydantic_core.to_json({"x": value})
    encoded = value_to_json(_ARGUMENTS)
    assert encoded["value"] == {
        "plain": {"ref": "r"},
        "nested": [1, {"x": None}],
        "token": None,
        "text_with_list": None,
    }
    assert value_from_json(encoded["value"], encoded["stored"]) == _ARGUMENTS


_TOKEN = DeferredText(["Bearer ", Secret("KEY")])
_STORED_VALUE = StoredValue("r", name="a.result", paths=(("text",),), shape=Shape("text", 9, 7))
_ARGUMENTS = {
    "plain": {"ref": "r"},
    "nested": [1, {"x": _STORED_VALUE}],
    "token": _TOKEN,
    "text_with_list": DeferredText(["<", [_STORED_VALUE]]),
}


def test_value_refs_are_found_in_document_order_and_formatted_for_display() -> None:
    assert [path for path, _ in find_value_refs(_ARGUMENTS)] == [("nested", 1, "x"), ("token",), ("text_with_list",)]
    assert (is_inline_value(_ARGUMENTS), is_inline_value({"ref": "r"}), is_inline_value(None)) == (False, True, True)
    display = {"ref": "r", "path": [["text"]], "bytes": 9}
    assert format_value_refs(_ARGUMENTS, ref_for_display) == {
        "plain": {"ref": "r"},
        "nested": [1, {"x": display}],
        "token": "Bearer {{secret.KEY}}",
        "text_with_list": "<{{…}}",
    }


def test_bindings_contain_the_parts_at_each_path_and_a_secret_is_hydrated_as_a_text() -> None:
    stored_value = {"stored": "r", "name": "a.result", "paths": [["text"]]}
    assert bindings_of(_ARGUMENTS) == [
        (("nested", 1, "x"), [stored_value]),
        (("token",), [{"text": "Bearer "}, {"secret": "KEY"}]),
        (("text_with_list",), [{"text": "<"}, {"value": [None], "bindings": [((0,), [stored_value])]}]),
    ]
    assert bindings_of({"plain": 1, "text": "{{a.result}}"}) == []
    assert secret_names(bindings_of(_ARGUMENTS)) == {"KEY"}
    assert stored_refs(bindings_of(_ARGUMENTS)) == ["r"]
    arguments = {"key": None}
    hydrate(arguments, bindings_of({"key": DeferredText([Secret("KEY")])}), secrets={"KEY": "7"}, load=_load_nothing)
    assert arguments == {"key": "7"}


@pytest.mark.parametrize("path", [["gone", 0], ["list", 5], ["text", "x"], ["list", "x"]], ids=str)
def test_misplaced_binding_is_reported(path: list[str | int]) -> None:
    with pytest.raises(MisplacedBinding, match="the arguments have no path"):
        hydrate({"list": [1], "text": "t"}, [(path, [{"text": "x"}])], secrets={}, load=_load_nothing)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ((("no",),), "Missing data: a.result.no: 'no' not found in a.result; it has id, list, rows, text"),
        ((("list",), (5,)), "Missing data: a.result.list[5]: [5] not found in a.result.list; it has 2 items"),
    ],
)
def test_error_of_an_unresolvable_path_names_the_missing_part(paths: tuple[Path, ...], message: str) -> None:
    with pytest.raises(UnresolvedReference) as error:
        value_at_paths(_VALUE, paths, "a.result")
    assert str(error.value) == message


@pytest.mark.parametrize(
    "stored_values",
    [[["x", {"ref": "r"}]], [[["no", "x"], {"ref": "r"}]], [[["x"], None]], [[["x"], {}]], [1], [[["x"], {"ref": 1}]]],
    ids=str,
)
def test_invalid_stored_values_of_an_encoded_value_are_rejected(stored_values: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        value_from_json([], stored_values)


def _load_nothing(ref: str, paths: Any, name: str) -> Any:
    raise AssertionError(f"{ref} {paths} {name} must not be loaded")


def _projections(plan: CompiledPlan) -> dict[str, list[Projection]]:
    """Return node ID -> parts of the node's result that the plan uses. The ID in a sub-plan is `outer/inner`."""
    actual = {node.id: list(node.projections) for node in plan.nodes if node.projections}
    for outer in plan.nodes:
        if outer.sub_plan is not None:
            actual |= {f"{outer.id}/{inner_id}": parts for inner_id, parts in _projections(outer.sub_plan).items()}
    return actual


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"arguments": {"x": "{{a.result.id}}", "y": ["{{a.result.id}}"]}}, [(("id",), "value")]),
        (
            {"arguments": {"x": "no {{a.result.list[0]}} and {{a.result.id}}"}},
            [(("list", 0), "value"), (("id",), "value")],
        ),
        ({"arguments": {"x": "{{a.result..name}}"}}, [("$..name", "value")]),
        ({"arguments": {"x": "{{a.result}}"}}, []),
        ({"arguments": {"x": "{{a.status}}"}}, []),
        ({"depends_on": ["a"]}, []),
        ({"when": "a.result.score > 3"}, [(("score",), "whole")]),
        ({"when": "size(a.result.list) > 3"}, [(("list",), "value")]),
        ({"when": "has(a.result.b.c)"}, [(("b", "c"), "value"), (("b",), "value")]),
        ({"for_each": "{{a.result.list}}"}, [(("list",), "whole")]),
        ({"for_each": "{{a.result}}"}, [((), "whole")]),
        ({"for_each": "{{a.result.list}}", "key": "{{item.id}}"}, [(("list",), "whole"), (_IDS_QUERY, "whole")]),
        ({"for_each": "{{a.result.list}}", "key": "{{item}} {{index}}"}, [(("list",), "whole")]),
        ({"for_each": ["{{a.result.id}}"], "arguments": {"x": "{{item}}"}}, [(("id",), "value")]),
    ],
    ids=str,
)
def test_projections_are_the_parts_that_another_node_reads(fields: dict[str, Any], expected: list[Projection]) -> None:
    plan = compiled_plan(plan_of(node("a"), node("b", **fields)))
    assert _projections(plan) == ({"a": expected} if expected else {})


def test_projections_include_the_reads_of_outputs_and_sub_plans() -> None:
    plan = compiled_plan(plan_of(node("a"), node("b"), output={"x": "{{a.result.id}}", "y": "{{b.result}}"}))
    assert _projections(plan) == {"a": [(("id",), "value")]}
    sub_plan = plan_of(node("x"), node("y"), output={"first": "{{x.result.doc}}", "all": "{{y.result}}"})
    reads = {"p": "{{s.result.first.id}}", "q": "{{s.result.all.name}}"}
    plan = compiled_plan(plan_of({"id": "s", "plan": sub_plan}, node("b", arguments=reads)))
    assert _projections(plan) == {"s/x": [(("doc",), "value"), (("doc", "id"), "value")], "s/y": [(("name",), "value")]}
    # Without the field `output`, the output of a plan has the results of all nodes without dependents.
    sub_plan_without_output = {"id": "s", "plan": plan_of(node("x"))}
    plan = compiled_plan(plan_of(sub_plan_without_output, node("b", arguments={"p": "{{s.result.x.id}}"})))
    assert _projections(plan) == {"s/x": [(("id",), "value")]}
    reader = node("x", arguments={"v": "{{PLACEHOLDER_doc}}"}, when="inputs.doc.size > 3")
    sub_plan = plan_of(reader, inputs={"doc": {"type": "object"}})
    plan = compiled_plan(plan_of(node("a"), {"id": "s", "plan": sub_plan, "arguments": {"doc": "{{a.result.inner}}"}}))
    assert _projections(plan) == {"a": [(("inner",), "value"), (("inner", "size"), "whole")]}
    # A worker tool returns a WorkerResult or only its outputs: the fields of a WorkerResult are projected too.
    plan = compiled_plan(plan_of(node("a"), node("b", arguments={"x": "{{a.result.id}}"})), worker_tool_nodes=[0])
    paths: list[Path] = [("id",), ("outputs", "id"), ("status",), ("outputs",), ("error",), ("message",)]
    assert _projections(plan) == {"a": [(path, "value") for path in paths]}


@pytest.mark.parametrize(
    ("reference", "expected"),
    [("{{a.result[0].id}}", [(("id",), "value")]), ("{{a.result[*].id}}", [(("id",), "value")]), ("{{a.result}}", [])],
)
def test_path_into_the_results_of_items_is_a_projection_of_each_item(
    reference: str, expected: list[Projection]
) -> None:
    plan = compiled_plan(plan_of(node("a", for_each=[1, 2]), node("b", arguments={"x": reference})))
    assert _projections(plan) == ({"a": expected} if expected else {})
