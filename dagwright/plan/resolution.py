"""Puts values where references stand.

A reference that is a whole text keeps the type of its value. Inside of longer text a string goes in as it is
and anything else as compact JSON. Values are never looked into for references.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.plan.arguments import with_parts
from dagwright.plan.compiled import Hole, HolePath
from dagwright.plan.paths import MissingValue, get_value
from dagwright.plan.references import Index, Item, Lookup, Placeholder, Reference, ResultOf, Secret, Template
from dagwright.plan.work import WorkBudget

WorkerHole = tuple[HolePath, list[dict[str, str]]]
"""A path into the arguments and the parts (`{"text"}` or `{"secret"}`) that the worker joins there."""


class MissingData(Exception):
    """A reference leads nowhere: `Missing data: <reference>: …` (design.md section 4)."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where the values of references come from.

    Args:
        node_value: (node id, `result | status | error`) -> the value, null where there is none.
        inputs: values of the inputs by name.
        lookups: ids of the parties that were looked up.
        item, index: of the `for_each`, if there is one.
        budget: what queries may cost at this moment.
        answers: (node id, query) -> what the query found in the node's result, which does not change any more.
    """

    node_value: Callable[[str, str], Any]
    inputs: Mapping[str, Any]
    lookups: Mapping[Lookup, Any]
    item: Any = None
    index: int | None = None
    budget: WorkBudget = field(default_factory=WorkBudget)
    answers: dict[tuple[str, str], Any] = field(default_factory=dict)


def resolve_holes(value: Any, holes: Sequence[Hole], *, scope: Scope) -> tuple[Any, list[WorkerHole]]:
    """Returns the value with every hole filled, and the holes that only the worker may fill.

    Where a secret belongs, the text stands with the name of the secret, for whoever looks at it.

    Raises:
        MissingData: a reference leads nowhere.
        TooMuchWork: a query would take too long.
    """
    if not holes:
        return value, []
    for_worker: list[WorkerHole] = []
    filled: list[tuple[HolePath, Any]] = []
    for path, template in holes:
        if any(isinstance(part, Secret) for part in template):
            parts = [_worker_part(part, scope) for part in template]
            for_worker.append((path, parts))
            shown = [part.get("text", "{{secret." + part.get("secret", "") + "}}") for part in parts]
            filled.append((path, "".join(shown)))
        else:
            filled.append((path, resolve_template(template, scope=scope)))
    return with_parts(value, filled), for_worker


def _worker_part(part: str | Reference, scope: Scope) -> dict[str, str]:
    if isinstance(part, Secret):
        return {"secret": part.name}
    return {"text": part if isinstance(part, str) else as_text(_value_of(part, scope))}


def resolve_template(template: Template, *, scope: Scope) -> Any:
    """Returns the value of a template; see the module for types.

    Raises:
        MissingData: a reference leads nowhere.
        TooMuchWork: a query would take too long.
    """
    if len(template) == 1:
        part = template[0]
        return part if isinstance(part, str) else _value_of(part, scope)
    return "".join(part if isinstance(part, str) else as_text(_value_of(part, scope)) for part in template)


def as_text(value: Any) -> str:
    """Returns how a value stands inside of a longer text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _value_of(reference: Reference, scope: Scope) -> Any:
    try:
        match reference:
            case ResultOf(node, "identity"):
                result = scope.node_value(node, "result")
                return result["id"] if isinstance(result, dict) and "id" in result else result
            case ResultOf(node, field_name, path):
                value = scope.node_value(node, field_name)
                if value is None and scope.node_value(node, "status") != "completed":
                    # What did not complete has no result, so no path into it can be right or wrong.
                    return None
                if isinstance(path, str) and field_name == "result":
                    return _answer_of(node, path, value, scope)
                return get_value(value, path, start=f"{node}.{field_name}", budget=scope.budget)
            case Item(path):
                return get_value(scope.item, path, start="item", budget=scope.budget)
            case Index():
                return scope.index
            case Placeholder(name):
                return scope.inputs.get(name)
            case Lookup():
                return scope.lookups[reference]
            case Secret():
                raise MissingData(f"{reference} can be used in the arguments of a tool only")
    except MissingValue as error:
        raise MissingData(f"Missing data: {reference}: {error}") from None


def _answer_of(node: str, query: str, value: Any, scope: Scope) -> Any:
    """Returns what a query finds in a result; thousands of items may ask the same."""
    if (node, query) not in scope.answers:
        scope.answers[node, query] = get_value(value, query, start=f"{node}.result", budget=scope.budget)
    return scope.answers[node, query]
