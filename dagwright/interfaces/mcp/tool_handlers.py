"""Handlers of the tools of the MCP server.

Errors are results with `isError`, so that the client's model reads the reason and can try again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import mcp_types as types

from dagwright.client.feedback.answer_sending import (
    AnswerTarget,
    AnswerUnclear,
    NoOpenRequest,
    find_target,
    send_answer,
)
from dagwright.client.feedback.open_requests import Answer, OpenRequest
from dagwright.client.list_cursors import ListCursor
from dagwright.client.run_lists import RunFilter
from dagwright.client.starts import StartedRun
from dagwright.client.steering import CommandAuthor, Steering
from dagwright.core.compiler.plan_text import changing_node_count
from dagwright.core.model.argument_checks import SchemaOfTool
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.text import format_count
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.dialects.json_reader import json_problems
from dagwright.interfaces.mcp import tool_definitions
from dagwright.interfaces.mcp.call_errors import KNOWN_ERRORS, McpCallRejected, result_of_error
from dagwright.interfaces.mcp.call_follower import answer_with_forms, follow_run
from dagwright.interfaces.mcp.elicitation import CallContext, CallState, Elicitations, parse_call_state
from dagwright.interfaces.mcp.run_starter import RunStarter
from dagwright.interfaces.mcp.tool_results import error_result, result_of, run_result
from dagwright.plans.check_reports import valid_plan_report
from dagwright.plans.preparation import compile_within_limits
from dagwright.plans.templates import Templates

if TYPE_CHECKING:
    from dagwright.client.runs import Runs

IDEMPOTENCY_KEY_META = "dagwright/idempotencyKey"
"""Key of a call's `_meta`. Its value is the ID of the run to start, unless the arguments have a `run_id`."""
_TOOLS_WITH_RUN_ID = (tool_definitions.RUN_PLAN, tool_definitions.ASK)
"""Tools that start a run and have the argument `run_id`. The arguments of a template's tool are inputs of its plan."""
_ANSWER_ARGUMENTS = ("approved", "selected", "text", "data")
_OPTIONAL_ANSWER_ARGUMENTS = ("reason", "remember", "arguments", "value")
"""Optional parts of an answer; the run rejects parts that the request does not support."""

Result = types.CallToolResult | types.InputRequiredResult
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class McpToolCall:
    """A call of a tool.

    Args:
        params: parameters as received.
        tool: the called tool.
    """

    context: CallContext
    params: types.CallToolRequestParams
    tool: types.Tool

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.params.arguments or {}

    @property
    def run_id(self) -> str | None:
        """The requested ID of the run; `None` for a new ID."""
        run_id: str | None = self.arguments.get("run_id") if self.tool.name in _TOOLS_WITH_RUN_ID else None
        if run_id is not None:
            return run_id
        key = (self.context.meta or {}).get(IDEMPOTENCY_KEY_META)
        return key if isinstance(key, str) else None

    @property
    def wait_s(self) -> float:
        """Seconds to wait for the end of a run."""
        if self.tool.name not in (*_TOOLS_WITH_RUN_ID, tool_definitions.GET_RUN, tool_definitions.ANSWER_FEEDBACK):
            return tool_definitions.DEFAULT_WAIT_S
        return float(self.arguments.get("wait_s", tool_definitions.DEFAULT_WAIT_S))

    @property
    def author(self) -> str:
        """The name recorded for answers and commands."""
        return author_of(self.context)


def author_of(context: CallContext) -> str:
    """Return the name recorded for answers and commands of a client."""
    params = context.session.client_params
    return f"{params.client_info.name} (MCP)" if params is not None else "MCP"


