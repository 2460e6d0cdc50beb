"""Nodes that are added to a running plan: valid nodes, and the bounded time of their validation."""

from collections.abc import Mapping
from typing import Any

import pytest

from dagwright.core.errors import PlanInvalid
from dagwright.core.expressions.compute_budget import CHECK_BUDGET, MAX_WORK, TOO_MUCH_AT_ONCE, ComputeBudget
from dagwright.core.expressions.stored_values import Path, ProjectedPart, StoredValue
from dagwright.core.model.agents import AgentCard, agent_declaration
from dagwright.core.model.compiled import agent_of
from dagwright.core.model.requests import Feedback
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler import run_state
from dagwright.core.scheduler.extension import extend_plan, extension_from_json
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.core.validation.validation import check_document
from dagwright.features.commands.node_commands import AddUnparsedNodes
from dagwright.features.commands.steering import apply_command
from dagwright.features.feedback import feedback_state
from dagwright.features.plan_edits import edits as plan_edits
from dagwright.features.plan_edits.edits import checked_extension, cost_of_nodes, extension_of
from dagwright.features.run_scheduler import RunScheduler
from dagwright.planning.agent_loop.agent_nodes import with_agent_sub_plans
from dagwright.protocol.scheduler_snapshot import state_to_json
from tests.support.plan_building import configure, node, scheduler_of, started_run, statuses_of

_NODE_COUNT = 1_200
_UNUSUAL_IDS = ("step 700", "a/b-700", "-700-", "700", "ä.700")


@pytest.fixture(scope="module")
def large_run() -> RunScheduler:
    """A run with `_NODE_COUNT` nodes, and with one more node for each of `_UNUSUAL_IDS`."""
    return scheduler_of(*(node(f"n{number}") for number in range(_NODE_COUNT)), *map(node, _UNUSUAL_IDS))


def test_plan_keeps_its_tool_declarations_and_rejects_added_nodes_with_existing_ids(large_run: RunScheduler) -> None:
    scheduler = scheduler_of(node("a"))
    sent_declaration = ToolDeclaration("any", effects=Effects.READ, task_queue="elsewhere")
    extension = extension_of([node("b", "a")], scheduler.state, tools={"any": sent_declaration})
    assert extension.tools["any"] == scheduler.plan.tools["any"]
    with pytest.raises(PlanInvalid, match="n7"):
        extension_of([node("n7")], large_run.state, tools={})


@pytest.mark.parametrize("node_id", _UNUSUAL_IDS)
@pytest.mark.parametrize("reference", ["{{%s.result}}", "of {{%s.result.rows[0]}} and more", None])
def test_new_node_may_depend_on_a_node_of_a_large_plan(
    node_id: str, reference: str | None, large_run: RunScheduler
) -> None:
    if reference is None:
        new_node = node("new", node_id)
    else:
        new_node = node("new", arguments={"x": reference % node_id, "nested": [reference % node_id]})
    [added_node] = extension_of([new_node], large_run.state, tools={}).nodes
    assert added_node.dependencies == (_NODE_COUNT + _UNUSUAL_IDS.index(node_id),)


def test_added_llm_agents_are_sub_plans() -> None:
    card = AgentCard(name="w", description="Writes", objective_template="Write", type="llm", prompt="Write!")
    sub_plan = {"plan": 1, "nodes": [{"id": "in", "agent": "w", "objective": "Write"}]}
    new_nodes = [{"id": "b", "agent": "w", "objective": "Write"}, {"id": "c", "plan": sub_plan}]
    scheduler = configure(scheduler_of(node("a")), with_agent_sub_plans=with_agent_sub_plans)
    extension = extension_of(new_nodes, scheduler.state, tools={"agent.w": agent_declaration(card)})
    agent_node, plan_node = extension.nodes
    assert plan_node.sub_plan is not None
    assert [agent_of(each) for each in (agent_node, plan_node, *plan_node.sub_plan.nodes)] == ["w", None, "w"]
    assert (agent_node.kind, extension.tools) == ("plan", {})
    assert extension_from_json(extension.to_json()).to_json() == extension.to_json()


