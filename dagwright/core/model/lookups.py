"""Lookups as nodes: nodes that find the entities of a plan, and a node that binds the entities.

When a plan is compiled, each distinct lookup becomes a find node, which calls the tool `find` of the resolver. The tool
may ask a person. A bind node depends on all find nodes and calls the tool `bind`. The nodes that the author of the plan
wrote wait for the bind node. Find nodes and the bind node follow the visible nodes and are never shown. For the run,
they are ordinary nodes, so their human requests, results, retries, continue-as-new, forks and histories need no special
code.

When nodes are added to a plan, the nodes of their lookups are added too. Equal lookups have equal ids, so a lookup that
the run has completed is not repeated.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.error_codes import FailureCode
from dagwright.core.expressions.paths import MissingValue, get_value
from dagwright.core.expressions.references import BY_ID, Lookup, Placeholder, Reference, ResultOf
from dagwright.core.expressions.stored_values import Path, StoredValue
from dagwright.core.model.compiled import Binding, CompiledNode, CompiledPlan, RetryRule
from dagwright.core.model.resolvers import UNKNOWN_RESOLVER, Resolver, UnknownEntityType, slug_of
from dagwright.core.model.states import NodeError, NodeStatus, Record

MAX_LOOKUPS = 1_000
"""Maximum number of distinct lookups of a plan, because one call of `bind` receives the results of all lookups."""

KNOWN_BEFORE = "known before"
"""Reason of a binding whose entity was found before the run."""
KNOWN_AS = "known_as"
"""Key of `Lookup.known_as` in the arguments of a find node and in the input of `bind`."""
_DISPLAY_NAME = "called"
"""Argument with the display name of an entity that is not searched for."""
_NON_FILTER_KEYS = frozenset(
    {"search_text", "entity_type", KNOWN_AS, _DISPLAY_NAME, "entity", "reason", "created", "is_interactive"}
)
"""Keys of a lookup in documents that are not filters."""
_FOUND_ARGUMENT = "found"
"""Argument of the bind node: a list of the results of the find nodes."""
_RESOLVER_RETRY = RetryRule(max_attempts=1_000, max_delay_s=60.0)
"""A database that does not respond delays the run and must not end it."""
_ID_TEXT_BYTES = 100
"""Maximum size of the searched text in the id of the find node."""
_TITLE_CHARACTERS = 200
_ERROR_CHARACTERS = 4_000
_DEFAULT_CODE = FailureCode.LOOKUP_FAILED.value


# Creating the nodes.


class KnownEntities(dict[Lookup, Mapping[str, Any]]):
    """Lookups that were resolved before a run, each with its entity.

    Args:
        resolver: resolver of the plan, which defines the kinds of each entity type.
    """

    def __init__(self, entities: Mapping[Lookup, Mapping[str, Any]], resolver: Resolver) -> None:
        super().__init__(entities)
        self.resolver = resolver


def is_find_node(node: CompiledNode) -> bool:
    """Return whether a node finds the entity of a lookup."""
    return node.kind == "lookup" and not node.bindings


def is_bind_node(node: CompiledNode) -> bool:
    """Return whether a node binds the results of find nodes."""
    return node.kind == "lookup" and bool(node.bindings)


def with_lookups(plan: CompiledPlan, lookups: Sequence[Lookup], resolver: Resolver) -> CompiledPlan:
    """Return a compiled plan with the nodes for the lookups of the plan and its sub-plans.

    Args:
        plan: without regions; each lookup is replaced with a placeholder with the name `Lookup.input_name`.
        lookups: distinct, in order of their first mention.
    """
    if not lookups:
        return plan
    lookup_groups = _group_by_find_id(lookups, [node.id for node in plan.nodes])
    bind_node = _create_bind_node([*lookup_groups], resolver.bind, first_find_number=len(plan.nodes))
    result_index = {find_id: index for index, find_id in enumerate(lookup_groups)}
    entity_references: dict[str, Reference] = {
        lookup.input_name: ResultOf(bind_node.id, "result", (result_index[find_id], "entity", "id"))
        for find_id, group in lookup_groups.items()
        for lookup in group
    }
    bind_number = len(plan.nodes) + len(lookup_groups)
    nodes = [_add_bind_dependency(node, bind_number, entity_references) for node in plan.nodes]
    find_nodes = [_create_find_node(find_id, group[0], resolver.find) for find_id, group in lookup_groups.items()]
    return replace(plan, nodes=(*nodes, *find_nodes, bind_node), tools={**plan.tools, **resolver.tools()})


def _group_by_find_id(lookups: Sequence[Lookup], used_ids: Sequence[str]) -> dict[str, list[Lookup]]:
    """Return id of a find node -> the lookups that mean the same entity."""
    prefix = "lookup"
    while any(node_id.startswith(prefix) for node_id in used_ids):
        prefix = "_" + prefix
    groups: dict[str, list[Lookup]] = {}
    ids: dict[tuple[Any, ...], str] = {}
    for lookup in lookups:
        text = _id_text(lookup.search_text)
        key = (lookup.known_as, slug_of(lookup.entity_type), text, lookup.filters)
        if key not in ids:
            parts = [prefix, lookup.known_as or "", *key[1:3], *(value for _, value in lookup.filters)]
            ids[key] = _unique_id(":".join(filter(None, parts)), key, groups)
        groups.setdefault(ids[key], []).append(lookup)
    return groups


def _unique_id(node_id: str, key: Sequence[Any], used_ids: Collection[str]) -> str:
    """Return the id. If a lookup with other filter names has this id, add a digest of the key."""
    return node_id if node_id not in used_ids else f"{node_id}:{hashlib.sha256(repr(key).encode()).hexdigest()[:8]}"


def _id_text(text: str) -> str:
    """Return a text for an id: on one line, and cut with a digest if it is long."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    if len(line.encode(errors="replace")) <= _ID_TEXT_BYTES:
        return line
    shortened_line = line.encode(errors="replace")[:_ID_TEXT_BYTES].decode(errors="ignore")
    return f"{shortened_line}…{hashlib.sha256(line.encode(errors='replace')).hexdigest()[:8]}"


