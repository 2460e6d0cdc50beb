"""Compensation: a run that does not complete undoes its calls in reverse order, also after continue-as-new."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from dagwright.core.boundary import limits
from dagwright.core.model.policy import ASK_FOR_CHANGES, Policy, Rule
from dagwright.core.scheduler import map_items
from dagwright.history.run_reader import RunReader
from dagwright.settings import Settings
from dagwright.store.folder import FolderStore
from dagwright.testing import ModelServer
from tests.support.agents import model_settings
from tests.support.eventually import eventually
from tests.support.goals import call_node, goal_plan, plan_text
from tests.support.ledger import Ledger
from tests.support.people import tool_node
from tests.support.run_views import view_of
from tests.support.runs import (
    Document,
    Runs,
    chain_of,
    checked_runs,
    document_of,
    end_of,
    scheduled_calls,
    serving_runs,
)
from tests.support.tools import CallHarness

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", autouse=True)
def small_map_batches() -> Iterator[None]:
    """Split small maps into child runs too."""
    with patch.object(map_items, "MAP_BATCH_ITEMS", 10):
        yield


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    """Changes made by the tools of these tests. The step `+a` is the change `a`, and `-a` is its compensation."""
    return Ledger()


@pytest.fixture(scope="module")
async def served_runs(
    client: Client, harness: CallHarness, ledger: Ledger, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runs]:
    settings = Settings(state_dir=tmp_path_factory.mktemp("ledger"))
    registry = harness.registry().merge(ledger.registry())
    async with serving_runs(client, registry, settings=settings) as runs:
        yield runs


def ledger_node(
    node_id: str, unique_name: str, *dependencies: str, tool: str = "make", **fields: Any
) -> dict[str, Any]:
    """Return a node that calls a tool of `Ledger`."""
    return {
        "id": node_id,
        "tool": tool,
        "arguments": {"name": f"{unique_name}:{node_id}"},
        "depends_on": list(dependencies),
        **fields,
    }


def failing_node(*dependencies: str) -> dict[str, Any]:
    return tool_node("refuse", "refuse", *dependencies)


def plan_of(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"nodes": list(nodes), **fields}


def node_statuses(document: Document) -> dict[str, str]:
    return {node_id: node["status"] for node_id, node in document["nodes"].items()}


async def test_failed_run_compensates_its_calls_in_reverse_order(runs: Runs, ledger: Ledger, unique_name: str) -> None:
    node_b = ledger_node("b", unique_name)
    node_b["arguments"]["after"] = "{{a.result.id}}"
    handle = await runs.start(plan_of(ledger_node("a", unique_name), node_b, failing_node("b")), compensate=True)
    document = await document_of(handle)
    assert ledger.steps_of(unique_name) == ["+a", "+b", "-b", "-a"]
    assert ledger.undo_arguments[f"{unique_name}:b"] == {
        "arguments": {"name": f"{unique_name}:b", "after": f"{unique_name}:a"},
        "result": {"id": f"{unique_name}:b"},
    }
    expected = {"a": "completed", "b": "completed", "refuse": "failed", "undo b": "completed", "undo a": "completed"}
    assert node_statuses(document) == expected
    assert (document["status"], document["output"]) == ("failed", None)
    message = "compensated 2 calls"
    assert document["error"]["message"] == f"'refuse' failed: no; {message}"
    assert document["notes"] == [{"code": "compensated", "node_id": None, "message": message}]
    assert document["nodes"]["undo a"]["compensates"] == "a"
    compensated_by = {
        name: node["compensated_by"] for name, node in document["nodes"].items() if "compensated_by" in node
    }
    assert compensated_by == {"a": "undo a", "b": "undo b"}
    assert end_of(await handle.fetch_history()) == "failed"
    view = await view_of(runs, handle)
    assert node_statuses(view.document_with_refs()) == node_statuses(document)
    # The counts include the nodes of the plan, but no compensation nodes.
    assert (view.nodes_done, view.nodes_total) == (3, 3)


async def test_fail_fast_prevents_the_calls_that_later_workflow_tasks_would_schedule(
    runs: Runs, ledger: Ledger, unique_name: str
) -> None:
    arguments = {"name": unique_name, "value": "{{PLACEHOLDER_large}}"}
    large_nodes = [tool_node(f"n{n}", "short", "a", arguments=arguments) for n in range(40)]
    plan = plan_of(
        ledger_node("a", unique_name), failing_node("a"), *large_nodes, inputs={"large": {}}, on_failure="fail_fast"
    )
    handle = await runs.start(plan, inputs={"large": "x" * 240_000}, compensate=True)
    await document_of(handle)
    assert ledger.steps_of(unique_name) == ["+a", "-a"]
    tools = [scheduled_call.activity_type.name for scheduled_call in scheduled_calls(await handle.fetch_history())]
    assert tools[-1] == "unmake"
    assert tools.count("short") < 40, "the failure comes before the last call"


async def test_cancellation_through_temporal_ends_the_run_without_compensation(
    runs: Runs, ledger: Ledger, unique_name: str
) -> None:
    plan = plan_of(
        ledger_node("a", unique_name), ledger_node("b", unique_name, "a", tool="make_and_hold", heartbeat="1s")
    )
    handle = await runs.start(plan, compensate=True)
    await eventually(lambda: f"{unique_name}:b" in ledger.entered)
    await handle.cancel()
    document = await document_of(handle)
    assert (document["status"], node_statuses(document)) == ("cancelled", {"a": "completed", "b": "cancelled"})
    assert ledger.steps_of(unique_name) == ["+a", "+b"]
    assert [note["message"] for note in document["notes"]][-2:] == [
        "'a' was not compensated: the run was stopped immediately",
        "'b' was not compensated: the run was stopped immediately",
    ]
    assert node_statuses((await view_of(runs, handle)).document_with_refs()) == node_statuses(document)


def sub_plan(node_id: str, *nodes: dict[str, Any], dependencies: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"id": node_id, "plan": {"plan": 1, "nodes": list(nodes)}, "depends_on": list(dependencies)}


async def test_calls_of_sub_plans_are_compensated_in_order(runs: Runs, ledger: Ledger, unique_name: str) -> None:
    inner_sub_plan = sub_plan("inner", ledger_node("c", unique_name))
    outer_sub_plan = sub_plan(
        "child", ledger_node("b", unique_name), {**inner_sub_plan, "depends_on": ["b"]}, dependencies=("a",)
    )
    reading_sub_plan = sub_plan("reading", call_node("r", "echo", value=1))
    handle = await runs.start(
        plan_of(
            ledger_node("a", unique_name),
            outer_sub_plan,
            ledger_node("d", unique_name, "child"),
            reading_sub_plan,
            failing_node("d", "reading"),
        ),
        compensate=True,
    )
    document = await document_of(handle)
    assert ledger.steps_of(unique_name) == ["+a", "+b", "+c", "+d", "-d", "-c", "-b", "-a"]
    assert [name for name in document["nodes"] if name.startswith("undo")] == ["undo d", "undo child", "undo a"]
    assert document["error"]["message"].endswith("compensated 3 calls")
    # The child reports its end to the parent before it closes.
    child_view = [view async for view in RunReader(runs.client, f"{handle.id}/undo child").follow()][-1]
    fields = child_view.document_with_refs()
    assert (fields["status"], fields["error"], fields["output"]) == ("completed", None, None)
    assert node_statuses(fields) == {
        "b": "completed",
        "inner": "completed",
        "undo inner": "completed",
        "undo b": "completed",
    }


async def test_failed_and_cancelled_sub_plans_are_compensated(runs: Runs, ledger: Ledger, unique_name: str) -> None:
    failing_sub_plan = sub_plan("child", ledger_node("b", unique_name), failing_node("b"), dependencies=("a",))
    plan = plan_of(ledger_node("a", unique_name), failing_sub_plan)
    document = await document_of(await runs.start(plan, compensate=True))
    assert ledger.steps_of(unique_name) == ["+a", "+b", "-b", "-a"]
    assert node_statuses(document)["undo child"] == "completed"
    held_sub_plan = sub_plan(
        "held", ledger_node("x", unique_name), ledger_node("y", unique_name, "x", tool="make_and_hold", heartbeat="1s")
    )
    handle = await runs.start(plan_of(held_sub_plan), compensate=True)
    await eventually(lambda: f"{unique_name}:y" in ledger.entered)
    await handle.signal("cancel", {})
    assert (await document_of(handle))["status"] == "cancelled"
    assert end_of(await handle.fetch_history()) == "canceled"
    assert ledger.steps_of(unique_name)[4:] == ["+x", "+y", "-y", "-x"]


async def test_items_of_a_large_map_are_compensated(runs: Runs, ledger: Ledger, unique_name: str) -> None:
    item_count = 21
    map_node = tool_node(
        "m",
        "make",
        for_each=list(range(item_count)),
        arguments={"name": f"{unique_name}:{{{{item}}}}", "after": "{{first.result.id}}"},
    )
    plan = plan_of(ledger_node("first", unique_name), map_node, failing_node("m"))
    document = await document_of(await runs.start(plan, compensate=True))
    first_step, *steps, last_step = ledger.steps_of(unique_name)
    assert (first_step, last_step) == ("+first", "-first")
    assert sorted(steps[:item_count]) == sorted(f"+{number}" for number in range(item_count))
    assert sorted(steps[item_count:]) == sorted(f"-{number}" for number in range(item_count))
    undo_statuses = {name: status for name, status in node_statuses(document).items() if name.startswith("undo m[")}
    assert len(undo_statuses) > 1
    assert set(undo_statuses.values()) == {"completed"}


_ALLOW_MAKE = Policy((Rule("run", tool="make"), *ASK_FOR_CHANGES.rules))
"""Policy that lets a model call `make`. By default, each planned call with effects needs an approval."""


async def test_failed_text_request_compensates_its_plan(
    client: Client, ledger: Ledger, tmp_path: Path, unique_name: str
) -> None:
    plan = plan_text(
        call_node("a", "make", name=f"{unique_name}:a"),
        call_node("b", "make", name=f"{unique_name}:b", after="{{a.result.id}}"),
        call_node("c", "refuse", message="no", after="{{b.result}}"),
    )
    async with (
        ModelServer(plan, "I could not.") as server,
        checked_runs(client, ledger.registry(), settings=model_settings(server, tmp_path)) as runs,
    ):
        plan_of_goal = goal_plan(runs, "Make a and b.", "make", "unmake", "refuse", max_replans=0)
        assert "unmake" not in json.dumps(plan_of_goal.nodes[0].arguments["messages"])
        document = await document_of(await runs.start_compiled_plan(plan_of_goal, compensate=True, policy=_ALLOW_MAKE))
    assert (document["status"], document["error"]["code"]) == ("failed", "not_completed")
    assert ledger.steps_of(unique_name) == ["+a", "+b", "-b", "-a"]
    assert [*document["nodes"]][-2:] == ["undo b", "undo a"]


@pytest.mark.usefixtures("low_history_limits")
async def test_compensation_continues_as_new(
    short_history_client: Client, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ledger = Ledger()
    names = [f"n{number}" for number in range(40)]
    nodes = [call_node(name, "make", name=f"t:{name}") for name in names]
    plan = {"nodes": [*nodes, tool_node("refuse", "refuse", *names)], "deadline": "1h"}
    settings = Settings(state_dir=tmp_path_factory.mktemp("compensation"))
    async with checked_runs(short_history_client, ledger.registry(), settings=settings) as runs:
        handle = await runs.start(plan, compensate=True, max_in_flight=1)
        document = await document_of(handle)
        chain = await chain_of(runs.client, handle)
        view = await view_of(runs, handle)
    assert len(chain) > 3
    assert [end_of(history) for history in chain] == ["continued"] * (len(chain) - 1) + ["failed"]
    assert document["error"]["message"] == "'refuse' failed: no; compensated 40 calls"
    assert ledger.steps_of("t") == [f"+{name}" for name in names] + [f"-{name}" for name in reversed(names)]
    assert node_statuses(view.document_with_refs()) == node_statuses(document)


@pytest.mark.usefixtures("low_history_limits")
@pytest.mark.parametrize("is_full", [False, True], ids=["with room", "full"])
async def test_run_that_cannot_continue_as_new_compensates_until_its_history_is_full(
    short_history_client: Client, tmp_path_factory: pytest.TempPathFactory, *, is_full: bool
) -> None:
    ledger = Ledger()
    steps = (call_node(f"n{number}", "make", name=f"t:n{number}") for number in range(60))
    failing_store = patch.object(
        FolderStore, "put", side_effect=ApplicationError("given up manually", non_retryable=True)
    )
    max_events = 220 if is_full else limits.HISTORY_LIMIT_EVENTS
    low_limits = patch.multiple(limits, MAX_INLINE_STATE_BYTES=100, HISTORY_LIMIT_EVENTS=max_events)
    settings = Settings(state_dir=tmp_path_factory.mktemp("refused"))
    async with serving_runs(short_history_client, ledger.registry(), settings=settings) as runs:
        with low_limits, failing_store:
            handle = await runs.start({"nodes": list(steps)}, compensate=True, max_in_flight=1)
            document = await document_of(handle)
            view = await view_of(runs, handle)
            await runs.check_runs()
    assert (document["status"], document["error"]["code"]) == ("failed", "store_rejected")
    made_names = [name.removeprefix("+") for name in ledger.steps_of("t") if name.startswith("+")]
    compensated_names = [name.removeprefix("-") for name in ledger.steps_of("t") if name.startswith("-")]
    not_compensated_ids = [note["node_id"] for note in document["notes"] if note["code"] == "not_compensated"]
    assert 20 < len(made_names) < 60
    expected = (made_names[::-1][: len(compensated_names)], made_names[: len(made_names) - len(compensated_names)])
    assert (compensated_names, not_compensated_ids) == expected
    if is_full:
        assert 0 < len(compensated_names) < len(made_names)
        assert document["nodes"]["undo n0"]["reason"] == "the history is full"
    else:
        assert document["error"]["message"].endswith(f"; compensated {len(made_names)} calls")
    assert node_statuses(view.document_with_refs()) == node_statuses(document)
