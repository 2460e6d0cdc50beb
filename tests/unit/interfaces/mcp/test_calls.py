"""Tools of the MCP server: schemas, run IDs, wait times and results of calls."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from structlog.testing import capture_logs

from dagwright.client.run_lists import RunFilter, RunSummary
from dagwright.core.model.json_schemas import validator_of
from dagwright.core.model.states import RunStatus
from dagwright.interfaces.mcp.call_errors import McpCallRejected
from dagwright.interfaces.mcp.elicitation import form_for_client
from dagwright.interfaces.mcp.run_starter import RunStarter
from dagwright.interfaces.mcp.server import create_server
from dagwright.interfaces.mcp.task_extension import _TOOLS_WITHOUT_TASKS
from dagwright.interfaces.mcp.tool_definitions import (
    ASK,
    CHECK_PLAN,
    DEFAULT_WAIT_S,
    GET_RUN,
    LIST_RUNS,
    RUN_PLAN,
    all_tools,
    without_reserved_names,
)
from dagwright.interfaces.mcp.tool_handlers import IDEMPOTENCY_KEY_META, McpToolCall, ToolHandlers
from dagwright.interfaces.mcp.tool_results import run_result
from dagwright.plans.templates import TemplateFolder
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.templates import load_templates


def _new_tool_call(tool: str, meta: Any = None, **arguments: Any) -> McpToolCall:
    params = types.CallToolRequestParams(name=tool, arguments=arguments)
    definition = types.Tool(name=tool, input_schema={"type": "object", "properties": {name: {} for name in arguments}})
    return McpToolCall(cast("Any", SimpleNamespace(meta=meta)), params, definition)


def test_arguments_set_run_id_and_wait_time_and_idempotency_key_is_the_default_run_id() -> None:
    meta = {IDEMPOTENCY_KEY_META: "key"}
    for tool in ("run_plan", "ask"):
        call = _new_tool_call(tool, meta, run_id="mine", wait_s=3)
        assert (call.run_id, call.wait_s) == ("mine", 3.0)
        assert (_new_tool_call(tool, meta).run_id, _new_tool_call(tool).run_id) == ("key", None)
    # Inputs of a template are not options of the call, even if they have the names of options.
    call = _new_tool_call("ship", meta, id="box-7", wait_s=3)
    assert (call.run_id, call.wait_s) == ("key", DEFAULT_WAIT_S)
    assert [_new_tool_call("ship", invalid).run_id for invalid in (None, {}, {IDEMPOTENCY_KEY_META: 7})] == [None] * 3
    for tool in ("get_run", "answer_feedback"):
        assert (_new_tool_call(tool, wait_s=0).wait_s, _new_tool_call(tool).wait_s) == (0.0, DEFAULT_WAIT_S)


class _Starter(RunStarter):
    async def start_template(self, *args: Any, **options: Any) -> Any:
        raise McpCallRejected("template", f"{args[0]} {args[1]} {options}")

    async def start_plan(self, arguments: Any, *, run_id: str | None, templates: Any = None) -> Any:
        raise McpCallRejected("plan", f"{arguments} {run_id}")


class _Runs:
    async def page_of_runs(self, *, limit: int, run_filter: RunFilter, after: None) -> tuple[list[RunSummary], None]:
        return [RunSummary(f"{run_filter.status} {limit}", RunStatus.RUNNING, None, None, None, 0, 1)], after


STUB = cast("Any", SimpleNamespace(meta=None))
ERROR = {"code": "boom", "message": "it broke", "retryable": False}


async def _result(handlers: ToolHandlers, tool: str, **arguments: Any) -> types.CallToolResult:
    params = types.CallToolRequestParams(name=tool, arguments=arguments)
    result = await handlers.call(McpToolCall(STUB, params, handlers.tools[tool]))
    assert isinstance(result, types.CallToolResult)
    return result


def _write_plan(folder: Path, name: str, *, tool: str = "calculator") -> None:
    plan = {"plan": 1, "nodes": [{"id": "a", "tool": tool, "arguments": {"expression": "1"}}]}
    (folder / f"{name}.json").write_text(json.dumps(plan), encoding="utf-8")


async def _content_of_call(folder: Path, tool: str, **arguments: Any) -> Any:
    toolset = load_toolset(Settings(state_dir=folder))
    _write_plan(folder, "slow")
    tools = all_tools(load_templates(folder, toolset.declarations()), toolset.declarations())
    starter = _Starter(cast("Any", _Runs()), STUB, toolset)
    handlers = ToolHandlers(tools, {"slow": cast("Any", "SLOW")}, starter=starter, steering=STUB)
    return (await _result(handlers, tool, **arguments)).structured_content


async def test_run_plan_starts_either_a_template_or_a_plan(tmp_path: Path) -> None:
    template_arguments = {"template": "slow", "inputs": {"a": 1}, "run_id": "mine", "wait_s": 0, "deadline": "2m"}
    template_result = await _content_of_call(tmp_path, RUN_PLAN, **template_arguments)
    assert template_result == {"code": "template", "message": "SLOW {'a': 1} {'run_id': 'mine', 'deadline': '2m'}"}
    assert (await _content_of_call(tmp_path, RUN_PLAN, plan={}))["code"] == "plan"
    for arguments in ({}, {"plan": {}, "template": "slow"}):
        rejected_result = await _content_of_call(tmp_path, RUN_PLAN, **arguments)
        assert rejected_result == {"code": "invalid_value", "message": "send either `plan` or `template`"}


async def test_list_runs_filters_by_status_and_rejects_an_unknown_status(tmp_path: Path) -> None:
    for list_arguments, expected_id in (({}, "None 20"), ({"status": "running", "limit": 3}, "running 3")):
        result = await _content_of_call(tmp_path, LIST_RUNS, **list_arguments)
        assert (result["status"], [run["run_id"] for run in result["runs"]]) == ("listed", [expected_id])
        assert result["message"] == "1 run; get_run returns the result of a run"
    rejected_result = await _content_of_call(tmp_path, LIST_RUNS, status="runing")
    assert (rejected_result["code"], "(did you mean 'running'?)" in rejected_result["message"]) == (
        "invalid_value",
        True,
    )


@pytest.mark.parametrize("name", [CHECK_PLAN, RUN_PLAN])
@pytest.mark.parametrize("depth", [98, 400])
async def test_arguments_may_be_nested_as_deeply_as_plans(tmp_path: Path, name: str, depth: int) -> None:
    toolset = load_toolset(Settings(state_dir=tmp_path))
    starter = RunStarter(STUB, STUB, toolset)
    handlers = ToolHandlers(all_tools({}, toolset.declarations()), {}, starter=starter, steering=STUB)
    nested_list: Any = {}
    for _ in range(depth):
        nested_list = [nested_list]
    result = await _result(handlers, name, plan=nested_list)
    result_text = str(result.structured_content)
    assert (result.is_error, "nested more than 100 deep" in result_text) == (True, depth > 100)


def _run_document(status: str, **fields: Any) -> dict[str, Any]:
    absent_fields = dict.fromkeys(("title", "output", "error"))
    return {"run_id": "w", "status": status, **absent_fields, "nodes": {}, "waiting_for": [], "notes": [], **fields}


def _structured_result(status: str, **fields: Any) -> Any:
    return run_result(_run_document(status, **fields), node_counts={}).structured_content


def test_text_content_is_the_structured_content_as_json() -> None:
    result = run_result(_run_document("completed", output={"é": 1}), node_counts={})
    [text] = result.content
    assert json.loads(getattr(text, "text", "")) == result.structured_content
    assert (result.structured_content["output"], result.is_error) == ({"é": 1}, False)


def test_only_failed_and_cancelled_runs_are_errors_and_only_ended_runs_have_an_output() -> None:
    is_error_by_status = {
        "completed": False,
        "completed_with_failures": False,
        "failed": True,
        "cancelled": True,
        "running": False,
    }
    assert {
        status: run_result(_run_document(status), node_counts={}).is_error for status in is_error_by_status
    } == is_error_by_status
    assert "output" not in _structured_result("running")
    assert _structured_result("failed")["output"] is None
    result = run_result(_run_document("running"), node_counts={}, prefix="'x' is answered.")
    message = result.structured_content["message"]
    assert message.startswith("'x' is answered. The run continues. Call get_run ")


def test_failed_run_reports_its_error_and_its_failed_nodes() -> None:
    nodes = {"a": {"status": "failed", "error": ERROR}, "b": {"status": "blocked", "error": None}}
    counts = {"blocked": 1, "completed": 7, "failed": 1}
    result = run_result(_run_document("failed", error=ERROR, nodes=nodes), node_counts=counts).structured_content
    assert result["message"] == "The run failed: it broke."
    assert result["failures"] == [{"node_id": "a", "code": "boom", "message": "it broke"}]
    assert result["node_counts"] == counts


def test_every_field_of_a_result_is_in_its_schema() -> None:
    nodes = {"a": {"status": "failed", "error": ERROR}}
    fields = {"waiting_for": [{"request_id": "x", "type": "APPROVAL", "prompt": "Go?"}], "notes": [{"message": "n"}]}
    result = _structured_result("failed", title="T", error=ERROR, nodes=nodes, **fields)
    [get_run_tool] = [tool for tool in all_tools({}, {}) if tool.name == GET_RUN]
    assert get_run_tool.output_schema is not None
    assert result.keys() | {"code"} == get_run_tool.output_schema["properties"].keys()


def test_message_explains_how_to_answer_the_first_request() -> None:
    first_request = {"request_id": "x", "type": "SELECTION", "prompt": "Which?"}
    second_request = {"request_id": "y", "type": "APPROVAL", "prompt": "Go?"}
    result = _structured_result("waiting", waiting_for=[first_request, second_request])
    assert result["message"] == (
        "The run waits for people: Which? To answer, call answer_feedback with run_id 'w', request_id 'x' and "
        "selected. `waiting_for` has 1 more."
    )


def test_request_that_only_the_inbox_can_answer_has_no_form() -> None:
    request = {"request_id": "x", "type": "APPROVAL", "prompt": "Go?", "channel": "inbox"}
    assert _structured_result("waiting", waiting_for=[request])["message"] == (
        "The run waits for people: Go? A person must answer in the inbox, with `dagwright feedback w x`, in the "
        "console or through the HTTP API; this server cannot."
    )
    context: Any = SimpleNamespace(protocol_version="2025-11-25")
    assert form_for_client(request, context) is None
    assert form_for_client({**request, "channel": "any"}, context) is not None


def test_every_tool_has_a_description_and_schemas() -> None:
    tools = all_tools({}, load_toolset(Settings()).declarations())
    for tool in tools:
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name)
        assert (bool(tool.title), bool(tool.description)) == (True, True)
        assert validator_of(tool.input_schema).is_valid({"none": 1}) is False
        assert validator_of(tool.output_schema or {}).is_valid({"status": "valid", "message": "m"})
    assert "calculator" in (tools[0].description or "")
    # Only tools that start runs create tasks.
    assert [tool.name for tool in tools if tool.name not in _TOOLS_WITHOUT_TASKS] == [RUN_PLAN, ASK]


def test_run_plan_schema_lists_the_templates(tmp_path: Path) -> None:
    declarations = load_toolset(Settings()).declarations()
    schema = all_tools({}, declarations)[0].input_schema
    assert (schema["required"], "template" in schema["properties"]) == (["plan"], False)
    _write_plan(tmp_path, "slow")
    schema = all_tools(load_templates(tmp_path, declarations), declarations)[0].input_schema
    assert schema["properties"]["template"]["enum"] == ["slow"]
    assert validator_of(schema).is_valid({"template": "slow", "wait_s": 0, "run_id": "mine"})
    assert not validator_of(schema).is_valid({"template": "fast"})


def test_template_named_like_a_tool_is_ignored_and_logged(tmp_path: Path) -> None:
    for name in ("ask", "plain"):
        _write_plan(tmp_path, name)
    with capture_logs() as logs:
        usable_templates = without_reserved_names(load_templates(tmp_path, load_toolset(Settings()).declarations()))
    assert list(usable_templates) == ["plain"]
    assert [line["problem"] for line in logs] == ["ask.json: the MCP server has a tool of that name; rename the file"]


async def test_tools_change_with_the_template_files(tmp_path: Path) -> None:
    _write_plan(tmp_path, "double")
    toolset = load_toolset(Settings(state_dir=tmp_path))
    unused_clients = dict.fromkeys(("runs", "sessions", "steering"), cast("Any", SimpleNamespace(feedback=None)))
    templates = TemplateFolder(tmp_path, toolset.declarations())
    async with Client(create_server(**unused_clients, toolset=toolset, templates=templates)) as client:
        tools_before = [tool.name for tool in (await client.list_tools()).tools]
        # The file `ask.json` must not replace the tool `ask` of the server.
        for name, tool in (("triple", "calculator"), ("ask", "calculator"), ("broken", "calculater")):
            _write_plan(tmp_path, name, tool=tool)
        (tmp_path / "double.json").unlink()
        tools_after = [tool.name for tool in (await client.list_tools()).tools]
        with pytest.raises(MCPError, match=r"cannot be used: broken\.json: unknown_tool"):
            await client.call_tool("broken", {})
    assert [*tools_before[:-1], "triple"] == tools_after
    assert tools_before[-1] == "double"