def _create_find_node(node_id: str, lookup: Lookup, tool: str) -> CompiledNode:
    title = f"looking up {lookup.search_text[:_TITLE_CHARACTERS]!r} ({lookup.entity_type})"
    return CompiledNode(node_id, "lookup", title, tool, _arguments_of(lookup), retry=_RESOLVER_RETRY)


def _arguments_of(lookup: Lookup) -> dict[str, Any]:
    arguments = {"search_text": lookup.search_text, "entity_type": lookup.entity_type}
    optional_arguments = {**dict(lookup.filters), KNOWN_AS: lookup.known_as, _DISPLAY_NAME: lookup.display_name or None}
    return {**arguments, **{key: value for key, value in optional_arguments.items() if value is not None}}


def _create_bind_node(find_ids: Sequence[str], tool: str, *, first_find_number: int) -> CompiledNode:
    """Return the node that binds the results of find nodes.

    Args:
        find_ids: ids of the find nodes.
        first_find_number: number of the first find node.
    """
    prefix = find_ids[0].partition(":")[0]
    digest = hashlib.sha256("\0".join(find_ids).encode(errors="replace")).hexdigest()[:8]
    bindings = tuple(
        ((_FOUND_ARGUMENT, index), (ResultOf(find_id, "result"),)) for index, find_id in enumerate(find_ids)
    )
    return CompiledNode(
        # Equal lookups have an equal id, also when nodes are added to the plan.
        f"{prefix}s:{digest}",
        "lookup",
        "binding the found entities",
        tool,
        {_FOUND_ARGUMENT: [None] * len(find_ids)},
        bindings,
        tuple(range(first_find_number, first_find_number + len(find_ids))),
        retry=_RESOLVER_RETRY,
        projections=tuple(((index,), "whole") for index in range(len(find_ids))),
    )


