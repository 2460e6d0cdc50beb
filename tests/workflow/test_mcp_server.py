"""Tools of the MCP server on real runs: results, progress, forms, and that no call holds a run."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from mcp.shared.exceptions import MCPError

from tests.support.eventually import eventually
from tests.support.mcp_clients import MODES, McpBench, Person
from tests.support.people import human
from tests.support.runs import Runs
from tests.support.tools import Bench

pytestmark = pytest.mark.server

in_both_modes = pytest.mark.parametrize("mode", MODES)
"""For tests of protocol parts that differ before and after 2026: progress, forms and cancellation."""


_DOUBLE = """
plan: 1
title: Double
metadata: {description: Doubles a number.}
inputs: {value: {type: number, prompt: Which number?}}
nodes: [{id: sum, tool: plus, arguments: {left: "{{PLACEHOLDER_value}}", right: "{{PLACEHOLDER_value}}"}}]
output: "{{sum.result}}"
"""


@pytest.fixture
def mode() -> str:
    return MODES[-1]


@pytest.fixture
async def mcp(cached_runs: Runs, bench: Bench, tmp_path: Path) -> AsyncIterator[McpBench]:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "double.yaml").write_text(_DOUBLE, encoding="utf-8")
    yield McpBench(cached_runs, bench, tmp_path)
    await cached_runs.check_runs()


def _plan(*nodes: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"plan": 1, **fields, "nodes": list(nodes)}


def _sum(node: str, left: Any, right: Any, **fields: Any) -> dict[str, Any]:
    return {"id": node, "tool": "plus", "arguments": {"left": left, "right": right}, **fields}


@in_both_modes
async def test_plan_is_run_with_its_inputs_and_reports_its_progress(mcp: McpBench, mode: str) -> None:
    plan = _plan(
        _sum("a", "{{PLACEHOLDER_n}}", 1),
        _sum("b", "{{a.result}}", 1),
        inputs={"n": {"type": "number"}},
        output="{{b.result}}",
    )
    async with mcp.client(mode) as call:
        result = await call("run_plan", plan=plan, inputs={"n": 3})
    expected = {"status": "completed", "output": 5, "node_counts": {"completed": 2}}
    assert {name: result[name] for name in ("status", "output", "node_counts")} == expected
    ended = [message for _, _, message in call.progress if message and message.endswith("completed")]
    done = [progress for progress, _, _ in call.progress]
    assert ended == ["a completed", "b completed"]
    assert (done, done[-1]) == (sorted(set(done)), 2.0)


async def test_template_is_a_tool_with_the_form_of_its_inputs(mcp: McpBench, mode: str) -> None:
    async with mcp.client(mode) as call:
        tools = {tool.name: tool for tool in (await call.client.list_tools()).tools}
        result = await call("double", value=4)
        invalid_result = await call.error_result("double", valu=4)
    expected = ["run_plan", "check_plan", "ask", "get_run", "list_runs", "answer_feedback", "cancel", "double"]
    assert list(tools) == expected
    assert tools["double"].title == "Double"
    assert (tools["double"].description or "").startswith("Doubles a number. ")
    assert tools["double"].input_schema == {
        "type": "object",
        "properties": {"value": {"type": "number", "description": "Which number?"}},
        "required": ["value"],
        "additionalProperties": False,
    }
    assert (result["status"], result["title"], result["output"]) == ("completed", "Double", 8)
    assert invalid_result["status"] == "bad_usage"
    assert "unknown argument 'valu'" in invalid_result["message"]


async def test_run_of_a_template_is_started_without_waiting_fetched_and_found_again(mcp: McpBench, mode: str) -> None:
    name = f"mine-{uuid4().hex[:8]}"
    async with mcp.client(mode) as call:
        message: dict[str, Any] = {"template": "double", "inputs": {"value": 4}, "run_id": name}
        started_result = await call("run_plan", **message, wait_s=0)
        result = await call("get_run", run_id=name)
        repeated_result = await call("run_plan", **message)

        async def is_listed() -> bool:
            return name in [run["run_id"] for run in (await call("list_runs", limit=200))["runs"]]

        await eventually(is_listed)
        key: Any = {"dagwright/idempotencyKey": name}
        keyed = await call.client.call_tool("double", {"value": 4}, meta=key)
    assert started_result["run_id"] == keyed.structured_content["run_id"] == name
    assert (result["output"], repeated_result["run_id"], repeated_result["output"]) == (8, name, 8)


@in_both_modes
async def test_person_answers_by_a_form_of_the_client(mcp: McpBench, mode: str) -> None:
    person = Person(lambda _: {"approved": True, "reason": "fine"})
    plan = _plan(human("check"), _sum("b", 1, 1, depends_on=["check"]), output="{{check.result}}")
    async with mcp.client(mode, person) as call:
        result = await call("run_plan", plan=plan)
    assert (result["status"], result["output"]) == ("completed", {"approved": True, "reason": "fine"})
    assert person.seen == [
        (
            "What of check?",
            {
                "type": "object",
                "properties": {
                    "approved": {"type": "boolean", "title": "Approve"},
                    "reason": {"type": "string", "title": "Reason"},
                },
                "required": ["approved"],
            },
        )
    ]
    view = await mcp.started.reader(result["run_id"]).read()
    [answer] = view.document()["nodes"]["check"]["lineage"]["answers"]
    assert answer["by"] == "probe (MCP)"


@in_both_modes
@pytest.mark.parametrize("has_forms", [True, False])
async def test_unanswered_request_is_reported_with_how_to_answer(mcp: McpBench, mode: str, has_forms: bool) -> None:
    person = Person(lambda _: None) if has_forms else None
    async with mcp.client(mode, person) as call:
        result = await call("run_plan", plan=_plan(human("check"), output="{{check.result.approved}}"))
        run = result["run_id"]
        assert result["status"] == "waiting"
        assert result["message"] == (
            "The run waits for people: What of check? To answer, "
            f"call answer_feedback with run_id '{run}', request_id 'check' and approved."
        )
        assert [request["request_id"] for request in result["waiting_for"]] == ["check"]
        two = await call.error_result("answer_feedback", run_id=run, approved=True, text="yes")
        bad = await call.error_result("answer_feedback", run_id=run, text="yes")
        final_result = await call("answer_feedback", run_id=run, approved=True)
        late = await call.error_result("answer_feedback", run_id=run, request_id="check", approved=True)
    assert two["message"].startswith("send exactly one of approved, selected, text, data")
    assert bad["status"] == "refused"
    assert "approved" in bad["message"]
    assert (final_result["status"], final_result["output"]) == ("completed", True)
    assert final_result["message"] == "'check' is answered. The run completed."
    assert late["message"] == f"the run '{run}' has ended; get_run returns its state"


async def test_answer_is_for_one_request_or_for_all_of_a_node(mcp: McpBench, mode: str) -> None:
    asking = human("each") | {"for_each": ["a", "b", "c"]}
    async with mcp.client(mode) as call:
        result = await call("run_plan", plan=_plan(asking))
        run = result["run_id"]
        unclear = await call.error_result("answer_feedback", run_id=run, approved=True)
        odd = await call.error_result("answer_feedback", run_id=run, request_id="each[1]", text="no", value=3)
        one = await call("answer_feedback", run_id=run, request_id="each[1]", approved=False, reason="no", wait_s=1)
        final_result = await call("answer_feedback", run_id=run, request_id="each", all=True, approved=True)
    open_requests = "each[0], each[1], each[2]"
    assert unclear["message"] == f"the run '{run}' has 3 open requests; name one in `request_id`: {open_requests}"
    assert odd["status"] == "refused"
    assert [each["request_id"] for each in one["waiting_for"]] == ["each[0]", "each[2]"]
    assert final_result["status"] in ("completed", "completed_with_failures")


@in_both_modes
async def test_answer_that_does_not_fit_is_reported_and_the_request_stays_open(mcp: McpBench, mode: str) -> None:
    person = Person(lambda _: {"amount": 3})
    form = {"type": "object", "properties": {"amount": {"type": "integer", "multipleOf": 2}}}
    async with mcp.client(mode, person) as call:
        result = await call("run_plan", plan=_plan(human("form", "INFORMATION", schema=form)))
        assert result["status"] == "waiting"
        assert result["message"].startswith("The answer to 'form' was rejected: ")
        final_result = await call("answer_feedback", run_id=result["run_id"], data={"amount": 4})
    assert (final_result["status"], len(person.seen)) == ("completed", 1)


async def test_plan_of_a_client_that_changes_something_is_approved_first(mcp: McpBench, mode: str) -> None:
    person = Person(lambda _: {"approved": False})
    plan = _plan({"id": "send", "tool": "change", "arguments": {"name": "mcp"}})
    async with mcp.client(mode, person) as call:
        checked = await call("check_plan", plan=plan)
        result = await call.result("run_plan", plan=plan)
    assert checked["approve_plan"] is True
    assert result.is_error
    assert result.structured_content["status"] in ("failed", "cancelled")
    assert "send" in person.seen[0][0]


async def test_call_of_a_long_run_returns_before_its_end(mcp: McpBench, mode: str, bench: Bench, unique: str) -> None:
    plan = _plan({"id": "long", "tool": "hold", "arguments": {"name": unique}})
    async with mcp.client(mode) as call:
        result = await call("run_plan", plan=plan, wait_s=0, run_id=unique)
        repeated_result = await call("run_plan", plan=plan, wait_s=0, run_id=unique)
        other = await call.error_result("run_plan", plan=_plan(_sum("a", 1, 1)), wait_s=0, run_id=unique)
        bench.open(unique)
        final_result = await call("get_run", run_id=unique)
    assert (result["status"], result["run_id"]) == ("running", unique)
    assert result["message"] == f"The run continues. Call get_run with run_id '{unique}' to wait for its end."
    assert (repeated_result["status"], other["status"]) == ("running", "id_in_use")
    assert (final_result["status"], final_result["output"]) == ("completed", {"long": unique})


@in_both_modes
async def test_call_that_is_given_up_leaves_the_run_alone(mcp: McpBench, mode: str, bench: Bench, unique: str) -> None:
    plan = _plan({"id": "long", "tool": "hold", "arguments": {"name": unique}})
    async with mcp.client(mode) as call:
        calling = asyncio.create_task(call("run_plan", plan=plan, run_id=unique))
        await eventually(lambda: unique in bench.entered)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        bench.open(unique)
        final_result = await call("get_run", run_id=unique)
    mcp.runs.take(mcp.runs.client.get_workflow_handle(unique))
    assert final_result["status"] == "completed"


async def test_run_is_cancelled(mcp: McpBench, mode: str, unique: str) -> None:
    plan = _plan({"id": "long", "tool": "hold", "arguments": {"name": unique}})
    async with mcp.client(mode) as call:
        await call("run_plan", plan=plan, wait_s=0, run_id=unique)
        result = await call("cancel", run_id=unique, reason="enough")
        final_result = await call.error_result("get_run", run_id=unique)
    assert (result["status"], result["run_id"]) == ("cancelling", unique)
    assert final_result["status"] == "cancelled"


async def test_impossible_call_is_reported_with_a_remedy(mcp: McpBench, mode: str, unique: str) -> None:
    async with mcp.client(mode) as call:
        invalid = await call.error_result("run_plan", plan=_plan({"id": "a", "tool": "pluss"}))
        text = await call.error_result("check_plan", plan="nodes: [")
        missing = await call.error_result("run_plan", plan=_plan(_sum("a", "{{PLACEHOLDER_n}}", 1)))
        nobody = await call.error_result("get_run", run_id=unique)
        silent = await call.error_result("answer_feedback", run_id=unique, approved=True)
        result = await call.error_result("ask", request="Do it.")
        late = await call.error_result("run_plan", plan=_plan(_sum("a", 1, 1)), timeout="soon")
        with pytest.raises(MCPError, match="there is no tool 'fly'"):
            await call.client.call_tool("fly", {})
    assert [(error["code"], error["pointer"]) for error in invalid["errors"]] == [("unknown_tool", "/nodes/0/tool")]
    assert invalid["errors"][0]["hint"] == "did you mean 'plus'?"
    assert text["errors"][0]["code"] == "invalid_syntax"
    assert (missing["status"], missing["errors"][0]["hint"]) == ("invalid", "add it to the inputs")
    assert nobody == {"status": "not_found", "message": f"there is no run '{unique}'"}
    assert silent["status"] == "not_found"
    expected = ("no_model", "no model is configured: set DAGWRIGHT_MODEL for this server")
    assert (result["status"], result["message"]) == expected
    assert late["status"] == "bad_usage"
