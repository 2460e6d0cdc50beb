"""The worker that has a model write a query, and lets nobody have one that was not checked.

What the model wrote is checked against what is allowed and against the fields that the index has, then by the server,
which judges the conditions and runs aggregations and the order for no documents. What is wrong is told to the model,
which writes it again.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from dagwright.tools import WorkerResult
from dagwright.tools.worker_tools import SubGoal, worker_tool
from dagwright_maritime.asking import Unusable, usable_answer
from dagwright_maritime.connection import SERVER_ATTEMPTS, Search, reach_search
from dagwright_maritime.fields import IndexFields, read_fields
from dagwright_maritime.query_prompt import ANSWER, TASK
from dagwright_maritime.querying import without_index
from dagwright_maritime.search.answers import AnswerTooLarge
from dagwright_maritime.search.asking import IndexMissing, why_invalid
from dagwright_maritime.search.limits import Check, QueryRefused
from dagwright_maritime.search.read_only import ReadQuery, read_query
from dagwright_maritime.slots import Ambiguity, AnalysisResult, EsQuery, MetadataResults, ValueResult

One = TypeVar("One")


class Written(NamedTuple):
    """What the model wrote that is of use."""

    query: ReadQuery
    ambiguity: Ambiguity | None


@worker_tool(
    preconditions=["has `metadata_results`", "has an `analysis_result` with its intent_type"],
    requires=["analysis_result", "metadata_results"],
    outputs=["es_query", "ambiguity"],
    goal_type="support",
    timeout="5m",
    max_attempts=SERVER_ATTEMPTS,
    asks_models=True,
)
async def es_query_gen(
    analysis_result: AnalysisResult | list[AnalysisResult],
    metadata_results: MetadataResults | list[MetadataResults],
    sub_goal: SubGoal,
    value_results: list[ValueResult | list[ValueResult]] | None = None,
) -> WorkerResult:
    """Writes the query that finds what an analysed question asks for: documents or figures, by its intent_type.

    The query is checked and is known to run. If a word of the question may mean several fields, the query has the
    likeliest one, and `ambiguity` says what else it may mean.

    Args:
        analysis_result: of metadata_lookup
        metadata_results: of metadata_lookup
        value_results: of metadata_lookup: what names of the question are called in the data
    """
    analyses, described = _listed(analysis_result), _listed(metadata_results)
    [index, *others] = dict.fromkeys(each.index for each in described)
    if others:
        raise ValueError(f"A query is of one index; metadata_results has {index!r} and {', '.join(map(repr, others))}")
    async with reach_search() as search:
        fields = await read_fields(search, index)
        question = _question(analyses, described, _flat(value_results or []), sub_goal=sub_goal, fields=fields)
        is_aggregation = any(each.intent_type == "aggregation" for each in analyses)
        written = await usable_answer(
            TASK,
            question,
            schema=ANSWER,
            read=lambda answer: _read(search, fields, answer, is_aggregation=is_aggregation),
            judge=lambda written: _judge(search, written),
        )
    es_query = EsQuery(index=written.query.index, body=written.query.body).model_dump()
    ambiguity = written.ambiguity
    if ambiguity is None:
        return WorkerResult(outputs={"es_query": es_query, "ambiguity": None})
    told = f"{ambiguity.question} ({' or '.join(ambiguity.options)})"
    return WorkerResult(outputs={"es_query": es_query, "ambiguity": ambiguity.model_dump()}, message=told)


def _read(search: Search, fields: IndexFields, answer: Mapping[str, Any], *, is_aggregation: bool) -> Written:
    """Returns what the model wrote, checked against what is allowed and against the fields that there are.

    Raises:
        Unusable: it is of no use; the words say why.
    """
    body = dict(answer["body"])
    if bool(body.keys() & {"aggs", "aggregations"}) != is_aggregation:
        wanted = "has aggs, for the intent is an aggregation" if is_aggregation else "has no aggs: it is a search"
        raise Unusable(f"/aggs: the query {wanted}")
    check = Check(search.limits, fields.types)
    try:
        query = read_query(fields.index, body, prefix=search.indices.prefix, check=check)
    except QueryRefused as refused:
        raise Unusable(str(refused)) from None
    return Written(query, _ambiguity(answer["ambiguity"]))


async def _judge(search: Search, written: Written) -> None:
    """Has the server judge a query.

    Raises:
        Unusable: it does not take it.
        GiveUp: the index is not there any more.
    """
    try:
        problem = await why_invalid(search.client, written.query, search.limits)
    except AnswerTooLarge as large:
        raise Unusable(str(large)) from None
    except IndexMissing as error:
        raise without_index(error) from None
    if problem is not None:
        raise Unusable(problem)


def _ambiguity(told: Any) -> Ambiguity | None:
    """Returns what is left open; what has no two meanings is not open."""
    if told is None:
        return None
    options = list(dict.fromkeys(option.strip() for option in told["options"] if option.strip()))
    if len(options) < 2:
        raise Unusable("/ambiguity/options: name each field that may be meant, at least two; else null")
    return Ambiguity(question=told["question"].strip() or "Which one is meant?", options=options)


def _question(
    analyses: Sequence[AnalysisResult],
    described: Sequence[MetadataResults],
    values: Sequence[ValueResult],
    *,
    sub_goal: SubGoal,
    fields: IndexFields,
) -> str:
    """Returns what the model is told of the question, as JSON."""
    about = {field.name: field.description for each in described for field in each.fields}
    told = {
        # The day for which the data were made: from it the days of the analysis were reckoned.
        "today": fields.today.isoformat(),
        "task": sub_goal.description,
        "analysis": [each.model_dump(exclude_none=True) for each in analyses],
        "values": [each.model_dump(exclude={"score"}) for each in values],
        "fields": [
            {"name": name, "type": kind, **({"description": about[name]} if about.get(name) else {})}
            for name, kind in fields.types.items()
        ],
    }
    return json.dumps(told, ensure_ascii=False, indent=1)


def _listed(given: One | list[One]) -> list[One]:
    """Returns what one slot gave, or several, as a list.

    Raises:
        ValueError: there is nothing.
    """
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise ValueError("analysis_result and metadata_results may be lists, but not empty ones")
    return listed


def _flat(given: Sequence[ValueResult | list[ValueResult]]) -> list[ValueResult]:
    return [one for each in given for one in (each if isinstance(each, list) else [each])]
