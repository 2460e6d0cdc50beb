"""Requests to people as nodes of a plan built in Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dagwright.core.boundary.arguments import checks_arguments
from dagwright.core.model.plan import Human
from dagwright.core.model.times import Duration
from dagwright.plans.handles import Handle
from dagwright.plans.node_values import Text, write_duration

RequestType = Literal["APPROVAL", "SELECTION", "GUIDANCE", "CLARIFICATION", "INFORMATION"]


@dataclass(frozen=True, slots=True)
class HumanRequest:
    """A request to a person, which `plan.add` adds as a node; the `approval=` of another node also accepts it.

    Args:
        fields: fields of `human` in the plan format; texts may contain handles.
    """

    fields: Mapping[str, object]


@checks_arguments
def ask_human(  # noqa: PLR0913 - each is one field of the request, by keyword
    prompt: str | Text,
    /,
    *,
    type: RequestType | None = None,
    schema: Mapping[str, Any] | None = None,
    options: "Handle[Any] | Sequence[object] | None" = None,
    multiple: bool = False,
    allow_text: bool = False,
    assignee: str | None = None,
    channel: Literal["any", "inbox"] = "any",
    deadline: Duration | None = None,
    reminder: Duration | None = None,
    on_timeout: Literal["fail"] | Mapping[str, Any] = "fail",
) -> HumanRequest:
    """Return a request to a person. `plan.add(ask_human("Publish it?"))` adds it as a node with the answer as result.

    Args:
        prompt: text for the person; it may contain handles.
        type: by default `SELECTION` if there are `options`, `INFORMATION` if there is a `schema`, else `APPROVAL`.
        schema: JSON Schema of the answer.
        options: choices of a `SELECTION`: a list, or the handle of a list.
        multiple: whether several options may be selected.
        allow_text: whether a `SELECTION` may also be answered with a text.
        assignee: person whose inbox has the request.
        channel: `inbox` excludes answers through tool results of API clients and through MCP calls.
        deadline: time until the request expires.
        reminder: interval at which the notification about the request is repeated.
        on_timeout: `fail`, `{"default": answer}`, or `{"escalate": assignee, "then": ...}`.

    Raises:
        PlanInvalid: a duration is invalid.
    """
    inferred_type: RequestType = (
        "SELECTION" if options is not None else "INFORMATION" if schema is not None else "APPROVAL"
    )
    fields: dict[str, object] = {"type": type or inferred_type, "prompt": prompt}
    if type is None and inferred_type == Human.model_fields["type"].default:
        del fields["type"]
    optional_fields: dict[str, object] = {
        "schema": schema,
        "options": options,
        "multiple": multiple or None,
        "allow_text": allow_text or None,
        "assignee": assignee,
        "channel": None if channel == "any" else channel,
        "deadline": None if deadline is None else write_duration(deadline, "deadline"),
        "reminder": None if reminder is None else write_duration(reminder, "reminder"),
        "on_timeout": None if on_timeout == "fail" else on_timeout,
    }
    return HumanRequest(fields | {name: part for name, part in optional_fields.items() if part is not None})
