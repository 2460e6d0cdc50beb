"""The tools of the MCP server as clients see them: names, descriptions, JSON Schemas. Pure but for the SDK's types."""

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
import structlog

from dagwright.core.model.agents import agent_cards
from dagwright.core.model.resolvers import callable_tools
from dagwright.core.model.states import RunStatus
from dagwright.core.model.tools import ToolDeclaration
from dagwright.planning.rounds.rounds import MAX_ROUNDS_LIMIT, SYNTHESES
from dagwright.plans.templates import Template, Templates

RUN_PLAN: Final = "run_plan"
CHECK_PLAN: Final = "check_plan"
ASK: Final = "ask"
GET_RUN: Final = "get_run"
LIST_RUNS: Final = "list_runs"
ANSWER_FEEDBACK: Final = "answer_feedback"
CANCEL: Final = "cancel"

WAIT_S: Final = 45
"""How long a call waits for the end of its run: clients give up after 60 s if nobody told them otherwise."""
MOST_WAIT_S: Final = 3600
LISTED: Final = 20
"""Runs that are listed if nothing else is said."""
_MOST_LISTED = 200
_LOG = structlog.stdlib.get_logger("dagwright.interfaces.mcp")
_NAMES_SHOWN = 60
"""Tools of plans that the description of `run_plan` names."""

_ID = {
    "type": "string",
    "description": "Id of the run. Another call with the same id and content goes on with that run and starts none.",
}
_WAIT = {
    "type": "number",
    "minimum": 0,
    "maximum": MOST_WAIT_S,
    "default": WAIT_S,
    "description": "Seconds to wait for the end of the run; 0 returns as soon as it is started. The run goes on "
    f"whatever happens to this call; {GET_RUN} fetches it.",
}
_RUN_ID = {"type": "string", "description": "Id of the run: `run_id` in the results of other tools."}
_PLAN = {
    "description": "The plan: an object, or its JSON or YAML text, in any dialect that Dagwright reads.",
    "anyOf": [{"type": "object"}, {"type": "string"}],
}
_DIALECT = {"type": "string", "description": "The dialect of the plan; told from the plan if it is left out."}
_TIMEOUT = {"type": "string", "description": "Deadline of the run, such as 90s or 2h."}

_RESULT: Final = {
    "type": "object",
    "properties": {
        "status": {"type": "string", "description": "State of the run, or a word for why there is none."},
        "message": {"type": "string", "description": "What it means, and what can be done next."},
        "run_id": {"type": "string"},
        "title": {"type": "string"},
        "output": {"description": "What the run made."},
        "node_counts": {"type": "object", "description": "State of a node -> how many nodes are in it."},
        "failures": {"type": "array", "description": "Nodes that failed: id, code and message."},
        "waiting_for": {"type": "array", "description": f"What the run asks of people; {ANSWER_FEEDBACK} answers it."},
    },
    "required": ["status", "message"],
}


def tools_of(templates: Templates, declared: Mapping[str, ToolDeclaration]) -> list[types.Tool]:
    """Return every tool, those of templates last and in order of their names.

    Args:
        templates: as `without_taken` returns them.
        declared: tools that plans may call.
    """
    own = [_run_plan(declared, list(templates)), _check_plan(), _ask(), _get_run(), _list_runs(), _answer_feedback()]
    return [*own, _cancel(), *map(_of_template, templates.values())]


def without_taken(templates: Templates) -> Templates:
    """Return the templates whose names no other tool of the server has; an error is logged for each of the others."""
    taken = {RUN_PLAN, CHECK_PLAN, ASK, GET_RUN, LIST_RUNS, ANSWER_FEEDBACK, CANCEL}
    for name in sorted(taken & templates.keys()):
        problem = f"{templates[name].file}: the MCP server has a tool of that name; rename the file"
        _LOG.error("a published plan cannot be used", problem=problem)
    return {name: template for name, template in templates.items() if name not in taken}


def _run_plan(declared: Mapping[str, ToolDeclaration], published: list[str]) -> types.Tool:
    by_name = {
        "template": {
            "type": "string",
            "enum": published,
            "description": "In place of `plan`: a plan that is a tool here too, to name its run or not to wait for it.",
        }
    }
    agents = [card.name for card in agent_cards(declared)]
    tools = [name for name, tool in callable_tools(declared).items() if tool.agent is None]
    told = f" Agents of nodes: {_listed(agents)}." if agents else ""
    return types.Tool(
        name=RUN_PLAN,
        title="Run a plan",
        description="Runs a plan, a graph of steps, durably, and returns what it made. A small plan: "
        '{"plan": 1, "nodes": [{"id": "a", "tool": "calculator", "arguments": {"expression": "1 + 1"}}, '
        '{"id": "b", "tool": "calculator", "arguments": {"expression": "{{a.result}} * 2"}}], '
        '"output": "{{b.result}}"}. A plan that changes something asks a person before it runs. '
        f"Tools of nodes: {_listed(tools)}.{told} {CHECK_PLAN} says what is wrong with a plan.",
        input_schema=_object(
            {
                "plan": _PLAN,
                **(by_name if published else {}),
                "inputs": {"type": "object", "description": "Values of the plan's inputs: name -> value."},
                "run_id": _ID,
                "dialect": _DIALECT,
                "timeout": _TIMEOUT,
                "wait_s": _WAIT,
            },
            *([] if published else ["plan"]),
        ),
        output_schema=_RESULT,
        annotations=types.ToolAnnotations(read_only_hint=False, idempotent_hint=False, open_world_hint=True),
    )


