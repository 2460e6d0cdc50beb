"""Text about the requests that runs send to people, and the commands that answer these requests.

The functions are pure.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.boundary.wire import ACTIVITY_READ_MODEL_PLAN
from dagwright.core.model.requests import ANYONE, INPUTS, is_labelled
from dagwright.core.model.times import format_elapsed_time, parse_time
from dagwright.core.text import join_first
from dagwright.interfaces.cli.node_text import assignees_text, local_date_time
from dagwright.interfaces.cli.output import one_line, terminal_text
from dagwright.interfaces.cli.plan_input import value_as_text

Request = Mapping[str, Any]
"""Result of `dagwright.core.model.requests.Request.to_json`."""

OPTIONS_SHOWN = 20
"""Maximum number of options of a request in the text output."""
_FIELDS_SHOWN = 20
_MAX_CALL_CHARACTERS = 300
"""Maximum length of a call that needs approval."""


def assignee_of(request: Request) -> str:
    """Return the assignee of a request as text; `anyone` for unassigned requests."""
    return one_line(str(request["assignee"] or ANYONE), limit=80)


def question_text(request: Request, *, limit: int = 300) -> str:
    """Return the question of a request on one line."""
    return one_line(str(request["prompt"] or f"{request['type'].capitalize()}?"), limit=limit)


def request_line(request: Request) -> str:
    """Return a line such as `check waits for ann: Publish?`, with the call that needs approval.

    The prompt for the approval of a plan has several lines. `request_line` returns the first line of this prompt,
    and `detail_lines` the other lines.
    """
    shown_request = {**request, "prompt": _prompt_lines(request)[0]} if _is_about_plan(request) else request
    text = f"{one_line(request['request_id'])} waits for {assignee_of(request)}: {question_text(shown_request)}"
    return " ".join([text, *_call_lines(request)])


def detail_lines(request: Request) -> list[str]:
    """Return the lines that follow `request_line`."""
    return [
        *escalation_lines(request),
        *(_prompt_lines(request)[1:] if _is_about_plan(request) else field_lines(request)),
    ]


def escalation_lines(request: Request) -> list[str]:
    """Return a line with all assignees of an escalated request, with times; no line for other requests."""
    escalations = request.get("escalations") or ()
    if not escalations:
        return []
    assignees = {
        "requested_from": escalations[0]["from"],
        "requested_at": request["opened_at"],
        "escalations": escalations,
    }
    return [one_line(assignees_text(assignees), limit=300)]


def field_lines(request: Request) -> list[str]:
    """Return a line for each field of the requested data: name, type and description.

    For a selection, return the lines of its labelled options.
    """
    if request["type"] == "SELECTION":
        return option_lines(request)
    schema = request["schema"] if request["type"] == "INFORMATION" else None
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(fields, Mapping):
        return []
    required = schema.get("required") if isinstance(schema, Mapping) else None
    required_names = required if isinstance(required, list) else []
    lines = [_field_line(str(name), field, is_required=name in required_names) for name, field in fields.items()]
    omitted = len(lines) - _FIELDS_SHOWN
    return [*lines[:_FIELDS_SHOWN], *([f"and {omitted:,} more fields"] if omitted > 0 else [])]


def option_lines(request: Request) -> list[str]:
    """Return a line `id: label` for each labelled option of a selection."""
    options = request["options"] or () if request["type"] == "SELECTION" else ()
    labelled_options = [option for option in options if option_label(option)]
    return [one_line(f"{option_name(option)}: {option_label(option)}") for option in labelled_options[:OPTIONS_SHOWN]]


def _field_line(name: str, field: Any, *, is_required: bool) -> str:
    schema = field if isinstance(field, Mapping) else {}
    choices, value_type = schema.get("enum"), schema.get("type")
    choice_texts = [value_as_text(choice) for choice in choices[:OPTIONS_SHOWN]] if isinstance(choices, list) else []
    facts = [" or ".join(choice_texts) or (value_type if isinstance(value_type, str) else "")]
    if "default" in schema:
        facts.append(f"default {value_as_text(schema['default'])}")
    elif not is_required:
        facts.append("optional")
    details = ", ".join(filter(None, facts))
    prompt = schema.get("prompt") or schema.get("title") or schema.get("description") or ""
    return one_line(f"{name}{f' ({details})' if details else ''}{f': {prompt}' if prompt else ''}", limit=300)


def question_lines(request: Request) -> list[str]:
    """Return the lines of a request: its question, the call to approve and the requested fields.

    For a request about a plan, return the lines of its prompt, with a line for each node.
    """
    if _is_about_plan(request):
        return _prompt_lines(request)
    return [question_text(request, limit=1_000), *_call_lines(request), *field_lines(request)]


def _call_lines(request: Request) -> list[str]:
    """Return the call that needs approval: `pay with {"to": "bob"}`."""
    if not request.get("tool") or _is_about_plan(request):
        return []
    arguments = json.dumps(request.get("arguments") or {}, ensure_ascii=False)
    return [one_line(f"{request['tool']} with {arguments}", limit=_MAX_CALL_CHARACTERS), *entity_lines(request)]


def entity_lines(request: Request) -> list[str]:
    """Return a line for each entity in the call that needs approval: ID and name."""
    return [one_line(f"{entity} is {name}", limit=300) for entity, name in (request.get("entities") or {}).items()]


def _is_about_plan(request: Request) -> bool:
    """Return whether the request is about a plan.

    The prompt of such a request has a line for each node of the plan, so the call that needs approval is not shown.
    """
    return request.get("purpose") == "plan" or request.get("tool") == ACTIVITY_READ_MODEL_PLAN


def _prompt_lines(request: Request) -> list[str]:
    return [terminal_text(line) for line in str(request["prompt"]).splitlines()]


def _example_answer_command(request: Request) -> str:
    """Return the command that answers a request, with placeholder values."""
    command = f"dagwright feedback {_shell_word(request['run_id'])} {_shell_word(request['request_id'])}"
    if request["type"] == "APPROVAL":
        return f"{command} --approve"
    if request["type"] == "SELECTION" and request["options"]:
        return f"{command} --select {_shell_word(option_name(request['options'][0]))}"
    if request["type"] in ("GUIDANCE", "CLARIFICATION"):
        return f"{command} --text 'TEXT'"
    if request.get("purpose") == "budget":
        return f"{command} --data {_shell_word(json.dumps(_budget_example(request['schema'] or {})))}"
    if request["type"] == "INFORMATION":
        return f"{command} --data {_shell_word(json.dumps(_example_of(request['schema'] or {}), ensure_ascii=False))}"
    return command


def _budget_example(schema: Mapping[str, Any]) -> Any:
    """Return an example of an answer: it raises the first limit in the schema of a budget request."""
    limit_names = [name for name in schema.get("properties", {}) if name in _BUDGET_EXAMPLES]
    return {name: _BUDGET_EXAMPLES[name] for name in limit_names[:1]}


_BUDGET_EXAMPLES: Mapping[str, Any] = {"tokens": 20_000, "money": 1.5, "calls": 10, "nodes": 50, "time": "30m"}


def inputs_command(run_id: str, schema: Mapping[str, Any]) -> str:
    """Return the command that gives a run its missing inputs."""
    return _example_answer_command({"run_id": run_id, "request_id": INPUTS, "type": "INFORMATION", "schema": schema})


_EXAMPLES: Mapping[str, Any] = {"boolean": True, "integer": 1, "number": 1.5, "array": [], "object": {}, "null": None}


def _example_of(schema: Mapping[str, Any]) -> Any:
    """Return an object with the required fields of a schema, each with an example value."""
    fields, required = schema.get("properties"), schema.get("required")
    schema_fields = fields if isinstance(fields, Mapping) else {}
    names = required if isinstance(required, list) else []
    return {str(name): _example_value(schema_fields.get(name)) for name in names[:_FIELDS_SHOWN]}


def _example_value(field: Any) -> Any:
    schema = field if isinstance(field, Mapping) else {}
    if "default" in schema:
        return schema["default"]
    if isinstance(choices := schema.get("enum"), list) and choices:
        return choices[0]
    return _EXAMPLES.get(str(schema.get("type")), "TEXT")


def answer_command(request: Request) -> str:
    """Return the command that answers a request, with the alternatives in parentheses."""
    alternatives_text = ""
    if request["type"] == "APPROVAL":
        alternatives_text = "  (or --reject)"
    elif request.get("purpose") == "budget":
        alternatives_text = f"  (or --data {_shell_word(json.dumps({'finish': True}))})"
    elif request["type"] == "SELECTION" and request["options"]:
        _, *other_options = [_option_text(request, option) for option in request["options"][:OPTIONS_SHOWN]]
        ellipsis = ["…"] if len(request["options"]) > OPTIONS_SHOWN else []
        options_hint = f"or {', '.join([*dict.fromkeys(other_options), *ellipsis])}" if other_options else ""
        repeat_hint = "repeatable" if request.get("multiple") else ""
        text_hint = "or --text TEXT" if request.get("allow_text") else ""
        alternatives = "; ".join(filter(None, [options_hint, repeat_hint, text_hint]))
        alternatives_text = f"  ({alternatives})" if alternatives else ""
    return _example_answer_command(request) + alternatives_text


def _option_text(request: Request, option: Any) -> str:
    """Return the text that selects an option on the command line. For the option `value`, `--data` is needed too."""
    if option_label(option):
        # `option_lines` lists the IDs and labels.
        return "another id"
    is_value = request.get("purpose") == "error" and option == "value"
    return "value --data JSON" if is_value else _shell_word(option_name(option))


def option_name(option: Any) -> str:
    """Return the text that selects an option: the `id` of `{"id", "label"}`, or else the option as text."""
    return str(option["id"]) if is_labelled(option) else value_as_text(option)


def option_label(option: Any) -> str:
    """Return the label of an option; empty if the option has no label, or if the label equals the ID."""
    has_label = is_labelled(option) and option["label"] != option["id"]
    return str(option["label"]) if has_label else ""


def deadline_text(request: Request, *, now: float) -> str:
    """Return the deadline of a request; empty if the request has no deadline.

    Args:
        now: seconds since the epoch.
    """
    if request["deadline"] is None:
        return ""
    ends_at = parse_time(request["deadline"])
    remaining_text = f"in {long_duration(ends_at - now)}" if ends_at > now else "now"
    return f"until {local_date_time(ends_at)} ({remaining_text})"


def age_text(request: Request, *, now: float) -> str:
    """Return the time since the request was opened."""
    return long_duration(max(0.0, now - parse_time(request["opened_at"])))


def long_duration(seconds: float) -> str:
    """Format seconds as `3 d 4 h`; below a day, as an elapsed time."""
    if seconds < 86_400:
        return format_elapsed_time(seconds)
    return f"{int(seconds // 86_400)} d {int(seconds % 86_400 // 3600)} h"


def join_request_ids(requests: Sequence[Request], *, limit: int) -> str:
    """Return the IDs of requests as `a, b and 3 more`."""
    return join_first([one_line(request["request_id"], limit=80) for request in requests], limit)


def _shell_word(text: Any) -> str:
    """Quote a text as one word for the shell."""
    return one_line(shlex.quote(str(text)))
