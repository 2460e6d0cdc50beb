"""The worker that has a model write a query, and lets nobody have one that was not checked.

What the model wrote is checked against what is allowed and against the fields that the index has, then by the server,
which judges the conditions and runs aggregations and the order for no documents. What is wrong is told to the model,
which writes it again, at most `ASKED_AT_MOST` times in all.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple, TypeVar

from dagwright.contracts.model_calls import Action, Message, ModelAnswer, system, user
from dagwright.contracts.model_failures import ModelFailure
from dagwright.maritime.asking import without_more_attempts
from dagwright.maritime.connection import SERVER_ATTEMPTS, Search, reach_search
from dagwright.maritime.fields import read_fields
from dagwright.maritime.query_prompt import ANSWER, TASK
from dagwright.maritime.querying import without_index
from dagwright.maritime.slots import Ambiguity, AnalysisResult, EsQuery, MetadataResults, ValueResult
from dagwright.plan.worker_results import WorkerResult
from dagwright.search.answers import AnswerTooLarge
from dagwright.search.asking import IndexMissing, field_types, why_invalid
from dagwright.search.limits import Check, QueryRefused
from dagwright.search.read_only import read_query
from dagwright.tools.context import context
from dagwright.tools.errors import GiveUp
from dagwright.tools.worker_tools import SubGoal, worker_tool

ASKED_AT_MOST = 4
"""The first answer and three repairs."""
PURPOSE = "worker"
_PROBLEM_CHARACTERS = 1_500

One = TypeVar("One")


class Written(NamedTuple):
    """What the model wrote that is of use."""

    query: EsQuery
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
        try:
            types = await field_types(search.client, index) if _is_ours(search, index) else {}
            # The day for which the data were made: from it the days of the analysis were reckoned.
            today = (await read_fields(search, index)).today
            values = _flat(value_results or [])
            question = _question(analyses, described, values, sub_goal=sub_goal, types=types, today=today)
            job = _Job(search, index, types, is_aggregation=any(each.intent_type == "aggregation" for each in analyses))
            written = await _written(job, question)
        except IndexMissing as error:
            raise without_index(error) from None
    es_query, ambiguity = written.query.model_dump(), written.ambiguity
    if ambiguity is None:
        return WorkerResult(outputs={"es_query": es_query, "ambiguity": None})
    told = f"{ambiguity.question} ({' or '.join(ambiguity.options)})"
    return WorkerResult(outputs={"es_query": es_query, "ambiguity": ambiguity.model_dump()}, message=told)


@dataclass(frozen=True, slots=True)
class _Job:
    """What a query is to be."""

    search: Search
    index: str
    types: Mapping[str, str]
    is_aggregation: bool


def _is_ours(search: Search, index: str) -> bool:
    """Tells whether an index may be read.

    Raises:
        QueryRefused: it may not.
    """
    read_query(index, {}, prefix=search.indices.prefix, check=Check(search.limits))
    return True


async def _written(job: _Job, question: str) -> Written:
    """Returns what the model wrote, once it is of use.

    Raises:
        GiveUp: it is of no use after all repairs.
    """
    said: list[Message] = [system(TASK), user(question)]
    # What an earlier attempt was answered is not paid for again: it ended because the server was not there.
    kept = context().last_heartbeat
    problem = ""
    for _ in range(ASKED_AT_MOST):
        if isinstance(kept, dict):
            output, answered = kept, Message(role="assistant", content=json.dumps(kept))
        else:
            try:
                answer = await _asked(said)
            except ModelFailure as failure:
                if failure.action is not Action.FIX:
                    raise without_more_attempts(failure) from None
                problem = str(failure)
                said += [Message(role="assistant", content=failure.partial or "{}"), _repair(problem)]
                continue
            output, answered = answer.output, answer.message
        kept = None
        context().heartbeat(output)
        try:
            return await _usable(job, output)
        except (QueryRefused, AnswerTooLarge) as wrong:
            problem = str(wrong)
            said += [answered, _repair(problem)]
    raise GiveUp(f"The model wrote no query that can be run, {ASKED_AT_MOST} times; at last: {problem}")


async def _asked(said: Sequence[Message]) -> ModelAnswer:
    return await context().ask_model(said, purpose=PURPOSE, output=ANSWER)


def _repair(problem: str) -> Message:
    return user(f"That cannot be used. {problem[:_PROBLEM_CHARACTERS]}\nWrite the whole answer again, without that.")


async def _usable(job: _Job, output: Mapping[str, Any]) -> Written:
    """Returns what the model wrote, checked here and by the server.

    Raises:
        QueryRefused: it is of no use; the words say why.
    """
    body = dict(output["body"])
    has_groups = bool(body.keys() & {"aggs", "aggregations"})
    if has_groups != job.is_aggregation:
        wanted = "has aggs, for the intent is an aggregation" if job.is_aggregation else "has no aggs: it is a search"
        raise QueryRefused([f"/aggs: the query {wanted}"])
    check = Check(job.search.limits, job.types)
    query = read_query(job.index, body, prefix=job.search.indices.prefix, check=check)
    if (problem := await why_invalid(job.search.client, query, job.search.limits)) is not None:
        raise QueryRefused([problem])
    return Written(EsQuery(index=query.index, body=query.body), _ambiguity(output["ambiguity"]))


def _ambiguity(told: Any) -> Ambiguity | None:
    """Returns what is left open; what has no two meanings is not open."""
    if told is None:
        return None
    options = list(dict.fromkeys(option.strip() for option in told["options"] if option.strip()))
    if len(options) < 2:
        raise QueryRefused(["/ambiguity/options: name each field that may be meant, at least two; else null"])
    return Ambiguity(question=told["question"].strip() or "Which one is meant?", options=options)


def _question(
    analyses: Sequence[AnalysisResult],
    described: Sequence[MetadataResults],
    values: Sequence[ValueResult],
    *,
    sub_goal: SubGoal,
    types: Mapping[str, str],
    today: date,
) -> str:
    """Returns what the model is told of the question, as JSON."""
    about = {field.name: field.description for each in described for field in each.fields}
    told = {
        "today": today.isoformat(),
        "task": sub_goal.description,
        "analysis": [each.model_dump(exclude_none=True) for each in analyses],
        "values": [each.model_dump(exclude={"score"}) for each in values],
        "fields": [
            {"name": name, "type": kind, **({"description": about[name]} if about.get(name) else {})}
            for name, kind in types.items()
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
