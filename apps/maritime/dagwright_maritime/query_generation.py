"""The worker tool in which a model writes a query. It returns only checked queries.

First, the query is checked against the allowed subset and the fields of the index. Then the server validates the
conditions, and runs the aggregations and the sort without returning documents. Problems are sent back to the model,
which writes the query again.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from dagwright.tools import WorkerResult
from dagwright.tools.worker_tools import SubGoal, worker_tool
from dagwright_maritime.connection import SERVER_ATTEMPTS, Search, connect_search
from dagwright_maritime.fields import IndexFields, read_fields
from dagwright_maritime.model_answers import InvalidAnswer, request_answer
from dagwright_maritime.query_execution import index_missing_error
from dagwright_maritime.query_prompt import ANSWER, TASK
from dagwright_maritime.search.limits import Check, QueryRejected
from dagwright_maritime.search.read_only import CheckedQuery, parse_query
from dagwright_maritime.search.requests import IndexMissing, rejection_reason
from dagwright_maritime.search.results import SearchResultTooLarge
from dagwright_maritime.slots import Ambiguity, AnalysisResult, EsQuery, MetadataResults, ValueResult

T = TypeVar("T")


class ParsedQuery(NamedTuple):
    """The query of a valid answer, and the question that the model leaves open."""

    query: CheckedQuery
    ambiguity: Ambiguity | None


@worker_tool(
    preconditions=["has `metadata_results`", "has an `analysis_result` with its intent_type"],
    requires=["analysis_result", "metadata_results"],
    outputs=["es_query", "ambiguity"],
    goal_type="support",
    timeout="5m",
    max_attempts=SERVER_ATTEMPTS,
    uses_models=True,
)
async def es_query_gen(
    analysis_result: AnalysisResult | list[AnalysisResult],
    metadata_results: MetadataResults | list[MetadataResults],
    sub_goal: SubGoal,
    value_results: list[ValueResult | list[ValueResult]] | None = None,
) -> WorkerResult:
    """Write the query for an analysed question: for documents or figures, according to its intent_type.

    The query is checked, and the search server accepts it. If a word of the question may mean several fields, the
    query uses the likeliest field, and `ambiguity` lists the alternatives.

    Args:
        analysis_result: result of metadata_lookup
        metadata_results: result of metadata_lookup
        value_results: result of metadata_lookup: the names of the question as they are in the data
    """
    analyses, metadata = _as_list(analysis_result), _as_list(metadata_results)
    [index, *other_indices] = dict.fromkeys(result.index for result in metadata)
    if other_indices:
        raise ValueError(
            f"A query needs one index; metadata_results has {index!r} and {', '.join(map(repr, other_indices))}"
        )
    async with connect_search() as search:
        fields = await read_fields(search, index)
        model_input = _model_input(analyses, metadata, _flatten(value_results or []), sub_goal=sub_goal, fields=fields)
        is_aggregation = any(analysis.intent_type == "aggregation" for analysis in analyses)
        parsed_query = await request_answer(
            TASK,
            model_input,
            schema=ANSWER,
            parse=lambda answer: _parse(search, fields, answer, is_aggregation=is_aggregation),
            validate=lambda parsed_query: _validate(search, parsed_query),
        )
    es_query = EsQuery(index=parsed_query.query.index, body=parsed_query.query.body).model_dump()
    ambiguity = parsed_query.ambiguity
    if ambiguity is None:
        return WorkerResult(outputs={"es_query": es_query, "ambiguity": None})
    message = f"{ambiguity.question} ({' or '.join(ambiguity.options)})"
    return WorkerResult(outputs={"es_query": es_query, "ambiguity": ambiguity.model_dump()}, message=message)


def _parse(search: Search, fields: IndexFields, answer: Mapping[str, Any], *, is_aggregation: bool) -> ParsedQuery:
    """Return the model's query, checked against the allowed subset and the fields of the index.

    Raises:
        InvalidAnswer: the query is invalid.
    """
    body = dict(answer["body"])
    if bool(body.keys() & {"aggs", "aggregations"}) != is_aggregation:
        rule = "must have aggs: the intent is an aggregation" if is_aggregation else "must not have aggs for a search"
        raise InvalidAnswer(f"/aggs: the query {rule}")
    check = Check(search.limits, fields.types)
    try:
        query = parse_query(fields.index, body, prefix=search.indices.prefix, check=check)
    except QueryRejected as error:
        raise InvalidAnswer(str(error)) from None
    return ParsedQuery(query, _ambiguity(answer["ambiguity"]))


async def _validate(search: Search, parsed_query: ParsedQuery) -> None:
    """Validate a query on the server.

    Raises:
        InvalidAnswer: the server rejects the query.
        GiveUp: the index no longer exists.
    """
    try:
        problem = await rejection_reason(search.client, parsed_query.query, search.limits)
    except SearchResultTooLarge as error:
        raise InvalidAnswer(str(error)) from None
    except IndexMissing as error:
        raise index_missing_error(error) from None
    if problem is not None:
        raise InvalidAnswer(problem)


def _ambiguity(ambiguity: Any) -> Ambiguity | None:
    """Return the open question; it must have at least two options."""
    if ambiguity is None:
        return None
    options = list(dict.fromkeys(option.strip() for option in ambiguity["options"] if option.strip()))
    if len(options) < 2:
        raise InvalidAnswer("/ambiguity/options: name at least two fields that may be meant, or set ambiguity to null")
    return Ambiguity(question=ambiguity["question"].strip() or "Which one is meant?", options=options)


def _model_input(
    analyses: Sequence[AnalysisResult],
    metadata: Sequence[MetadataResults],
    values: Sequence[ValueResult],
    *,
    sub_goal: SubGoal,
    fields: IndexFields,
) -> str:
    """Return the input of the model, as JSON."""
    descriptions = {field.name: field.description for result in metadata for field in result.fields}
    model_input = {
        # The day of the data, from which the days of the analysis were computed.
        "today": fields.today.isoformat(),
        "task": sub_goal.description,
        "analysis": [analysis.model_dump(exclude_none=True) for analysis in analyses],
        "values": [value.model_dump(exclude={"score"}) for value in values],
        "fields": [
            {
                "name": name,
                "type": field_type,
                **({"description": descriptions[name]} if descriptions.get(name) else {}),
            }
            for name, field_type in fields.types.items()
        ],
    }
    return json.dumps(model_input, ensure_ascii=False, indent=1)


def _as_list(value: T | list[T]) -> list[T]:
    """Return one or several values of a slot as a list.

    Raises:
        ValueError: the list is empty.
    """
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError("analysis_result and metadata_results must not be empty lists")
    return values


def _flatten(results: Sequence[ValueResult | list[ValueResult]]) -> list[ValueResult]:
    return [value_result for result in results for value_result in (result if isinstance(result, list) else [result])]
