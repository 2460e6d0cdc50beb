"""Options of a node besides its work and its arguments, in Python and in the plan format."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict

from pydantic import JsonValue

from dagwright.core.model.times import Duration
from dagwright.core.validation.value_checks import hint_of_condition
from dagwright.plans.expressions import Operand, schema_of
from dagwright.plans.handles import Handle, NodeHandle
from dagwright.plans.human_requests import HumanRequest
from dagwright.plans.node_values import JsonWriter, Text, write_duration

When = Operand | str
Retry = int | Mapping[str, Any]
OnError = Literal["block", "skip", "ask", "replan"] | Mapping[str, Any]
Join = Literal["all", "any", "all_done"] | int
Needs = Sequence[NodeHandle[Any] | str]
Items = Handle[Any] | Sequence[object] | str
Approval = Literal["policy", "required", "never"] | HumanRequest
CacheTime = Literal["off"] | Duration


class NodeOptions(TypedDict, total=False):
    """Options of `Plan.add`, for functions that pass them on."""

    id: str | None
    """ID of the node; by default derived from the tool."""
    title: str | None
    """Human-readable title, shown instead of the ID."""
    needs: Needs
    """Nodes that must end first, in addition to nodes whose values this node reads."""
    when: When | None
    """Condition under which the node runs: a comparison of handles, or a CEL text."""
    for_each: Items | None
    """The node runs once for each item of this list."""
    key: Handle[Any] | Text | str | None
    """Unique name of an item."""
    max_parallel: int | None
    """Maximum number of concurrent items."""
    join: Join | None
    """How many dependencies the node waits for; a number means `at_least`."""
    retry: Retry | None
    """Maximum number of attempts, or `max_attempts`, `first_delay`, `factor` and `max_delay`."""
    timeout: Duration | None
    """Timeout of one attempt."""
    heartbeat: Duration | None
    """Timeout between two heartbeats. When it expires, the attempt is retried."""
    on_error: OnError | None
    """Consequence of a failure of the node: `block`, `skip`, `ask`, `replan` or `{"value": ...}`, as in plan files."""
    approval: Approval | None
    """Whether a person must approve the call first, and how the person is asked."""
    priority: int | None
    """From 1 (first) to 5."""
    effects: Literal["idempotent"] | None
    """Declares a call idempotent, for tools whose effects depend on their arguments."""
    cache: CacheTime | None
    """How long the result of an identical call may be reused; `off` disables the cache."""
    metadata: Mapping[str, Any] | None
    """Additional data of the node, for programs."""


_DURATION_OPTIONS = ("timeout", "heartbeat")
_RETRY_DELAYS = ("first_delay", "max_delay")


def write_options(options: NodeOptions, writer: JsonWriter) -> dict[str, JsonValue]:
    """Return options in the plan format, without those that are `None`.

    Args:
        writer: records the handles, each with its field.

    Raises:
        PlanInvalid: a value is not JSON, or a duration is invalid.
        TypeError: a condition cannot be serialized.
    """
    document: dict[str, JsonValue] = {}
    for name, value in options.items():
        if value is None or (name == "needs" and not _check_needs(value)):
            continue
        key, json_value = _write_option(name, value)
        document[key] = writer.write(json_value, (key,))
    return document


def _write_option(name: str, value: Any) -> tuple[str, object]:
    if name in _DURATION_OPTIONS:
        return name, write_duration(value, name)
    match name:
        case "needs":
            return "depends_on", [_dependency(item) for item in _check_needs(value)]
        case "when":
            return name, _condition(value)
        case "retry":
            return name, {"max_attempts": value} if isinstance(value, int) else _write_retry(value)
        case "join":
            return name, {"at_least": value} if isinstance(value, int) else value
        case "cache":
            return name, value if value == "off" else {"ttl": write_duration(value, name, "ttl")}
        case "approval":
            return name, value.fields if isinstance(value, HumanRequest) else value
    return name, value


def _condition(when: When) -> str:
    if isinstance(when, str):
        return when
    if not isinstance(when, Operand):
        raise TypeError(f"when={when!r:.60} is not a condition; compare a handle")
    schema = schema_of(when)
    if "boolean" not in schema.types:
        raise TypeError(f"when={when!r:.60} is not a condition; {hint_of_condition(when.cel(), schema)}")
    return when.cel() if isinstance(when, Handle) else str(when)


def _check_needs(needs: Any) -> Sequence[NodeHandle[Any] | str]:
    if isinstance(needs, str | Handle) or not isinstance(needs, Sequence):
        example = needs.id if isinstance(needs, NodeHandle) else repr(needs) if isinstance(needs, str) else "node"
        raise TypeError(f"needs={needs!r:.60}: expected a list of nodes, such as needs=[{example:.60}]")
    return needs


def _dependency(dependency: Any) -> object:
    if isinstance(dependency, Handle) and not isinstance(dependency, NodeHandle):
        raise TypeError(f"needs=[{dependency!r:.60}]: expected a node, not a part of its result")
    return dependency.id if isinstance(dependency, NodeHandle) else dependency


def _write_retry(retry: Mapping[str, Any]) -> dict[str, object]:
    if not isinstance(retry, Mapping):
        raise TypeError(f"retry={retry!r:.60}: expected an object, such as retry={{'max_attempts': 3}}")
    return {
        name: write_duration(setting, "retry", name)
        if name in _RETRY_DELAYS and isinstance(setting, timedelta | int | float | str)
        else setting
        for name, setting in retry.items()
    }
