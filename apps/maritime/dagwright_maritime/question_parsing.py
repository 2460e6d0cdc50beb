"""Validation of a model's analysis of a question."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from dagwright_maritime.dates import InvalidPeriod, parse_period
from dagwright_maritime.fields import NUMBER_TYPES, IndexFields
from dagwright_maritime.model_answers import InvalidAnswer
from dagwright_maritime.slots import AnalysisResult, DateRange, Filter, Metric

MAX_NAMES = 20
NAME_CHARACTERS = 200
"""Maximum number of characters of a name. The server searches for each word of the name."""
KIND_FIELDS: Mapping[str, tuple[str, ...]] = {
    "shipper": ("shipper_name",),
    "carrier": ("carrier_name",),
    "port": ("destination_port", "origin_port"),
}
"""Kind of a name -> the fields with such names; the first is the default."""

_MAX_NUMBER = 1e15
"""Larger numbers are invalid, as are infinity and NaN."""
_OPERATORS_WITHOUT_VALUE = ("exists", "missing")
_NUMERIC_METRICS = ("sum", "avg", "min", "max", "percentiles")
_ORDER_OPERATORS = ("gt", "gte", "lt", "lte")


@dataclass(frozen=True, slots=True)
class Mention:
    """A name in the spelling of the question.

    Args:
        kind, field: the kind and field that the model assumes.
    """

    text: str
    kind: str
    field: str | None


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """An analysed question. `apply_resolved_names` adds the names that were looked up.

    Args:
        analysis: the analysis; at first without names, and with values spelled as in the model's answer.
        fields: names of all fields of the question, each once.
    """

    mentions: tuple[Mention, ...]
    analysis: AnalysisResult
    fields: tuple[str, ...]


def parse_answer(answer: Mapping[str, Any], question: str, fields: IndexFields) -> ParsedQuestion:
    """Return the analysis of a question.

    Raises:
        InvalidAnswer: the answer is invalid; the message lists all problems.
    """
    problems = [*_problems(answer, question, fields)]
    period, problem = _period(answer["period"], fields.today)
    if problem:
        problems.append(problem)
    if problems:
        raise InvalidAnswer("; ".join(problems))
    mentions = tuple(
        dict.fromkeys(Mention(name["text"].strip(), name["kind"], name["field"]) for name in answer["names"])
    )
    date_fields = answer["period"]["fields"] if answer["period"] else []
    metrics = [
        Metric(op=metric["op"], field=None if metric["op"] == "count" else metric["field"])
        for metric in answer["metrics"]
    ]
    filters = [_filter(condition, fields) for condition in answer["conditions"]]
    field_names = [
        *date_fields,
        *(condition.field for condition in filters),
        *(metric.field for metric in metrics if metric.field is not None),
        *answer["group_by"],
        *answer["fields"],
    ]
    analysis = AnalysisResult(
        intent_type=answer["intent_type"],
        question=question,
        fields=list(dict.fromkeys(field_names)),
        filters=filters,
        metrics=metrics,
        group_by=list(dict.fromkeys(answer["group_by"])),
        top=answer["top"],
        date_range=period,
    )
    return ParsedQuestion(mentions, analysis, tuple(analysis.fields))


def _problems(answer: Mapping[str, Any], question: str, fields: IndexFields) -> Iterator[str]:
    normalized_question = " ".join(question.casefold().split())
    if len(answer["names"]) > MAX_NAMES:
        yield f"names: at most {MAX_NAMES} names are allowed"
    for name in answer["names"]:
        text = " ".join(name["text"].casefold().split())
        if not text or len(text) > NAME_CHARACTERS or text not in normalized_question:
            yield f"names: {name['text'][:60]!r} is not in the question, or is not a name"
    for metric in answer["metrics"]:
        yield from _metric_problems(metric, fields)
    for condition in answer["conditions"]:
        yield from _condition_problems(condition, fields)
    if answer["top"] is not None and answer["top"] < 1:
        yield "top: expected a number from 1, or null"
    if answer["period"] and not answer["period"]["fields"]:
        yield "period: expected at least one date field"


def _metric_problems(metric: Mapping[str, Any], fields: IndexFields) -> Iterator[str]:
    op, name = metric["op"], metric["field"]
    if op == "count":
        return
    if name is None:
        yield f"metrics: {op} needs a field"
    elif op in _NUMERIC_METRICS and fields.by_name[name].type not in NUMBER_TYPES:
        yield f"metrics: {op} needs a numeric field, but {name} is {fields.by_name[name].type}"


def _condition_problems(condition: Mapping[str, Any], fields: IndexFields) -> Iterator[str]:
    name, op, values = condition["field"], condition["op"], condition["values"]
    field_type = fields.by_name[name].type
    if op in _OPERATORS_WITHOUT_VALUE:
        return
    if not values or not all(value.strip() for value in values):
        yield f"conditions: {op} of {name} needs a value"
    elif len(values) > 1 and op != "in":
        yield f"conditions: {op} of {name} takes one value; use the operator 'in' for several"
    elif field_type == "date":
        yield f"conditions: {name} is a date; use period"
    elif op in _ORDER_OPERATORS and field_type not in NUMBER_TYPES:
        yield f"conditions: {op} needs a numeric field, but {name} is {field_type}"
    elif field_type in NUMBER_TYPES and any(_number(value) is None for value in values):
        yield f"conditions: {name} is a number, but {values[0][:60]!r} is not"


def _period(period: Mapping[str, Any] | None, today: date) -> tuple[DateRange | None, str | None]:
    if period is None:
        return None, None
    try:
        first, last = parse_period(period["words"], today)
    except InvalidPeriod as error:
        return None, f"period: {error}"
    # If the model gives several fields, the question does not say which date it means.
    field = period["fields"][0] if len(dict.fromkeys(period["fields"])) == 1 else None
    start, end = (day.isoformat() if day is not None else None for day in (first, last))
    return DateRange(field=field, start=start, end=end), None


def _filter(condition: Mapping[str, Any], fields: IndexFields) -> Filter:
    name, op = condition["field"], condition["op"]
    if op in _OPERATORS_WITHOUT_VALUE:
        return Filter(field=name, op=op)
    is_number = fields.by_name[name].type in NUMBER_TYPES
    values = [_number(value) if is_number else value.strip() for value in condition["values"]]
    return Filter(field=name, op=op, value=values if op == "in" else values[0])


def _number(text: str) -> int | float | None:
    try:
        number = float(text.replace(",", "").strip())
    except ValueError:
        return None
    if not abs(number) <= _MAX_NUMBER:
        return None
    return int(number) if number == int(number) else number


def apply_resolved_names(
    parsed_question: ParsedQuestion, *, filters: list[Filter], entities: list[Any]
) -> ParsedQuestion:
    """Return the question with its resolved names.

    Args:
        filters: conditions for the names, which are put before the conditions of the question.
        entities: the shippers, carriers and ports that the names mean.
    """
    fields = list(dict.fromkeys([*(condition.field for condition in filters), *parsed_question.fields]))
    updates = {"entities": entities, "filters": [*filters, *parsed_question.analysis.filters], "fields": fields}
    return replace(parsed_question, analysis=parsed_question.analysis.model_copy(update=updates), fields=tuple(fields))