def _check_plan() -> types.Tool:
    return types.Tool(
        name=CHECK_PLAN,
        title="Check a plan",
        description="Says everything that is wrong with a plan, or what the plan is. Runs nothing.",
        input_schema=_object({"plan": _PLAN, "dialect": _DIALECT}, "plan"),
        output_schema={
            "type": "object",
            "properties": {"status": {"type": "string", "enum": ["valid", "invalid", "bad_usage"]}},
            "required": ["status"],
        },
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def _ask() -> types.Tool:
    return types.Tool(
        name=ASK,
        title="Ask in words",
        description="Has a model plan a request in words, runs the plan durably, and returns the answer as `output`.",
        input_schema=_object(
            {
                "request": {"type": "string", "description": "What is wanted, in words."},
                "profile": {
                    "type": "string",
                    "enum": ["plan", "intents", "rounds"],
                    "default": "plan",
                    "description": "plan; intents: calls of verbs about entities that are looked up; rounds: worker "
                    "tools, planned round by round.",
                },
                "session_id": {
                    "type": "string",
                    "description": "A turn of this session, which knows what was asked and found before.",
                },
                "model": {"type": "string", "description": "Which model is asked; else that of the server."},
                "max_rounds": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_ROUNDS_LIMIT,
                    "description": "Of the profile rounds: how many there may be.",
                },
                "worker_timeout": {
                    "type": "string",
                    "description": "Of the profile rounds: how long a call of a worker may take that names no time "
                    "itself, such as 2m.",
                },
                "synthesis": {
                    "type": "string",
                    "enum": [*SYNTHESES],
                    "description": "Of the profile rounds: assemble joins what workers found, model has a model word "
                    "the answer.",
                },
                "run_id": _ID,
                "timeout": _TIMEOUT,
                "wait_s": _WAIT,
            },
            "request",
        ),
        output_schema=_RESULT,
        annotations=types.ToolAnnotations(read_only_hint=False, idempotent_hint=False, open_world_hint=True),
    )


def _get_run() -> types.Tool:
    return types.Tool(
        name=GET_RUN,
        title="Get a run",
        description="Waits for the end of a run that was started before, and returns what it made or how it stands.",
        input_schema=_object({"run_id": _RUN_ID, "wait_s": _WAIT}, "run_id"),
        output_schema=_RESULT,
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def _list_runs() -> types.Tool:
    return types.Tool(
        name=LIST_RUNS,
        title="List runs",
        description="Lists runs with their ids and states: those that go on first, and of each kind the newest first. "
        "It finds the run of a call that was given up before it said which that is.",
        input_schema=_object(
            {
                "status": {"type": "string", "enum": [*RunStatus], "description": "Only those of this state."},
                "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_LISTED, "default": LISTED},
            }
        ),
        output_schema={
            "type": "object",
            "properties": {
                "status": {"type": "string"},
                "message": {"type": "string"},
                "runs": {"type": "array", "items": {"type": "object"}, "description": "`run_id`, `status`, …"},
            },
            "required": ["status", "message"],
        },
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
    )


def _answer_feedback() -> types.Tool:
    return types.Tool(
        name=ANSWER_FEEDBACK,
        title="Answer what a run asks",
        description="Gives a run a person's answer to what it asks (`waiting_for` of a run), and returns how it goes "
        "on. Give exactly one of approved, selected, text and data, as the type of the request wants it. Ask the "
        "person first.",
        input_schema=_object(
            {
                "run_id": _RUN_ID,
                "request_id": {
                    "type": "string",
                    "description": "Id of the request, or of its node; not needed if the run asks one thing only.",
                },
                "all": {"type": "boolean", "description": "The answer is for all open requests of the same node."},
                "approved": {"type": "boolean", "description": "Answers an APPROVAL."},
                "reason": {"type": "string", "description": "Why it is approved or not."},
                "selected": {
                    "type": "array",
                    "description": "Answers a SELECTION: options, or their ids where they have ids.",
                },
                "text": {"type": "string", "description": "Answers a CLARIFICATION or a GUIDANCE."},
                "data": {"description": "Answers an INFORMATION: what its schema wants."},
                "remember": {
                    "type": "boolean",
                    "description": "With approved: ask no more about this tool in this run.",
                },
                "arguments": {
                    "type": "object",
                    "description": "With approved, or to try again what failed: in place of those of the call.",
                },
                "value": {"description": "With selected, of what failed: the result in place of its own."},
                "note": {"type": "string", "description": "Kept with the answer."},
                "wait_s": _WAIT,
            },
            "run_id",
        ),
        output_schema=_RESULT,
        annotations=types.ToolAnnotations(read_only_hint=False, idempotent_hint=True, open_world_hint=False),
    )


def _cancel() -> types.Tool:
    return types.Tool(
        name=CANCEL,
        title="Cancel a run",
        description="Asks a run to stop and returns at once; what was finished is kept.",
        input_schema=_object(
            {
                "run_id": _RUN_ID,
                "reason": {"type": "string", "description": "Why; kept in the run's notes."},
            },
            "run_id",
        ),
        output_schema=_RESULT,
        annotations=types.ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True),
    )


def _of_template(template: Template) -> types.Tool:
    title = template.checked.plan.title
    told = template.description or f"Runs the plan {template.title!r}."
    return types.Tool(
        name=template.name,
        title=title,
        description=f"{told} Returns `output`; a run that takes longer than {WAIT_S} s is fetched by {GET_RUN}, "
        f"and {RUN_PLAN} with `template` starts it without waiting.",
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


def _listed(names: list[str]) -> str:
    left = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {left} more" if left > 0 else "")
