"""Explanations of node states: the exact cause, and the report of a run at its deadline."""

from dataclasses import dataclass
from typing import Any

from dagwright.core.compiler.compilation import compiled_form
from dagwright.core.model.actor import Actor
from dagwright.core.model.states import Attempt, NodeError, NodeStatus
from dagwright.features.commands.node_commands import SetResult
from dagwright.features.commands.steering import Pause, apply_command
from dagwright.features.deadline import Deadline
from dagwright.features.explain.why import Chain, blocking_chain, sentence, why
from dagwright.features.run_scheduler import RunScheduler
from tests.support.plan_building import (
    answer_request,
    check,
    configure,
    node,
    plan_of,
    record_of,
    scheduler_of,
    start_ready_tasks,
    started_run,
    started_scheduler,
    tool_error,
)

HUMAN = {"type": "APPROVAL", "prompt": "Publish?", "assignee": "ann", "deadline": "1h"}


@dataclass(frozen=True)
class FakeCall:
    """A call. By default, it waits for its third attempt."""

    attempt: int = 3
    state: str = "backing_off"
    last_failure: str | None = "no answer"
    next_attempt_at: float | None = 90.0


def run_with_requests(*nodes: dict[str, Any], **inputs: Any) -> RunScheduler:
    """Return a run, started at time 0, with some nodes that ask people."""
    return started_scheduler(compiled_form(check(plan_of(*nodes))), inputs)


def reasons_in(chain: Chain) -> dict[str, tuple[str, str, list[str]]]:
    reasons = chain.reasons
    return {each.node_id: (each.kind, f"{each.message}|{each.detail}", [*each.causes]) for each in reasons}


def sentence_of(chain: Chain) -> str:
    return sentence(chain, chain.reasons[0], time_formatter=lambda at: f"{at:g} s")


def explanation(scheduler: RunScheduler, node_id: str, call: FakeCall | None = None) -> str:
    """Return the sentence that explains a node. `call` is the call of the node `a`."""
    return sentence_of(why(scheduler, node_id, calls={"a": call} if call else {}))


def test_chain_of_a_pending_node_ends_at_the_person_it_waits_for() -> None:
    scheduler = run_with_requests(node("check", human=HUMAN), node("publish", "check"), node("other"))
    start_ready_tasks(scheduler, at=5.0)

    chain = why(scheduler, "publish", calls={})

    assert reasons_in(chain) == {
        "publish": ("dependency", "waits for check|", ["check"]),
        "check": ("person", "waits for ann|Publish?", []),
    }
    assert sentence_of(chain) == "publish waits for check, which waits for ann since 0 s until 3600 s (Publish?)"
    assert reasons_in(blocking_chain(scheduler, calls={})) == {
        "check": ("person", "waits for ann|Publish?", []),
        "other": ("running", "runs|", []),
    }


def test_reason_of_a_join_has_the_number_of_nodes_it_waits_for() -> None:
    dependents = (node("any", "a", "b", join="any"), node("two", "a", "b", "c", join={"at_least": 2}))
    scheduler = started_run(*map(node, "abc"), *dependents)
    scheduler.fail("a", tool_error(), at=1.0)

    assert reasons_in(why(scheduler, "any", calls={}))["any"][1] == "waits for b|"
    message = "waits for 2 of 3 nodes to be done; not done yet: b and c|"
    assert reasons_in(why(scheduler, "two", calls={}))["two"][1] == message


def test_running_call_is_reported_with_its_next_attempt() -> None:
    scheduler = scheduler_of(node("a"), node("b", "a"))
    start_ready_tasks(scheduler, at=2.0)

    expected = "b waits for a, which waits for attempt 3 until 90 s (attempt 2 failed: no answer)"
    assert explanation(scheduler, "b", FakeCall()) == expected
    assert explanation(scheduler, "a") == "a runs since 2 s"
    queued_call = FakeCall(1, "scheduled", None, None)
    assert explanation(scheduler, "a", queued_call) == "a waits for a free slot of a worker"
    # The worker died, and no other worker has started the call, so the start of the wait is unknown.
    lost_call = FakeCall(2, "scheduled", "the worker stopped", None)
    expected = "a waits for a worker to take attempt 2 (attempt 1 failed: the worker stopped)"
    assert explanation(scheduler, "a", lost_call) == expected


