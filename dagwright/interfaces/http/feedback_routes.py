"""`/v1/runs/{run_id}/feedback` and `/v1/inbox`: what runs ask of people, and the answers."""

from fastapi import APIRouter
from starlette.responses import Response

from dagwright.interfaces.http import examples
from dagwright.interfaces.http.callers import Scope
from dagwright.interfaces.http.desk import TheDesk, needs
from dagwright.interfaces.http.feedback import answer_run, asked_of, inbox
from dagwright.interfaces.http.looking import told_json
from dagwright.interfaces.http.request_bodies import JsonRoute
from dagwright.interfaces.http.run_models import AnswerBody, Done, Requests, answered

router = APIRouter(tags=["feedback"], route_class=JsonRoute)


@router.get("/v1/inbox", summary="What all runs ask of people", responses=answered(Requests, examples.REQUESTS))
async def read_inbox(desk: TheDesk) -> Response:
    """Lists what the runs of the caller ask, and what others ask of it, the oldest first, each with its schema."""
    return told_json(await inbox(desk))


@router.get(
    "/v1/runs/{run_id}/feedback", summary="What it asks of people", responses=answered(Requests, examples.REQUESTS)
)
async def requests(run_id: str, desk: TheDesk) -> Response:
    """Lists what a run and its sub-plans ask now, each with the JSON Schema of its answer."""
    return told_json(await asked_of(desk, run_id))


@router.post(
    "/v1/runs/{run_id}/feedback",
    summary="Answer it",
    dependencies=[needs(Scope.ANSWER)],
    responses=answered(Done, examples.ANSWERED),
)
async def answer(run_id: str, body: AnswerBody, desk: TheDesk) -> Response:
    """Gives an answer, which is checked; says what became of it."""
    return told_json(await answer_run(desk, run_id, body))
