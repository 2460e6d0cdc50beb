"""Words for people about what a run asks of them, and the command that answers it. Pure."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.core.boundary.wire import ACTIVITY_READ_MODEL_PLAN
from dagwright.core.model.requests import INPUTS
from dagwright.core.model.times import format_elapsed, seconds_of
from dagwright.interfaces.cli.output import one_line, terminal_text
from dagwright.interfaces.cli.plans import value_as_text
from dagwright.interfaces.cli.wording import local_date, requested_words

Request = Mapping[str, Any]
"""What `dagwright.core.model.requests.Request.to_json` returns."""

ANYONE = "anyone"
"""Who is asked where nobody is named."""
OPTIONS_SHOWN = 20
_FIELDS_SHOWN = 20
_CALL_SHOWN = 300
"""Characters of a call that is to be approved."""


def asked_of(request: Request) -> str:
    """Returns who is to answer."""
    return one_line(str(request["assignee"] or ANYONE), limit=80)


def question(request: Request, *, limit: int = 300) -> str:
    """Returns what is asked, on one line."""
    return one_line(str(request["prompt"] or f"{request['type'].capitalize()}?"), limit=limit)


def asking_line(request: Request) -> str:
    """Returns who is asked what: `check waits for ann: Publish?`, and what is to be called if that is asked.

    Of a plan that is to be approved it is the first line; `lines_behind` has the rest.
    """
    asked = {**request, "prompt": _lines_of(request)[0]} if _is_long(request) else request
    words = f"{one_line(request['request_id'])} waits for {asked_of(request)}: {question(asked)}"
    return " ".join([words, *_call_of(request)])


def lines_behind(request: Request) -> list[str]:
    """Returns what an asking line leaves out."""
    return [*escalation_lines(request), *(_lines_of(request)[1:] if _is_long(request) else field_lines(request))]


def escalation_lines(request: Request) -> list[str]:
    """Return a line that says from whom an escalated request was requested before, and when it was escalated."""
    escalations = request.get("escalations") or ()
    if not escalations:
        return []
    asked = {"requested_from": escalations[0]["from"], "requested_at": request["opened_at"], "escalations": escalations}
    return [one_line(requested_words(asked), limit=300)]


def field_lines(request: Request) -> list[str]:
    """Returns a line for each field of the data that is asked for: its name, its type, and what it is for.

    Of a selection the options that have labels have a line each.
    """
    if request["type"] == "SELECTION":
        return option_lines(request)
    schema = request["schema"] if request["type"] == "INFORMATION" else None
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(fields, Mapping):
        return []
    required = schema.get("required") if isinstance(schema, Mapping) else None
    needed = required if isinstance(required, list) else []
    lines = [_field_line(str(name), field, is_needed=name in needed) for name, field in fields.items()]
    left = len(lines) - _FIELDS_SHOWN
    return [*lines[:_FIELDS_SHOWN], *([f"and {left:,} more fields"] if left > 0 else [])]


def option_lines(request: Request) -> list[str]:
    """Returns a line for each option of a selection that has a label: the id by which it is selected, and the label."""
    options = request["options"] or () if request["type"] == "SELECTION" else ()
    labelled = [option for option in options if option_label(option)]
    return [one_line(f"{option_name(option)}: {option_label(option)}") for option in labelled[:OPTIONS_SHOWN]]


def _field_line(name: str, field: Any, *, is_needed: bool) -> str:
    schema = field if isinstance(field, Mapping) else {}
    choices, kind = schema.get("enum"), schema.get("type")
    shown = [value_as_text(choice) for choice in choices[:OPTIONS_SHOWN]] if isinstance(choices, list) else []
    facts = [" or ".join(shown) or (kind if isinstance(kind, str) else "")]
    if "default" in schema:
        facts.append(f"default {value_as_text(schema['default'])}")
    elif not is_needed:
        facts.append("may be left out")
    told = ", ".join(filter(None, facts))
    words = schema.get("prompt") or schema.get("title") or schema.get("description") or ""
    return one_line(f"{name}{f' ({told})' if told else ''}{f': {words}' if words else ''}", limit=300)


def question_lines(request: Request) -> list[str]:
    """Returns what is asked: one line, and one for the call that is to be approved, each field, each node of a plan."""
    if _is_long(request):
        return _lines_of(request)
    return [question(request, limit=1_000), *_call_of(request), *field_lines(request)]


def _call_of(request: Request) -> list[str]:
    """Returns the call that is to be approved, if it is one: `pay with {"to": "bob"}`."""
    if not request.get("tool") or _is_long(request):
        return []
    arguments = json.dumps(request.get("arguments") or {}, ensure_ascii=False)
    return [one_line(f"{request['tool']} with {arguments}", limit=_CALL_SHOWN), *party_lines(request)]


def party_lines(request: Request) -> list[str]:
    """Returns a line for each entity in the call that is to be approved: its id, and what it is called."""
    return [one_line(f"{entity} is {name}", limit=300) for entity, name in (request.get("entities") or {}).items()]


def _is_long(request: Request) -> bool:
    """Returns whether it asks about a plan: its prompt has a line for each step, and says all that its call would."""
    return request.get("purpose") == "plan" or request.get("tool") == ACTIVITY_READ_MODEL_PLAN


def _lines_of(request: Request) -> list[str]:
    return [terminal_text(line) for line in str(request["prompt"]).splitlines()]


def command_for(request: Request) -> str:
    """Returns the command that answers a request; what it says stands for what the person wants to say."""
    command = f"dagwright feedback {_word(request['run_id'])} {_word(request['request_id'])}"
    if request["type"] == "APPROVAL":
        return f"{command} --approve"
    if request["type"] == "SELECTION" and request["options"]:
        return f"{command} --select {_word(option_name(request['options'][0]))}"
    if request["type"] in ("GUIDANCE", "CLARIFICATION"):
        return f"{command} --text 'TEXT'"
    if request.get("purpose") == "budget":
        return f"{command} --data {_word(json.dumps(_more_of(request['schema'] or {})))}"
    if request["type"] == "INFORMATION":
        return f"{command} --data {_word(json.dumps(_example_of(request['schema'] or {}), ensure_ascii=False))}"
    return command


def _more_of(schema: Mapping[str, Any]) -> Any:
    """Returns an answer that gives more of what a budget limits first."""
    kinds = [kind for kind in schema.get("properties", {}) if kind in _MORE]
    return {kind: _MORE[kind] for kind in kinds[:1]}


_MORE: Mapping[str, Any] = {"tokens": 20_000, "money": 1.5, "calls": 10, "nodes": 50, "time": "30m"}


def command_for_inputs(workflow_id: str, schema: Mapping[str, Any]) -> str:
    """Returns the command that gives a run the inputs it asks for first."""
    return command_for({"run_id": workflow_id, "request_id": INPUTS, "type": "INFORMATION", "schema": schema})


_EXAMPLES: Mapping[str, Any] = {"boolean": True, "integer": 1, "number": 1.5, "array": [], "object": {}, "null": None}


def _example_of(schema: Mapping[str, Any]) -> Any:
    """Returns an object of a schema with the fields that it needs, each as its type is."""
    fields, required = schema.get("properties"), schema.get("required")
    known = fields if isinstance(fields, Mapping) else {}
    names = required if isinstance(required, list) else []
    return {str(name): _example_value(known.get(name)) for name in names[:_FIELDS_SHOWN]}


def _example_value(field: Any) -> Any:
    schema = field if isinstance(field, Mapping) else {}
    if "default" in schema:
        return schema["default"]
    if isinstance(choices := schema.get("enum"), list) and choices:
        return choices[0]
    return _EXAMPLES.get(str(schema.get("type")), "TEXT")


def answer_words(request: Request) -> str:
    """Returns that command with what else could be answered; `option_lines` tells what options with labels mean."""
    others = ""
    if request["type"] == "APPROVAL":
        others = "  (or --reject)"
    elif request.get("purpose") == "budget":
        others = f"  (or --data {_word(json.dumps({'finish': True}))})"
    elif request["type"] == "SELECTION" and request["options"]:
        _, *rest = [_option_words(request, option) for option in request["options"][:OPTIONS_SHOWN]]
        more = ["…"] if len(request["options"]) > OPTIONS_SHOWN else []
        also = f"or {', '.join([*dict.fromkeys(rest), *more])}" if rest else ""
        several = "several may be given" if request.get("multiple") else ""
        text = "or --text TEXT" if request.get("allow_text") else ""
        words = "; ".join(filter(None, [also, several, text]))
        others = f"  ({words})" if words else ""
    return command_for(request) + others


def _option_words(request: Request, option: Any) -> str:
    """Returns an option as it is given; what to do about a failure needs the value beside it."""
    if option_label(option):
        # Its id alone says nothing, and a line of its own says all.
        return "another id"
    is_value = request.get("purpose") == "error" and option == "value"
    return "value --data JSON" if is_value else _word(option_name(option))


def option_name(option: Any) -> str:
    """Returns what an option is selected by: its `id` if it is `{"id", "label"}`, else its value as a text."""
    return str(option["id"]) if _is_labelled(option) else value_as_text(option)


def option_label(option: Any) -> str:
    """Returns what is said of an option beside its name; nothing of one that says all by itself."""
    is_said = _is_labelled(option) and option["label"] != option["id"]
    return str(option["label"]) if is_said else ""


def _is_labelled(option: Any) -> bool:
    return isinstance(option, Mapping) and {*option} == {"id", "label"}


def deadline_words(request: Request, *, now: float) -> str:
    """Returns until when an answer counts, or nothing if it has no end.

    Args:
        now: seconds since the epoch.
    """
    if request["deadline"] is None:
        return ""
    until = seconds_of(request["deadline"])
    left = f"in {long_duration(until - now)}" if until > now else "now"
    return f"until {local_date(until)} ({left})"


def age_words(request: Request, *, now: float) -> str:
    """Returns for how long a request has been open."""
    return long_duration(max(0.0, now - seconds_of(request["opened_at"])))


def long_duration(seconds: float) -> str:
    """Returns seconds as `3 d 4 h`, or as times of a run are told if it is less than a day."""
    if seconds < 86_400:
        return format_elapsed(seconds)
    return f"{int(seconds // 86_400)} d {int(seconds % 86_400 // 3600)} h"


def listed(requests: Sequence[Request], *, most: int) -> str:
    """Returns the names of requests: `a, b and 3 more`."""
    shown = ", ".join(one_line(request["request_id"], limit=80) for request in requests[:most])
    return f"{shown} and {len(requests) - most:,} more" if len(requests) > most else shown


def _word(text: Any) -> str:
    """Returns a text as a shell takes it for one word."""
    return one_line(shlex.quote(str(text)))
