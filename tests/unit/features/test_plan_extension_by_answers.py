"""Answers that extend the plan: answers to GUIDANCE requests that add nodes, and retries with new arguments."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.expressions.compute_budget import TOO_MUCH_AT_ONCE
from dagwright.core.model.actor import Actor
from dagwright.core.model.answers import normalize_answer
from dagwright.core.model.compiled import plan_from_json, plan_to_json
from dagwright.core.model.requests import Feedback
from dagwright.features.commands.node_commands import RetryNode, SetResult
from dagwright.features.commands.steering import apply_command
from dagwright.features.feedback.feedback_state import MAX_EARLY_ANSWERS, MAX_RUN_ANSWERS_BYTES
from dagwright.features.run_scheduler import RunScheduler
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.scheduler_snapshot import state_to_json
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment
from tests.support.plan_building import (
    NoExtension,
    answer_request,
    compiled_plan,
    early_answers,
    ids_of,
    node,
    open_requests,
    overrides_of,
    plan_of,
    problems_of,
    record_of,
    restored_scheduler,
    scheduler_of,
    start_ready_tasks,
    started_run,
    started_scheduler,
    statuses_of,
    take_rejections,
    tool_error,
    with_extender,
)

_GUIDANCE = {"type": "GUIDANCE", "prompt": "What else?"}
_ADDED_NODES = [node("look", arguments={"hint": "{{ask.result.text}}"}), node("sum", "look", "a")]


def _run_with_request() -> RunScheduler:
    return scheduler_of(node("a"), node("ask", human=_GUIDANCE), node("after", arguments={"x": "{{ask.result}}"}))


def _feedback_with_nodes(request_id: str = "ask", nodes: Any = _ADDED_NODES, **fields: Any) -> Feedback:
    return Feedback(request_id, {"text": "the north", "nodes": nodes, **fields}, by="ann", note="it is missing")


def _answer_with_nodes(
    scheduler: RunScheduler, *nodes: Any, request_id: str = "ask", at: float = 1.0, **fields: Any
) -> str | None:
    """Answer a request with nodes (default: `_ADDED_NODES`), and return the rejection."""
    answer = _feedback_with_nodes(request_id, [*nodes] or _ADDED_NODES, **fields)
    return scheduler.features.feedback.answer(answer, at)


def test_nodes_of_an_answer_are_added_and_get_its_text() -> None:
    scheduler = _run_with_request()
    start_ready_tasks(scheduler)
    assert scheduler.features.feedback.rejection_of(_feedback_with_nodes(), 1.0) is None
    assert _answer_with_nodes(scheduler) is None
    plan = compiled_plan(plan_of(node("a"), node("ask", human=_GUIDANCE), node("after", "ask")))
    successor = restored_scheduler(scheduler, plan)
    assert statuses_of(successor) == statuses_of(scheduler)
    result = {"text": "the north", "nodes": ["look", "sum"]}
    assert [(task.id, task.arguments) for task in start_ready_tasks(scheduler)] == [
        ("after", {"x": result}),
        ("look", {"hint": "the north"}),
    ]
    expected = {"a": "running", "ask": "completed", "after": "running", "look": "running", "sum": "pending"}
    assert statuses_of(scheduler) == expected
    actor = {"by": "ann", "at": 1.0, "source": "signal", "reason": "it is missing"}
    assert overrides_of(scheduler, "look") == [{"command": "add_nodes", **actor, "request_id": "ask"}]
    assert scheduler.features.feedback.requests.closed["ask"].answer == "answered"


class _ReservingExtender(NoExtension):
    """Extender that reserves the IDs that start with `look`."""

    def is_reserved(self, node_id: str) -> bool:
        return node_id.startswith("look")


def test_nodes_of_an_answer_cannot_have_reserved_ids() -> None:
    scheduler = with_extender(_run_with_request(), _ReservingExtender())
    rejection = "'ask': the id 'look' is reserved for nodes that the run adds: choose another id"
    # An early answer is not stored either: it could never be applied.
    assert scheduler.features.feedback.rejection_of(_feedback_with_nodes(), 0.0) == rejection
    start_ready_tasks(scheduler)
    assert (
        scheduler.features.feedback.rejection_of(_feedback_with_nodes(), 1.0)
        == _answer_with_nodes(scheduler)
        == rejection
    )
    assert _answer_with_nodes(scheduler, node("more", "a")) is None
    assert statuses_of(scheduler)["more"] == "pending"


def test_answer_may_have_nodes_but_no_text_and_may_declare_new_tools() -> None:
    scheduler = _run_with_request()
    [request] = open_requests(scheduler).values()
    assert normalize_answer(request, {"text": "x", "nodes": None}) == {"text": "x"}
    assert answer_request(scheduler, "ask", {"nodes": [node("look")]}, at=1.0) is None
    assert record_of(scheduler, "ask").result == {"text": "", "nodes": ["look"]}
    scheduler = _run_with_request()
    tools = {"mail": {"effects": "write", "task_queue": "post"}}
    assert _answer_with_nodes(scheduler, node("send", tool="mail"), tools=tools) is None
    assert scheduler.plan.tools["mail"].task_queue == "post"


@pytest.mark.parametrize(
    ("answer", "expected_parts"),
    [
        (
            {"nodes": [node("a"), node("b", "absent")]},
            [
                "duplicate_id at /nodes/0/id: the run has a node 'a' already (choose another id)",
                "unknown_dependency at /nodes/1/depends_on/0",
            ],
        ),
        (
            {"nodes": [node("b"), node("c"), node("b")]},
            ["duplicate_id at /nodes/2/id: duplicate node id 'b' (nodes 0 and 2)"],
        ),
        ({"nodes": [node("b", tool="unknown")]}, ["unknown_tool at /nodes/0/tool"]),
        ({"nodes": [node("b", "c"), node("c", "b")]}, ["cycle at"]),
        ({"nodes": [node("b")], "tools": []}, ["'tools' must be an object of declarations by name"]),
        ({"nodes": [node("b")], "tools": {"t": {"effects": "invalid"}}}, ["the effects of the tool 't' must be"]),
        ({"nodes": "b"}, ["'nodes' must be a list of nodes as in a plan, not \"b\""]),
        ({"nodes": []}, ['the text is missing; expected {"text": "…"}']),
    ],
)
def test_invalid_nodes_are_rejected_and_the_request_stays_open(answer: Any, expected_parts: list[str]) -> None:
    scheduler = _run_with_request()
    state_before = json.dumps(state_to_json(scheduler))
    rejection = answer_request(scheduler, "ask", answer, at=1.0) or ""
    assert rejection.startswith("'ask': ")
    assert [part for part in expected_parts if part not in rejection] == []
    assert json.dumps(state_to_json(scheduler)) == state_before


def test_nodes_of_answers_count_against_the_limit_of_answers() -> None:
    scheduler = _run_with_request()
    scheduler.features.feedback.requests.stored_bytes = MAX_RUN_ANSWERS_BYTES
    rejection = _answer_with_nodes(scheduler, node("look", arguments={"x": "y" * 2_000}))
    assert "bytes is too much" in (rejection or "")
    # Short answers are accepted even at the limit, so that waiting nodes can end.
    assert _answer_with_nodes(scheduler, node("look")) is None


def test_nodes_are_rejected_in_defaults_and_in_answers_to_a_clarification() -> None:
    scheduler = scheduler_of(node("ask", human={**_GUIDANCE, "type": "CLARIFICATION"}))
    assert _answer_with_nodes(scheduler) == "'ask': unknown key 'nodes'; expected {\"text\": \"…\"}"
    human = {**_GUIDANCE, "deadline": "1d", "on_timeout": {"default": {"text": "x", "nodes": [node("b")]}}}
    [problem] = problems_of(plan_of(node("ask", human=human)))
    assert problem.message == (
        "the default does not fit the question: a default answer must not add nodes to a running plan; "
        "write the nodes into the plan document"
    )


def test_early_answer_with_nodes_is_applied_if_its_nodes_are_still_valid() -> None:
    scheduler = started_run(node("a"), node("ask", "a", human=_GUIDANCE), node("parallel", "a"), node("after", "ask"))
    assert _answer_with_nodes(scheduler, at=0.5) is None
    assert statuses_of(scheduler)["ask"] == "pending"
    scheduler.complete("a", 1, at=1.0)
    assert ids_of(start_ready_tasks(scheduler, at=1.0)) == ["parallel", "after", "look"]
    assert (open_requests(scheduler), early_answers(scheduler)) == ({}, {})
    for task_id in ("parallel", "after", "look"):
        scheduler.complete(task_id, 1, at=2.0)
    assert ids_of(start_ready_tasks(scheduler, at=2.0)) == ["sum"]
    scheduler = started_run(node("a"), node("ask", "a", human=_GUIDANCE), node("other", human=_GUIDANCE))
    for request_id in ("ask", "other"):
        assert _answer_with_nodes(scheduler, node("look"), request_id=request_id, at=0.5) is None
    scheduler.complete("a", 1, at=1.0)
    assert [*open_requests(scheduler)] == ["ask"]
    [rejection] = take_rejections(scheduler)
    assert rejection.startswith("the early answer of ann is invalid: 'ask': duplicate_id")
    assert _answer_with_nodes(scheduler, node("look2"), at=2.0) is None


def test_early_answers_with_nodes_are_applied_within_the_compute_budget() -> None:
    names = [f"q{number}" for number in range(MAX_EARLY_ANSWERS)]
    questions = (node(name, "a", human=_GUIDANCE) for name in names)
    scheduler = started_run(node("a"), *questions, node("after", "a", when="a.result == 1"))
    for name in names:
        number = scheduler.state.number_of(name)
        assert number is not None
        scheduler.features.feedback.requests.store_early(_feedback_with_nodes(name, nodes=[node(f"of_{name}")]), number)
    scheduler.complete("a", 1, at=1.0)
    accepted_names, open_names = names[:13], names[13:]
    assert [name for name, status in statuses_of(scheduler).items() if status == "completed"] == ["a", *accepted_names]
    assert [*open_requests(scheduler)] == open_names
    assert take_rejections(scheduler) == [
        f"the early answer of ann to {name!r} was not accepted: {TOO_MUCH_AT_ONCE}" for name in open_names
    ]
    assert (scheduler.features.feedback.requests.due_answers, early_answers(scheduler)) == (
        [],
        {},
    )
    # The condition of `after` uses the compute budget of this activation, too.
    assert ids_of(start_ready_tasks(scheduler, at=1.0)) == ["after", *(f"of_{name}" for name in accepted_names)]
    assert _answer_with_nodes(scheduler, node("again"), request_id=open_names[0], at=2.0) is None
    assert ids_of(start_ready_tasks(scheduler, at=2.0)) == ["again"]


def test_answers_with_nodes_in_one_activation_leave_compute_budget_for_the_run() -> None:
    names = [f"q{number}" for number in range(200)]
    scheduler = started_run(node("a"), *(node(name, "a", human=_GUIDANCE) for name in names))
    rejections = [_answer_with_nodes(scheduler, node(f"of_{name}"), request_id=name, at=0.5) for name in names]
    stored_count = len(early_answers(scheduler))
    budget_rejection = "too many changes at once; try again in a moment"
    assert (stored_count, rejections) == (63, [None] * stored_count + [budget_rejection] * (len(names) - stored_count))
    assert answer_request(scheduler, names[-1], {"text": "x"}, at=0.5) is None
    assert _answer_with_nodes(scheduler, node("later"), request_id=names[stored_count], at=0.6) is None


def test_early_answers_of_one_activation_are_applied_in_order_without_recursion() -> None:
    names = [f"q{number}" for number in range(30)]
    scheduler = started_run(node("a"), *(node(name, "a", human=_GUIDANCE) for name in names), node("after", *names))
    for name in names:
        new_nodes = (node(f"of_{name}"), node(f"after_{name}", "after"))
        assert _answer_with_nodes(scheduler, *new_nodes, request_id=name, at=0.5) is None
    depths: list[int] = []
    rebuild = scheduler.rebuild.rebuild

    def record_depth(at: float, **arguments: Any) -> None:
        depths.append(len(inspect.stack(0)))
        rebuild(at, **arguments)

    scheduler.rebuild.rebuild = record_depth  # type: ignore[method-assign]
    scheduler.complete("a", 1, at=1.0)
    assert depths == [depths[0]] * len(names)
    assert (open_requests(scheduler), take_rejections(scheduler)) == ({}, [])
    assert ids_of(start_ready_tasks(scheduler, at=1.0)) == ["after", *(f"of_{name}" for name in names)]
    scheduler.complete("after", 1, at=2.0)
    assert ids_of(start_ready_tasks(scheduler, at=2.0)) == [f"after_{name}" for name in names]


def test_nodes_in_an_answer_are_accepted_for_a_single_item_only() -> None:
    scheduler = scheduler_of(node("a"), node("q", for_each=[1, 2], human=_GUIDANCE))
    assert _answer_with_nodes(scheduler, node("look"), request_id="q") == (
        "'q[0]': the nodes in the answer would be added for 2 items; answer one item, by its own id"
    )
    assert _answer_with_nodes(scheduler, node("look"), request_id="q[0]") is None
    assert _answer_with_nodes(scheduler, node("look2"), request_id="q") is None
    assert statuses_of(scheduler) == {"a": "ready", "q": "completed", "look": "ready", "look2": "ready"}


def _run_with_failure(**fields: Any) -> RunScheduler:
    scheduler = started_run(node("a", arguments={"to": "bob"}, on_error="ask", **fields), node("b", "a"))
    scheduler.fail("a" if not fields else "a[0]", tool_error(), at=1.0)
    return scheduler


def test_retry_with_new_arguments_adds_a_node_and_is_rejected_for_an_item() -> None:
    answered_run, retried_run = _run_with_failure(), _run_with_failure()
    answer = {"selected": ["retry"], "arguments": {"to": "eve"}}
    assert answer_request(answered_run, "a", answer, by="ann", source="update", at=2.0) is None
    assert apply_command(RetryNode("a", {"to": "eve"}, Actor("ann", None, "update")), retried_run, at=2.0) is None
    assert statuses_of(answered_run) == statuses_of(retried_run) == {"a": "superseded", "a#2": "ready", "b": "pending"}
    [task] = start_ready_tasks(answered_run)
    assert (task.id, task.arguments, task.path) == ("a#2", {"to": "eve"}, [["node", "a#2"]])
    [override] = overrides_of(answered_run, "a#2")
    assert override == overrides_of(retried_run, "a#2")[0] | {"request_id": "a"}
    assert answered_run.features.feedback.requests.closed["a"].answer == "retry"
    answered_run.complete("a#2", 1, at=3.0)
    assert ids_of(start_ready_tasks(answered_run)) == ["b"]
    scheduler = _run_with_failure(for_each=[1])
    assert answer_request(scheduler, "a[0]", answer, at=2.0) == (
        "'a[0]': the items of 'a' take their arguments from the plan; retry them without arguments"
    )
    assert answer_request(scheduler, "a[0]", {"selected": ["retry"]}, at=2.0) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["a[0]"]


def test_early_answer_with_new_arguments_is_applied_when_the_node_fails() -> None:
    scheduler = scheduler_of(node("a", arguments={"to": "bob"}, on_error="ask"), node("b", "a"))
    answer = {"selected": ["retry"], "arguments": {"to": "eve"}}
    assert answer_request(scheduler, "a", answer, at=0.5) is None
    start_ready_tasks(scheduler)
    scheduler.fail("a", tool_error(), at=1.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["a#2"]
    scheduler.fail("a#2", tool_error(), at=2.0)
    assert [*open_requests(scheduler)] == ["a#2"]
    assert apply_command(SetResult("a#2", 5), scheduler, at=3.0) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["b"]


def _run_of(*nodes: dict[str, Any]) -> RunScheduler:
    plan = prepare_plan(check_plan(plan_of(*nodes), builtin_tools(ToolEnvironment(Path())).declarations()), {})
    return started_scheduler(plan_from_json(json.loads(json.dumps(plan_to_json(plan)))))


_SUM_NODE = {"id": "sum", "tool": "calculator", "arguments": {"query": "1 + 1"}}


def test_guidance_may_add_nodes_with_all_tools_of_the_worker_even_in_a_sub_plan() -> None:
    scheduler = _run_of({"id": "ask", "human": _GUIDANCE})
    start_ready_tasks(scheduler)
    rejection = answer_request(scheduler, "ask", {"nodes": [{"id": "x", "tool": "zzz"}]}, at=1.0) or ""
    assert "there is no tool 'zzz' (the run knows " in rejection
    assert " calculator, " in rejection
    assert "to use other tools, pass --tools to `dagwright feedback` or `dagwright add-nodes`" in rejection
    # The hint for plan files does not apply to a running plan.
    assert "name its module" not in rejection
    assert answer_request(scheduler, "ask", {"nodes": [_SUM_NODE]}, at=1.0) is None
    assert [task.id for task in start_ready_tasks(scheduler)] == ["sum"]
    inner_plan = {"nodes": [{"id": "ask", "human": _GUIDANCE}]}
    (sub_plan,) = [node.sub_plan for node in _run_of({"id": "sub", "plan": inner_plan}).plan.nodes]
    assert sub_plan is not None
    assert "calculator" in sub_plan.tools
    # A plan without guidance declares only the tools of its nodes.
    human_node = {"id": "ask", "human": {"type": "CLARIFICATION", "prompt": "?"}}
    assert [*_run_of({**_SUM_NODE, "depends_on": ["ask"]}, human_node).plan.tools] == ["calculator"]
