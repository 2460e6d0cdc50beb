"""Ask a model for plans as a run does: the same prompt, response format, parser and repair."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.planning.cases import Case, Cases
from benchmarks.planning.score import PlanFacts, facts_of_plan
from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.model.states import NO_USAGE, Usage
from dagwright.llm import ModelClient
from dagwright.planner import PlanningOptions, build_catalogue, planning_messages, prepare_goal, repair_message
from dagwright.planner.plan_parser import parse_plan
from dagwright.planning.model_calls.model_failure import ModelFailure
from dagwright.planning.model_calls.model_requests import Message, user
from dagwright.planning.plan_and_execute.goal_nodes import plan_request
from dagwright.planning.plan_and_execute.goal_spec import PLAN, REPAIR, goal_from_json


@dataclass(frozen=True, slots=True)
class Attempt:
    """One response of the model.

    Args:
        text: the response.
        facts: facts of the plan in the response; `None` if the plan is invalid.
        problems: the problems of an invalid plan.
    """

    text: str
    facts: PlanFacts | None
    problems: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """The plans that a model wrote for one request.

    Args:
        attempts: responses of the model; only the last one may have a valid plan.
        usage: token usage of all calls.
        failure: the failure of a model call, if any.
    """

    case: Case
    attempts: Sequence[Attempt]
    usage: Usage
    failure: ModelFailure | None = None

    @property
    def first_facts(self) -> PlanFacts | None:
        """Return the facts of the first plan; `None` if there is no valid first plan."""
        return self.attempts[0].facts if self.attempts else None

    @property
    def last_facts(self) -> PlanFacts | None:
        """Return the facts of the last plan; `None` if there is no valid last plan."""
        return self.attempts[-1].facts if self.attempts else None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON for a report."""
        attempts = [
            {
                "text": attempt.text,
                "valid": attempt.facts is not None,
                "problems": [problem.to_json() for problem in attempt.problems],
            }
            for attempt in self.attempts
        ]
        return {
            "request": self.case.text,
            "tries": attempts,
            "usage": self.usage.to_json(),
            "failure": None if self.failure is None else str(self.failure),
        }


async def plan_all(
    cases: Cases, client: ModelClient, *, options: PlanningOptions, max_concurrent: int
) -> list[PlannedRequest]:
    """Plan each request with a model; return the results in order.

    Args:
        max_concurrent: maximum number of concurrent requests.
    """
    request_slots = asyncio.Semaphore(max_concurrent)

    async def plan_when_free(case: Case) -> PlannedRequest:
        async with request_slots:
            return await plan_case(case, cases, client, options=options)

    return await asyncio.gather(*(plan_when_free(case) for case in cases.requests))


async def plan_case(case: Case, cases: Cases, client: ModelClient, *, options: PlanningOptions) -> PlannedRequest:
    """Plan a request with a model; repair an invalid plan as often as a run would."""
    plan, _ = prepare_goal(case.text, cases.tools, options)
    goal = goal_from_json(plan.extender)
    attempts: list[Attempt] = []
    usage = NO_USAGE
    while len(attempts) < options.max_plans and (not attempts or attempts[-1].facts is None):
        call = plan_request(goal, _messages(case, cases, attempts), purpose=REPAIR if attempts else PLAN).call
        try:
            answer = await client.complete(call)
        except ModelFailure as failure:
            return PlannedRequest(case, attempts, usage + failure.usage, failure)
        usage += answer.usage
        attempts.append(_parse_response(answer.output, answer.text, cases))
    return PlannedRequest(case, attempts, usage)


def _messages(case: Case, cases: Cases, attempts: Sequence[Attempt]) -> list[Message]:
    """Return the prompt, then each invalid plan with its problems."""
    messages: list[Message] = [*planning_messages(case.text, build_catalogue(cases.tools), can_replan=True)]
    for attempt in attempts:
        messages += [Message(role="assistant", content=attempt.text), user(repair_message(attempt.problems))]
    return messages


def _parse_response(output: Any, text: str, cases: Cases) -> Attempt:
    try:
        parsed_plan = parse_plan(output, text, cases.tools)
    except PlanInvalid as invalid:
        return Attempt(text, None, invalid.problems)
    document: Mapping[str, Any] = parsed_plan.document
    return Attempt(text, facts_of_plan(dict(document), tools=cases.tools))
