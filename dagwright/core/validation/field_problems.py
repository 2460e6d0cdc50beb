"""Parse the fields of a plan with pydantic, and convert its errors into problems for plan authors."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from dagwright.core.errors import MAX_PROBLEMS, Problem, pointer
from dagwright.core.model.agents import MODEL_KEYS, InlineAgent
from dagwright.core.model.plan import NODE_FIELDS, PLAN_FIELDS, Human, Node, PlanDocument, Retry
from dagwright.core.name_hints import find_nearest_names, format_names, suggestion

_NODES = TypeAdapter(list[Node])
_NODE = TypeAdapter(Node)

_OTHER_NAMES_OF_DEPENDS_ON = ("needs", "after", "requires", "dependencies", "dependsOn", "depends")
"""Names of `depends_on` in other formats."""
_EXPECTED_BY_FIELD = {
    "join": "all, any, all_done or {at_least: k}",
    "on_error": "block, skip, ask, replan or {value: …}",
    "approval": "policy, required, never or an object like human",
    "cache": "off or {ttl: 1h}",
    "for_each": "a list or a reference to a list",
    "plan": "a plan or the path of a plan file",
    "depends_on": "a list of node ids",
    "arguments": "an object",
    "on_failure": "continue or fail_fast",
}
"""Field -> expected value. One problem is reported for such a field, although pydantic reports an error for each of its
parts or union members."""

_EXPECTED_BY_PATH: Mapping[tuple[str | int, ...], str] = {
    ("human", "on_timeout"): "fail, {default: …} or {escalate: …, then: …}",
    ("human", "options"): "a list or a reference to a list",
}
_EXPECTED_OF_INPUT = {
    0: "an object of inputs, such as {count: {type: integer}}",
    1: "an object, such as {type: string, prompt: …}",
    2: "the name of a JSON type, or a list of them",
}
"""Depth in `inputs` -> expected value: 0 is `inputs` itself, 1 is one input, and 2 is the `type` of an input."""

_EXPECTED_BY_ERROR = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "time_delta_type": "a duration such as 30s",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}
"""Error type of pydantic -> expected value."""

_ALLOWED_TEXTS = {
    "join": ("all", "any", "all_done"),
    "on_error": ("block", "skip", "ask", "replan"),
    "approval": ("policy", "required", "never"),
    "cache": ("off",),
    "on_failure": ("continue", "fail_fast"),
}
"""Field -> texts that the field allows."""
_FIELDS_OF_OBJECT: Mapping[str, Collection[str]] = {
    "retry": [*Retry.model_fields],
    "human": [field.alias or name for name, field in Human.model_fields.items()],
    "agent": [*InlineAgent.model_fields],
}
"""Field of a node whose value is an object -> the fields of that object."""

_FIELD_ORDER = [*dict.fromkeys([*Node.model_fields, *PlanDocument.model_fields])]
_QUOTED = re.compile(r"'([^']*)'")
_VERSION = 1
"""Supported version of the plan format."""

_KEY_STEP = "[key]"
"""Last location step of a pydantic error about the key of an object; only `inputs` has restricted keys."""


@dataclass(slots=True)
class ParsedNodes:
    """Parsed nodes of a plan, without their invalid fields.

    Args:
        nodes: index -> node; a placeholder node replaces a value that is not an object.
        problems: problems in document order.
        invalid_fields: index -> invalid or misspelt fields; the checks do not report them as missing.
    """

    nodes: dict[int, Node] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    invalid_fields: dict[int, frozenset[str]] = field(default_factory=dict)


def parse_nodes(raw_nodes: list[Any]) -> ParsedNodes:
    """Parse the nodes of a plan independently of each other."""
    try:
        return ParsedNodes(dict(enumerate(_NODES.validate_python(raw_nodes))))
    except ValidationError:
        pass
    result = ParsedNodes()
    nodes, problems = result.nodes, result.problems
    used_ids = {raw.get("id") for raw in raw_nodes if isinstance(raw, Mapping) and isinstance(raw.get("id"), str)}
    for index, raw_node in enumerate(raw_nodes):
        if len(problems) > MAX_PROBLEMS:
            break
        limited_node = _limit_unknown_keys(raw_node, NODE_FIELDS)
        try:
            nodes[index] = _NODE.validate_python(limited_node)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            problems += _node_problems(limited_node, errors, index=index)
            placeholder_id = f"node {index}"
            while placeholder_id in used_ids:
                placeholder_id += "'"
            used_ids.add(placeholder_id)
            nodes[index] = _parse_valid_fields(limited_node, errors, placeholder_id=placeholder_id)
            result.invalid_fields[index] = _unparsed_fields(errors)
    return result


def _unparsed_fields(errors: Sequence[ErrorDetails]) -> frozenset[str]:
    """Return the invalid fields of a node, and the known fields with names similar to unknown fields."""
    names: set[str] = set()
    for error_details in errors:
        name = str(error_details["loc"][0]) if error_details["loc"] else ""
        names.add(name)
        if error_details["type"] == "extra_forbidden" and len(error_details["loc"]) == 1:
            names.update(
                ("depends_on",)
                if name in _OTHER_NAMES_OF_DEPENDS_ON
                else find_nearest_names(name, NODE_FIELDS, limit=1)
            )
    return frozenset(names)


def _limit_unknown_keys(raw: Any, known_fields: frozenset[str]) -> Any:
    """Remove unknown keys beyond the limit of reported problems, because pydantic creates an error for each key."""
    if not isinstance(raw, Mapping) or len(raw) <= len(known_fields) + MAX_PROBLEMS:
        return raw
    unknown_keys = [key for key in raw if key not in known_fields]
    omitted_keys = set(unknown_keys[MAX_PROBLEMS + 1 :])
    return {key: value for key, value in raw.items() if key not in omitted_keys}


def _parse_valid_fields(raw: Any, errors: Sequence[ErrorDetails], *, placeholder_id: str) -> Node:
    """Return the node without its invalid fields, so that its references are still checked.

    Args:
        placeholder_id: id to use if the id is invalid.
    """
    if not isinstance(raw, Mapping):
        return Node(id=placeholder_id, human=Human())
    invalid_names = {str(error_details["loc"][0]) for error_details in errors if error_details["loc"]}
    valid_fields = {key: value for key, value in raw.items() if key not in invalid_names}
    return _NODE.validate_python({**valid_fields, "id": placeholder_id} if "id" in invalid_names else valid_fields)


def parse_plan_fields(raw: Mapping[str, Any]) -> tuple[PlanDocument, list[Problem]]:
    """Return a plan without nodes that has all valid fields, and the problems of the invalid fields."""
    remaining_fields = {**_limit_unknown_keys(raw, PLAN_FIELDS), "nodes": []}
    problems: list[Problem] = []
    while True:
        try:
            return PlanDocument.model_validate(remaining_fields), problems
        except ValidationError as error:
            errors = error.errors(include_url=False)
            field_problems = _field_problems(
                errors, base=(), node_id=None, known_fields=PLAN_FIELDS, value=remaining_fields
            )
            problems += islice(field_problems, MAX_PROBLEMS + 1)
            remaining_fields = _remove_invalid_fields(remaining_fields, errors)


def _remove_invalid_fields(raw: Mapping[str, Any], errors: Sequence[ErrorDetails]) -> dict[str, Any]:
    """Return a plan without invalid fields; valid inputs stay, so that the checks continue with them."""
    locations = [error_details["loc"] for error_details in errors]
    invalid_names = {str(location[0]) for location in locations}
    valid_fields = {key: value for key, value in raw.items() if key not in invalid_names}
    inputs = raw.get("inputs")
    if "inputs" in invalid_names and isinstance(inputs, Mapping):
        invalid_inputs = {location[1] for location in locations if location[0] == "inputs"}
        valid_fields["inputs"] = {name: schema for name, schema in inputs.items() if name not in invalid_inputs}
    return valid_fields


def _node_problems(raw: Any, errors: Sequence[ErrorDetails], *, index: int) -> list[Problem]:
    at = ("nodes", index)
    if not isinstance(raw, Mapping):
        hint = "write an object with an id and a tool, such as {id: a, tool: NAME}"
        return [Problem("invalid_field", f"node {index} must be an object", pointer(*at), hint=hint)]
    node = raw.get("id") if isinstance(raw.get("id"), str) else None
    problems = _field_problems(errors, base=at, node_id=node, known_fields=NODE_FIELDS, value=raw)
    return list(islice(problems, MAX_PROBLEMS + 1))


def _field_problems(
    errors: Sequence[ErrorDetails],
    *,
    base: tuple[str | int, ...],
    node_id: str | None,
    known_fields: frozenset[str],
    value: Mapping[str, Any],
) -> Iterable[Problem]:
    reported_paths: set[tuple[str | int, ...]] = set()
    for error_details in errors:
        name = str(error_details["loc"][0])
        if name == "plan" and not base:
            yield _unknown_version_problem(value.get(name))
            continue
        path, expected = _path_and_expected_value(error_details["loc"], value)
        if not path or path in reported_paths:
            continue
        reported_paths.add(path)
        at = pointer(*base, *path)
        label = ".".join(str(part) for part in path)
        if error_details["type"] == "extra_forbidden":
            yield _unknown_field_problem(path, label=label, at=at, node_id=node_id, known_fields=known_fields)
        elif error_details["type"] == "missing":
            yield Problem("invalid_field", f"{label!r} is missing", pointer(*base, *path[:-1]), node_id)
        elif error_details["loc"][-1] == _KEY_STEP:
            message = f"{label}: the name of an input has letters, digits and _ only"
            valid_name = re.sub(r"\W+", "_", str(path[-1]))
            yield Problem("invalid_field", message, at, node_id, f"write {valid_name}")
        elif expected is not None or error_details["type"] in _EXPECTED_BY_ERROR:
            expected_text = expected or _EXPECTED_BY_ERROR[error_details["type"]].format(**error_details.get("ctx", {}))
            actual = value.get(name) if expected is not None and name in _EXPECTED_BY_FIELD else error_details["input"]
            allowed_texts = _ALLOWED_TEXTS.get(name, ()) if expected is not None else _QUOTED.findall(expected_text)
            hint = _hint_of_value(path, actual, allowed_texts)
            yield Problem("invalid_field", f"{label}: expected {expected_text}, not {actual!r:.60}", at, node_id, hint)
        else:
            message = error_details["msg"].removeprefix("Value error, ")
            yield Problem("invalid_field", f"{label}: {message[:1].lower()}{message[1:]}", at, node_id)


def _path_and_expected_value(
    path: tuple[str | int, ...], value: Mapping[str, Any]
) -> tuple[tuple[str | int, ...], str | None]:
    """Map a location of pydantic to the reported path and the expected value, if known.

    Returns:
        Path (empty if the error is not reported) and expected value.
    """
    name = str(path[0])
    if name == "approval" and isinstance(value.get(name), Mapping):
        # For an object, only the errors about `Human` matter, not those about other members of the union.
        return ((name, *path[2:]) if path[1:2] == (Human.__name__,) else ()), None
    if name == "agent":
        # The second step only names the member of the union.
        path = (name, *path[2:])
    if name in _EXPECTED_BY_FIELD:
        return path[:1], _EXPECTED_BY_FIELD[name]
    if path[:2] in _EXPECTED_BY_PATH:
        return path[:2], _EXPECTED_BY_PATH[path[:2]]
    return _path_of_input(path) if name == "inputs" else (path, None)


def _unknown_version_problem(version: Any) -> Problem:
    message = f"plan: this program reads plans of version {_VERSION}, not {version!r:.60}"
    hint = f"write plan: {_VERSION}; a later version needs a newer Dagwright"
    return Problem("invalid_field", message, pointer("plan"), None, hint)


def _unknown_field_problem(
    path: tuple[str | int, ...], *, label: str, at: str, node_id: str | None, known_fields: Collection[str]
) -> Problem:
    """Return the problem of an unknown field, with the allowed fields and a suggestion."""
    name = str(path[-1])
    known_fields = sorted(known_fields, key=_FIELD_ORDER.index)
    if len(path) > 1:
        known_fields = _FIELDS_OF_OBJECT.get("human" if path[0] == "approval" else str(path[0]), ())
    intended_name = "depends_on" if name in _OTHER_NAMES_OF_DEPENDS_ON and "depends_on" in known_fields else name
    message = f"unknown field {label!r}" + (
        f"; allowed are {format_names(known_fields, nearest_to=intended_name)}" if known_fields else ""
    )
    hint = suggestion(intended_name, known_fields)
    if path[0] == "agent" and name in MODEL_KEYS:
        hint = "an agent has no model: each request selects the model"
    return Problem("invalid_field", message, at, node_id, hint)


def _hint_of_value(path: tuple[str | int, ...], value: Any, allowed_texts: Collection[str]) -> str | None:
    if path == ("depends_on",) and isinstance(value, str):
        return f"write [{value:.200}]"
    if path == ("retry",) and isinstance(value, int):
        return f"write {{max_attempts: {value}}}"
    if path[-1] in ("timeout", "heartbeat", "deadline", "reminder") and isinstance(value, int):
        return f"write {value}s for seconds"
    return suggestion(value, allowed_texts) if isinstance(value, str) else None


def _path_of_input(path: tuple[str | int, ...]) -> tuple[tuple[str | int, ...], str | None]:
    """Return the path of a problem in `inputs`, and the expected value."""
    if path[-1] == _KEY_STEP:
        return path[:-1], None
    if len(path) > 2 and path[2] != "type":
        return path, None
    return path[:3], _EXPECTED_OF_INPUT[min(len(path), 3) - 1]