def _add_bind_dependency(
    node: CompiledNode, bind_number: int, entity_references: Mapping[str, Reference]
) -> CompiledNode:
    """Return a node that waits for the bind node and reads the bound entities."""
    bindings = [
        (path, (entity_references[template[0].name],))
        if isinstance(template[0], Placeholder) and template[0].name in entity_references
        else (path, template)
        for path, template in node.bindings
    ]
    # With a join other than `all`, the completed bind node could start the node too early. The other dependencies of
    # the node wait for the bind node already.
    needs_edge = not node.dependencies or node.join[0] == "all"
    dependencies = (*node.dependencies, bind_number) if needs_edge else node.dependencies
    return replace(node, bindings=tuple(bindings), dependencies=dependencies)


def with_inherited_lookups(
    arguments: Any, bindings: Sequence[Binding], lookups: Sequence[Lookup]
) -> tuple[Any, tuple[Binding, ...]]:
    """Return the arguments and bindings of a sub-plan, with an input for each lookup that the parent run binds."""
    inputs = {lookup.input_name: None for lookup in lookups}
    lookup_bindings: list[Binding] = [((lookup.input_name,), (Placeholder(lookup.input_name),)) for lookup in lookups]
    return {**arguments, **inputs}, (*bindings, *lookup_bindings)


# Results of lookups.