def test_added_nodes_get_parts_of_future_results_and_cannot_read_missing_parts_of_completed_results() -> None:
    scheduler = started_run(node("first"), node("later", "first"), node("each", "later", for_each=[1, 2]))
    parts: dict[Path, ProjectedPart] = {("known",): ProjectedPart("small", 1)}
    scheduler.complete("first", StoredValue("ref", name="first.result", parts=parts), at=1.0)
    new_nodes = [
        node("known", when="first.result.known == 1 && later.result.n > 5"),
        node("items", for_each="{{each.result[0].rows}}"),
        node("arguments", arguments={"x": "{{first.result.any[3]}}"}),
    ]
    extension = extension_of(new_nodes, scheduler.state, tools={})
    projections = {name: [*parts] for name, parts in extension_from_json(extension.to_json()).projections.items()}
    assert projections == {
        "first": [(("known",), "whole"), (("any", 3), "value")],
        "later": [(("n",), "whole")],
        "each": [((0, "rows"), "whole")],
    }
    plan = extend_plan(scheduler.plan, extension)
    assert [plan.nodes[number].projections for number in (1, 2)] == [((("n",), "whole"),), ((("rows",), "whole"),)]

    reads_of_completed_node = [node("x", when="first.result.n > 5"), node("y", "x", for_each="{{first.result.rows}}")]
    with pytest.raises(PlanInvalid) as error:
        extension_of(reads_of_completed_node, scheduler.state, tools={})
    problems = error.value.problems
    assert [(problem.code, problem.pointer, problem.message.partition(" ")[0]) for problem in problems] == [
        ("too_large", "/nodes/0", "first.result.n"),
        ("too_large", "/nodes/1", "first.result.rows"),
    ]


_NEW_NODES = [node(f"x{number}") for number in range(19)]
_DUPLICATE_ID = "the run has a node or item 'm[a]' already"
_GUIDANCE = {"type": "GUIDANCE", "prompt": "What else?"}


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the budget for checks in one activation to a tenth, so that few nodes use it up."""
    monkeypatch.setattr(feedback_state, "CHECK_BUDGET", CHECK_BUDGET // 10)


@pytest.fixture
def checked_counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the node count of each checked plan."""
    counts: list[int] = []

    def count_and_check(document: Any, **options: Any) -> CheckedPlan:
        counts.append(len(document.plan["nodes"]))
        return check_document(document, **options)

    monkeypatch.setattr(plan_edits, "check_document", count_and_check)
    return counts


def _run_with_map() -> Any:
    return started_run(node("m", for_each=["a"], key="{{item}}"), node("after", "m"))


@pytest.mark.usefixtures("small_budget")
def test_rejected_nodes_use_up_the_budget_of_an_activation_and_are_then_rejected_unchecked(
    checked_counts: list[int],
) -> None:
    scheduler = _run_with_map()
    state_before = state_to_json(scheduler)
    rejected_command = AddUnparsedNodes([*_NEW_NODES, node("m[a]")])
    rejections = [apply_command(rejected_command, scheduler, at=2.0) for _ in range(250)]
    assert list(dict.fromkeys(rejections)) == [_DUPLICATE_ID, TOO_MUCH_AT_ONCE]
    assert 5 < len(checked_counts) == rejections.count(_DUPLICATE_ID) < 30
    assert apply_command(rejected_command, scheduler, at=3.0) == _DUPLICATE_ID
    assert state_to_json(scheduler) == state_before


@pytest.mark.usefixtures("small_budget")
def test_many_rejected_nodes_leave_compute_budget_for_the_run() -> None:
    scheduler = started_run(node("a"), node("b", when="a.result > 1"), node("m", for_each=["a"], key="{{item}}"))
    for _ in range(250):
        apply_command(AddUnparsedNodes([*_NEW_NODES, node("m[a]")]), scheduler, at=2.0)
    scheduler.complete("a", 2, at=2.0)
    assert statuses_of(scheduler)["b"] == "ready"


def test_many_small_extensions_are_accepted_in_one_activation_and_each_is_checked_once(
    checked_counts: list[int],
) -> None:
    scheduler = started_run(node("a"))
    assert apply_command(AddUnparsedNodes([node("b", "a")]), scheduler, at=2.0) is None
    assert (checked_counts, statuses_of(scheduler)) == ([2], {"a": "running", "b": "pending"})
    assert {apply_command(AddUnparsedNodes([node(f"x{number}")]), scheduler, at=2.0) for number in range(99)} == {None}
    assert len(checked_counts) == 100


@pytest.mark.usefixtures("small_budget")
def test_name_comparisons_of_invalid_nodes_count_against_the_compute_budget(checked_counts: list[int]) -> None:
    scheduler = started_run(node("north"))
    invalid_command = AddUnparsedNodes([node("x", "nort")])
    rejections = [apply_command(invalid_command, scheduler, at=2.0) or "" for _ in range(250)]
    message = "unknown_dependency at /nodes/0/depends_on/0: 'x' depends on unknown node 'nort' (did you mean 'north'?)"
    assert list(dict.fromkeys(rejections)) == [message, TOO_MUCH_AT_ONCE]
    assert len(checked_counts) < 80


