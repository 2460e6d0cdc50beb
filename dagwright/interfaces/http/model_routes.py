"""`GET /v1/models`: the models of the service, and plans, agents and profiles as models."""

import asyncio
from typing import Any

import structlog
from fastapi import APIRouter
from starlette.responses import Response

from dagwright.interfaces.http import examples
from dagwright.interfaces.http.answer_models import ModelList, ModelObject
from dagwright.interfaces.http.context import GatewayContext, PlansContextDep
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.json_route import JsonRoute
from dagwright.interfaces.http.run_documents import json_response
from dagwright.interfaces.http.run_models import response_docs
from dagwright.interfaces.http.targets import PROFILE_DESCRIPTIONS, Target, agents_of, profiles_of, target_of
from dagwright.planning.model_calls.model_failure import ModelFailure

router = APIRouter(tags=["models"], route_class=JsonRoute)
MODEL_LIST_TIMEOUT_S = 5.0
"""Timeout for the model list of the service.

If it expires, only the gateway's models and `DAGWRIGHT_MODEL` are listed.
"""
CREATED = 1_767_225_600
"""2026-01-01: `created` of all models. OpenAI's schema requires a time, which models and templates do not have.

It is a constant, because all gateways must return the same list.
"""
_LOG = structlog.stdlib.get_logger("dagwright.interfaces.http")


@router.get("/v1/models", summary="List models", responses=response_docs(ModelList, examples.MODELS))
async def list_models(context: PlansContextDep) -> Response:
    """List the models of the service, published plans, agents and planner profiles."""
    service_models = [_model_object(Target("model", name)) for name in await _service_models(context)]
    return json_response({"object": "list", "data": [*service_models, *_gateway_models(context)]})


@router.get("/v1/models/{model:path}", summary="Get a model", responses=response_docs(ModelObject, examples.MODEL))
async def retrieve_model(model: str, context: PlansContextDep) -> Response:
    """Return a model. The model of a plan has the JSON Schema of its inputs."""
    target = target_of(context, model)
    if target.needs_run:
        return json_response(
            next(model_object for model_object in _gateway_models(context) if model_object["id"] == target.id)
        )
    if target.name not in await _service_models(context):
        message = f"the model {model!r:.120} does not exist; GET /v1/models lists all models"
        raise ApiError(ErrorCode.MODEL_NOT_FOUND, message, param="model")
    return json_response(_model_object(target))


def _gateway_models(context: GatewayContext) -> list[dict[str, Any]]:
    models = [
        _model_object(
            Target("plan", name), title=plan.title, description=plan.description, input_schema=plan.input_schema
        )
        for name, plan in context.templates.items()
    ]
    models += [_model_object(Target("agent", name), description=text) for name, text in agents_of(context).items()]
    return models + [
        _model_object(Target("profile", name), description=PROFILE_DESCRIPTIONS[name]) for name in profiles_of(context)
    ]


def _model_object(target: Target, **fields: Any) -> dict[str, Any]:
    owner = "dagwright" if target.needs_run else "service"
    dagwright_fields = {"kind": target.kind, **{name: value for name, value in fields.items() if value is not None}}
    return {"id": target.id, "object": "model", "created": CREATED, "owned_by": owner, "dagwright": dagwright_fields}


async def _service_models(context: GatewayContext) -> list[str]:
    default_models = [context.settings.model] if context.settings.model is not None else []
    try:
        async with asyncio.timeout(MODEL_LIST_TIMEOUT_S):
            model_ids = await context.model.model_ids()
    except (ModelFailure, TimeoutError) as error:
        _LOG.warning("model list of the service unavailable", error=str(error) or "timeout")
        return default_models
    return list(dict.fromkeys([*default_models, *model_ids]))