class ToolHandlers:
    """Handlers of the tools of a server.

    Args:
        tools: all tools, from `all_tools`.
        templates: the published plans that are tools.
        starter: starts runs.
        steering: sends commands to runs.
    """

    def __init__(
        self, tools: Sequence[types.Tool], templates: Templates, *, starter: RunStarter, steering: Steering
    ) -> None:
        self.replace_tools(tools, templates)
        self._starter = starter
        self._steering = steering
        self._runs: Runs = starter.runs
        self._handlers: Mapping[str, Callable[[McpToolCall], Awaitable[Result]]] = {
            tool_definitions.CHECK_PLAN: self._check_plan,
            tool_definitions.GET_RUN: self._get_run,
            tool_definitions.LIST_RUNS: self._list_runs,
            tool_definitions.ANSWER_FEEDBACK: self._answer_feedback,
            tool_definitions.CANCEL: self._cancel,
        }

    def replace_tools(self, tools: Sequence[types.Tool], templates: Templates) -> None:
        """Replace all tools and templates."""
        self.tools = {tool.name: tool for tool in tools}
        self._templates = templates
        self._schemas = {tool.name: SchemaOfTool(tool.input_schema) for tool in tools}

    async def call(self, call: McpToolCall) -> Result:
        """Return the result of a call. Errors are results with `isError`."""
        return await self._validate_and_handle(call, self._run_tool)

    async def start(self, call: McpToolCall) -> StartedRun | types.CallToolResult:
        """Start the run of a call, or find the run with the same ID and content.

        Returns:
            The started run, or the result of the call if an error prevented the start.
        """
        return await self._validate_and_handle(call, self._start_run)

    async def _validate_and_handle(
        self, call: McpToolCall, handler: Callable[[McpToolCall], Awaitable[ResultT]]
    ) -> ResultT | types.CallToolResult:
        """Validate the arguments of a call and pass the call to a handler; convert errors to results."""
        if invalid_values := json_problems(dict(call.arguments)):
            return error_result("invalid_value", f"invalid arguments of {call.tool.name}: {invalid_values[0].message}")
        problems = [
            message + (f" ({hint})" if hint else "")
            for _, message, hint in self._schemas[call.tool.name].problems_of(call.arguments, ())
        ]
        if problems:
            return error_result("invalid_value", f"invalid arguments of {call.tool.name}: {'; '.join(problems)}")
        try:
            return await handler(call)
        except KNOWN_ERRORS as error:
            return result_of_error(error)

    async def _run_tool(self, call: McpToolCall) -> Result:
        state = parse_call_state(call.params)
        if state is not None:
            return await self._continue_call(call, state)
        handler = self._handlers.get(call.tool.name, self._start_and_follow)
        return await handler(call)

    async def _start_run(self, call: McpToolCall) -> StartedRun:
        template = self._templates.get(call.tool.name)
        if template is not None:
            return await self._starter.start_template(template, call.arguments, run_id=call.run_id)
        if call.tool.name == tool_definitions.ASK:
            return await self._starter.start_request(call.arguments, run_id=call.run_id)
        if (template_name := call.arguments.get("template")) is not None and "plan" not in call.arguments:
            inputs, deadline = call.arguments.get("inputs") or {}, call.arguments.get("deadline")
            return await self._starter.start_template(
                self._templates[template_name], inputs, run_id=call.run_id, deadline=deadline
            )
        if template_name is not None or "plan" not in call.arguments:
            raise McpCallRejected("invalid_value", "send either `plan` or `template`")
        return await self._starter.start_plan(call.arguments, run_id=call.run_id, templates=self._templates)

    async def _start_and_follow(self, call: McpToolCall) -> Result:
        started_run = await self._start_run(call)
        return await self._follow(call, started_run.run_id, Elicitations(call.context))

    async def _continue_call(self, call: McpToolCall, state: CallState) -> Result:
        """Continue a call whose client has returned the content of forms."""
        elicitations = Elicitations(
            call.context, skipped_ids=set(state.skipped_ids), interim_result_count=state.interim_result_count
        )
        responses = call.params.input_responses or {}
        await answer_with_forms(responses, elicitations, self._runs, run_id=state.run_id, author=call.author)
        return await self._follow(call, state.run_id, elicitations)

    async def _follow(self, call: McpToolCall, run_id: str, elicitations: Elicitations, *, prefix: str = "") -> Result:
        follow_result = await follow_run(self._runs, run_id, elicitations, wait_s=call.wait_s, author=call.author)
        if follow_result.interim_result is not None:
            return follow_result.interim_result
        view = follow_result.view
        return run_result(
            await self._runs.document(view),
            node_counts=view.node_counts,
            prefix=" ".join(filter(None, [prefix, follow_result.rejections])),
        )

    async def _check_plan(self, call: McpToolCall) -> Result:
        checked_plan, compiled_plan = await asyncio.to_thread(self._check_and_compile, call.arguments)
        needs_approval = changing_node_count(compiled_plan) > 0
        return result_of({**valid_plan_report(checked_plan), "needs_approval": needs_approval})

    def _check_and_compile(self, arguments: Mapping[str, Any]) -> tuple[CheckedPlan, CompiledPlan]:
        checked_plan, _ = self._starter.check(arguments, self._templates)
        return checked_plan, compile_within_limits(checked_plan)

    async def _get_run(self, call: McpToolCall) -> Result:
        return await self._follow(call, call.arguments["run_id"], Elicitations(call.context))

    async def _list_runs(self, call: McpToolCall) -> Result:
        limit = call.arguments.get("limit", tool_definitions.DEFAULT_LIST_LIMIT)
        run_filter = RunFilter(status=call.arguments.get("status"))
        try:
            after_text = call.arguments.get("after")
            after = None if after_text is None else ListCursor.parse(after_text)
        except ValueError as error:
            raise McpCallRejected("invalid_value", "`after` must be the `cursor` of a page") from error
        summaries, cursor = await self._runs.page_of_runs(limit=int(limit), run_filter=run_filter, after=after)
        message = f"{format_count(len(summaries), 'run')}; {tool_definitions.GET_RUN} returns the result of a run"
        document = {"status": "listed", "message": message, "runs": [summary.to_json() for summary in summaries]}
        return result_of(document if cursor is None else {**document, "cursor": str(cursor)})

    async def _answer_feedback(self, call: McpToolCall) -> Result:
        answer_names = [name for name in _ANSWER_ARGUMENTS if name in call.arguments]
        if len(answer_names) != 1:
            message = f"send exactly one of {', '.join(_ANSWER_ARGUMENTS)}, not {len(answer_names)}"
            raise McpCallRejected("invalid_value", message)
        run_id = call.arguments["run_id"]
        feedback = self._runs.feedback
        target = _find_answer_target(run_id, await feedback.requests_of(run_id), call.arguments)
        content_names = (*answer_names, *_OPTIONAL_ANSWER_ARGUMENTS)
        content = {name: call.arguments[name] for name in content_names if name in call.arguments}
        answer = Answer(content, call.author, call.arguments.get("note"), source="mcp")
        outcome = await send_answer(feedback, target, answer)
        message, is_ambiguous = outcome.message, outcome.is_ambiguous
        if outcome.is_rejected:
            hint = "`all` answers all of them" if is_ambiguous else f"{tool_definitions.GET_RUN} returns its state"
            raise McpCallRejected(
                "answer_rejected", message if target.requests and not is_ambiguous else f"{message}; {hint}"
            )
        request_ids = {request.id for request in target.requests} or {target.request_id}
        elicitations = Elicitations(call.context, skipped_ids={*request_ids}, answered_ids={*request_ids})
        return await self._follow(call, run_id, elicitations, prefix=f"{message}.")

    async def _cancel(self, call: McpToolCall) -> Result:
        run_id = call.arguments["run_id"]
        message = await self._steering.cancel(run_id, CommandAuthor(call.author, call.arguments.get("reason")))
        text = f"{message}; {tool_definitions.GET_RUN} waits until the run has stopped"
        return result_of({"status": "cancelling", "message": text, "run_id": run_id})


def _find_answer_target(
    run_id: str, open_requests: Sequence[OpenRequest], arguments: Mapping[str, Any]
) -> AnswerTarget:
    try:
        return find_target(run_id, open_requests, arguments.get("request_id"), for_all=bool(arguments.get("all")))
    except NoOpenRequest:
        raise McpCallRejected("no_open_request", f"the run {run_id!r} has no open requests") from None
    except AnswerUnclear as error:
        message = f"the run {run_id!r} has {len(open_requests):,} open requests; name one in `request_id`: {error}"
        raise McpCallRejected("invalid_value", message) from None
