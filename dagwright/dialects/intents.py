"""The dialect `intents`: `{"intents": [{"verb", "params", "refs", "lookups"}], "explanation", "confidence"}`.

The result of intent N is `@result_N`. A ref is the result of an intent, or a name in the session such as
`@order`. A lookup describes an existing entity. The params, refs and lookups become the arguments of the verb.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from dagwright.core.errors import Note, Problem, pointer
from dagwright.core.expressions.references import Lookup, ResultOf
from dagwright.core.model.document import Document
from dagwright.core.model.json_schemas import parser_of
from dagwright.core.model.resolvers import UNKNOWN_RESOLVER, Resolver, UnknownEntityType, resolver_of
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.name_hints import suggestion
from dagwright.dialects.draft import STAND_IN_ACTION, DocumentDraft, ObjectReader, action_of_tool
from dagwright.dialects.foreign import key_problems
from dagwright.dialects.json_reader import describe

_KEYS = frozenset({"verb", "params", "refs", "lookups"})
_GROUPS = ("params", "refs", "lookups")
_LOOKUP_KEYS = frozenset({"search_text", "entity_type"})
_RESULT = re.compile(r"@result_([1-9][0-9]*)")
_RESULT_IN_KEY = re.compile(r"@result_[0-9]+(?!\w)")
_SESSION_NAME = re.compile(r"@([A-Za-z_][A-Za-z0-9_.-]*)")
_MAX_DISPLAY_NAME_CHARACTERS = 80
"""Maximum length of an entity's display name."""
_INVALID_LOOKUP = Lookup("", "")
"""Placeholder for an invalid lookup, so that the text of the lookup is not used as the value of the argument."""
_REFERENCE_HINT = "@result_N is the entity that intent N of this request makes; use lookups for existing entities"


def read_intents(raw: JsonValue, *, context: Mapping[str, JsonValue], tools: Mapping[str, ToolDeclaration]) -> Document:
    """Return the document of a list of intents.

    Args:
        context: name in the session, without `@` -> its value; for an entity, `{"id", "name", "kind"}`.
        tools: declarations of the verbs, and of the tool that resolves lookups.

    Raises:
        PlanInvalid: there is no list of intents, or it is empty.
    """
    draft = DocumentDraft("intents", "/intents")
    intents = draft.entries_under_key(raw, "intents", other_keys=("explanation", "confidence"))
    if isinstance(raw, dict):
        _read_metadata(raw, draft)
    setters: dict[str, str] = {}
    resolver = resolver_of(tools)
    for index, intent in enumerate(intents):
        node_id = f"@result_{index + 1}"
        entry = draft.entry(intent, index, name=f"intent {index + 1}", node_id=node_id)
        node: dict[str, Any] = {"id": node_id, **STAND_IN_ACTION}
        if entry is not None:
            targets = _ReferenceTargets(context, setters, len(intents), resolver)
            node = {"id": node_id, **_IntentReader(entry, draft, index=index, targets=targets).read()}
            tool = tools.get(str(node.get("tool")))
            if tool is not None and tool.sets is not None:
                setters[tool.sets] = node_id
        draft.nodes.append(node)
    return draft.document(additional_pointers=lambda: _pointers(intents), unknown_node_hint=_REFERENCE_HINT)


def _pointers(intents: Sequence[Any]) -> Iterator[tuple[str, str]]:
    for index, intent in enumerate(intents):
        yield f"/nodes/{index}/id", f"/intents/{index}"
        yield f"/nodes/{index}/tool", f"/intents/{index}/verb"
        groups = {
            name: group for name in _GROUPS if isinstance(intent, dict) and isinstance(group := intent.get(name), dict)
        }
        prefix = "/params" if groups.get("params") else ""
        yield f"/nodes/{index}/arguments", f"/intents/{index}{prefix}"
        for name in ("lookups", "refs"):
            for key in groups.get(name, ()):
                yield pointer("nodes", index, "arguments", key), pointer("intents", index, name, key)


