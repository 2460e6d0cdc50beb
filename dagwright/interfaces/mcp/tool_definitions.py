"""The tools of the MCP server: names, descriptions and JSON Schemas."""

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
import structlog

from dagwright.core.model.agents import agent_cards
from dagwright.core.model.resolvers import callable_tools
from dagwright.core.model.states import RunStatus
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.text import join_first
from dagwright.planning.rounds.rounds_spec import ROUNDS_LIMIT, SYNTHESES
from dagwright.plans.templates import Template, Templates

RUN_PLAN: Final = "run_plan"
CHECK_PLAN: Final = "check_plan"
ASK: Final = "ask"
GET_RUN: Final = "get_run"
LIST_RUNS: Final = "list_runs"
ANSWER_FEEDBACK: Final = "answer_feedback"
CANCEL: Final = "cancel"

DEFAULT_WAIT_S: Final = 45
"""Seconds that a call waits for the end of its run by default: clients time out after 60 s by default."""
MAX_WAIT_S: Final = 3600
DEFAULT_LIST_LIMIT: Final = 20
"""Default number of listed runs."""
_MAX_LIST_LIMIT = 200
_LOG = structlog.stdlib.get_logger("dagwright.interfaces.mcp")
_MAX_SHOWN_NAMES = 60
"""Maximum number of tools, and of agents, in the description of `run_plan`."""

_NEW_RUN_ID = {
    "type": "string",
    "description": "ID of the run. Another call with the same ID and content continues with that run.",
}
_WAIT = {
    "type": "number",
    "minimum": 0,
    "maximum": MAX_WAIT_S,
    "default": DEFAULT_WAIT_S,
    "description": "Seconds to wait for the end of the run. With 0, the call does not wait for the end. The run "
    f"continues regardless of this call; {GET_RUN} returns its state and output.",
}
_RUN_ID = {"type": "string", "description": "ID of the run: `run_id` in the results of other tools."}
_PLAN = {
    "description": "The plan: an object, or JSON or YAML text, in any dialect that Dagwright reads.",
    "anyOf": [{"type": "object"}, {"type": "string"}],
}
_DIALECT = {"type": "string", "description": "Dialect of the plan; detected by default."}
_DEADLINE = {"type": "string", "description": "Maximum duration of the run, such as 90s or 2h."}

_RESULT: Final = {
    "type": "object",
    "properties": {
        "status": {"type": "string", "description": "State of the run."},
        "code": {"type": "string", "description": "Error code of a rejected call."},
        "message": {"type": "string", "description": "Explanation, and possible next steps."},
        "run_id": {"type": "string"},
        "title": {"type": "string"},
        "output": {"description": "Output of the run."},
        "node_counts": {"type": "object", "description": "State -> number of nodes, without items."},
        "failures": {"type": "array", "description": "Failed nodes: `node_id`, `code` and `message`."},
        "error": {"type": "object", "description": "Error of a failed run: `code`, `message` and `node_id`."},
        "notes": {"type": "array", "description": "Notes about the run: `code`, `message` and `node_id`."},
        "waiting_for": {"type": "array", "description": f"Open requests to people; {ANSWER_FEEDBACK} answers them."},
    },
    "required": ["message"],
}


def all_tools(templates: Templates, declarations: Mapping[str, ToolDeclaration]) -> list[types.Tool]:
    """Return all tools. Tools of templates come last, in the order of their names.

    Args:
        templates: templates from `without_reserved_names`.
        declarations: tools that plans may call.
    """
    return [
        _run_plan_tool(declarations, list(templates)),
        _check_plan_tool(),
        _ask_tool(),
        _get_run_tool(),
        _list_runs_tool(),
        _answer_feedback_tool(),
        _cancel_tool(),
        *map(_template_tool, templates.values()),
    ]


def without_reserved_names(templates: Templates) -> Templates:
    """Remove templates with the name of another tool of the server, and log an error for each removed template."""
    reserved_names = {RUN_PLAN, CHECK_PLAN, ASK, GET_RUN, LIST_RUNS, ANSWER_FEEDBACK, CANCEL}
    for name in sorted(reserved_names & templates.keys()):
        problem = f"{templates[name].file_name}: the MCP server has a tool of that name; rename the file"
        _LOG.error("a published plan cannot be used", problem=problem)
    return {name: template for name, template in templates.items() if name not in reserved_names}


