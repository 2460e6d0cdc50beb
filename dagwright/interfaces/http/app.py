"""The web application: routes, middleware, and the OpenAPI document."""

import functools
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.security import HTTPBearer
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from dagwright.interfaces.http import (
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
from dagwright.interfaces.http.allowed_hosts import AllowedHosts, listed
from dagwright.interfaces.http.api_pages import add_api_pages
from dagwright.interfaces.http.console import add_console
from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.errors import ERROR_RESPONSES, excluded_statuses, install_error_handlers
from dagwright.interfaces.http.event_models import event_schemas
from dagwright.interfaces.http.headers import COMMON_HEADERS
from dagwright.interfaces.http.health import add_health
from dagwright.interfaces.http.operation_ids import operation_id
from dagwright.interfaces.http.request_ids import HEADER as REQUEST_ID_HEADER
from dagwright.interfaces.http.request_ids import RequestIdMiddleware
from dagwright.interfaces.http.upstream_timeout import UpstreamTimeoutMiddleware

_ABOUT = (
    "OpenAI's API in front of durable runs. A model is a model of the service, or `plan/NAME`, `agent/NAME` or "
    "`profile/NAME`. docs/guides/openai-api.md describes the extensions to OpenAI's API."
)
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts that only this machine can reach: there Swagger UI and ReDoc are on."""
_ROUTED = (
    model_routes,
    completions,
    responses,
    plan_routes,
    run_routes,
    feedback_routes,
    steering_routes,
    limits_routes,
)
_DOCUMENTED_KEY = Depends(HTTPBearer(auto_error=False, description="A key from `dagwright keys add`."))
"""For the OpenAPI document only: `AccessMiddleware` checks keys."""
_EXPOSED = (
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
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=_EXPOSED,
        )
        return RequestIdMiddleware(inner_app)

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        for name, schema in event_schemas().items():
            document["components"]["schemas"].setdefault(name, schema)
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                for answer in operation["responses"].values():
                    answer.setdefault("headers", {}).update(COMMON_HEADERS)
                for status in excluded_statuses(path, method.upper()):
                    operation["responses"].pop(str(status), None)
        return document


def create_app(context: GatewayContext, *, host: str = "localhost") -> FastAPI:
    """Return the application. The caller opens the gateway context before serving it and closes it afterwards.

    Args:
        host: the host that the server listens on.
    """
    names, origins = listed(context.settings.api_hosts), listed(context.settings.api_origins)
    app = _App(
        title="Dagwright",
        description=_ABOUT,
        version="0.1.0",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
        routes=[*_routes()],
    )
    app.state.context = context
    install_error_handlers(app)

    async def reach() -> None:
        await context.runs.reach()

    app.add_middleware(UpstreamTimeoutMiddleware, reach=reach)
    app.add_middleware(
        AccessMiddleware,
        keys=context.keys,
        usage=context.usage,
        hosts=AllowedHosts(names, origins, own=host),
        stopping=context.stopping,
    )
    app.origins = origins

    add_health(app, context)
    add_console(app)
    if host in _LOCAL:
        add_api_pages(app)
    return app


@functools.cache
def _routes() -> Sequence[BaseRoute]:
    """Return the routes that all applications of a process share: FastAPI analyzes each signature."""
    shared = APIRouter(generate_unique_id_function=operation_id)
    include = functools.partial(shared.include_router, responses=ERROR_RESPONSES, dependencies=[_DOCUMENTED_KEY])
    for module in _ROUTED:
        include(module.router)
    include(session_routes.router, prefix="/v1/sessions")
    include(session_routes.orchestration_router, prefix="/v1/orchestration")
    include(session_routes.router, prefix="/v1/orchestration", include_in_schema=False)
    return tuple(shared.routes)
