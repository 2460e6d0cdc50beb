"""The slots of the maritime workers: what one worker hands to the next, as JSON.

A slot has one type, whoever fills it. Workers take these as parameters, so what does not fit is refused before one
runs; a field that nobody knows is left out in silence, for a planner may hand on more than a worker asks for. Slots
that are a text, a number or a truth value (`formatted_results`, `hit_count`, `has_more`) have no type here.
"""

from itertools import islice
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dagwright_maritime.search.shapes import shape_problems

_PROBLEMS_TOLD = 5

IntentType = Literal["search", "aggregation"]
Operator = Literal["is", "is_not", "in", "gt", "gte", "lt", "lte", "exists", "missing"]


class _Slot(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Entity(_Slot):
    """A thing of the world that the question names, as the data knows it."""

    text: str
    """As the question has it, such as `LA`."""
    kind: str = ""
    """`shipper`, `carrier` or `port`."""
    field: str | None = None
    """The field that holds it, `None` if no field was found."""
    value: Any = None
    """What stands in that field, such as `Los Angeles`; `None` if nothing was found."""


class Filter(_Slot):
    """One condition that documents must meet."""

    field: str
    op: Operator = "is"
    value: Any = None
    """A list for `in`, nothing for `exists` and `missing`."""


class Metric(_Slot):
    """One figure that is asked for."""

    op: Literal["count", "sum", "avg", "min", "max", "cardinality", "percentiles"]
    field: str | None = None
    """`None` for `count`."""


class DateRange(_Slot):
    """From the first day to the last, both included, as `2026-01-31`."""

    field: str | None = None
    """`None` if the question does not tell which date it means."""
    start: str | None = None
    end: str | None = None


class AnalysisResult(_Slot):
    """What a question asks of the data: the slot `analysis_result`."""

    intent_type: IntentType
    """`search` wants documents, `aggregation` wants figures over them."""
    question: str = ""
    entities: list[Entity] = Field(default_factory=list)
    fields: list[str] = Field(default_factory=list)
    """Fields that the question is about."""
    filters: list[Filter] = Field(default_factory=list)
    metrics: list[Metric] = Field(default_factory=list)
    group_by: list[str] = Field(default_factory=list)
    top: int | None = Field(default=None, ge=1)
    """How many groups or documents are asked for."""
    date_range: DateRange | None = None


class FieldDescription(_Slot):
    """A field of an index, as its mapping says."""

    name: str
    type: str
    """As in the mapping, such as `keyword`, `date`, `float`."""
    description: str = ""


class MetadataResults(_Slot):
    """The fields of the index that the question is about: the slot `metadata_results`."""

    index: str
    fields: list[FieldDescription] = Field(default_factory=list)


class ValueResult(_Slot):
    """A value of the data that a word of the question may mean; the slot `value_results` is a list of them."""

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
    """What the question leaves open, and what it may mean: the slot `ambiguity`, null if nothing is open."""

    question: str
    options: list[str]


class MissingValues(_Slot):
    """A figure that not all groups have, because none of their documents has a value."""

    group: str
    """Name of the aggregation that makes the groups; empty if the figure is over all documents."""
    metric: str
    groups: int
    with_value: int
    without: list[str] = Field(default_factory=list)
    """Keys of groups that have none; the first of them if they are many."""


class EsResults(_Slot):
    """What a query found: the slot `es_results`; `page_results` has of it `hits`, `index`, `total` and `has_more`."""

    hits: list[dict[str, Any]] = Field(default_factory=list)
    """The documents, in the order of the query."""
    aggregations: dict[str, Any] = Field(default_factory=dict)
    """As the server tells them."""
    total: int | None = None
    """Documents that match; `None` if they were not counted."""
    took_ms: int = 0
    index: str = ""
    missing_values: list[MissingValues] = Field(default_factory=list)
    query: dict[str, Any] = Field(default_factory=dict)
    """The body that was asked: what its figures are, and what the result is about."""
    has_more: bool | None = None
    """Whether more documents follow on the next page; `None` if it is no page."""

    @property
    def is_page(self) -> bool:
        """Whether it is a page of what the query finds, wherever that begins."""
        return self.has_more is not None

    @field_validator("aggregations")
    @classmethod
    def _check_aggregations(cls, groups: dict[str, Any]) -> dict[str, Any]:
        problems = list(islice(shape_problems(groups), _PROBLEMS_TOLD))
        if problems:
            raise ValueError(f"these are no aggregations of a search server: {'; '.join(problems)}")
        return groups
