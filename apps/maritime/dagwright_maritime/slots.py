"""The slots of the maritime worker tools: the values that one tool passes to the next, as JSON.

A slot has one type for all tools. The tools declare these types as parameters, so an invalid value is rejected before a
tool runs. Unknown fields are ignored, because a planner may pass on more than a tool needs. Slots with a text, number
or boolean (`formatted_results`, `hit_count`, `has_more`) have no type here.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dagwright.tools.result_json import pointer_of
from dagwright_maritime.search.limits import Path

_MAX_LISTED_PROBLEMS = 5

IntentType = Literal["search", "aggregation"]
Operator = Literal["is", "is_not", "in", "gt", "gte", "lt", "lte", "exists", "missing"]


class _Slot(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Entity(_Slot):
    """A shipper, carrier or port in the question, with its value in the data."""

    text: str
    """The name in the spelling of the question, such as `LA`."""
    kind: str = ""
    """`shipper`, `carrier` or `port`."""
    field: str | None = None
    """The field that has the value; `None` if no field was found."""
    value: Any = None
    """The value in that field, such as `Los Angeles`; `None` if nothing was found."""


class Filter(_Slot):
    """A condition on documents."""

    field: str
    op: Operator = "is"
    value: Any = None
    """A list for `in`; `None` for `exists` and `missing`."""


class Metric(_Slot):
    """A requested figure."""

    op: Literal["count", "sum", "avg", "min", "max", "cardinality", "percentiles"]
    field: str | None = None
    """`None` for `count`."""


class DateRange(_Slot):
    """Inclusive range from the first to the last day, each such as `2026-01-31`."""

    field: str | None = None
    """`None` if the question does not say which date it means."""
    start: str | None = None
    end: str | None = None


class AnalysisResult(_Slot):
    """The analysis of a question: the slot `analysis_result`."""

    intent_type: IntentType
    """`search` for documents, `aggregation` for figures over documents."""
    question: str = ""
    entities: list[Entity] = Field(default_factory=list)
    fields: list[str] = Field(default_factory=list)
    """Fields of the question."""
    filters: list[Filter] = Field(default_factory=list)
    metrics: list[Metric] = Field(default_factory=list)
    group_by: list[str] = Field(default_factory=list)
    top: int | None = Field(default=None, ge=1)
    """Requested number of groups or documents."""
    date_range: DateRange | None = None


class FieldDescription(_Slot):
    """A field of the mapping of an index."""

    name: str
    type: str
    """Type in the mapping, such as `keyword`, `date`, `float`."""
    description: str = ""


class MetadataResults(_Slot):
    """The fields of the index that the question refers to: the slot `metadata_results`."""

    index: str
    fields: list[FieldDescription] = Field(default_factory=list)


class ValueResult(_Slot):
    """A value in the data that a word of the question may mean. The slot `value_results` is a list of such values."""

    text: str
    field: str
    value: Any
    kind: str = ""
    score: float = 0.0


class EsQuery(_Slot):
    """A query of one index: the slot `es_query`."""

    index: str
    body: dict[str, Any]


class Ambiguity(_Slot):
    """An open question with its possible answers: the slot `ambiguity`, null if nothing is open."""

    question: str
    options: list[str]


class MissingValues(_Slot):
    """A figure that some groups lack, because none of their documents has a value."""

    group: str
    """Name of the grouping; empty if the figure is over all documents."""
    metric: str
    groups: int
    with_value: int
    without: list[str] = Field(default_factory=list)
    """Keys of groups without a value; only the first keys if there are many."""


class EsResults(_Slot):
    """Result of a query: the slot `es_results`; `page_results` has only `hits`, `index`, `total` and `has_more`."""

    hits: list[dict[str, Any]] = Field(default_factory=list)
    """The documents, in the order of the query."""
    aggregations: dict[str, Any] = Field(default_factory=dict)
    """Aggregations of the response, in the order of the query."""
    total: int | None = None
    """Number of matching documents; `None` if the documents were not counted."""
    took_ms: int = 0
    index: str = ""
    missing_values: list[MissingValues] = Field(default_factory=list)
    query: dict[str, Any] = Field(default_factory=dict)
    """Body of the query: it defines which figures the result has, and for which documents."""
    has_more: bool | None = None
    """Whether more documents follow on the next page; `None` if the result is not a page."""

    @property
    def is_page(self) -> bool:
        """Whether the result is a page of the documents of a query."""
        return self.has_more is not None

    @field_validator("aggregations")
    @classmethod
    def _check_aggregations(cls, aggregations: dict[str, Any]) -> dict[str, Any]:
        problems = list(islice(_shape_problems(aggregations), _MAX_LISTED_PROBLEMS))
        if problems:
            raise ValueError(f"not aggregations of a search server: {'; '.join(problems)}")
        return aggregations


def _shape_problems(aggregations: Mapping[str, Any], path: Path = ()) -> Iterator[str]:
    """Yield the problems in the structure of aggregations, each with its location.

    Args:
        aggregations: by name; other values, such as the key of a group, are ignored.
        path: location of the aggregations.
    """
    for name, aggregation in aggregations.items():
        if isinstance(aggregation, Mapping):
            yield from _aggregation_problems(aggregation, (*path, name))


def _aggregation_problems(aggregation: Mapping[str, Any], path: Path) -> Iterator[str]:
    other_documents = aggregation.get("sum_other_doc_count", 0)
    if type(other_documents) is not int:
        yield f"{pointer_of((*path, 'sum_other_doc_count'))}: expected an integer"
    if "hits" in aggregation:
        hits = aggregation["hits"].get("hits") if isinstance(aggregation["hits"], Mapping) else None
        if not isinstance(hits, list) or not all(isinstance(hit, Mapping) for hit in hits):
            yield f"{pointer_of((*path, 'hits'))}: expected an object with a list of documents, `hits`"
    if "buckets" in aggregation:
        yield from _bucket_problems(aggregation["buckets"], (*path, "buckets"))
    elif "doc_count" in aggregation:
        yield from _shape_problems(aggregation, path)


def _bucket_problems(buckets: Any, path: Path) -> Iterator[str]:
    if not isinstance(buckets, list | Mapping):
        yield f"{pointer_of(path)}: expected a list of groups, or groups by name"
        return
    for position, bucket in enumerate(buckets) if isinstance(buckets, list) else buckets.items():
        if isinstance(bucket, Mapping):
            yield from _shape_problems(bucket, (*path, position))
        else:
            yield f"{pointer_of((*path, position))}: expected a group as an object"