def test_ready_node_is_explained_by_the_limit_or_pause_that_delays_it() -> None:
    scheduler = started_run(node("a", tool="single"), node("b", tool="single"), node("late"))
    message = "waits for a free slot|1 call of single in progress, and its `max_parallel` is 1"
    assert reasons_in(why(scheduler, "b", calls={}))["b"] == ("limit", message, [])
    apply_command(Pause(Actor("ann", "too early")), scheduler, at=7.0)
    scheduler.complete("a", 1, at=8.0)
    assert explanation(scheduler, "b") == "b is ready, and the run is paused by ann since 7 s (too early)"


def test_map_is_explained_by_its_open_items() -> None:
    map_node = node("each", for_each=["x", "y", "z"], key="{{item}}", arguments={"of": "{{item}}"})
    scheduler = scheduler_of(map_node, node("sum", "each"))
    start_ready_tasks(scheduler, at=1.0)
    scheduler.complete("each[x]", 1, at=2.0)

    expected = "sum waits for each, which waits for 2 of its items since 1 s, each[y] runs since 1 s"
    assert explanation(scheduler, "sum") == expected
    assert [*reasons_in(blocking_chain(scheduler, calls={}))] == ["each[y]", "each[z]"]


def test_reason_of_an_ended_node_has_the_node_and_error_that_caused_its_end() -> None:
    scheduler = started_run(
        node("bad"),
        node("after", "bad"),
        node("last", "after"),
        node("off", when="1 > 2"),
        node("after_off", "off"),
        node("optional", on_error="skip"),
        node("after_optional", "optional"),
    )
    scheduler.fail("bad", tool_error("no such file"), at=3.0)
    scheduler.fail("optional", tool_error("no"), at=4.0)

    expected = "last is blocked by bad at 3 s, which failed at 3 s (tool_failed: no such file)"
    assert explanation(scheduler, "last") == expected
    expected = "after_off was skipped because of off at 0 s, which was skipped at 0 s (its condition is false: 1 > 2)"
    assert explanation(scheduler, "after_off") == expected
    reason = reasons_in(why(scheduler, "after_optional", calls={}))["after_optional"]
    assert reason == ("skipped", "was skipped because of optional|", ["optional"])
    chain = blocking_chain(scheduler, calls={})
    assert [(reason.node_id, reason.facts.get("blocks")) for reason in chain.reasons] == [
        ("bad", 2),
        ("optional", None),
    ]


def test_run_without_failures_is_explained_by_the_nodes_that_were_skipped_first() -> None:
    ship = node("ship", when="approval.result.approved")
    scheduler = run_with_requests(node("approval", human=HUMAN), ship, node("notify", "ship"))
    answer_request(scheduler, "approval", {"approved": False}, by="ann", at=5.0)
    start_ready_tasks(scheduler, at=6.0)

    chain = blocking_chain(scheduler, calls={})

    assert [sentence(chain, start, time_formatter=lambda at: f"{at:g} s") for start in chain.start_reasons()] == [
        "ship was skipped at 5 s (its condition is false: approval.result.approved; approval was rejected by ann)"
    ]


