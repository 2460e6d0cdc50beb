"""Worker tools: cards, sets of worker tools, plans that call them, and their inputs and outputs in a run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.compiler.regions import with_regions
from dagwright.core.errors import PlanInvalid
from dagwright.core.expressions.references import ResultOf
from dagwright.core.expressions.stored_values import stored_from_json
from dagwright.core.model.compiled import Binding, CompiledNode
from dagwright.core.model.states import NodeError, NodeStatus, Record, Task, TaskRef
from dagwright.core.model.tools import Effects, ToolDeclaration, WorkerCard, worker_card_from_json
from dagwright.core.model.worker_results import MESSAGE_CHARACTERS, WorkerResult, unwrap_worker_result, worker_result_of
from dagwright.core.validation.validation import check_document
from dagwright.core.validation.worker_tools import (
    WorkerTool,
    WorkerToolsRejected,
    check_worker_tools,
    missing_slots,
    prepare_call,
)
from dagwright.dialects import to_document
from dagwright.features.run_scheduler import RunScheduler
from tests.support.plan_building import (
    compiled_plan,
    node,
    plan_of,
    problems_of,
    restored_scheduler,
    start_ready_tasks,
    started_scheduler,
    statuses_of,
)


def card(*outputs: str, requires: tuple[str, ...] = (), goal_type: Any = "support", **fields: Any) -> WorkerCard:
    return WorkerCard(description="Does it.", requires=requires, outputs=outputs, goal_type=goal_type, **fields)


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


_FIND_CARD = card("found", "count", takes_sub_goal=True)
_SHOW_CARD = card("table", requires=("found",), goal_type="deliverable")
WORKER_TOOLS = {
    "find": ToolDeclaration("find", Effects.READ, schema(text={"type": "string"}), worker=_FIND_CARD),
    "show": ToolDeclaration("show", Effects.PURE, schema(found={}, width={"type": "integer"}), worker=_SHOW_CARD),
}
SHOW_NODE = node("b", tool="show", arguments={"found": "{{a.result.found}}"})
FIND_NODE = node("a", tool="find", title="Look for it")


def scheduler_of(*nodes: Any) -> RunScheduler:
    return started_scheduler(compiled_plan(plan_of(*nodes), tools=WORKER_TOOLS))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"description": " "}, "the text is empty"),
        ({"outputs": ()}, "at least one slot"),
        ({"outputs": ("a", "a")}, "duplicate name 'a'"),
        ({"outputs": ("a b",)}, "'a b' is not a slot name"),
        ({"outputs": ("sub_goal",)}, "a slot cannot be called 'sub_goal'"),
        ({"requires": ("",)}, "is not a slot name"),
        ({"preconditions": ("",)}, "the text is empty"),
        ({"same_as": {"b": "c"}}, "same_as: 'b' must be a slot of the tool"),
        ({"outputs": ("a", "c"), "same_as": {"a": "c"}}, "'c' a slot of another worker tool"),
        ({"goal_type": "other"}, "support"),
        ({"more": 1}, "more"),
    ],
)
def test_invalid_card_is_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        worker_card_from_json({"description": "Does it.", "outputs": ("a",), "goal_type": "support", **fields})


def _worker_tools_with(cards: Mapping[str, WorkerCard]) -> dict[str, WorkerTool]:
    return {name: WorkerTool(ToolDeclaration(name, Effects.READ, worker=each), each) for name, each in cards.items()}


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        (
            {"x": card("a", goal_type="deliverable"), "y": card("b", "a")},
            "the worker tools 'x' and 'y' both output 'a'; only one worker tool may output a slot",
        ),
        (
            {"x-y": card("a", goal_type="deliverable"), "X_y": card("b")},
            "the worker tools 'x-y' and 'X_y' have the same name except for case and '-' or '_'",
        ),
        ({"x": card("a"), "y": card("b")}, "none of the worker tools makes a deliverable ('x', 'y'), so no question"),
        (
            {"x": card("found", goal_type="deliverable"), "y": card("b", requires=("fuond",))},
            "the worker tool 'y' requires 'fuond', which no worker tool outputs; did you mean 'found'?",
        ),
    ],
)
def test_unusable_set_of_worker_tools_is_rejected(cards: dict[str, WorkerCard], message: str) -> None:
    with pytest.raises(WorkerToolsRejected) as error:
        check_worker_tools(_worker_tools_with(cards))
    assert str(error.value).startswith(message)


def test_all_problems_of_a_set_are_reported_at_once() -> None:
    with pytest.raises(WorkerToolsRejected) as error:
        check_worker_tools(_worker_tools_with({"x": card("a"), "y": card("a", requires=("q",))}))
    assert len(str(error.value).split("; ")) == 4


def problems_in(*nodes: Any) -> list[tuple[str, str, str, str | None]]:
    return [
        (problem.code, problem.pointer, problem.message, problem.hint)
        for problem in problems_of(plan_of(*nodes), tools=WORKER_TOOLS)
    ]


@pytest.mark.parametrize("arguments", [{}, {"found": None}])
def test_missing_required_slot_is_reported_with_its_producers(arguments: dict[str, Any]) -> None:
    message = "'show' requires the slot 'found', but the arguments do not have it"
    assert problems_in(FIND_NODE, node("b", tool="show", arguments=arguments)) == [
        ("precondition_missing", "/nodes/1/arguments/found" if arguments else "/nodes/1", message, "'a' outputs it")
    ]


def test_references_and_sub_goals_are_checked_against_the_cards_of_worker_tools() -> None:
    message = "Invalid reference: a.result.fond: 'find' does not output 'fond'; it outputs found, count"
    assert problems_in(FIND_NODE, node("b", tool="show", arguments={"found": "{{a.result.fond}}"})) == [
        ("invalid_reference", "/nodes/1/arguments/found", message, "did you mean 'found'?")
    ]
    find = {"id": 1, "worker": "find", "outputs": ["found", "more"], "goal_type": "deliverable"}
    raw: Any = {"sub_goals": [find, {"id": 2, "worker": "show", "params": {"width": 5}}]}
    with pytest.raises(PlanInvalid) as caught:
        check_document(to_document(raw), tools=WORKER_TOOLS)
    assert [(problem.code, problem.pointer) for problem in caught.value.problems] == [
        ("invalid_field", "/sub_goals/0/outputs"),
        ("invalid_field", "/sub_goals/0/goal_type"),
        ("precondition_missing", "/sub_goals/1"),
    ]


@pytest.mark.parametrize(
    ("argument", "location"), [("{{a.result.count}}", ""), (["{{a.result.found}}", "{{a.result.count}}"], "/1")]
)
def test_reference_to_another_slot_than_the_required_slot_is_rejected(argument: Any, location: str) -> None:
    message = "'show' requires 'found', but the reference is to the slot 'count'"
    assert problems_in(FIND_NODE, node("b", tool="show", arguments={"found": argument})) == [
        ("invalid_reference", f"/nodes/1/arguments/found{location}", message, "'a' outputs it")
    ]
    # An optional argument may have any value. The argument for a required slot may refer to a part of the slot, because
    # the content of a slot is not declared.
    valid_arguments = {"found": "{{a.result.found.first}}", "width": "{{a.result.count}}"}
    assert problems_in(FIND_NODE, node("b", tool="show", arguments=valid_arguments)) == []


def test_node_of_a_worker_tool_is_marked_and_never_in_a_region() -> None:
    plan = compiled_plan(plan_of(FIND_NODE, SHOW_NODE), tools=WORKER_TOOLS)
    assert [node.is_worker for node in plan.nodes] == [True, True]
    assert plan.tools["show"].worker == WORKER_TOOLS["show"].worker
    nodes = (FIND_NODE, SHOW_NODE, SHOW_NODE | {"id": "c"})
    plan_with_regions = with_regions(compiled_plan(plan_of(*nodes), tools=WORKER_TOOLS))
    assert [node.kind for node in plan_with_regions.nodes] == ["tool", "tool", "tool"]
    tools = {"any": ToolDeclaration("any", Effects.READ, worker=card("a", goal_type="deliverable"))}
    assert compile_plan(check_document(to_document(plan_of(node("x"))), tools=tools)).nodes[0].is_worker


def test_worker_tool_gets_its_sub_goal_with_slots_and_its_outputs_are_the_result() -> None:
    scheduler = scheduler_of(FIND_NODE, SHOW_NODE)
    (task,) = start_ready_tasks(scheduler)
    goal = {"id": "a", "worker": "find", "description": "Look for it", "inputs": {}, "outputs": ["found", "count"]}
    assert task.arguments == {"sub_goal": {**goal, "goal_type": "support"}}
    scheduler.complete("a", {"status": "success", "outputs": {"found": [1], "count": 1}, "message": "as it is"}, at=1.0)
    (task,) = start_ready_tasks(scheduler, at=1.0)
    assert (task.id, task.arguments) == ("b", {"found": [1]})
    record = scheduler.records[0]
    assert (record.result, record.partial, record.message) == ({"found": [1], "count": 1}, False, "as it is")
    text_argument = {"text": "{{a.result.found}}"}
    scheduler = scheduler_of(FIND_NODE, node("sg2", tool="find", arguments=text_argument))
    start_ready_tasks(scheduler)
    scheduler.complete("a", {"status": "success", "outputs": {"found": "x", "count": 1}}, at=1.0)
    (task,) = start_ready_tasks(scheduler, at=1.0)
    assert task.arguments["sub_goal"]["inputs"] == {"text": {"from_sub_goal": "a", "slot": "found"}}
    refs = [ResultOf("sg1", "result", ("found",)), ResultOf("sg4#2", "result", ("found",))]
    whole_ref, deep_ref = ResultOf("a", "result", ()), ResultOf("a", "result", ("found", 0))
    list_bindings: list[Binding] = [(("list", number), (ref,)) for number, ref in enumerate(refs)]
    other_bindings: list[Binding] = [
        (("whole",), (whole_ref,)),
        (("deep",), (deep_ref,)),
        (("words",), ("about ", refs[0])),
    ]
    bindings = [*list_bindings, *other_bindings]
    call_node = CompiledNode("sg5", tool="find", bindings=tuple(bindings))
    result = prepare_call(Task("sg5", call_node, TaskRef(0), {}, []), WORKER_TOOLS).arguments["sub_goal"]
    assert result["inputs"] == {"list": [{"from_sub_goal": 1, "slot": "found"}, {"from_sub_goal": 4, "slot": "found"}]}


def test_worker_tool_is_not_called_if_a_required_slot_has_no_value() -> None:
    scheduler = scheduler_of(FIND_NODE, SHOW_NODE, node("c", tool="find", arguments={"text": "{{b.result.table}}"}))
    start_ready_tasks(scheduler)
    scheduler.complete("a", {"status": "partial", "outputs": {"count": 0}, "message": "three names fit"}, at=1.0)
    assert start_ready_tasks(scheduler, at=1.0) == []
    assert statuses_of(scheduler) == {"a": "completed", "b": "failed", "c": "blocked"}
    message = "'show' was not called: it requires 'found' (a.result.found is null)"
    assert scheduler.records[1].error == NodeError("precondition_missing", message)
    actual = restored_scheduler(scheduler).records[0]
    assert (actual.result, actual.message, actual.partial) == ({"found": None, "count": 0}, "three names fit", True)


def test_slot_of_several_references_is_missing_if_one_is_null_but_a_list_may_have_null_items() -> None:
    show_node = node("b", tool="show", arguments={"found": ["{{a.result.found}}", "{{c.result.found}}"]})
    scheduler = scheduler_of(FIND_NODE, FIND_NODE | {"id": "c"}, show_node)
    start_ready_tasks(scheduler)
    scheduler.complete("a", {"found": 1, "count": 1}, at=1.0)
    scheduler.complete("c", {"found": None, "count": 0}, at=1.0)
    assert start_ready_tasks(scheduler, at=1.0) == []
    assert scheduler.records[2].error is not None
    assert "c.result.found is null" in scheduler.records[2].error.message
    assert missing_slots(card("a", requires=("x_y",)), {"x-y": [None]}) == []
    assert missing_slots(card("a", requires=("x_y",)), {"x-y": None, "other": 1}) == [("x_y", None)]


TWO_SLOT_CARD = card("found", "count")


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"found": 1}, "missing: 'count'"),
        ({"found": 1, "count": 1, "more": 1}, "not declared: 'more'"),
        ({"fuond": 1, "count": 1}, "missing: 'found'; not declared: 'fuond'"),
    ],
)
def test_outputs_must_be_exactly_the_slots_of_the_card(outputs: dict[str, Any], message: str) -> None:
    for result in ({"status": "success", "outputs": outputs}, outputs):
        error = unwrap_worker_result(result, TWO_SLOT_CARD).error
        assert error == NodeError(
            "invalid_result", f"the slots of the result differ from the declared slots: {message}"
        )


def test_partial_result_may_omit_slots_but_must_be_an_object() -> None:
    actual = unwrap_worker_result({"status": "partial", "outputs": {"count": 0}}, TWO_SLOT_CARD)
    assert (actual.outputs, actual.is_partial) == ({"found": None, "count": 0}, True)
    assert unwrap_worker_result({"status": "partial", "outputs": {"more": 0}}, TWO_SLOT_CARD).error is not None
    error = NodeError("invalid_result", "a worker tool must return an object of its slots")
    assert unwrap_worker_result([1], TWO_SLOT_CARD).error == error
    assert unwrap_worker_result([1]).outputs == [1]


def test_message_of_a_failed_or_stored_result_is_formatted_and_cut() -> None:
    actual = unwrap_worker_result({"status": "failed", "error": "no luck", "message": {"of": [1]}}, TWO_SLOT_CARD)
    assert actual.message == '{"of":[1]}'
    actual = unwrap_worker_result({"status": "failed", "error": "no luck", "message": "x" * 9_999}, TWO_SLOT_CARD)
    assert (actual.error, actual.message) == (NodeError("worker_failed", "no luck"), "x" * MESSAGE_CHARACTERS)
    projections = [
        [["status"], {"value": "success"}],
        [["outputs"], {"type": "object", "bytes": 99_000, "length": 1, "preview": ""}],
        [["message"], {"value": "many"}],
    ]
    shape = {"type": "object", "bytes": 99_999, "length": 3}
    stored_result = stored_from_json({"ref": "r", "name": "a.result", **shape, "projections": projections})
    actual = unwrap_worker_result(stored_result, TWO_SLOT_CARD)
    assert (actual.error, actual.message) == (None, "many")


def test_ended_sub_goal_has_a_worker_result_with_five_fields() -> None:
    completed_record = Record(NodeStatus.COMPLETED, result={"found": 1}, partial=True, message="the rest is missing")
    failed_record = Record(NodeStatus.FAILED, error=NodeError("tool_failed", "no luck"))
    partial_result = WorkerResult(2, "partial", {"found": 1}, message="the rest is missing")
    assert worker_result_of("sg2", completed_record) == partial_result
    failed_result = WorkerResult(3, "failed", error="tool_failed: no luck")
    assert worker_result_of("sg3#2", failed_record) == failed_result
    assert worker_result_of("sg4", Record()) is None
    assert list(WorkerResult().to_json()) == ["sub_goal_id", "status", "outputs", "error", "message"]
    with pytest.raises(ValueError, match="done"):
        WorkerResult(status="done")  # type: ignore[arg-type] # an untyped caller can pass this
    with pytest.raises(ValueError, match=r"^the message of a WorkerResult is \{'of': 1\}, expected a text$"):
        WorkerResult(message={"of": 1})  # type: ignore[arg-type] # an untyped caller can pass this


def test_superseded_sub_goal_keeps_its_result_and_blocked_sub_goal_has_no_result() -> None:
    superseded_record = Record(NodeStatus.SUPERSEDED, ended_at=2.0)
    dependency_error = NodeError("dependency_failed", "Waiting for dependency: sg1 failed")
    records = [
        replace(superseded_record, result={"found": 1}),
        replace(superseded_record, error=NodeError("tool_failed", "no luck")),
        superseded_record,
        replace(superseded_record, error=dependency_error),
        Record(NodeStatus.BLOCKED, error=dependency_error),
        Record(NodeStatus.SKIPPED, reason="the budget is used up"),
    ]
    success = WorkerResult(1, "success", {"found": 1})
    failure = WorkerResult(1, "failed", error="tool_failed: no luck")
    over_budget = WorkerResult(1, "failed", error="the budget is used up")
    results = [worker_result_of("sg1", record) for record in records]
    assert results == [success, failure, None, None, None, over_budget]