def _run_plan_tool(declarations: Mapping[str, ToolDeclaration], template_names: list[str]) -> types.Tool:
    template_property = {
        "template": {
            "type": "string",
            "enum": template_names,
            "description": "Name of a published plan, instead of `plan`. Each published plan is also a tool, but that "
            "tool has no `run_id`, `deadline` or `wait_s`.",
        }
    }
    agents = [card.name for card in agent_cards(declarations)]
    tools = [name for name, tool in callable_tools(declarations).items() if tool.agent is None]
    agents_text = f" Agents of nodes: {join_first(agents, _MAX_SHOWN_NAMES)}." if agents else ""
    return types.Tool(
        name=RUN_PLAN,
        title="Run a plan",
        description="Run a plan (a graph of steps) durably, and return its output. Example of a plan: "
        '{"plan": 1, "nodes": [{"id": "a", "tool": "calculator", "arguments": {"expression": "1 + 1"}}, '
        '{"id": "b", "tool": "calculator", "arguments": {"expression": "{{a.result}} * 2"}}], '
        '"output": "{{b.result}}"}. A plan with effects asks a person for approval before it runs. '
        f"Tools of nodes: {join_first(tools, _MAX_SHOWN_NAMES)}.{agents_text} {CHECK_PLAN} validates a plan.",
        input_schema=_object(
            {
                "plan": _PLAN,
                **(template_property if template_names else {}),
                "inputs": {"type": "object", "description": "Inputs of the plan: name -> value."},
                "run_id": _NEW_RUN_ID,
                "dialect": _DIALECT,
                "deadline": _DEADLINE,
                "wait_s": _WAIT,
            },
            *([] if template_names else ["plan"]),
        ),
        output_schema=_RESULT,
        annotations=types.ToolAnnotations(read_only_hint=False, idempotent_hint=False, open_world_hint=True),
    )


def _check_plan_tool() -> types.Tool:
    return types.Tool(
        name=CHECK_PLAN,
        title="Check a plan",
        description="Return all problems of a plan, or a summary of a valid plan. The plan is not run.",
        input_schema=_object({"plan": _PLAN, "dialect": _DIALECT}, "plan"),
        output_schema={
            "type": "object",
            "properties": {
                "status": {"type": "string", "enum": ["valid", "invalid"]},
                "errors": {"type": "array", "description": "Problems of the plan, each with `code` and `pointer`."},
                "input_schema": {"type": "object", "description": "JSON Schema of the inputs of the plan."},
            },
        },
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def _ask_tool() -> types.Tool:
    return types.Tool(
        name=ASK,
        title="Ask in words",
        description="Have a model plan a request, run the plan durably, and return the answer as `output`.",
        input_schema=_object(
            {
                "request": {"type": "string", "description": "The request in natural language."},
                "profile": {
                    "type": "string",
                    "enum": ["plan", "intents", "rounds"],
                    "default": "plan",
                    "description": "plan: a plan of steps; intents: calls of verbs with entities that are looked up; "
                    "rounds: worker tools, planned round by round.",
                },
                "session_id": {
                    "type": "string",
                    "description": "Session of the request. A session that does not exist is started.",
                },
                "model": {"type": "string", "description": "Model to use. Default: the model of the server."},
                "max_rounds": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": ROUNDS_LIMIT,
                    "description": "Profile rounds only: maximum number of rounds.",
                },
                "worker_timeout": {
                    "type": "string",
                    "description": "Profile rounds only: timeout, such as 2m, of worker tools that declare no timeout.",
                },
                "synthesis": {
                    "type": "string",
                    "enum": [*SYNTHESES],
                    "description": "Profile rounds only: with assemble, the findings of the worker tools are joined; "
                    "with model, a model writes the answer.",
                },
                "run_id": _NEW_RUN_ID,
                "deadline": _DEADLINE,
                "wait_s": _WAIT,
            },
            "request",
        ),
        output_schema=_RESULT,
        annotations=types.ToolAnnotations(read_only_hint=False, idempotent_hint=False, open_world_hint=True),
    )


