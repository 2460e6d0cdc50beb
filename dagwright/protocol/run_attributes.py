"""Search attributes that identify a run in lists (title, template, tags, owner, state), and the priority of a run."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from temporalio.common import Priority, SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from dagwright.core.boundary import wire
from dagwright.protocol.fairness import Fairness
from dagwright.protocol.run_labels import MAX_TAGS, fitting_keywords, keyword, keyword_of_tag, tags_in

Pair = SearchAttributePair[str] | SearchAttributePair[Sequence[str]]

STATE = SearchAttributeKey.for_keyword(wire.SEARCH_STATE)
PROGRESS = SearchAttributeKey.for_keyword(wire.SEARCH_PROGRESS)
TITLE = SearchAttributeKey.for_keyword(wire.SEARCH_TITLE)
OWNER = SearchAttributeKey.for_keyword(wire.SEARCH_OWNER)
TAGS = SearchAttributeKey.for_keyword_list(wire.SEARCH_TAGS)
_TEXTS = (
    (TITLE, wire.MEMO_TITLE),
    (SearchAttributeKey.for_keyword(wire.SEARCH_TEMPLATE), wire.MEMO_TEMPLATE),
    (OWNER, wire.MEMO_OWNER),
)
"""Search attribute -> memo field with its text."""


def attributes_from_memo(memo: Mapping[str, Any]) -> list[Pair]:
    """Return the search attributes that are made from the memo of a run: title, template, owner and tags.

    Args:
        memo: memo of the run; its values may be of any type.
    """
    pairs: list[Pair] = []
    for key, name in _TEXTS:
        text = memo.get(name)
        if isinstance(text, str) and text:
            pairs.append(SearchAttributePair(key, keyword(text)))
    tags = list(tags_in(memo, key=wire.MEMO_TAGS).items())[:MAX_TAGS]
    if tags:
        # Other programs may start runs with larger tags. Runs cannot be filtered by tags that do not fit.
        pairs.append(SearchAttributePair(TAGS, fitting_keywords(keyword(keyword_of_tag(*tag)) for tag in tags)))
    return pairs


def attributes_at_start(memo: Mapping[str, Any], *, missing_attributes: Collection[str]) -> TypedSearchAttributes:
    """Return the search attributes with which a client starts a run: the attributes from its memo, and its state.

    Args:
        missing_attributes: search attributes that the namespace lacks. If an attribute is missing, no attribute is
            set: a run that has `STATE` would also write the missing attribute, and fail.
    """
    pairs = [] if missing_attributes else [SearchAttributePair(STATE, "running"), *attributes_from_memo(memo)]
    return TypedSearchAttributes(pairs)


def fair_priority(fairness: Fairness | None) -> Priority:
    """Return the priority that a workflow with this fairness is started with."""
    if fairness is None:
        return Priority.default
    return Priority(fairness_key=fairness.key, fairness_weight=fairness.weight)
