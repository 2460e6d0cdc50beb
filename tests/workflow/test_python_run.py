"""The public handle of a run on the real server: result, events, feedback, steering, fork and reports."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from dagwright.client.errors import CommandRejected, FeedbackRejected, RunIdInUse
from dagwright.client.events import AnyRunEvent, FeedbackClosed, FeedbackRequested, NodeEvent, RunStatusEvent, TextDelta
from dagwright.client.results import RunCancelled, RunFailed, ValueNotLoaded
from dagwright.client.run import Run
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.states import RunStatus
from dagwright.history.executions import NodeNotFound, RunClosed, RunNotFound
from dagwright.testing import json_text, slow
from tests.support.eventually import eventually
from tests.support.goals import goal, plan_text
from tests.support.python_runs import PythonRuns
from tests.support.runs import Runs
from tests.support.tools import Bench
from tests.workflow.building import Scripted

pytestmark = pytest.mark.server


@pytest.fixture
def python(runs: Runs, bench: Bench, tmp_path: Path) -> PythonRuns:
    return PythonRuns(runs, bench, tmp_path)


def call(node_id: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": tool, "arguments": arguments}


def plan(*nodes: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"plan": 1, "nodes": list(nodes), **more}


def asks(node_id: str, kind: str = "APPROVAL", **more: Any) -> dict[str, Any]:
    return {"id": node_id, "human": {"type": kind, "prompt": "Well?", **more}}


async def events_of(run: Run, *, after: str | None = None) -> list[AnyRunEvent]:
    return [event async for event in run.events(after=after)]


def description(event: AnyRunEvent) -> str:
    """Return an event in short: `node.completed a`."""
    match event:
        case NodeEvent():
            return f"{event.type} {event.node_id}"
        case FeedbackRequested():
            return f"{event.type} {event.request.id}"
        case FeedbackClosed():
            return f"{event.type} {event.request_id}={event.answer}"
    return event.type


def durable_of(events: Sequence[AnyRunEvent]) -> list[AnyRunEvent]:
    """Return the events that are never repeated after a cursor: those of the history of the run."""
    passing = ("node.waiting", "node.resumed", "run.waiting", "run.running")
    return [event for event in events if event.type not in passing]


async def test_result_has_output_and_nodes_with_values_from_the_store(python: PythonRuns) -> None:
    nodes = (call("big", "text", size=3_000_000), call("count", "length", text="{{big.result}}"))
    handle = await python.runs.start(plan(*nodes, output={"text": "{{big.result}}", "count": "{{count.result}}"}))
    result = await python.of(handle).result()
    assert (result.run_id, result.status, result.error) == (handle.id, RunStatus.COMPLETED, None)
    assert result.output == {"text": "x" * 3_000_000, "count": 3_000_000}
    expected = [("big", "completed", 1), ("count", "completed", 1)]
    assert [(name, node.status.value, node.attempts) for name, node in result.nodes.items()] == expected
    assert (len(result.nodes["big"].result), result.nodes["count"].result) == (3_000_000, 3_000_000)
    assert result.started_at is not None
    assert result.ended_at is not None
    assert result.started_at < result.ended_at
    bounded = await python.of(handle).result(max_bytes=1_000_000)
    assert len(bounded.output["text"]) == 3_000_000
    assert [node.is_loaded for node in bounded.nodes.values()] == [False, False]
    with pytest.raises(ValueNotLoaded, match=r"await run\.node\('big'\)"):
        _ = bounded.nodes["big"].result
    assert len((await python.of(handle).node("big")).result) == 3_000_000
    assert [(node.id, node.is_loaded) async for node in python.of(handle).nodes()] == [("big", True), ("count", True)]


async def test_items_of_a_map_are_in_their_node(python: PythonRuns) -> None:
    node = {**call("load", "echo", name="{{item}}"), "for_each": ["a", "b"]}
    result = await python.of(await python.runs.start(plan(node))).result()
    assert [*result.nodes] == ["load"]
    expected = [("0", {"name": "a"}), ("1", {"name": "b"})]
    assert [(key, item.result) for key, item in result.nodes["load"].items.items()] == expected
    assert result.nodes["load[1]"].result == {"name": "b"}
    with pytest.raises(KeyError, match="did you mean 'load'"):
        _ = result.nodes["laod"]


async def test_failed_and_cancelled_runs_raise_with_their_result(python: PythonRuns, bench: Bench, unique: str) -> None:
    broken = call("b", "give_up", message="out of stock")
    handle = await python.runs.start(plan(call("a", "echo", x=1), {**broken, "depends_on": ["a"]}))
    with pytest.raises(RunFailed, match="'b' failed: out of stock") as failed:
        await python.of(handle).result()
    [problem] = failed.value.problems
    assert (problem.node, problem.message) == ("b", "out of stock")
    assert failed.value.result.nodes["a"].result == {"x": 1}
    unchecked = await python.of(handle).result(raise_on_failure=False)
    assert (unchecked.status, unchecked.error and unchecked.error.node) == (RunStatus.FAILED, "b")
    without_output = python.of(await python.runs.start(plan(call("a", "echo", x=1), output="{{a.result.y}}")))
    with pytest.raises(RunFailed, match=r"output: Missing data: a\.result\.y: 'y' not found"):
        await without_output.result()
    partly = await python.of(await python.runs.start(plan(call("a", "echo", x=1), broken))).result()
    assert (partly.status, [problem.node for problem in partly.problems]) == (RunStatus.COMPLETED_WITH_FAILURES, ["b"])
    held = await python.runs.start(plan(call("a", "hold", name=unique)))
    run = python.of(held)
    await eventually(lambda: unique in bench.entered)
    assert await run.status() == RunStatus.RUNNING
    await run.cancel(reason="not needed", by="ann")
    with pytest.raises(RunCancelled) as cancelled:
        await run.result()
    assert cancelled.value.result.nodes["a"].status == "cancelled"
    with pytest.raises(RunClosed, match="has ended"):
        await run.pause()


async def test_events_continue_from_every_cursor_without_gap(python: PythonRuns, bench: Bench, unique: str) -> None:
    nodes = [
        call("a", "echo", x=1),
        {**asks("check"), "depends_on": ["a"]},
        {**call("b", "hold", name=unique), "depends_on": ["check"]},
        {**call("c", "plus", left=1, right=2), "depends_on": ["b"]},
    ]
    handle = await python.runs.start(plan(*nodes))
    live: list[AnyRunEvent] = []
    async for event in python.of(handle).events():
        live.append(event)
        if isinstance(event, FeedbackRequested):
            assert (event.request.type, event.request.prompt, event.request.run_id) == ("APPROVAL", "Well?", handle.id)
            assert "is answered" in await event.request.answer(approved=True, by="ann")
        elif description(event) == "node.started b":
            bench.open(unique)
    durable = durable_of(live)
    assert [description(each) for each in durable] == [
        *("run.started", "node.started a", "node.completed a", "node.started check", "feedback.requested check"),
        *("feedback.answered check=approved", "node.completed check", "node.started b", "node.completed b"),
        *("node.started c", "node.completed c", "run.completed"),
    ]
    assert len({each.cursor for each in durable}) == len(durable)
    for place, event in enumerate(durable):
        rest = await events_of(python.of(handle), after=event.cursor)
        assert [description(each) for each in durable_of(rest)] == [
            description(each) for each in durable[place + 1 :]
        ], event
    [end] = [each for each in live if isinstance(each, RunStatusEvent) and each.type == "run.completed"]
    assert end.status == RunStatus.COMPLETED
    assert {"type": "run.completed", "run_id": handle.id, "status": "completed"}.items() <= end.to_json().items()


async def test_feedback_answers_requests_by_their_type(python: PythonRuns) -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    nodes = [
        asks("amount", "INFORMATION", schema=schema),
        asks("size", "SELECTION", options=["small", "large"]),
        asks("words", "CLARIFICATION"),
        asks("allowed"),
    ]
    handle = await python.runs.start(plan(*nodes))
    run = python.of(handle)

    async def is_asking() -> bool:
        return len(await run.feedback_requests()) == 4

    await eventually(is_asking)
    with pytest.raises(FeedbackRejected, match=r"name one: .*amount"):
        await run.feedback(approved=True)
    with pytest.raises(FeedbackRejected, match="amount"):
        await run.feedback("amount", data={"amount": "many"})
    with pytest.raises(FeedbackRejected, match="exclude each other"):
        await run.feedback("amount", data={"amount": 3}, approved=True)
    with pytest.raises(TypeError, match="did you mean 'approved'"):
        await run.feedback("allowed", aproved=True)  # type: ignore[call-arg]
    await run.feedback("amount", data={"amount": 3})
    await run.feedback("size", selected="large", note="as always")
    await run.feedback("words", text="as soon as possible")
    with pytest.raises(FeedbackRejected, match="'size' was answered by"):
        await run.feedback("size", selected="small")
    await run.feedback(approved=False, reason="too expensive", by="ann")
    result = await run.result(raise_on_failure=False)
    with pytest.raises(FeedbackRejected, match="has ended"):
        await run.feedback("allowed", approved=True)
    assert result.nodes["amount"].result == {"data": {"amount": 3}}
    assert result.nodes["size"].result["selected"] == ["large"]
    lineage = await run.lineage("allowed")
    assert [(answer["answer"], answer["by"]) for answer in lineage.answers] == [("rejected", "ann")]


async def test_run_is_steered(python: PythonRuns, bench: Bench, unique: str) -> None:
    nodes = [call("a", "hold", name=unique), call("slow", "hold", name=f"{unique} slow"), call("broken", "give_up")]
    handle = await python.runs.start(plan(*nodes))
    run = python.of(handle)
    await eventually(lambda: {unique, f"{unique} slow"} <= {*bench.entered})
    assert "paused" in await run.pause(reason="a look", by="ann")
    with pytest.raises(CommandRejected, match="paused already"):
        await run.pause()
    assert "added" in await run.add_nodes([{**call("sum", "plus", left=1, right=2), "depends_on": ["a"]}])
    with pytest.raises(PlanInvalid, match="there_is_no_such_tool"):
        await run.add_nodes([call("other", "there_is_no_such_tool")])
    bench.open(unique)
    await run.resume()
    await run.cancel_node("slow", reason="takes too long")
    await run.set_limits(max_parallel=3)
    with pytest.raises(NodeNotFound, match="did you mean 'slow'"):
        await run.node("slwo")
    result = await run.result(raise_on_failure=False)
    assert result.nodes["sum"].result == 3
    assert (result.nodes["slow"].status, result.nodes["broken"].status) == ("cancelled", "failed")


async def test_failed_node_is_retried_or_given_its_result(python: PythonRuns, bench: Bench, unique: str) -> None:
    nodes = [call("a", "hold", name=unique), call("b", "give_up"), call("c", "second_time", name=unique)]
    handle = await python.runs.start(plan(*nodes, output={"b": "{{b.result}}", "c": "{{c.result}}"}))
    run = python.of(handle)

    async def have_failed() -> bool:
        nodes = (await run.snapshot()).nodes
        return len(nodes) == 3 and {nodes["b"].status, nodes["c"].status} == {"failed"}

    await eventually(have_failed)
    await run.set_result("b", {"given": True}, reason="known", by="ann")
    await run.retry("c", by="ann")
    bench.open(unique)
    result = await run.result()
    assert result.output == {"b": {"given": True}, "c": unique}
    expected = ["node.started c", "node.completed c"]
    assert [description(event) for event in await events_of(run) if description(event).endswith(" c")] == expected
    assert [(step["command"], step["by"]) for step in (await run.lineage("b")).commands] == [("set_result", "ann")]


async def test_fork_reuses_what_a_change_does_not_affect(python: PythonRuns) -> None:
    nodes = [call("a", "plus", left=1, right=2), call("b", "plus", left="{{a.result}}", right=10)]
    handle = await python.runs.start(plan(*nodes, output="{{b.result}}"))
    run = python.of(handle)
    assert (await run.result()).output == 13
    other = plan(nodes[0], call("b", "plus", left="{{a.result}}", right=20), output="{{b.result}}")
    preview = await run.preview_fork(other)
    assert (preview.reused, [*preview.runs]) == (("a",), ["b"])
    fork = await run.fork(other)
    again = await run.fork(other)
    assert fork.id == again.id == preview.run_id
    with pytest.raises(RunIdInUse, match=f"^the fork '{fork.id}' was started with other tags; choose another id"):
        await run.fork(other, tags={"team": "blue"})
    result = await fork.result()
    assert result.output == 23
    assert (await fork.lineage("a")).reused is not None
    python.runs.take(python.runs.client.get_workflow_handle(fork.id))


async def test_explanation_and_lineage_of_nodes(python: PythonRuns) -> None:
    nodes = [call("a", "give_up", message="out of stock"), call("b", "echo", x="{{a.result}}")]
    run = python.of(await python.runs.start(plan(*nodes)))
    await run.result(raise_on_failure=False)
    explanation = await run.explain("b")
    assert [(reason.node, reason.kind) for reason in explanation.reasons] == [("b", "blocked"), ("a", "failed")]
    assert "out of stock" in str(explanation)
    assert (await run.explain()).status == RunStatus.FAILED
    lineage = await run.lineage("b")
    assert (lineage.inputs, lineage.tool, lineage.effects) == (("a",), "echo", "read")


async def test_unknown_run_is_named_by_every_method(python: PythonRuns) -> None:
    run = python.of("there is none")
    attempts: Sequence[Callable[[], Awaitable[object]]] = (
        *(run.status, run.result, run.watch, run.snapshot, run.document, run.url, lambda: run.node("a")),
        *(lambda: anext(run.nodes()), run.feedback_requests, lambda: run.feedback("a", approved=True), run.cancel),
        *(run.pause, run.resume, lambda: run.cancel_node("a"), lambda: run.cancel_node("a/b"), lambda: run.retry("a")),
        *(lambda: run.set_result("a", 1), lambda: run.add_nodes([call("b", "plus", left=1, right=2)])),
        *(lambda: run.set_limits(max_parallel=2), lambda: run.set_policy({"rules": []}), run.fork, run.preview_fork),
        *(run.explain, lambda: run.lineage("a"), run.draw),
    )
    for attempt in attempts:
        with pytest.raises(RunNotFound, match="'there is none'"):
            await attempt()
    with pytest.raises(RunNotFound, match="'there is none'"):
        await events_of(run)


async def test_text_of_a_model_continues_from_a_cursor(serve_script: Scripted, bench: Bench, tmp_path: Path) -> None:
    words_of_model = "Oslo has rain today, and Bergen has more of it: take a coat, good shoes."
    released = asyncio.Event()
    script = (
        plan_text(call("one", "echo", said="rain")),
        slow(json_text({"answer": words_of_model, "missing": []}), characters=7, held_after=6, released=released),
    )
    async with serve_script(*script) as (_, runs):
        handle = await runs.start_compiled_plan(goal(runs, "What is the weather?", "echo"))
        run = PythonRuns(runs, bench, tmp_path).of(handle)
        started = ""
        async with aclosing(run.events(text=True)) as events:
            async for event in events:
                started += event.text if isinstance(event, TextDelta) else ""
                if started:
                    break
        released.set()
        rest = [
            event async for event in PythonRuns(runs, bench, tmp_path).of(handle).events(after=event.cursor, text=True)
        ]
        deltas = [each for each in rest if isinstance(each, TextDelta)]
        assert started + "".join(each.text for each in deltas) == words_of_model
        assert not any(each.starts_over for each in deltas)
        assert rest[-1].type == "run.completed"
        last = [event async for event in run.events(after=rest[-1].cursor, text=True)]
    assert last == []