def test_result_is_reported_with_its_sources() -> None:
    scheduler = run_with_requests(
        node("ask", human={"type": "CLARIFICATION", "prompt": "Which?", "assignee": "ann"}),
        node("use", arguments={"text": "{{ask.result.text}} of {{PLACEHOLDER_year}}"}),
        year=2026,
    )
    answer_request(scheduler, "ask", {"text": "this"}, by="bob", note="sure", at=5.0)
    start_ready_tasks(scheduler, at=6.0)
    scheduler.complete("use", {"ok": True}, at=7.0, attempt=Attempt(2, 6.5, "v1"))

    chain = why(scheduler, "use", calls={})

    use_reason, ask_reason = (reason.to_json() for reason in chain.reasons)
    assert use_reason == {
        **{"node_id": "use", "status": "completed", "kind": "completed", "message": "completed", "causes": ["ask"]},
        **{"since": "1970-01-01T00:00:07.000Z", "until": None, "started_at": "1970-01-01T00:00:06.000Z"},
        **{"tool": "any", "tool_version": "v1", "effects": "read", "attempts": 2},
        **{"inputs": {"year": 2026}, "result": {"ok": True}},
    }
    answer = {
        **{"request_id": "ask", "outcome": "answered", "answer": "answered", "by": "bob"},
        **{"source": "signal", "note": "sure"},
        **{"at": "1970-01-01T00:00:05.000Z", "requested_from": "ann", "requested_at": "1970-01-01T00:00:00.000Z"},
        "escalations": [],
    }
    assert (ask_reason["node_id"], ask_reason["result"], ask_reason["answers"]) == ("ask", {"text": "this"}, [answer])


def test_manual_result_is_explained_and_an_error_code_in_the_message_is_not_repeated() -> None:
    scheduler = run_with_requests(node("a"), node("b", "a"))
    start_ready_tasks(scheduler, at=1.0)
    assert apply_command(SetResult("b", 7, Actor("ann")), scheduler, at=2.0) is None
    assert explanation(scheduler, "b") == "b was given its result manually at 2 s"
    scheduler = started_run(node("a"))
    scheduler.fail("a", NodeError("outcome_unknown", "outcome unknown: its worker died"), at=1.0)
    assert why(scheduler, "a", calls={}).reasons[0].detail == "outcome unknown: its worker died"


def test_chain_with_many_reasons_is_cut() -> None:
    many_nodes = [node(f"n{number}") for number in range(300)]
    scheduler = started_run(*many_nodes, node("all", *(plan_node["id"] for plan_node in many_nodes)))

    chain = why(scheduler, "all", calls={})
    assert (len(chain.reasons), chain.omitted) == (200, 101)
    assert chain.reasons[0].message == "waits for n0, n1, n2, n3, n4 and 295 more"


def _error_at_deadline(scheduler: RunScheduler) -> NodeError | None:
    configure(scheduler, deadline=Deadline(0.0, 60.0)).features.deadline.expire(60.0)
    return scheduler.state.error


def test_run_at_its_deadline_reports_running_and_waiting_nodes() -> None:
    human = {"type": "CLARIFICATION", "prompt": "Which\ntown?", "assignee": "ann"}
    nodes = (node("slow"), node("ask", human=human), node("m", for_each=[1, 2, 3]), node("after", "slow"))
    scheduler = started_run(*nodes)
    message = (
        "the run exceeded its deadline; still running: slow, m[0], m[1], 1 more; "
        "waiting: ask (waits for ann: Which town?)"
    )
    assert _error_at_deadline(scheduler) == NodeError("deadline_exceeded", message)
    after_record = record_of(scheduler, "after")
    assert (after_record.status, after_record.reason) == (NodeStatus.CANCELLED, "the run exceeded its deadline")


def test_run_at_its_deadline_reports_whether_it_is_paused() -> None:
    scheduler = scheduler_of(node("a"))
    assert _error_at_deadline(scheduler) == NodeError("deadline_exceeded", "the run exceeded its deadline")
    scheduler = scheduler_of(node("a"))
    apply_command(Pause(Actor("ann")), scheduler, at=1.0)
    message = "the run exceeded its deadline; it was paused"
    assert _error_at_deadline(scheduler) == NodeError("deadline_exceeded", message)
