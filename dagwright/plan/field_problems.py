"""Turns what pydantic says of a plan's fields into problems for the person who wrote the plan."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dagwright.plan.agent_cards import MODEL_WORDS, InlineAgent
from dagwright.plan.errors import Problem, pointer
from dagwright.plan.model import NODE_FIELDS, PLAN_FIELDS, Node, Plan
from dagwright.plan.references import suggestion

_NODES = TypeAdapter(list[Node])
_NODE = TypeAdapter(Node)

_DEPENDENCIES = ("needs", "after", "requires", "dependencies", "dependsOn", "depends")
"""What other formats call `depends_on`."""
_EXPECTED = {
    "join": "all, any, all_done or {at_least: k}",
    "on_error": "block, skip, ask, replan or {value: …}",
    "approval": "policy, required, never or an object like human",
    "cache": "off or {ttl: 1h}",
    "for_each": "a reference to a list or a list",
    "plan": "a plan or the path of a file with one",
    "depends_on": "a list of node ids",
    "arguments": "an object",
    "on_failure": "continue or fail_fast",
}
"""What a field of several kinds may hold; pydantic would tell of each kind apart."""

_EXPECTED_INSIDE: Mapping[tuple[str | int, ...], str] = {
    ("human", "on_timeout"): "fail, {default: …} or {escalate: …}",
    ("human", "options"): "a list or a reference to one",
}
_EXPECTED_OF_INPUT = {
    0: "an object of inputs, such as {count: {type: integer}}",
    1: "an object, such as {type: string, prompt: …}",
    2: "the name of a JSON type, or a list of them",
}
"""The same for `inputs`, one of them, and the `type` of one, by depth."""

_OF_TYPE = {
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
"""What pydantic calls a mistake -> what it expected."""

_NAME_OF_INPUT = "[key]"
"""Where pydantic places what is wrong with a key of an object."""


def read_nodes(raw_nodes: list[Any]) -> tuple[dict[int, Node], list[Problem]]:
    """Returns the nodes that are right by themselves, by their index, and the problems of the others."""
    try:
        return dict(enumerate(_NODES.validate_python(raw_nodes))), []
    except ValidationError:
        pass
    nodes: dict[int, Node] = {}
    problems: list[Problem] = []
    taken = {raw.get("id") for raw in raw_nodes if isinstance(raw, Mapping) and isinstance(raw.get("id"), str)}
    for index, raw in enumerate(raw_nodes):
        try:
            nodes[index] = _NODE.validate_python(raw)
        except ValidationError as error:
            problems += _node_problems(raw, error, index=index)
            stand_in = f"node {index}"
            while stand_in in taken:
                stand_in += "'"
            rest = _without_wrong_fields(raw, error, stand_in=stand_in)
            if rest is not None:
                nodes[index] = rest
    return nodes, problems


def _without_wrong_fields(raw: Any, error: ValidationError, *, stand_in: str) -> Node | None:
    """Returns the node without the fields that are wrong, so that what it refers to is checked all the same.

    Args:
        stand_in: its id if its own is wrong.
    """
    if not isinstance(raw, Mapping):
        return None
    wrong = {str(item["loc"][0]) for item in error.errors() if item["loc"]}
    kept = {key: value for key, value in raw.items() if key not in wrong}
    try:
        return _NODE.validate_python({**kept, "id": stand_in} if "id" in wrong else kept)
    except ValidationError:
        return None


def read_plan_fields(raw: Mapping[str, Any]) -> tuple[Plan, list[Problem]]:
    """Returns a plan without nodes, with the fields that are right, and the problems of the others."""
    kept = {key: value for key, value in raw.items() if key != "nodes"} | {"nodes": []}
    problems: list[Problem] = []
    while True:
        try:
            return Plan.model_validate(kept), problems
        except ValidationError as error:
            problems += list(_field_problems(error, base=(), node=None, known=PLAN_FIELDS, value=kept))
            kept = _without_wrong_parts(kept, error)


def _without_wrong_parts(raw: Mapping[str, Any], error: ValidationError) -> dict[str, Any]:
    """Returns a plan without the fields that are wrong; of its inputs only those go, so that the rest is checked."""
    places = [item["loc"] for item in error.errors()]
    wrong = {str(place[0]) for place in places}
    kept = {key: value for key, value in raw.items() if key not in wrong}
    inputs = raw.get("inputs")
    if "inputs" in wrong and isinstance(inputs, Mapping):
        named = {place[1] for place in places if place[0] == "inputs"}
        kept["inputs"] = {name: declared for name, declared in inputs.items() if name not in named}
    return kept


def _node_problems(raw: Any, error: ValidationError, *, index: int) -> list[Problem]:
    at = ("nodes", index)
    if not isinstance(raw, Mapping):
        return [Problem("invalid_field", f"node {index} is no object", pointer(*at))]
    node = raw.get("id") if isinstance(raw.get("id"), str) else None
    return list(_field_problems(error, base=at, node=node, known=NODE_FIELDS, value=raw))


def _field_problems(
    error: ValidationError,
    *,
    base: tuple[str | int, ...],
    node: str | None,
    known: frozenset[str],
    value: Mapping[str, Any],
) -> Iterable[Problem]:
    told: set[tuple[str | int, ...]] = set()
    for item in error.errors(include_url=False):
        place = item["loc"]
        name = str(place[0])
        if name == "agent":
            # What follows says only which way of writing it is meant.
            place = (name, *place[2:])
        expected = _EXPECTED.get(name)
        if expected is not None:
            place = place[:1]
        elif place[:2] in _EXPECTED_INSIDE:
            place, expected = place[:2], _EXPECTED_INSIDE[place[:2]]
        elif name == "inputs":
            place, expected = _place_of_input(place)
        if place in told:
            continue
        told.add(place)
        at = pointer(*base, *place)
        label = ".".join(str(part) for part in place)
        if item["type"] == "extra_forbidden":
            hint = _hint_of(str(place[-1]), known) if len(place) == 1 else _hint_inside(place)
            yield Problem("invalid_field", f"unknown key {label!r}", at, node, hint)
        elif item["type"] == "missing":
            yield Problem("invalid_field", f"{label!r} is missing", pointer(*base, *place[:-1]), node)
        elif item["loc"][-1] == _NAME_OF_INPUT:
            message = f"{label}: the name of an input has letters, digits and _ only"
            yield Problem("invalid_field", message, at, node)
        elif expected is not None or item["type"] in _OF_TYPE:
            wanted = expected or _OF_TYPE[item["type"]].format(**item.get("ctx", {}))
            given = f"{value.get(name) if name in _EXPECTED else item['input']!r:.60}"
            yield Problem("invalid_field", f"{label}: expected {wanted}, not {given}", at, node)
        else:
            message = item["msg"].removeprefix("Value error, ")
            yield Problem("invalid_field", f"{label}: {message[:1].lower()}{message[1:]}", at, node)


def _hint_of(name: str, known: frozenset[str]) -> str | None:
    """Returns what may have been meant by an unknown key: one that is near, or what it is called elsewhere."""
    meant = "depends_on" if name in _DEPENDENCIES and "depends_on" in known else None
    return f"did you mean {meant!r}?" if meant is not None else suggestion(name, known)


def _hint_inside(place: tuple[str | int, ...]) -> str | None:
    """Returns what may have been meant by a key inside of an agent that stands in a node."""
    if place[0] != "agent":
        return None
    if place[-1] in MODEL_WORDS:
        return "an agent has no model: each request says which one is asked"
    return suggestion(str(place[-1]), list(InlineAgent.model_fields))


def _place_of_input(place: tuple[str | int, ...]) -> tuple[tuple[str | int, ...], str | None]:
    """Returns the place in the document of what is wrong with `inputs`, and what is expected there."""
    if place[-1] == _NAME_OF_INPUT:
        return place[:-1], None
    if len(place) > 2 and place[2] != "type":
        return place, None
    return place[:3], _EXPECTED_OF_INPUT[min(len(place), 3) - 1]