def _read_metadata(raw: Mapping[str, Any], draft: DocumentDraft) -> None:
    explanation, confidence = raw.get("explanation"), raw.get("confidence")
    if isinstance(explanation, str):
        draft.metadata["explanation"] = explanation
    elif explanation is not None:
        message = f"'explanation' must be a text, not {describe(explanation)}"
        draft.problems.append(Problem("invalid_field", message, "/explanation"))
    if isinstance(confidence, int | float) and not isinstance(confidence, bool):
        draft.metadata["confidence"] = confidence
    elif confidence is not None:
        message = f"'confidence' must be a number, not {describe(confidence)}"
        draft.problems.append(Problem("invalid_field", message, "/confidence"))


@dataclass(frozen=True, slots=True)
class _ReferenceTargets:
    """Targets that an intent can refer to.

    Args:
        context: as in `read_intents`.
        setters: name in the session -> the last preceding intent that sets the name.
        intent_count: number of intents.
        resolver: resolver of lookups.
    """

    context: Mapping[str, JsonValue]
    setters: Mapping[str, str]
    intent_count: int
    resolver: Resolver


class _IntentReader:
    """Builds the fields of a node from an intent."""

    def __init__(self, entry: ObjectReader, draft: DocumentDraft, *, index: int, targets: _ReferenceTargets) -> None:
        self.entry = entry
        self.draft = draft
        self.index = index
        self.targets = targets
        self.arguments: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        self.entry.expect_keys(_KEYS)
        verb = self.entry.nonempty_text("verb")
        self.arguments.update(self.entry.optional_object("params"))
        for message, path, hint in key_problems(self.arguments, _RESULT_IN_KEY):
            self.entry.report("invalid_reference", message, "params", *path, hint=hint)
        for key, value in self.arguments.items():
            if isinstance(value, str) and _SESSION_NAME.fullmatch(value.strip()):
                self._report_ref_in_params(key, value)
        for key, ref in self.entry.optional_object("refs").items():
            if self._reserve_key(key, "refs"):
                self._read_ref(key, ref)
        for key, lookup in self.entry.optional_object("lookups").items():
            if self._reserve_key(key, "lookups"):
                self._read_lookup(key, lookup)
        return {**action_of_tool(verb), "arguments": self.arguments}

    def _reserve_key(self, key: str, group: str) -> bool:
        if key in self.arguments:
            message = f"{key!r} is given twice among params, refs and lookups"
            self.entry.report("invalid_field", message, group, key)
            return False
        self.arguments[key] = None
        self.draft.bindings[self.index, key] = _INVALID_LOOKUP
        return True

    def _report_ref_in_params(self, key: str, value: str) -> None:
        message = f"Invalid reference: the param {key!r} is {value!r:.80}, but params cannot have refs"
        self.entry.report("invalid_reference", message, "params", key, hint="write it under refs")
        self.draft.bindings[self.index, key] = _INVALID_LOOKUP

    def _read_ref(self, key: str, ref: Any) -> None:
        if not isinstance(ref, str):
            message = f"{key!r} must be a reference such as @result_1 or @order, not {describe(ref)}"
            self.entry.report("invalid_reference", message, "refs", key)
        elif _RESULT.fullmatch(ref):
            self.draft.bindings[self.index, key] = ResultOf(ref, "identity")
            self._note_forward_reference(ref)
        elif (name := _SESSION_NAME.fullmatch(ref)) and not ref.lower().startswith("@result"):
            self._read_context_name(key, name[1])
        else:
            expected = "write @result_N, N from 1, or a name such as @order"
            message = f"Invalid reference: {key!r} is {describe(ref)}; {expected}"
            self.entry.report("invalid_reference", message, "refs", key, hint=_REFERENCE_HINT)

    def _note_forward_reference(self, ref: str) -> None:
        # A number with more digits than the count is out of range, and Python cannot parse thousands of digits.
        digits = ref.removeprefix("@result_")
        if (
            len(digits) <= len(str(self.targets.intent_count))
            and self.index + 1 < int(digits) <= self.targets.intent_count
        ):
            number = self.index + 1
            message = f"intent {number} uses {ref}, which comes later; intent {digits} runs first"
            self.draft.notes.append(Note("forward_reference", message, self.entry.node_id))

    def _read_context_name(self, key: str, name: str) -> None:
        value, display_name = _id_and_display_name(self.targets.context.get(name))
        if name not in self.targets.context or (isinstance(value, str) and not value.strip()):
            self._report_missing_name(key, name)
            return
        self.arguments[key] = _escape_references(value)
        if isinstance(value, str):
            # Bind a lookup, because only the declaration of the verb shows whether the argument accepts an entity.
            self.draft.bindings[self.index, key] = Lookup(value, "", known_as=f"@{name}", display_name=display_name)
        else:
            del self.draft.bindings[self.index, key]

    def _report_missing_name(self, key: str, name: str) -> None:
        context, setter = self.targets.context, self.targets.setters.get(name)
        missing_text = "the session does not have" if name not in context else "has no id in the session"
        if setter is not None:
            message = (
                f"{key!r} is @{name}, which {missing_text} before this request; in this request, @{name} is {setter}"
            )
            self.entry.report("missing_context", message, "refs", key, hint=f"write {setter}")
            return
        advice = " or, if an earlier intent makes it, write @result_N of that intent" if self.index else ""
        hint = f"give it in the context: {name}=ID{advice}"
        similarity_hint = suggestion(name, [context_name for context_name in context if context_name != name])
        message = f"{key!r} is @{name}, which {missing_text}"
        self.entry.report(
            "missing_context", message, "refs", key, hint=f"{similarity_hint} Or {hint}" if similarity_hint else hint
        )

    def _read_lookup(self, key: str, lookup: Any) -> None:
        if not isinstance(lookup, dict):
            message = f'{key!r} must be {{"search_text": …, "entity_type": …}}, not {describe(lookup)}'
            self.entry.report("invalid_field", message, "lookups", key)
            return
        at = self.entry.at + pointer("lookups", key)
        lookup_reader = ObjectReader(
            lookup, at, f"{self.entry.name}, lookup {key!r}", self.entry.node_id, self.entry.problems
        )
        resolver = self.targets.resolver
        has_resolver = resolver is not UNKNOWN_RESOLVER
        lookup_reader.expect_keys(_LOOKUP_KEYS.union(resolver.filters if has_resolver else lookup))
        search_text, entity_type = (
            lookup_reader.nonempty_text("search_text"),
            lookup_reader.nonempty_text("entity_type"),
        )
        if entity_type is not None and has_resolver and not _check_entity_type(entity_type, lookup_reader, resolver):
            return
        if search_text is not None and not any(map(str.isalnum, search_text)):
            lookup_reader.report(
                "invalid_field", f"'search_text' {search_text!r:.80} has no letter or digit", "search_text"
            )
            return
        if (filters := _filters(lookup, lookup_reader, resolver)) is None:
            return
        if search_text is not None and entity_type is not None:
            self.draft.bindings[self.index, key] = Lookup(search_text, entity_type, filters)


