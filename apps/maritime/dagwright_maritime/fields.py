"""Read the fields of an index and the values of fields from the search server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from dagwright_maritime.connection import Search
from dagwright_maritime.query_execution import check_index, check_internal_query, index_missing_error, run_query
from dagwright_maritime.search.requests import RETRY_AFTER, IndexMissing, QueryTimeout, read_mapping, types_of
from dagwright_maritime.search.results import SearchResult
from dagwright_maritime.slots import EsQuery, FieldDescription

NUMBER_TYPES = frozenset({"integer", "long", "short", "float", "double", "half_float", "scaled_float"})
MAX_VALUES = 500
"""Maximum number of distinct values read per field. A field with more values contains names, not categories."""
_FIELDS_PER_QUERY = 15
"""Fields per query. Each field has at most `MAX_VALUES` values, so a query stays below the limit of 10,000 groups."""


@dataclass(frozen=True, slots=True)
class IndexField:
    """A field of the mapping.

    Args:
        synonyms: common names of the field.
    """

    name: str
    type: str
    description: str = ""
    synonyms: tuple[str, ...] = ()

    def prompt_entry(self) -> dict[str, Any]:
        """Return the description of the field for a model."""
        also_called = {"also_called": list(self.synonyms)} if self.synonyms else {}
        return {"field": self.name, "type": self.type, "description": self.description, **also_called}

    def to_slot(self) -> FieldDescription:
        """Return the field as an element of the slot `metadata_results`."""
        return FieldDescription(name=self.name, type=self.type, description=self.description)


@dataclass(frozen=True, slots=True)
class IndexFields:
    """The fields of an index, and the day of its data.

    Args:
        types: type of each field; nested fields by their full name.
        today: the day for which the data were generated, if the mapping contains the day, otherwise the current day
            (UTC).
    """

    index: str
    by_name: Mapping[str, IndexField]
    types: Mapping[str, str]
    today: date

    def names_of_type(self, *types: str) -> list[str]:
        """Return the names of the fields with one of the types."""
        return [name for name, field in self.by_name.items() if field.type in types]


async def read_fields(search: Search, index: str) -> IndexFields:
    """Return the fields of an index: first the fields with a description in `_meta`, in the order of `_meta`.

    Raises:
        QueryRejected: reading the index is not allowed.
        GiveUp: the index does not exist, or access is denied.
        RetryLater: the server is unavailable.
    """
    check_index(search, index)
    try:
        mapping = await read_mapping(search.client, index, search.limits)
    except IndexMissing as error:
        raise index_missing_error(error) from None
    # `_meta` may have any content; unexpected forms are ignored.
    meta = _object_or_empty(mapping.get("_meta"))
    descriptions = _object_or_empty(meta.get("fields"))
    fields = {
        name: _field(name, field_mapping, descriptions.get(name))
        for name, field_mapping in mapping.get("properties", {}).items()
    }
    ordered_fields = {name: fields[name] for name in [*(name for name in descriptions if name in fields), *fields]}
    return IndexFields(index, ordered_fields, types_of(mapping), _today(meta))


def _object_or_empty(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _field(name: str, mapping_entry: Mapping[str, Any], meta_entry: Any) -> IndexField:
    entry = {"description": meta_entry} if isinstance(meta_entry, str) else _object_or_empty(meta_entry)
    description, synonyms = entry.get("description"), entry.get("synonyms")
    words = [synonyms] if isinstance(synonyms, str) else synonyms if isinstance(synonyms, list) else []
    return IndexField(
        name,
        str(mapping_entry.get("type", "object")),
        description if isinstance(description, str) else "",
        tuple(word for word in words if isinstance(word, str)),
    )


def _today(meta: Mapping[str, Any]) -> date:
    today = _object_or_empty(meta.get("loaded")).get("today")
    try:
        return date.fromisoformat(today) if isinstance(today, str) else datetime.now(UTC).date()
    except ValueError:
        return datetime.now(UTC).date()


async def run_internal_query(search: Search, index: str, body: Mapping[str, Any]) -> SearchResult:
    """Run an internal query, which this application has written, and return the result.

    The query is checked, but the fields in the query are not.

    Raises:
        GiveUp: the index does not exist, or access is denied.
        RetryLater: the server is unavailable, or searched only a part of the index, so the result may be wrong.
    """
    query = check_internal_query(search, EsQuery(index=index, body=dict(body)))
    result = await run_query(search, query)
    if result.problems:
        raise QueryTimeout(
            f"The search server searched {index!r} only in part: {' '.join(result.problems)}", RETRY_AFTER
        )
    return result


async def find_documents(search: Search, index: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the documents that an internal query finds, best first; raises the same errors as `run_internal_query`."""
    return (await run_internal_query(search, index, {**body, "size": min(body["size"], search.limits.rows)})).hits


async def read_values(search: Search, index: str, fields: Sequence[str]) -> dict[str, list[str]]:
    """Return the most frequent values of keyword fields, at most `MAX_VALUES` each.

    Raises the same errors as `run_internal_query`.
    """
    if not fields:
        return {}
    aggregations = {name: {"terms": {"field": name, "size": MAX_VALUES}} for name in fields}
    _, results = await read_aggregations(search, index, aggregations)
    return {name: [str(bucket["key"]) for bucket in results[name]["buckets"]] for name in fields}


async def read_aggregations(search: Search, index: str, aggregations: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the number of documents, and the result of one aggregation per field.

    The fields are split over several queries if needed. Raises the same errors as `run_internal_query`.

    Args:
        aggregations: field -> aggregation. In the query, the aggregations have other names, because field names may
            contain any character.
    """
    total, results = 0, dict[str, Any]()
    names = list(aggregations)
    for start in range(0, len(names) or 1, _FIELDS_PER_QUERY):
        fields_by_query_name = {
            f"field{position}": name for position, name in enumerate(names[start : start + _FIELDS_PER_QUERY])
        }
        query_aggregations = {query_name: aggregations[name] for query_name, name in fields_by_query_name.items()}
        response = await run_internal_query(
            search, index, {"size": 0, **({"aggs": query_aggregations} if query_aggregations else {})}
        )
        # The maximum, because documents may be added between two queries.
        total = max(total, response.total)
        results |= {name: response.groups[query_name] for query_name, name in fields_by_query_name.items()}
    return total, results
