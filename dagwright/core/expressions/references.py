"""Types of references to values, and the replacement of references by their values (docs/reference/plan.md).

A reference that is a whole text keeps the type of its value. Inside of a longer text, a string is inserted unchanged
and any other value as compact JSON. Values are never searched for references.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dagwright.core.expressions.compute_budget import ComputeBudget
from dagwright.core.expressions.paths import MissingValue, format_path, get_value, replace_parts
from dagwright.core.expressions.stored_values import DeferredText, Path, Secret, StoredValue, is_inline_value

if TYPE_CHECKING:
    from dagwright.core.model.compiled import Binding

MAX_ID_BYTES = 200
"""Maximum size of a node id in UTF-8. Activity ids contain node ids, and Temporal limits them to 1,000 bytes."""

Field = Literal["result", "status", "error", "identity"]
"""`identity` is the value of `@result_N`: the `id` of a result that is an object with an id, otherwise the result."""


@dataclass(frozen=True, slots=True)
class ResultOf:
    """Reference to a value of another node: `{{node.result.path}}`."""

    node_id: str
    field: Field
    path: Path = ()

    def __str__(self) -> str:
        return f"{self.node_id}.{self.field}{format_path(self.path)}" if self.field != "identity" else self.node_id


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Reference to an input that a person gives before the run: `{{PLACEHOLDER_name}}`."""

    name: str

    def __str__(self) -> str:
        return f"PLACEHOLDER_{self.name}"


@dataclass(frozen=True, slots=True)
class Item:
    """Reference to the item of the surrounding `for_each`: `{{item.path}}`."""

    path: Path = ()

    def __str__(self) -> str:
        return f"item{format_path(self.path)}"


