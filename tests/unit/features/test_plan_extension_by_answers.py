"""Answers that extend the plan: nodes with guidance, and other arguments for a retry."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.expressions.compute_budget import TOO_MUCH_AT_ONCE
from dagwright.core.model.actor import Actor
from dagwright.core.model.answers import normal_answer
from dagwright.core.model.compiled import plan_from_json, plan_to_json
from dagwright.core.model.requests import Feedback
from dagwright.features.commands.node_commands import RetryNode, SetResult
from dagwright.features.commands.steering import apply_command
from dagwright.features.feedback.feedback_state import EARLY_ANSWERS, RUN_ANSWERS_BYTES
from dagwright.features.run_scheduler import RunScheduler
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.protocol.scheduler_snapshot import state_to_json
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment
from tests.support.plan_building import (
    NoExtension,
    compiled_plan,
    ids_of,
    node,
    overrides_of,
    plan_of,
    problems_of,
    pursuing,
    record_of,
    restored_scheduler,
    scheduler_of,
    start_ready_tasks,
    started_run,
    started_scheduler,
    states,
    tool_error,
)

_ASKING = {"type": "GUIDANCE", "prompt": "What else?"}
_MORE = [node("look", arguments={"hint": "{{ask.result.text}}"}), node("sum", "look", "a")]


def _run_with_request(*others: dict[str, Any]) -> RunScheduler:
    return scheduler_of(node("a"), node("ask", human=_ASKING), node("on", arguments={"x": "{{ask.result}}"}), *others)


def _answer(request: str = "ask", nodes: Any = _MORE, **more: Any) -> Feedback:
    return Feedback(request, {"text": "the north", "nodes": nodes, **more}, by="ann", note="it is missing")


def test_nodes_of_an_answer_are_added_and_get_its_text() -> None:
    scheduler = _run_with_request()
    start_ready_tasks(scheduler)
    assert scheduler.features.feedback.refusal_of(_answer(), 1.0) is None
    assert scheduler.features.feedback.answer(_answer(), 1.0) is None
    following = restored_scheduler(
        scheduler, compiled_plan(plan_of(node("a"), node("ask", human=_ASKING), node("on", "ask")))
    )
    assert states(following) == states(scheduler)
    result = {"text": "the north", "nodes": ["look", "sum"]}
    assert [(task.id, task.arguments) for task in start_ready_tasks(scheduler)] == [
        ("on", {"x": result}),
        ("look", {"hint": "the north"}),
    ]
    expected = {"a": "running", "ask": "completed", "on": "running", "look": "running", "sum": "pending"}
    assert states(scheduler) == expected
    actor = {"by": "ann", "at": 1.0, "through": "signal", "reason": "it is missing"}
    assert overrides_of(scheduler, "look") == [{"command": "add_nodes", **actor, "request_id": "ask"}]
    assert scheduler.features.feedback.requests.closed["ask"].answer == "answered"


class _Giving(NoExtension):
    """Extender for ids that start with `look`."""

    def is_reserved(self, node_id: str) -> bool:
        return node_id.startswith("look")


def test_nodes_of_an_answer_cannot_have_generated_ids() -> None:
    scheduler = pursuing(_run_with_request(), _Giving())
    refusal = "'ask': the id 'look' is reserved for nodes that the run adds: choose another id"
    # An early answer is not stored either: it could never be applied.
    assert scheduler.features.feedback.refusal_of(_answer(), 0.0) == refusal
    start_ready_tasks(scheduler)
    assert [
        scheduler.features.feedback.refusal_of(_answer(), 1.0),
        scheduler.features.feedback.answer(_answer(), 1.0),
    ] == [refusal, refusal]
    assert scheduler.features.feedback.answer(_answer(nodes=[node("more", "a")]), 1.0) is None
    assert states(scheduler)["more"] == "pending"


def test_answer_may_have_only_nodes_or_no_nodes_and_unknown_tools() -> None:
    scheduler = _run_with_request()
    [request] = scheduler.features.feedback.requests.open.values()
    assert normal_answer(request, {"text": "x", "nodes": None}) == {"text": "x"}
    assert scheduler.features.feedback.answer(Feedback("ask", {"nodes": [node("look")]}), 1.0) is None
    assert record_of(scheduler, "ask").result == {"text": "", "nodes": ["look"]}
    scheduler = _run_with_request()
    tools = {"mail": {"effects": "write", "task_queue": "post"}}
    assert scheduler.features.feedback.answer(_answer(nodes=[node("send", tool="mail")], tools=tools), 1.0) is None
    assert scheduler.plan.tools["mail"].task_queue == "post"


@pytest.mark.parametrize(
    ("answer", "refusals"),
    [
        (
            {"nodes": [node("a"), node("b", "nobody")]},
            [
                "duplicate_id at /nodes/0/id: the run has a node 'a' already (choose another id)",
                "unknown_dependency at /nodes/1/depends_on/0",
            ],
        ),
        (
            {"nodes": [node("b"), node("c"), node("b")]},
            ["duplicate_id at /nodes/2/id: duplicate node id 'b' (nodes 0 and 2)"],
        ),
        ({"nodes": [node("b", tool="unheard")]}, ["unknown_tool at /nodes/0/tool"]),
        ({"nodes": [node("b", "c"), node("c", "b")]}, ["cycle at"]),
        ({"nodes": [node("b")], "tools": []}, ["'tools' must be an object of declarations by name"]),
        ({"nodes": [node("b")], "tools": {"t": {"effects": "odd"}}}, ["the effects of the tool 't' must be"]),
        ({"nodes": "b"}, ["'nodes' must be a list of nodes as in a plan, not \"b\""]),
        ({"nodes": []}, ['the text is missing; expected {"text": "…"}']),
    ],
)
def test_invalid_nodes_are_rejected_and_the_request_stays_open(answer: Any, refusals: list[str]) -> None:
    scheduler = _run_with_request()
    before = json.dumps(state_to_json(scheduler))
    result = scheduler.features.feedback.answer(Feedback("ask", answer), 1.0) or ""
    assert result.startswith("'ask': ")
    assert [refusal for refusal in refusals if refusal not in result] == []
    assert json.dumps(state_to_json(scheduler)) == before


def test_nodes_count_among_all_that_people_send_to_a_run() -> None:
    scheduler = _run_with_request()
    scheduler.features.feedback.requests.stored_bytes = RUN_ANSWERS_BYTES
    result = scheduler.features.feedback.answer(_answer(nodes=[node("look", arguments={"x": "y" * 2_000})]), 1.0)
    assert result is not None
    assert "bytes is too much" in result
    assert scheduler.features.feedback.answer(_answer(nodes=[node("look")]), 1.0) is None


def test_other_types_and_defaults_accept_no_nodes() -> None:
    scheduler = scheduler_of(node("ask", human={**_ASKING, "type": "CLARIFICATION"}))
    assert (
        scheduler.features.feedback.answer(_answer(), 1.0) == "'ask': unknown key 'nodes'; expected {\"text\": \"…\"}"
    )
    human = {**_ASKING, "deadline": "1d", "on_timeout": {"default": {"text": "x", "nodes": [node("b")]}}}
    [problem] = problems_of(plan_of(node("ask", human=human)))
    assert problem.message == (
        "the default does not fit the question: only a person adds nodes to a plan that runs; "
        "write them into the plan itself"
    )


def test_early_answer_with_nodes_counts_if_its_nodes_still_fit() -> None:
    scheduler = started_run(node("a"), node("ask", "a", human=_ASKING), node("beside", "a"), node("on", "ask"))
    assert scheduler.features.feedback.answer(_answer(), 0.5) is None
    assert states(scheduler)["ask"] == "pending"
    scheduler.complete("a", 1, at=1.0)
    assert ids_of(start_ready_tasks(scheduler, at=1.0)) == ["beside", "on", "look"]
    assert (scheduler.features.feedback.requests.open, scheduler.features.feedback.requests.early_answers) == ({}, {})
    for task_id in ("beside", "on", "look"):
        scheduler.complete(task_id, 1, at=2.0)
    assert ids_of(start_ready_tasks(scheduler, at=2.0)) == ["sum"]
    scheduler = started_run(node("a"), node("ask", "a", human=_ASKING), node("other", human=_ASKING))
    for request in ("ask", "other"):
        assert scheduler.features.feedback.answer(_answer(request, nodes=[node("look")]), 0.5) is None
    scheduler.complete("a", 1, at=1.0)
    assert [*scheduler.features.feedback.requests.open] == ["ask"]
    [refusal] = scheduler.features.feedback.requests.take_rejections()
    assert refusal.startswith("the early answer of ann is invalid: 'ask': duplicate_id")
    assert scheduler.features.feedback.answer(_answer(nodes=[node("look2")]), 2.0) is None


def test_early_answers_with_nodes_are_applied_within_the_compute_budget() -> None:
    asking = [f"q{number}" for number in range(EARLY_ANSWERS)]
    questions = (node(name, "a", human=_ASKING) for name in asking)
    scheduler = started_run(node("a"), *questions, node("on", "a", when="a.result == 1"))
    for name in asking:
        number = scheduler.state.number_of(name)
        assert number is not None
        scheduler.features.feedback.requests.store_early(_answer(name, nodes=[node(f"of_{name}")]), number)
    scheduler.complete("a", 1, at=1.0)
    accepted, left = asking[:13], asking[13:]
    assert [name for name, state in states(scheduler).items() if state == "completed"] == ["a", *accepted]
    assert [*scheduler.features.feedback.requests.open] == left
    assert scheduler.features.feedback.requests.take_rejections() == [
        f"the early answer of ann to {name!r} was not accepted: {TOO_MUCH_AT_ONCE}" for name in left
    ]
    assert (scheduler.features.feedback.requests.due_answers, scheduler.features.feedback.requests.early_answers) == (
        [],
        {},
    )
    # Conditions also use the compute budget of that moment.
    assert ids_of(start_ready_tasks(scheduler, at=1.0)) == ["on", *(f"of_{name}" for name in accepted)]
    assert scheduler.features.feedback.answer(_answer(left[0], nodes=[node("again")]), 2.0) is None
    assert ids_of(start_ready_tasks(scheduler, at=2.0)) == ["again"]


def test_answers_with_nodes_at_one_moment_leave_compute_budget_for_the_run() -> None:
    asking = [f"q{number}" for number in range(200)]
    scheduler = started_run(node("a"), *(node(name, "a", human=_ASKING) for name in asking))
    entries = [scheduler.features.feedback.answer(_answer(name, nodes=[node(f"of_{name}")]), 0.5) for name in asking]
    kept = len(scheduler.features.feedback.requests.early_answers)
    too_much = "too much was changed at this moment; try again in a moment"
    assert (kept, entries) == (63, [None] * kept + [too_much] * (len(asking) - kept))
    assert scheduler.features.feedback.answer(Feedback(asking[-1], {"text": "x"}), 0.5) is None
    assert scheduler.features.feedback.answer(_answer(asking[kept], nodes=[node("later")]), 0.6) is None


def test_early_answers_of_one_activation_are_applied_in_order() -> None:
    asking = [f"q{number}" for number in range(30)]
    scheduler = started_run(node("a"), *(node(name, "a", human=_ASKING) for name in asking), node("on", *asking))
    for name in asking:
        assert (
            scheduler.features.feedback.answer(_answer(name, nodes=[node(f"of_{name}"), node(f"on_{name}", "on")]), 0.5)
            is None
        )
    depths: list[int] = []
    rebuild = scheduler.rebuild.rebuild

    def record_depth(at: float, **arguments: Any) -> None:
        depths.append(len(inspect.stack(0)))
        rebuild(at, **arguments)

    scheduler.rebuild.rebuild = record_depth  # type: ignore[method-assign]
    scheduler.complete("a", 1, at=1.0)
    assert depths == [depths[0]] * len(asking)
    assert (scheduler.features.feedback.requests.open, scheduler.features.feedback.requests.take_rejections()) == (
        {},
        [],
    )
    assert ids_of(start_ready_tasks(scheduler, at=1.0)) == ["on", *(f"of_{name}" for name in asking)]
    scheduler.complete("on", 1, at=2.0)
    assert ids_of(start_ready_tasks(scheduler, at=2.0)) == [f"on_{name}" for name in asking]


def test_nodes_in_an_answer_are_accepted_for_a_single_item_only() -> None:
    scheduler = scheduler_of(node("a"), node("q", for_each=[1, 2], human=_ASKING))
    assert scheduler.features.feedback.answer(_answer("q", nodes=[node("look")]), 1.0) == (
        "'q[0]': its nodes would be added for 2 items; answer one item, by its own id"
    )
    assert scheduler.features.feedback.answer(_answer("q[0]", nodes=[node("look")]), 1.0) is None
    assert scheduler.features.feedback.answer(_answer("q", nodes=[node("look2")]), 1.0) is None
    assert states(scheduler) == {"a": "ready", "q": "completed", "look": "ready", "look2": "ready"}


# Another try.


def _run_with_failure(**fields: Any) -> RunScheduler:
    scheduler = started_run(node("a", arguments={"to": "bob"}, on_error="ask", **fields), node("b", "a"))
    scheduler.fail("a" if not fields else "a[0]", tool_error(), at=1.0)
    return scheduler


def test_retry_with_other_arguments_is_a_new_node_and_rejected_for_an_item() -> None:
    answered, retried = _run_with_failure(), _run_with_failure()
    answer = {"selected": ["retry"], "arguments": {"to": "eve"}}
    assert answered.features.feedback.answer(Feedback("a", answer, by="ann", through="update"), 2.0) is None
    assert apply_command(RetryNode("a", {"to": "eve"}, Actor("ann", None, "update")), retried, at=2.0) is None
    assert states(answered) == states(retried) == {"a": "superseded", "a#2": "ready", "b": "pending"} | {}
    [task] = start_ready_tasks(answered)
    assert (task.id, task.arguments, task.path) == ("a#2", {"to": "eve"}, [["node", "a#2"]])
    [step] = overrides_of(answered, "a#2")
    assert step == overrides_of(retried, "a#2")[0] | {"request_id": "a"}
    assert answered.features.feedback.requests.closed["a"].answer == "retry"
    answered.complete("a#2", 1, at=3.0)
    assert ids_of(start_ready_tasks(answered)) == ["b"]
    scheduler = _run_with_failure(for_each=[1])
    answer = {"selected": ["retry"], "arguments": {"to": "eve"}}
    assert scheduler.features.feedback.answer(Feedback("a[0]", answer), 2.0) == (
        "'a[0]': the items of 'a' take their arguments from the plan; retry them without arguments"
    )
    assert scheduler.features.feedback.answer(Feedback("a[0]", {"selected": ["retry"]}), 2.0) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["a[0]"]


def test_early_choice_of_other_arguments_counts_when_the_node_fails() -> None:
    scheduler = scheduler_of(node("a", arguments={"to": "bob"}, on_error="ask"), node("b", "a"))
    answer = {"selected": ["retry"], "arguments": {"to": "eve"}}
    assert scheduler.features.feedback.answer(Feedback("a", answer), 0.5) is None
    start_ready_tasks(scheduler)
    scheduler.fail("a", tool_error(), at=1.0)
    assert ids_of(start_ready_tasks(scheduler)) == ["a#2"]
    scheduler.fail("a#2", tool_error(), at=2.0)
    assert [*scheduler.features.feedback.requests.open] == ["a#2"]
    assert apply_command(SetResult("a#2", 5), scheduler, at=3.0) is None
    assert ids_of(start_ready_tasks(scheduler)) == ["b"]


def _run_of(*nodes: dict[str, Any]) -> RunScheduler:
    plan = prepare_plan(check_plan(plan_of(*nodes), builtin_tools(ToolEnvironment(Path())).declarations()), {})
    return started_scheduler(plan_from_json(json.loads(json.dumps(plan_to_json(plan)))))


_SUM = {"id": "sum", "tool": "calculator", "arguments": {"query": "1 + 1"}}


def test_nodes_of_an_answer_may_use_every_tool_of_the_workers_also_in_a_sub_plan() -> None:
    scheduler = _run_of({"id": "ask", "human": _ASKING})
    start_ready_tasks(scheduler)
    refusal = scheduler.features.feedback.answer(Feedback("ask", {"nodes": [{"id": "x", "tool": "zzz"}]}), 1.0) or ""
    assert "there is no tool 'zzz' (the run knows " in refusal
    assert " calculator, " in refusal
    assert "to use other tools, pass --tools to `dagwright feedback` or `dagwright add-nodes`" in refusal
    assert "name the module" not in refusal
    assert scheduler.features.feedback.answer(Feedback("ask", {"nodes": [_SUM]}), 1.0) is None
    assert [task.id for task in start_ready_tasks(scheduler)] == ["sum"]
    below = {"nodes": [{"id": "ask", "human": _ASKING}]}
    (sub_plan,) = [node.sub_plan for node in _run_of({"id": "below", "plan": below}).plan.nodes]
    assert sub_plan is not None
    assert "calculator" in sub_plan.tools
    # A plan without guidance declares its own tools alone.
    asking = {"id": "ask", "human": {"type": "CLARIFICATION", "prompt": "?"}}
    assert [*_run_of({**_SUM, "depends_on": ["ask"]}, asking).plan.tools] == ["calculator"]
