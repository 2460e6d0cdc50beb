"""Search attributes that identify a run in lists: its title, template, tags and state."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from dagwright.core.boundary import wire
from dagwright.protocol.run_labels import MOST_TAGS, keyword, keyword_of_tag, tags_in

Pair = SearchAttributePair[str] | SearchAttributePair[Sequence[str]]

_TITLE = SearchAttributeKey.for_keyword(wire.SEARCH_TITLE)
_TEMPLATE = SearchAttributeKey.for_keyword(wire.SEARCH_TEMPLATE)
_TAGS = SearchAttributeKey.for_keyword_list(wire.SEARCH_TAGS)
_STATE = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)


def identifying_pairs(memo: Mapping[str, Any], *, missing: Collection[str] = ()) -> list[Pair]:
    """Return the attributes of a run by its memo.

    Args:
        memo: of the run; its values may be of any type.
        missing: search attributes that the namespace lacks.
    """
    pairs: list[Pair] = []
    for key, name in ((_TITLE, wire.MEMO_TITLE), (_TEMPLATE, wire.MEMO_TEMPLATE)):
        text = memo.get(name)
        if isinstance(text, str) and text and key.name not in missing:
            pairs.append(SearchAttributePair(key, keyword(text)))
    tags = list(tags_in(memo, key=wire.MEMO_TAGS).items())[:MOST_TAGS]
    if tags and _TAGS.name not in missing:
        pairs.append(SearchAttributePair(_TAGS, [keyword(keyword_of_tag(*tag)) for tag in tags]))
    return pairs


def attributes_at_start(memo: Mapping[str, Any], *, missing: Collection[str]) -> TypedSearchAttributes:
    """Return the search attributes with which a client starts a run: those by its memo, and its state."""
    # A run that finds its state there also updates the assignees that it waits for.
    has_state = wire.RUN_SEARCH_ATTRIBUTES.isdisjoint(missing)
    state = [SearchAttributePair(_STATE, "running")] if has_state else []
    return TypedSearchAttributes([*state, *identifying_pairs(memo, missing=missing)])
