"""Reads what a model says that a question asks for, and finds what cannot be so."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from dagwright_maritime.asking import Unusable
from dagwright_maritime.dates import UnknownPeriod, period_of
from dagwright_maritime.fields import NUMBERS, IndexFields
from dagwright_maritime.slots import AnalysisResult, DateRange, Filter, Metric

MOST_NAMES = 20
NAME_CHARACTERS = 200
"""Of one name: the server looks for each of its words."""
KIND_FIELDS: Mapping[str, tuple[str, ...]] = {
    "shipper": ("shipper_name",),
    "carrier": ("carrier_name",),
    "port": ("destination_port", "origin_port"),
}
"""Kind of a name -> the fields that hold such names; the first is taken where nothing else is known."""

_LARGEST = 1e15
"""More than that is no number of anything here; infinite and undefined ones are not either."""
_NO_VALUES = ("exists", "missing")
_OF_NUMBERS = ("sum", "avg", "min", "max", "percentiles")
_OF_ORDER = ("gt", "gte", "lt", "lte")


@dataclass(frozen=True, slots=True)
class Mention:
    """A name as the question has it.

    Args:
        kind, field: what the model takes it for.
    """

    text: str
    kind: str
    field: str | None


@dataclass(frozen=True, slots=True)
class ReadQuestion:
    """What a question asks for, before its names are looked up.

    Args:
        analysis: without names; the values of its conditions are texts of the model.
        named_fields: all fields that the question is about, each once.
    """

    mentions: tuple[Mention, ...]
    analysis: AnalysisResult
    named_fields: tuple[str, ...]


def read_answer(told: Mapping[str, Any], question: str, fields: IndexFields) -> ReadQuestion:
    """Returns what a model says of a question.

    Raises:
        Unusable: with all that cannot be so.
    """
    problems = [*_problems(told, question, fields)]
    period, problem = _period(told["period"], fields.today)
    if problem:
        problems.append(problem)
    if problems:
        raise Unusable("; ".join(problems))
    mentions = tuple(
        dict.fromkeys(Mention(each["text"].strip(), each["kind"], each["field"]) for each in told["names"])
    )
    dates = told["period"]["fields"] if told["period"] else []
    metrics = [
        Metric(op=each["op"], field=None if each["op"] == "count" else each["field"]) for each in told["metrics"]
    ]
    filters = [_filter(each, fields) for each in told["conditions"]]
    named = [
        *dates,
        *(each.field for each in filters),
        *(each.field for each in metrics if each.field is not None),
        *told["group_by"],
        *told["fields"],
    ]
    analysis = AnalysisResult(
        intent_type=told["intent_type"],
        question=question,
        fields=list(dict.fromkeys(named)),
        filters=filters,
        metrics=metrics,
        group_by=list(dict.fromkeys(told["group_by"])),
        top=told["top"],
        date_range=period,
    )
    return ReadQuestion(mentions, analysis, tuple(analysis.fields))


def _problems(told: Mapping[str, Any], question: str, fields: IndexFields) -> Iterator[str]:
    words = " ".join(question.casefold().split())
    if len(told["names"]) > MOST_NAMES:
        yield f"names: at most {MOST_NAMES} are looked up at once"
    for name in told["names"]:
        text = " ".join(name["text"].casefold().split())
        if not text or len(text) > NAME_CHARACTERS or text not in words:
            yield f"names: {name['text'][:60]!r} does not stand so in the question, or is no name"
    for metric in told["metrics"]:
        yield from _metric_problems(metric, fields)
    for condition in told["conditions"]:
        yield from _condition_problems(condition, fields)
    if told["top"] is not None and told["top"] < 1:
        yield "top: it is a number from 1, or null"
    if told["period"] and not told["period"]["fields"]:
        yield "period: name at least one field of dates"


def _metric_problems(metric: Mapping[str, Any], fields: IndexFields) -> Iterator[str]:
    op, name = metric["op"], metric["field"]
    if op == "count":
        return
    if name is None:
        yield f"metrics: {op} needs a field"
    elif op in _OF_NUMBERS and fields.by_name[name].type not in NUMBERS:
        yield f"metrics: {op} needs a field of numbers, and {name} is {fields.by_name[name].type}"


def _condition_problems(condition: Mapping[str, Any], fields: IndexFields) -> Iterator[str]:
    name, op, values = condition["field"], condition["op"], condition["values"]
    kind = fields.by_name[name].type
    if op in _NO_VALUES:
        return
    if not values or not all(value.strip() for value in values):
        yield f"conditions: {op} of {name} needs a value"
    elif len(values) > 1 and op != "in":
        yield f"conditions: {op} of {name} takes one value, or write in"
    elif kind == "date":
        yield f"conditions: {name} is a date: say it as the period"
    elif op in _OF_ORDER and kind not in NUMBERS:
        yield f"conditions: {op} needs a field of numbers, and {name} is {kind}"
    elif kind in NUMBERS and any(_number(value) is None for value in values):
        yield f"conditions: {name} is a number, and {values[0][:60]!r} is none"


def _period(told: Mapping[str, Any] | None, today: date) -> tuple[DateRange | None, str | None]:
    if told is None:
        return None, None
    try:
        first, last = period_of(told["words"], today)
    except UnknownPeriod as error:
        return None, f"period: {error}"
    # More than one field means that the question does not decide it.
    field = told["fields"][0] if len(dict.fromkeys(told["fields"])) == 1 else None
    start, end = (day.isoformat() if day is not None else None for day in (first, last))
    return DateRange(field=field, start=start, end=end), None


def _filter(condition: Mapping[str, Any], fields: IndexFields) -> Filter:
    name, op = condition["field"], condition["op"]
    if op in _NO_VALUES:
        return Filter(field=name, op=op)
    is_number = fields.by_name[name].type in NUMBERS
    values = [_number(value) if is_number else value.strip() for value in condition["values"]]
    return Filter(field=name, op=op, value=values if op == "in" else values[0])


def _number(text: str) -> int | float | None:
    try:
        number = float(text.replace(",", "").strip())
    except ValueError:
        return None
    if not abs(number) <= _LARGEST:
        return None
    return int(number) if number == int(number) else number


def with_names(read: ReadQuestion, *, filters: list[Filter], entities: list[Any]) -> ReadQuestion:
    """Returns the question with the conditions that its names are, before the others."""
    fields = list(dict.fromkeys([*(each.field for each in filters), *read.named_fields]))
    found = {"entities": entities, "filters": [*filters, *read.analysis.filters], "fields": fields}
    return replace(read, analysis=read.analysis.model_copy(update=found), named_fields=tuple(fields))