def _filters(lookup: Mapping[str, Any], entry: ObjectReader, resolver: Resolver) -> tuple[tuple[str, str], ...] | None:
    """Return the filters of a lookup in their normal form; `None` after reporting an invalid filter."""
    filters = []
    for name in sorted(lookup.keys() - _LOOKUP_KEYS):
        text = entry.nonempty_text(name) if lookup[name] is not None else None
        if text is None:
            continue
        parse = parser_of(resolver.filters.get(name, ""))
        try:
            filters.append((name, text if parse is None else str(parse(text))))
        except ValueError as error:
            entry.report("invalid_field", str(error), name)
            return None
    return tuple(filters)


def _check_entity_type(text: str, entry: ObjectReader, resolver: Resolver) -> bool:
    """Report an unknown entity type; return whether it is known."""
    try:
        resolver.kind_of(text)
    except UnknownEntityType as error:
        entry.report("invalid_field", error.message, "entity_type", hint=error.hint)
        return False
    return True


def _id_and_display_name(value: JsonValue) -> tuple[JsonValue, str]:
    """Return the ID or value of a name in the session, and the display name, which may be empty."""
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        return value, ""
    display_name = value.get("name")
    return value["id"], display_name[:_MAX_DISPLAY_NAME_CHARACTERS] if isinstance(display_name, str) else ""


def _escape_references(value: JsonValue) -> JsonValue:
    """Escape a value from the session so that no text in it is read as a reference."""
    if isinstance(value, str):
        return value.replace("{{", "\\{{")
    if isinstance(value, dict):
        return {key: _escape_references(item) for key, item in value.items()}
    return [_escape_references(item) for item in value] if isinstance(value, list) else value
