"""What the search server itself says of an index: its fields with what they mean, and which values they have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from dagwright_maritime.connection import Search
from dagwright_maritime.querying import allowed, answer_of, refuse_foreign_index, without_index
from dagwright_maritime.search.answers import SearchAnswer
from dagwright_maritime.search.asking import RETRY_AFTER, IndexMissing, NoAnswer, read_mapping, types_of
from dagwright_maritime.slots import EsQuery, FieldDescription

NUMBERS = frozenset({"integer", "long", "short", "float", "double", "half_float", "scaled_float"})
VALUES_READ = 500
"""Distinct values of a field that are looked at; a field with more has names, not kinds."""
_ASKED_AT_ONCE = 15
"""Fields that one query is about: half of what may stand beside each other, and of each as many values as are read."""


@dataclass(frozen=True, slots=True)
class IndexField:
    """A field as the mapping has it.

    Args:
        synonyms: what people call it.
    """

    name: str
    type: str
    description: str = ""
    synonyms: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        """Returns what a model is told of it."""
        words = {"also_called": list(self.synonyms)} if self.synonyms else {}
        return {"field": self.name, "type": self.type, "description": self.description, **words}

    def description_slot(self) -> FieldDescription:
        """Returns it as it stands in the slot `metadata_results`."""
        return FieldDescription(name=self.name, type=self.type, description=self.description)


@dataclass(frozen=True, slots=True)
class IndexFields:
    """The fields of an index, and the day that its data are of.

    Args:
        types: of all fields, those inside of others by their whole name too.
        today: the day for which the data were made, if the mapping says so, else the day that it is (UTC).
    """

    index: str
    by_name: Mapping[str, IndexField]
    types: Mapping[str, str]
    today: date

    def of_type(self, *types: str) -> list[str]:
        """Returns the names of the fields of some types."""
        return [name for name, field in self.by_name.items() if field.type in types]


async def read_fields(search: Search, index: str) -> IndexFields:
    """Returns the fields of an index, in the order of its mapping.

    Raises:
        QueryRefused: it is none of the indices that may be read.
        GiveUp: there is no such index, or the server does not let us in.
        RetryLater: the server cannot be asked now.
    """
    refuse_foreign_index(search, index)
    try:
        mapping = await read_mapping(search.client, index, search.limits)
    except IndexMissing as error:
        raise without_index(error) from None
    # Whoever made the index wrote what he liked into `_meta`: what is of another form says nothing.
    meta = _object(mapping.get("_meta"))
    about = _object(meta.get("fields"))
    fields = {name: _field(name, each, about.get(name)) for name, each in mapping.get("properties", {}).items()}
    in_order = {name: fields[name] for name in [*(name for name in about if name in fields), *fields]}
    return IndexFields(index, in_order, types_of(mapping), _today(meta))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _field(name: str, mapped: Mapping[str, Any], told: Any) -> IndexField:
    about = {"description": told} if isinstance(told, str) else _object(told)
    words, description = about.get("synonyms"), about.get("description")
    called = [words] if isinstance(words, str) else words if isinstance(words, list) else []
    return IndexField(
        name,
        str(mapped.get("type", "object")),
        description if isinstance(description, str) else "",
        tuple(word for word in called if isinstance(word, str)),
    )


def _today(meta: Mapping[str, Any]) -> date:
    today = _object(meta.get("loaded")).get("today")
    try:
        return date.fromisoformat(today) if isinstance(today, str) else datetime.now(UTC).date()
    except ValueError:
        return datetime.now(UTC).date()


async def find(search: Search, index: str, body: Mapping[str, Any]) -> SearchAnswer:
    """Returns all that a query of ours finds; it is checked as every other, but for its fields.

    Raises:
        GiveUp: there is no such index, or we may not read it.
        RetryLater: the server cannot be asked now, or could search a part only: nobody could tell from the figures of a
            part, nor that there is no such name.
    """
    query = allowed(search, EsQuery(index=index, body=dict(body)))
    answer = await answer_of(search, query)
    if answer.problems:
        raise NoAnswer(
            f"The search server did not search the whole of {index!r}: {' '.join(answer.problems)}", RETRY_AFTER
        )
    return answer


async def documents(search: Search, index: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the documents that a query of ours finds, best first; raises as `find`."""
    return (await find(search, index, {**body, "size": min(body["size"], search.limits.rows)})).hits


async def values_of(search: Search, index: str, fields: Sequence[str]) -> dict[str, list[str]]:
    """Returns the most frequent values of some keyword fields, at most `VALUES_READ` of each; raises as `find`."""
    if not fields:
        return {}
    groups = {name: {"terms": {"field": name, "size": VALUES_READ}} for name in fields}
    _, found = await groups_of(search, index, groups)
    return {name: [str(each["key"]) for each in found[name]["buckets"]] for name in fields}


async def groups_of(search: Search, index: str, groups: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Returns how many documents there are, and one aggregation for each of some fields; raises as `find`.

    It takes as many queries as there are portions of fields.

    Args:
        groups: field -> the aggregation as it is asked for. It is called otherwise there: fields may have any name.
    """
    total, told = 0, dict[str, Any]()
    names = list(groups)
    for start in range(0, len(names) or 1, _ASKED_AT_ONCE):
        called = {f"field{place}": name for place, name in enumerate(names[start : start + _ASKED_AT_ONCE])}
        aggregations = {word: groups[name] for word, name in called.items()}
        found = await find(search, index, {"size": 0, **({"aggs": aggregations} if aggregations else {})})
        # The largest: documents may come between two queries.
        total = max(total, found.total)
        told |= {name: found.groups[word] for word, name in called.items()}
    return total, told
