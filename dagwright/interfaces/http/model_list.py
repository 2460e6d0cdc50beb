"""`GET /v1/models`: the models of the service, and plans, agents and profiles as models."""

import asyncio
from typing import Any

import structlog
from fastapi import APIRouter
from starlette.responses import Response

from dagwright.interfaces.http import examples
from dagwright.interfaces.http.answer_models import ModelLine, ModelList
from dagwright.interfaces.http.desk import Desk, PlansDesk
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.looking import told_json
from dagwright.interfaces.http.request_bodies import JsonRoute
from dagwright.interfaces.http.run_models import answered
from dagwright.interfaces.http.targets import PROFILE_WORDS, Target, agents_of, profiles_of, target_of
from dagwright.planning.model_calls.failures import ModelFailure

router = APIRouter(tags=["models"], route_class=JsonRoute)
SERVICE_S = 5.0
"""Timeout for the model list of the service; after it, only our own models are listed."""
CREATED = 1_767_225_600
"""2026-01-01: `created` of all models. OpenAI's schema requires a time, and neither services nor templates have one."""
_LOG = structlog.stdlib.get_logger("dagwright.interfaces.http")


@router.get("/v1/models", summary="List models", responses=answered(ModelList, examples.MODELS))
async def list_models(desk: PlansDesk) -> Response:
    """List the models of the service, published plans, agents and planner profiles."""
    service = [_told(Target("model", name)) for name in await _service_models(desk)]
    return told_json({"object": "list", "data": [*service, *_own(desk)]})


@router.get("/v1/models/{model:path}", summary="Get a model", responses=answered(ModelLine, examples.MODEL))
async def retrieve_model(model: str, desk: PlansDesk) -> Response:
    """Return a model; a plan has the JSON Schema of its inputs."""
    target = target_of(desk, model)
    if target.is_ours:
        return told_json(next(told for told in _own(desk) if told["id"] == target.id))
    if target.name not in await _service_models(desk):
        words = f"the model {model!r:.120} does not exist; GET /v1/models lists what there is"
        raise ApiError(404, words, param="model", code="model_not_found")
    return told_json(_told(target))


def _own(desk: Desk) -> list[dict[str, Any]]:
    found = [
        _told(Target("plan", name), title=plan.title, description=plan.description, inputs=plan.input_schema)
        for name, plan in desk.templates.items()
    ]
    found += [_told(Target("agent", name), description=words) for name, words in agents_of(desk).items()]
    return found + [_told(Target("profile", name), description=PROFILE_WORDS[name]) for name in profiles_of(desk)]


def _told(target: Target, **more: Any) -> dict[str, Any]:
    owner = "dagwright" if target.is_ours else "service"
    about = {"kind": target.kind, **{name: value for name, value in more.items() if value is not None}}
    # All gateways must return the same list, so the time is not their start time.
    return {"id": target.id, "object": "model", "created": CREATED, "owned_by": owner, "dagwright": about}


async def _service_models(desk: Desk) -> list[str]:
    own = [desk.settings.model] if desk.settings.model is not None else []
    try:
        async with asyncio.timeout(SERVICE_S):
            listed = await desk.model.model_ids()
    except (ModelFailure, TimeoutError) as error:
        _LOG.warning("model list of the service unavailable", error=str(error) or "timeout")
        return own
    return list(dict.fromkeys([*own, *listed]))