def _get_run_tool() -> types.Tool:
    return types.Tool(
        name=GET_RUN,
        title="Get a run",
        description="Wait for the end of a run, and return its output or its state.",
        input_schema=_object({"run_id": _RUN_ID, "wait_s": _WAIT}, "run_id"),
        output_schema=_RESULT,
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def _list_runs_tool() -> types.Tool:
    return types.Tool(
        name=LIST_RUNS,
        title="List runs",
        description="List runs with their IDs and states: open runs first, then closed runs, each group newest first. "
        "Use it to find the run of a call that was cancelled before it returned the ID.",
        input_schema=_object(
            {
                "status": {"type": "string", "enum": [*RunStatus], "description": "Filter by state."},
                "limit": {"type": "integer", "minimum": 1, "maximum": _MAX_LIST_LIMIT, "default": DEFAULT_LIST_LIMIT},
                "after": {"type": "string", "description": "`cursor` of the previous page."},
            }
        ),
        output_schema={
            "type": "object",
            "properties": {
                "status": {"type": "string"},
                "message": {"type": "string"},
                "runs": {"type": "array", "items": {"type": "object"}, "description": "`run_id`, `status`, …"},
                "cursor": {"type": "string", "description": "Value of `after` for the next page, if there is one."},
            },
            "required": ["message"],
        },
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def _answer_feedback_tool() -> types.Tool:
    return types.Tool(
        name=ANSWER_FEEDBACK,
        title="Answer a request of a run",
        description="Answer an open request of a run (`waiting_for`) with a person's answer, and return the state of "
        "the run. Send exactly one of approved, selected, text and data, depending on the type of the request. Ask the "
        "person first.",
        input_schema=_object(
            {
                "run_id": _RUN_ID,
                "request_id": {
                    "type": "string",
                    "description": "ID of the request or of its node; optional if the run has only one open request.",
                },
                "all": {"type": "boolean", "description": "Answer all open requests of the same node."},
                "approved": {"type": "boolean", "description": "Answers an APPROVAL."},
                "reason": {"type": "string", "description": "Reason for the approval or rejection."},
                "selected": {
                    "type": "array",
                    "description": "Answers a SELECTION: options, or their IDs if they have IDs.",
                },
                "text": {"type": "string", "description": "Answers a CLARIFICATION or a GUIDANCE."},
                "data": {"description": "Answers an INFORMATION: data that matches the schema of the request."},
                "remember": {
                    "type": "boolean",
                    "description": "With approved: do not ask about this tool again in this run.",
                },
                "arguments": {
                    "type": "object",
                    "description": "With approved, or to retry a failed call: replaces the arguments of the call.",
                },
                "value": {
                    "description": "Result of the failed node, for the option `value` of a request about a failed node."
                },
                "note": {"type": "string", "description": "Note stored with the answer."},
                "wait_s": _WAIT,
            },
            "run_id",
        ),
        output_schema=_RESULT,
        annotations=types.ToolAnnotations(read_only_hint=False, idempotent_hint=True, open_world_hint=False),
    )


def _cancel_tool() -> types.Tool:
    return types.Tool(
        name=CANCEL,
        title="Cancel a run",
        description="Request cancellation of a run and return immediately; results of completed nodes are kept.",
        input_schema=_object(
            {
                "run_id": _RUN_ID,
                "reason": {"type": "string", "description": "Reason, stored in the run's notes."},
            },
            "run_id",
        ),
        output_schema=_RESULT,
        annotations=types.ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True),
    )


def _template_tool(template: Template) -> types.Tool:
    title = template.checked.plan.title
    description = template.description or f"Run the plan {template.title!r}."
    return types.Tool(
        name=template.name,
        title=title,
        description=f"{description} The result has `output`. If the run takes longer than {DEFAULT_WAIT_S} s, "
        f"fetch the result with {GET_RUN}; {RUN_PLAN} with `template` and `wait_s` 0 starts the plan without waiting.",
        input_schema=template.input_schema,
        output_schema=_RESULT,
        annotations=types.ToolAnnotations(read_only_hint=False, idempotent_hint=False, open_world_hint=True),
    )


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }
