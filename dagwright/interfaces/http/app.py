"""The web application: routes, middleware, and the OpenAPI document."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from dagwright.interfaces.http import (
    call_limit_routes,
    completions,
    feedback_routes,
    limits_routes,
    model_routes,
    plan_routes,
    responses,
    run_routes,
    session_routes,
    steering_routes,
)
from dagwright.interfaces.http.access import AccessMiddleware
from dagwright.interfaces.http.allowed_hosts import AllowedHosts, split_at_commas
from dagwright.interfaces.http.api_pages import add_api_pages
from dagwright.interfaces.http.console import add_console
from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.errors import ERROR_RESPONSES, excluded_statuses, install_error_handlers
from dagwright.interfaces.http.event_models import event_schemas
from dagwright.interfaces.http.headers import COMMON_HEADERS, REQUEST_ID_HEADER, RequestIdMiddleware
from dagwright.interfaces.http.health import add_health
from dagwright.interfaces.http.upstream_timeout import UpstreamTimeoutMiddleware

_DESCRIPTION = (
    "OpenAI's API for durable runs. `model` names a model of the service, or is `plan/NAME`, `agent/NAME` or "
    "`profile/NAME`. docs/guides/openai-api.md describes the extensions to OpenAI's API."
)
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
"""A gateway on one of these hosts serves Swagger UI and ReDoc: only this machine can reach it."""
_ROUTE_MODULES = (
    model_routes,
    completions,
    responses,
    plan_routes,
    run_routes,
    feedback_routes,
    steering_routes,
    limits_routes,
    call_limit_routes,
)
_KEY_DOCS = Depends(HTTPBearer(auto_error=False, description="A key from `dagwright keys add`."))
"""For the OpenAPI document only: `AccessMiddleware` checks keys."""
_EXPOSED_HEADERS = (
    "X-Run-Id",
    "X-Session-Id",
    "X-Routing-Mode",
    "Retry-After",
    "x-should-retry",
    REQUEST_ID_HEADER,
    "Location",
)
"""Response headers that pages of other origins may read."""


class _App(FastAPI):
    """An application with CORS headers on every response, and the errors of each operation in its OpenAPI document."""

    origins: Sequence[str] = ()

    def build_middleware_stack(self) -> ASGIApp:
        inner_app = super().build_middleware_stack()
        if not self.origins:
            return RequestIdMiddleware(inner_app)
        inner_app = CORSMiddleware(
            inner_app,
            allow_origins=self.origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["*"],
            expose_headers=_EXPOSED_HEADERS,
        )
        return RequestIdMiddleware(inner_app)

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        for name, schema in event_schemas().items():
            document["components"]["schemas"].setdefault(name, schema)
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                for response in operation["responses"].values():
                    response.setdefault("headers", {}).update(COMMON_HEADERS)
                for status in excluded_statuses(path, method.upper()):
                    operation["responses"].pop(str(status), None)
        return document


def create_app(context: GatewayContext, *, host: str = "localhost") -> FastAPI:
    """Return the application. Open the gateway context before you serve the application.

    Args:
        host: the host that the server listens on.
    """
    hosts, origins = split_at_commas(context.settings.api_hosts), split_at_commas(context.settings.api_origins)
    app = _App(
        title="Dagwright",
        description=_DESCRIPTION,
        version="0.1.0",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        routes=[*_routes()],
    )
    app.state.context = context
    install_error_handlers(app)

    async def check_connection() -> None:
        await context.runs.check_connection()

    app.add_middleware(UpstreamTimeoutMiddleware, check_connection=check_connection)
    app.add_middleware(
        AccessMiddleware,
        keys=context.keys,
        usage=context.usage,
        hosts=AllowedHosts(hosts, origins, listening_host=host),
        stop_event=context.stop_event,
    )
    app.origins = origins

    add_health(app, context)
    add_console(app)
    if host in _LOOPBACK_HOSTS:
        add_api_pages(app)
    return app


@functools.cache
def _routes() -> Sequence[BaseRoute]:
    """Return the routes of every application. Cached, because FastAPI's analysis of each signature is slow."""
    router = APIRouter(generate_unique_id_function=_operation_id)
    include = functools.partial(router.include_router, responses=ERROR_RESPONSES, dependencies=[_KEY_DOCS])
    for module in _ROUTE_MODULES:
        include(module.router)
    include(session_routes.router, prefix="/v1/sessions")
    include(session_routes.orchestration_router, prefix="/v1/orchestration")
    include(session_routes.router, prefix="/v1/orchestration", include_in_schema=False)
    return tuple(router.routes)


_OPERATION_IDS: Mapping[str, str] = {
    "GET /v1/models": "listModels",
    "GET /v1/models/{model:path}": "getModel",
    "POST /v1/chat/completions": "createChatCompletion",
    "POST /v1/responses": "createResponse",
    "GET /v1/responses/{response_id}": "getResponse",
    "POST /v1/responses/{response_id}/cancel": "cancelResponse",
    "GET /v1/sessions": "listSessions",
    "GET /v1/sessions/{session_id}": "getSession",
    "GET /v1/sessions/{session_id}/events": "streamSessionEvents",
    "GET /v1/sessions/{session_id}/graph": "getSessionGraph",
    "GET /v1/sessions/{session_id}/feedback": "listSessionRequests",
    "POST /v1/sessions/{session_id}/feedback": "answerSessionRequest",
    "POST /v1/sessions/{session_id}/cancel": "cancelSessionRun",
    "GET /v1/orchestration/{session_id}/events": "streamOrchestrationEvents",
    "POST /v1/plans/check": "checkPlan",
    "GET /v1/plans/{name}": "getPlan",
    "POST /v1/runs": "createRun",
    "GET /v1/runs": "listRuns",
    "GET /v1/runs/{run_id}": "getRun",
    "GET /v1/runs/{run_id}/answer": "streamRunAnswer",
    "GET /v1/runs/{run_id}/events": "streamRunEvents",
    "GET /v1/runs/{run_id}/inputs": "getRunInputs",
    "GET /v1/runs/{run_id}/graph": "getRunGraph",
    "GET /v1/runs/{run_id}/explain": "explainRun",
    "GET /v1/runs/{run_id}/feedback": "listRunRequests",
    "POST /v1/runs/{run_id}/feedback": "answerRunRequest",
    "POST /v1/runs/{run_id}/cancel": "cancelRun",
    "POST /v1/runs/{run_id}/pause": "pauseRun",
    "POST /v1/runs/{run_id}/resume": "resumeRun",
    "POST /v1/runs/{run_id}/fork": "forkRun",
    "GET /v1/runs/{run_id}/limits": "getRunLimits",
    "POST /v1/runs/{run_id}/limits": "updateRunLimits",
    "GET /v1/runs/{run_id}/policy": "getRunPolicy",
    "POST /v1/runs/{run_id}/policy": "updateRunPolicy",
    "POST /v1/runs/{run_id}/nodes": "addNodes",
    "GET /v1/runs/{run_id}/nodes/{node_id:path}": "getNode",
    "POST /v1/runs/{run_id}/nodes/{node_id:path}/cancel": "cancelNode",
    "POST /v1/runs/{run_id}/nodes/{node_id:path}/retry": "retryNode",
    "POST /v1/runs/{run_id}/nodes/{node_id:path}/result": "setNodeResult",
    "GET /v1/call-limits": "listCallLimits",
    "PUT /v1/call-limits/{subject:path}": "setCallLimit",
    "DELETE /v1/call-limits/{subject:path}": "removeCallLimit",
    "GET /v1/inbox": "listInbox",
    "GET /livez": "getLiveness",
    "GET /readyz": "getReadiness",
}
"""HTTP method and path -> operation ID. Generated clients use the operation ID as the name of a function."""


def _operation_id(route: APIRoute) -> str:
    """Return the operation ID of a route: its entry in `_OPERATION_IDS`, or the name of its function."""
    names = [_OPERATION_IDS.get(f"{method} {route.path}") for method in sorted(route.methods or ())]
    return next(filter(None, names), route.name)