@pytest.mark.usefixtures("small_budget")
def test_checks_of_nodes_and_additions_of_nodes_have_separate_compute_budgets(checked_counts: list[int]) -> None:
    scheduler = _run_with_map()
    rejected_command = AddUnparsedNodes([*_NEW_NODES, node("m[a]")])
    rejections = [rejected_command.rejection_of(scheduler, at=2.0) for _ in range(250)]
    assert list(dict.fromkeys(rejections)) == [_DUPLICATE_ID, TOO_MUCH_AT_ONCE]
    assert len(checked_counts) == rejections.count(_DUPLICATE_ID) < 30
    assert apply_command(AddUnparsedNodes([node("b")]), scheduler, at=2.0) is None


def test_nodes_for_a_run_that_is_too_large_are_rejected_without_a_check(
    checked_counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = scheduler_of(*(node(f"n{number}") for number in range(4)))
    monkeypatch.setattr(run_state, "MAX_WORK", 3 * run_state.WORK_OF_REBUILD)
    rejection = apply_command(AddUnparsedNodes([node("b")]), scheduler, at=2.0)
    assert (rejection or "").partition(";")[0] == "the run has 4 nodes and 0 edges"
    assert checked_counts == []


def test_nodes_that_are_too_expensive_to_check_are_rejected_without_a_check(checked_counts: list[int]) -> None:
    scheduler = scheduler_of(node("a"))
    large_nodes = [node(f"x{number}", when="(" * 3_900) for number in range(60)]
    message = "checking these nodes would take too long: send fewer or smaller nodes at once"
    assert [apply_command(AddUnparsedNodes(large_nodes), scheduler, at=at) for at in (1.0, 2.0)] == [message, message]
    assert checked_counts == []


@pytest.mark.usefixtures("small_budget")
@pytest.mark.parametrize("is_early", [False, True])
def test_nodes_in_an_answer_to_guidance_have_the_limits_of_added_nodes(
    is_early: bool, checked_counts: list[int]
) -> None:
    # If `ask` waits for `m`, the answer arrives before its request is open.
    dependencies = ["m"] if is_early else []
    scheduler = started_run(node("m", for_each=["a"], key="{{item}}"), node("ask", *dependencies, human=_GUIDANCE))
    answer = Feedback("ask", {"text": "more", "nodes": [*_NEW_NODES, node("m[a]")]}, by="ann")
    validator_rejections = [scheduler.features.feedback.rejection_of(answer, 2.0) for _ in range(100)]
    rejections = [scheduler.features.feedback.answer(answer, 2.0) for _ in range(100)]
    expected = [f"'ask': {_DUPLICATE_ID}", TOO_MUCH_AT_ONCE]
    assert (list(dict.fromkeys(validator_rejections)), list(dict.fromkeys(rejections))) == (expected, expected)
    assert len(checked_counts) == validator_rejections.count(expected[0]) + rejections.count(expected[0]) < 60
    assert scheduler.features.feedback.answer(answer, 3.0) == expected[0]


def test_guidance_with_nodes_is_checked_once(checked_counts: list[int]) -> None:
    scheduler = started_run(node("ask", human=_GUIDANCE), node("a"))
    answer = Feedback("ask", {"text": "more", "nodes": [node("b", "ask")]}, by="ann")
    assert scheduler.features.feedback.answer(answer, 2.0) is None
    assert (checked_counts, list(statuses_of(scheduler))) == ([3], ["ask", "a", "b"])


def test_compute_budget_of_an_activation_suffices_for_the_largest_message() -> None:
    scheduler = scheduler_of(node("a"))
    nodes = [node(f"x{number}", arguments={"text": "x" * 1_200}) for number in range(200)]
    extension = checked_extension(nodes, scheduler.state, tools={}, budget=ComputeBudget(CHECK_BUDGET))
    assert not isinstance(extension, str)
    # A unit of work takes half a microsecond, and a workflow task may take 2 s.
    assert (MAX_WORK + 2 * CHECK_BUDGET) / 2_000_000 <= 1.5


@pytest.mark.parametrize(
    ("nodes", "existing_count", "cost"),
    [
        ([{"id": "x"}], 1, 600 + 100 + 2 * 12 + 50 + 5),
        ([{"id": "x", "when": "a.b"}], 1, 600 + 100 + 2 * 25 + 50 + 5 + 15 * 3),
        ([{"id": "x", "wen": "{{a}}{{"}], 1, 600 + 100 + 2 * 28 + 50 + 5 + 200 + 2 * 12),
        ([{"id": "x", "plan": {"nodes": [{"id": "y"}, 3]}}], 0, 600 + 200 + 2 * 44),
        ([{"id": "x"}], 2_000, 600 + 100 + 2 * 12 + 50 * 1_000 + 5 * 2_000),
    ],
)
def test_cost_of_adding_nodes_depends_on_their_sizes(
    nodes: list[Mapping[str, Any]], existing_count: int, cost: int
) -> None:
    assert cost_of_nodes(nodes, existing_count=existing_count) == cost