@dataclass(frozen=True, slots=True)
class Index:
    """Reference to the position of the item, from 0: `{{index}}`."""

    def __str__(self) -> str:
        return "index"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Reference to an entity that is looked up before other nodes run; its value is the id of the entity.

    A plan reads a lookup as an input that is not requested from users. The author of a plan cannot write the name of
    this input.

    Args:
        search_text: the searched text; for a known entity, its id.
        entity_type: the type as written; for a known entity, the kinds that the argument accepts (`company or fund`).
        filters: (name, value) pairs that narrow the search, in order of the names.
        known_as: for an entity that needs no search, its name in the plan: `@order` if the session has the entity,
            `BY_ID` if the plan has its id.
        display_name: name of a known entity in texts for people; empty if only its id is known.
    """

    search_text: str
    entity_type: str
    filters: tuple[tuple[str, str], ...] = ()
    known_as: str | None = None
    display_name: str = field(default="", compare=False)

    @property
    def input_name(self) -> str:
        """Name of the input. Equal lookups have the same name."""
        key = [self.search_text, self.entity_type, self.filters, self.known_as]
        return LOOKUP_INPUT + hashlib.sha256(json.dumps(key, ensure_ascii=True).encode()).hexdigest()[:20]


BY_ID = "id"
"""`Lookup.known_as` of an entity whose id is written in the plan."""
LOOKUP_INPUT = "~lookup:"
"""Prefix of the names of inputs for lookups."""
Reference = ResultOf | Placeholder | Item | Index | Secret
TemplatePart = str | Reference
Template = tuple[TemplatePart, ...]
"""A text in parts. A single part that is a reference keeps the type of its value; otherwise the parts are joined."""


NODE_VALUE_FIELDS: tuple[Field, ...] = ("result", "status", "error")
"""Fields of a node that templates and conditions can read."""


def references_in(templates: Iterable[Template]) -> Iterator[Reference]:
    """Return the references of templates, in order."""
    return (part for template in templates for part in template if not isinstance(part, str))


_encode_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class UnresolvedReference(Exception):
    """A reference cannot be resolved. The message is `Missing data: <reference>: …`."""

    code = "missing_data"
    """Error code of a node that fails because of the reference."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Sources of the values of references.

    Args:
        get_node_value: node id, `result | status | error` -> the value, null if there is no value.
        inputs: values of the inputs by name.
        item, index: item of the `for_each` and its index, if there is one.
        budget: budget of queries in this activation.
        query_matches: (node id, query) -> matches in the node's result; a cache, because results never change.
    """

    get_node_value: Callable[[str, str], Any]
    inputs: Mapping[str, Any]
    item: Any = None
    index: int | None = None
    budget: ComputeBudget = field(default_factory=ComputeBudget)
    query_matches: dict[tuple[str, str], Any] = field(default_factory=dict)


def scope_of_item(scope: Scope, item: Any, *, index: int) -> Scope:
    """Return the scope of one item of a `for_each`."""
    # A call of `replace` would take longer than all other work of computing the `key` of an item.
    return Scope(scope.get_node_value, scope.inputs, item, index, scope.budget, scope.query_matches)


def resolve_bindings(value: Any, bindings: "Sequence[Binding]", *, scope: Scope) -> Any:
    """Return the value with its bindings filled.

    Secrets and stored values remain references, which the worker replaces; see `dagwright.core.expressions.value_refs`.

    Raises:
        UnresolvedReference: a reference cannot be resolved.
        ComputeBudgetExceeded: a query would take too long.
    """
    return replace_parts(value, [(path, resolve_template(template, scope=scope)) for path, template in bindings])


def resolve_template(template: Template, *, scope: Scope) -> Any:
    """Return the value of a template; see the module docstring for its type.

    If a part of a text is a secret or a stored value, the result is a `DeferredText`.

    Raises:
        UnresolvedReference: a reference cannot be resolved.
        ComputeBudgetExceeded: a query would take too long.
    """
    if len(template) == 1:
        part = template[0]
        value = part if isinstance(part, str) else _value_of(part, scope)
        return DeferredText([value]) if isinstance(value, Secret) else value
    parts = [part if isinstance(part, str) else _value_of(part, scope) for part in template]
    if all(map(_is_available, parts)):
        return "".join(map(as_text, parts))
    return DeferredText([as_text(part) if _is_available(part) else part for part in parts])


def _is_available(part: Any) -> bool:
    """Return whether a value can be formatted as text here: it is not a secret, and has no stored parts."""
    return not isinstance(part, Secret) and is_inline_value(part)


def as_text(value: Any) -> str:
    """Return a value as part of a longer text."""
    return value if isinstance(value, str) else _encode_compact(value)


def _value_of(reference: Reference, scope: Scope) -> Any:
    try:
        if isinstance(reference, ResultOf):
            return _result_of(reference, scope)
        match reference:
            case Item(path):
                return get_value(scope.item, path, name="item", budget=scope.budget)
            case Index():
                return scope.index
            case Placeholder(name):
                return get_value(scope.inputs.get(name), (), name=name)
            case Secret():
                return reference
    except MissingValue as error:
        raise UnresolvedReference(f"Missing data: {reference}: {error}") from None


def _result_of(reference: ResultOf, scope: Scope) -> Any:
    node_id, path, field_name = reference.node_id, reference.path, reference.field
    if field_name == "identity":
        return _identity_of(scope.get_node_value(node_id, "result"))
    value = scope.get_node_value(node_id, field_name)
    if value is None and scope.get_node_value(node_id, "status") != "completed":
        # A node that did not complete has no result, so its paths cannot be checked.
        return None
    if isinstance(path, str) and field_name == "result":
        return _matches_of(node_id, path, value, scope)
    if not path and not isinstance(value, StoredValue):
        return value
    return get_value(value, path, name=f"{node_id}.{field_name}", budget=scope.budget)


def _identity_of(result: Any) -> Any:
    if isinstance(result, StoredValue):
        id_part, _ = result.part_at(("id",))
        # A list or a text has no id, and an object may lack an id.
        is_missing = not isinstance(id_part, StoredValue) and id_part.state == "missing"
        return result if is_missing else get_value(result, ("id",), name=result.name)
    return result["id"] if isinstance(result, dict) and "id" in result else result


def _matches_of(node_id: str, query: str, value: Any, scope: Scope) -> Any:
    """Return the matches of a query in a result, cached because thousands of items may use the same query."""
    if (node_id, query) not in scope.query_matches:
        scope.query_matches[node_id, query] = get_value(value, query, name=f"{node_id}.result", budget=scope.budget)
    return scope.query_matches[node_id, query]
