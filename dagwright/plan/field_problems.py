"""Turns what pydantic says of a plan's fields into problems for the person who wrote the plan."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dagwright.plan.errors import Problem, pointer
from dagwright.plan.model import NODE_FIELDS, PLAN_FIELDS, Node, Plan
from dagwright.plan.references import suggestion

_NODES = TypeAdapter(list[Node])
_NODE = TypeAdapter(Node)

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


def read_nodes(raw_nodes: list[Any]) -> tuple[dict[int, Node], list[Problem]]:
    """Returns the nodes that are right by themselves, by their index, and the problems of the others."""
    try:
        return dict(enumerate(_NODES.validate_python(raw_nodes))), []
    except ValidationError:
        pass
    nodes: dict[int, Node] = {}
    problems: list[Problem] = []
    for index, raw in enumerate(raw_nodes):
        try:
            nodes[index] = _NODE.validate_python(raw)
        except ValidationError as error:
            problems += _node_problems(raw, error, index=index)
            rest = _without_wrong_fields(raw, error)
            if rest is not None:
                nodes[index] = rest
    return nodes, problems


def _without_wrong_fields(raw: Any, error: ValidationError) -> Node | None:
    """Returns the node without the fields that are wrong, so that what it refers to is checked all the same."""
    wrong = {str(item["loc"][0]) for item in error.errors() if item["loc"]}
    if not isinstance(raw, Mapping) or "id" in wrong:
        return None
    try:
        return _NODE.validate_python({key: value for key, value in raw.items() if key not in wrong})
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
            wrong = dict.fromkeys(str(item["loc"][0]) for item in error.errors())
            problems += list(_field_problems(error, base=(), node=None, known=PLAN_FIELDS, value=kept))
            kept = {key: value for key, value in kept.items() if key not in wrong}


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
        if name in _EXPECTED:
            place = place[:1]
        if place in told:
            continue
        told.add(place)
        at = pointer(*base, *place)
        label = ".".join(str(part) for part in place)
        if item["type"] == "extra_forbidden":
            hint = suggestion(str(place[-1]), known) if len(place) == 1 else None
            yield Problem("invalid_field", f"unknown key {label!r}", at, node, hint)
        elif item["type"] == "missing":
            yield Problem("invalid_field", f"{label!r} is missing", pointer(*base, *place[:-1]), node)
        elif name in _EXPECTED:
            given = f"{value.get(name)!r:.60}"
            yield Problem("invalid_field", f"{label}: expected {_EXPECTED[name]}, not {given}", at, node)
        else:
            message = item["msg"].removeprefix("Value error, ")
            yield Problem("invalid_field", f"{label}: {message[:1].lower()}{message[1:]}", at, node)