def known_entities_to_json(known_entities: Mapping[Lookup, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return lookups that were resolved before the run, each with its entity, as JSON in the form of
    `resolved_lookups`.
    """
    return [{**_arguments_of(lookup), "entity": dict(entity)} for lookup, entity in known_entities.items()]


def known_entities_from_json(encoded: Any) -> dict[Lookup, dict[str, Any]]:
    """Parse the result of `known_entities_to_json`, or entries of `resolved_lookups`.

    Raises:
        KeyError, TypeError, ValueError: the form is invalid.
    """
    known_entities: dict[Lookup, dict[str, Any]] = {}
    for entry in encoded:
        lookup = Lookup(str(entry["search_text"]), str(entry["entity_type"]), filters_in(entry))
        entity = dict(entry["entity"])
        if not isinstance(entity.get("id"), str):
            raise ValueError(f"the entity of {lookup.search_text!r:.80} has no id")
        known_entities[lookup] = entity
    return known_entities


def lookup_of(node: CompiledNode) -> Lookup:
    """Return the lookup of a find node."""
    arguments = node.arguments
    return Lookup(arguments["search_text"], arguments["entity_type"], filters_in(arguments))


def has_readable_filters(entry: Mapping[str, Any]) -> bool:
    """Return whether all filters of a lookup in a document are texts or omitted."""
    return all(isinstance(value, str | None) for name, value in entry.items() if name not in _NON_FILTER_KEYS)


def filters_in(entry: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the filters of a lookup entry, in order of their names."""
    named_values = ((name, value) for name, value in sorted(entry.items()) if name not in _NON_FILTER_KEYS)
    return tuple((name, value) for name, value in named_values if isinstance(value, str))


def known_result(node: CompiledNode, known_entities: Mapping[Lookup, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the result of a find node whose entity is known without a call; `None` for any other find node.

    The entity is in the plan, or was resolved before the run. The bind node detects later changes of the entity.

    Args:
        known_entities: lookups that were resolved before the run -> the entity of each.
    """
    arguments = node.arguments
    resolver = known_entities.resolver if isinstance(known_entities, KnownEntities) else UNKNOWN_RESOLVER
    if (known_as := arguments.get(KNOWN_AS)) is not None:
        kinds = [*(_kinds_of(arguments["entity_type"], resolver) or ())]
        return {"entity": {"id": arguments["search_text"]}, "reason": known_as, KNOWN_AS: known_as, "kinds": kinds}
    lookup = lookup_of(node)
    entity = known_entities.get(lookup) or _entity_of_wider_lookup(lookup, known_entities, resolver)
    return None if entity is None else {"entity": dict(entity), "reason": KNOWN_BEFORE}


def _entity_of_wider_lookup(
    requested_lookup: Lookup, known_entities: Mapping[Lookup, Mapping[str, Any]], resolver: Resolver
) -> Mapping[str, Any] | None:
    """Return the entity of an earlier lookup of the same text that searched at least all requested kinds."""
    for lookup, entity in known_entities.items():
        if (lookup.search_text, lookup.filters) == (requested_lookup.search_text, requested_lookup.filters):
            kinds, searched_kinds = (
                _kinds_of(requested_lookup.entity_type, resolver),
                _kinds_of(lookup.entity_type, resolver),
            )
            is_wider = searched_kinds is None or (kinds is not None and set(kinds) <= set(searched_kinds))
            if is_wider and kinds is not None and entity.get("kind") in kinds:
                return entity
    return None


def _kinds_of(entity_type: str, resolver: Resolver) -> tuple[str, ...] | None:
    """Return the kinds of an entity type: `None` for any kind, `()` for a type that this resolver does not know."""
    try:
        return resolver.kinds_of(entity_type)
    except UnknownEntityType:
        return ()


# Texts for people.


def lookup_text(plan: CompiledPlan, part: Reference) -> str | None:
    """Return the text of the lookup that a reference in an argument reads; `None` if it reads no lookup."""
    if not isinstance(part, ResultOf):
        return None
    lookup_nodes = {node.id: node for node in plan.nodes[plan.visible_count :] if node.kind == "lookup"}
    find_id = id_of_find_node(lookup_nodes.get(part.node_id), part.path)
    if find_id is None:
        return None
    arguments = lookup_nodes[find_id].arguments
    text, known_as = str(arguments["search_text"])[:_TITLE_CHARACTERS], arguments.get(KNOWN_AS)
    if known_as is None:
        return f"{text} ({arguments['entity_type']})"
    name_prefix = f"{arguments[_DISPLAY_NAME]}, " if _DISPLAY_NAME in arguments else ""
    return text if known_as == BY_ID else f"{known_as} ({name_prefix}{text})"


def entities_of_call(
    node: CompiledNode, arguments: Any, *, record_of: Callable[[str], Record | None]
) -> dict[str, str]:
    """Return the entities in the arguments of a call, if the run knows their names: id -> name and kind.

    Args:
        arguments: arguments with every binding filled.
        record_of: returns the record of a node.
    """
    entities: dict[str, str] = {}
    for path, template in node.bindings:
        part = template[0]
        if len(path) != 1 or len(template) != 1 or not isinstance(part, ResultOf):
            continue
        record = record_of(part.node_id)
        entity_path = part.path[:-1] if part.path[-1:] == ("id",) else part.path
        entity_id, name, kind = (
            _text_at(record.result if record is not None else None, (*entity_path, key))
            for key in ("id", "name", "kind")
        )
        if entity_id and name and isinstance(arguments, Mapping) and arguments.get(path[0]) == entity_id:
            entities[entity_id] = f"{name} ({kind})" if kind else name
    return entities


def _text_at(result: Any, path: Path) -> str | None:
    try:
        value = get_value(result, path, name="")
    except MissingValue:
        return None
    return value[:_TITLE_CHARACTERS] if isinstance(value, str) else None


def has_entity(result: Any) -> bool:
    """Return whether a find node has found an entity, or decided to create one."""
    return not (isinstance(result, Mapping) and "problem" in result)


def binding_error(result: Any) -> NodeError | None:
    """Return the error of the lookups that could not be bound, or `None`.

    Args:
        result: result of the bind node.
    """
    problems = [entry["problem"] for entry in _entries(result) if "problem" in entry]
    if not problems:
        return None
    message = " ".join(str(problem.get("message")) for problem in problems)
    return NodeError(str(problems[0].get("code") or _DEFAULT_CODE), message[:_ERROR_CHARACTERS])


def has_created_entity(result: Any) -> bool:
    """Return whether a call of the bind node has created an entity."""
    entries = _entries(result)
    return not any("problem" in entry for entry in entries) and any(entry.get("created", True) for entry in entries)


def resolved_lookups(plan: CompiledPlan, records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield each resolved lookup of a run once, in order, with its entity, the reason, and whether the entity is
    new.
    """
    yielded_ids: set[str] = set()
    for node, record, entry in _bind_entries(plan, records):
        if record.status is NodeStatus.COMPLETED and node.id not in yielded_ids and KNOWN_AS not in node.arguments:
            yielded_ids.add(node.id)
            # A text with an unknown key would be read as a filter of the lookup.
            known_keys = {*_NON_FILTER_KEYS, *node.arguments}
            yield {
                **node.arguments,
                **{name: value for name, value in entry.items() if name in known_keys or not isinstance(value, str)},
            }


def resolved_lookups_of_node(
    node: CompiledNode, plan: CompiledPlan, records: Sequence[Record]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield for each argument with a lookup: its name, the id of the find node, and the entry of the lookup."""
    entries = {
        find_node.id: {**find_node.arguments, **entry}
        for find_node, record, entry in _bind_entries(plan, records)
        if record.status is NodeStatus.COMPLETED and "entity" in entry
    }
    lookup_nodes = (
        {lookup_node.id: lookup_node for lookup_node in plan.nodes[plan.visible_count : plan.count_without_regions]}
        if entries
        else {}
    )
    for path, template in node.bindings:
        part = template[0]
        find_id = id_of_find_node(lookup_nodes.get(part.node_id), part.path) if isinstance(part, ResultOf) else None
        if find_id in entries:
            yield str(path[0]), find_id, entries[find_id]


def lookup_problems(plan: CompiledPlan, records: Sequence[Record]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the lookups that could not be bound: the id of the find node, and its problem."""
    yielded_ids: set[str] = set()
    for node, record, entry in _bind_entries(plan, records):
        if record.status is NodeStatus.FAILED and "problem" in entry and node.id not in yielded_ids:
            yielded_ids.add(node.id)
            yield node.id, entry["problem"]


def _bind_entries(
    plan: CompiledPlan, records: Sequence[Record]
) -> Iterator[tuple[CompiledNode, Record, dict[str, Any]]]:
    """Yield find nodes, each with the record of its bind node and its entry in the result of the bind node."""
    for number in range(plan.visible_count, plan.count_without_regions):
        node, record = plan.nodes[number], records[number]
        if is_bind_node(node) and record.result is not None:
            for find_node, entry in zip(_find_nodes_bound_by(node, plan), _entries(record.result), strict=False):
                yield find_node, record, entry


def id_of_find_node(producer: CompiledNode | None, path: Any) -> str | None:
    """Return the id of the find node for a path in a result; `None` if no lookup is bound there.

    Args:
        producer: the node that made the result.
        path: path in the result.
    """
    if producer is None or not is_bind_node(producer) or not isinstance(path, tuple) or not path:
        return None
    for binding_path, template in producer.bindings:
        if binding_path == (_FOUND_ARGUMENT, path[0]) and isinstance(template[0], ResultOf):
            return template[0].node_id
    return None


def _find_nodes_bound_by(bind_node: CompiledNode, plan: CompiledPlan) -> list[CompiledNode]:
    """Return the find nodes of a bind node, in the order of its result."""
    nodes = {plan.nodes[number].id: plan.nodes[number] for number in bind_node.dependencies}
    find_ids = [template[0].node_id for _, template in bind_node.bindings if isinstance(template[0], ResultOf)]
    return [nodes[find_id] for find_id in find_ids if find_id in nodes]


def _entries(result: Any) -> list[dict[str, Any]]:
    """Return the entries in the result of `bind`; empty entries if they are only in the payload store."""
    if isinstance(result, StoredValue) and result.shape is not None:
        return [_entry_at(result, index) for index in range(result.shape.length)]
    entries = result if isinstance(result, list) else []
    return [entry if isinstance(entry, dict) else {} for entry in entries]


def _entry_at(result: StoredValue, index: int) -> dict[str, Any]:
    try:
        entry = get_value(result, (index,), name="")
    except MissingValue:
        return {}
    return entry if isinstance(entry, dict) else {}
