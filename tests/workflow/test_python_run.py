"""The public class `Run` on the real server: result, events, feedback, commands, fork and explanations."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

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
from tests.support.goals import call_node, goal_plan, plan_text
from tests.support.people import human_node
from tests.support.plan_building import plan_of
from tests.support.python_runs import PythonRuns
from tests.support.runs import Runs
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, ServeScript

pytestmark = pytest.mark.server


@pytest.fixture
def python_runs(runs: Runs, harness: CallHarness, tmp_path: Path) -> PythonRuns:
    return PythonRuns(runs, harness, tmp_path)


async def read_events(run: Run, *, after: str | None = None) -> list[AnyRunEvent]:
    return [event async for event in run.events(after=after)]


def describe(event: AnyRunEvent) -> str:
    """Return a short form of an event, such as `node.completed a`."""
    match event:
        case NodeEvent():
            return f"{event.type} {event.node_id}"
        case FeedbackRequested():
            return f"{event.type} {event.request.request_id}"
        case FeedbackClosed():
            return f"{event.type} {event.request_id}={event.answer}"
    return event.type


def select_durable_events(events: Sequence[AnyRunEvent]) -> list[AnyRunEvent]:
    """Return the events that are in the history of the run. No two of these events have the same cursor."""
    transient_types = ("node.waiting", "node.resumed", "run.waiting", "run.running")
    return [event for event in events if event.type not in transient_types]


async def test_result_has_output_and_nodes_with_values_from_the_store(python_runs: PythonRuns) -> None:
    nodes = (call_node("big", "text", size=3_000_000), call_node("count", "length", text="{{big.result}}"))
    plan = plan_of(*nodes, output={"text": "{{big.result}}", "count": "{{count.result}}"})
    handle = await python_runs.runs.start(plan)
    result = await python_runs.handle_of(handle).result()
    assert (result.run_id, result.status, result.error) == (handle.id, RunStatus.COMPLETED, None)
    assert result.output == {"text": "x" * 3_000_000, "count": 3_000_000}
    expected = [("big", "completed", 1), ("count", "completed", 1)]
    assert [(node_id, node.status.value, node.attempts) for node_id, node in result.nodes.items()] == expected
    assert (len(result.nodes["big"].result), result.nodes["count"].result) == (3_000_000, 3_000_000)
    assert result.started_at is not None
    assert result.ended_at is not None
    assert result.started_at < result.ended_at
    limited_result = await python_runs.handle_of(handle).result(max_bytes=1_000_000)
    assert len(limited_result.output["text"]) == 3_000_000
    assert [node.is_loaded for node in limited_result.nodes.values()] == [False, False]
    with pytest.raises(ValueNotLoaded, match=r"await run\.node\('big'\)"):
        _ = limited_result.nodes["big"].result
    assert len((await python_runs.handle_of(handle).node("big")).result) == 3_000_000
    assert [(node.node_id, node.is_loaded) async for node in python_runs.handle_of(handle).nodes()] == [
        ("big", True),
        ("count", True),
    ]


async def test_items_of_a_map_are_results_of_their_node(python_runs: PythonRuns) -> None:
    node = {**call_node("load", "echo", name="{{item}}"), "for_each": ["a", "b"]}
    result = await (await python_runs.start(plan_of(node))).result()
    assert [*result.nodes] == ["load"]
    expected = [("0", {"name": "a"}), ("1", {"name": "b"})]
    assert [(key, item.result) for key, item in result.nodes["load"].items.items()] == expected
    assert result.nodes["load[1]"].result == {"name": "b"}
    with pytest.raises(KeyError, match="did you mean 'load'"):
        _ = result.nodes["laod"]


async def test_result_of_a_failed_or_cancelled_run_raises(python_runs: PythonRuns, gate: Gate) -> None:
    failing_node = call_node("b", "give_up", message="out of stock")
    failed_run = await python_runs.start(plan_of(call_node("a", "echo", x=1), {**failing_node, "depends_on": ["a"]}))
    with pytest.raises(RunFailed, match="'b' failed: out of stock") as failure:
        await failed_run.result()
    [problem] = failure.value.failures
    assert (problem.node_id, problem.message) == ("b", "out of stock")
    assert failure.value.result.nodes["a"].result == {"x": 1}
    failed_result = await failed_run.result(raise_on_failure=False)
    assert (failed_result.status, failed_result.error and failed_result.error.node_id) == (RunStatus.FAILED, "b")
    run_without_output = await python_runs.start(plan_of(call_node("a", "echo", x=1), output="{{a.result.y}}"))
    with pytest.raises(RunFailed, match=r"output: Missing data: a\.result\.y: 'y' not found"):
        await run_without_output.result()
    partial_result = await (await python_runs.start(plan_of(call_node("a", "echo", x=1), failing_node))).result()
    expected = (RunStatus.COMPLETED_WITH_FAILURES, ["b"])
    assert (partial_result.status, [problem.node_id for problem in partial_result.failures]) == expected
    run = await python_runs.start(plan_of(call_node("a", "hold", name=gate.name)))
    await gate.wait_for_call()
    assert await run.status() == RunStatus.RUNNING
    await run.cancel(reason="not needed", by="ann")
    with pytest.raises(RunCancelled) as cancellation:
        await run.result()
    assert cancellation.value.result.nodes["a"].status == "cancelled"
    with pytest.raises(RunClosed, match="has ended"):
        await run.pause()


async def test_events_continue_from_every_cursor_without_a_gap(python_runs: PythonRuns, gate: Gate) -> None:
    nodes = [
        call_node("a", "echo", x=1),
        {**human_node("check"), "depends_on": ["a"]},
        {**call_node("b", "hold", name=gate.name), "depends_on": ["check"]},
        {**call_node("c", "plus", left=1, right=2), "depends_on": ["b"]},
    ]
    handle = await python_runs.runs.start(plan_of(*nodes))
    live_events: list[AnyRunEvent] = []
    async for event in python_runs.handle_of(handle).events():
        live_events.append(event)
        if isinstance(event, FeedbackRequested):
            expected = ("APPROVAL", "What of check?", handle.id)
            assert (event.request.type, event.request.prompt, event.request.run_id) == expected
            assert "is answered" in await event.request.answer(approved=True, by="ann")
        elif describe(event) == "node.started b":
            gate.open()
    durable_events = select_durable_events(live_events)
    assert [describe(event) for event in durable_events] == [
        *("run.started", "node.started a", "node.completed a", "node.started check", "feedback.requested check"),
        *("feedback.answered check=approved", "node.completed check", "node.started b", "node.completed b"),
        *("node.started c", "node.completed c", "run.completed"),
    ]
    assert len({event.cursor for event in durable_events}) == len(durable_events)
    for index, event in enumerate(durable_events):
        remaining_events = await read_events(python_runs.handle_of(handle), after=event.cursor)
        assert [describe(remaining_event) for remaining_event in select_durable_events(remaining_events)] == [
            describe(later_event) for later_event in durable_events[index + 1 :]
        ], event
    [completed_event] = [
        event for event in live_events if isinstance(event, RunStatusEvent) and event.type == "run.completed"
    ]
    assert completed_event.status == RunStatus.COMPLETED
    assert {
        "type": "run.completed",
        "run_id": handle.id,
        "status": "completed",
    }.items() <= completed_event.to_json().items()


async def test_feedback_answers_requests_of_every_type(python_runs: PythonRuns) -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    nodes = [
        human_node("amount", "INFORMATION", schema=schema),
        human_node("size", "SELECTION", options=["small", "large"]),
        human_node("words", "CLARIFICATION"),
        human_node("allowed"),
    ]
    run = await python_runs.start(plan_of(*nodes))

    async def has_requests() -> bool:
        return len(await run.feedback_requests()) == 4

    await eventually(has_requests)
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


async def test_commands_pause_extend_and_limit_a_run(
    python_runs: PythonRuns, harness: CallHarness, unique_name: str
) -> None:
    nodes = [
        call_node("a", "hold", name=unique_name),
        call_node("slow", "hold", name=f"{unique_name} slow"),
        call_node("broken", "give_up"),
    ]
    run = await python_runs.start(plan_of(*nodes))
    await eventually(lambda: {unique_name, f"{unique_name} slow"} <= {*harness.entered})
    assert "paused" in await run.pause(reason="a look", by="ann")
    with pytest.raises(CommandRejected, match="paused already"):
        await run.pause()
    assert "added" in await run.add_nodes([{**call_node("sum", "plus", left=1, right=2), "depends_on": ["a"]}])
    with pytest.raises(PlanInvalid, match="there_is_no_such_tool"):
        await run.add_nodes([call_node("other", "there_is_no_such_tool")])
    harness.open(unique_name)
    await run.resume()
    await run.cancel_node("slow", reason="takes too long")
    await run.set_limits(max_parallel=3)
    with pytest.raises(NodeNotFound, match="did you mean 'slow'"):
        await run.node("slwo")
    result = await run.result(raise_on_failure=False)
    assert result.nodes["sum"].result == 3
    assert (result.nodes["slow"].status, result.nodes["broken"].status) == ("cancelled", "failed")


async def test_failed_node_can_be_retried_or_set_to_a_result(python_runs: PythonRuns, gate: Gate) -> None:
    nodes = [
        call_node("a", "hold", name=gate.name),
        call_node("b", "give_up"),
        call_node("c", "fail_at_first_call", name=gate.name),
    ]
    run = await python_runs.start(plan_of(*nodes, output={"b": "{{b.result}}", "c": "{{c.result}}"}))

    async def have_failed() -> bool:
        nodes = (await run.snapshot()).nodes
        return len(nodes) == 3 and {nodes["b"].status, nodes["c"].status} == {"failed"}

    await eventually(have_failed)
    await run.set_result("b", {"amount": 2}, reason="counted manually", by="ann")
    await run.retry("c", by="ann")
    gate.open()
    assert (await run.result()).output == {"b": {"amount": 2}, "c": gate.name}
    expected = ["node.started c", "node.completed c"]
    assert [describe(event) for event in await read_events(run) if describe(event).endswith(" c")] == expected
    assert [(override["command"], override["by"]) for override in (await run.lineage("b")).overrides] == [
        ("set_result", "ann")
    ]


async def test_fork_reuses_results_that_the_changed_plan_does_not_affect(python_runs: PythonRuns) -> None:
    nodes = [call_node("a", "plus", left=1, right=2), call_node("b", "plus", left="{{a.result}}", right=10)]
    run = await python_runs.start(plan_of(*nodes, output="{{b.result}}"))
    assert (await run.result()).output == 13
    changed_plan = plan_of(nodes[0], call_node("b", "plus", left="{{a.result}}", right=20), output="{{b.result}}")
    preview = await run.preview_fork(changed_plan)
    assert (preview.reused, [*preview.executed]) == (("a",), ["b"])
    fork = await run.fork(changed_plan)
    assert fork.id == (await run.fork(changed_plan)).id == preview.fork_run_id
    with pytest.raises(RunIdInUse, match=f"^the fork '{fork.id}' was started with other tags; choose another id"):
        await run.fork(changed_plan, tags={"team": "blue"})
    assert (await fork.result()).output == 23
    assert (await fork.lineage("a")).reused is not None
    python_runs.runs.include_in_checks(python_runs.runs.client.get_workflow_handle(fork.id))


async def test_explanation_of_a_blocked_node_names_its_failed_dependency(python_runs: PythonRuns) -> None:
    nodes = [call_node("a", "give_up", message="out of stock"), call_node("b", "echo", x="{{a.result}}")]
    run = await python_runs.start(plan_of(*nodes))
    await run.result(raise_on_failure=False)
    explanation = await run.explain("b")
    assert [(reason.node_id, reason.kind) for reason in explanation.chain] == [("b", "blocked"), ("a", "failed")]
    assert "out of stock" in str(explanation)
    assert (await run.explain()).status == RunStatus.FAILED
    lineage = await run.lineage("b")
    assert (lineage.inputs, lineage.tool, lineage.effects) == (("a",), "echo", "read")


async def test_every_method_reports_an_unknown_run(python_runs: PythonRuns) -> None:
    run = python_runs.handle_of("unknown-run")
    methods: Sequence[Callable[[], Awaitable[object]]] = (
        *(run.status, run.result, run.watch, run.snapshot, run.document, run.ui_url, lambda: run.node("a")),
        *(lambda: anext(run.nodes()), run.feedback_requests, lambda: run.feedback("a", approved=True), run.cancel),
        *(run.pause, run.resume, lambda: run.cancel_node("a"), lambda: run.cancel_node("a/b"), lambda: run.retry("a")),
        *(lambda: run.set_result("a", 1), lambda: run.add_nodes([call_node("b", "plus", left=1, right=2)])),
        *(lambda: run.set_limits(max_parallel=2), lambda: run.set_policy({"rules": []}), run.fork, run.preview_fork),
        *(run.explain, lambda: run.lineage("a"), run.draw),
    )
    for method in methods:
        with pytest.raises(RunNotFound, match="'unknown-run'"):
            await method()
    with pytest.raises(RunNotFound, match="'unknown-run'"):
        await read_events(run)


async def test_text_of_a_model_continues_from_a_cursor(
    serve_script: ServeScript, harness: CallHarness, tmp_path: Path
) -> None:
    answer_text = "Oslo has rain today, and Bergen has more of it: take a coat, good shoes."
    release_event = asyncio.Event()
    script = (
        plan_text(call_node("one", "echo", text="rain")),
        slow(
            json_text({"answer": answer_text, "missing": []}),
            chunk_characters=7,
            held_after_chunks=6,
            release_event=release_event,
        ),
    )
    async with serve_script(*script) as (_, runs):
        handle = await runs.start_compiled_plan(goal_plan(runs, "What is the weather?", "echo"))
        run = PythonRuns(runs, harness, tmp_path).handle_of(handle)
        first_text = ""
        async with aclosing(run.events(text=True)) as events:
            async for event in events:
                first_text += event.text if isinstance(event, TextDelta) else ""
                if first_text:
                    break
        release_event.set()
        remaining_events = [
            event
            async for event in PythonRuns(runs, harness, tmp_path)
            .handle_of(handle)
            .events(after=event.cursor, text=True)
        ]
        deltas = [event for event in remaining_events if isinstance(event, TextDelta)]
        assert first_text + "".join(delta.text for delta in deltas) == answer_text
        assert not any(delta.starts_over for delta in deltas)
        assert remaining_events[-1].type == "run.completed"
        last_events = [event async for event in run.events(after=remaining_events[-1].cursor, text=True)]
    assert last_events == []
