"""The web application, made of the parts that it is given."""

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
    feedback,
    model_list,
    orchestration,
    plan_routes,
    responses,
    run_routes,
    steering_routes,
    terms_routes,
)
from dagwright.interfaces.http.console import add_console
from dagwright.interfaces.http.desk import Desk
from dagwright.interfaces.http.errors import DOCUMENTED, install_errors, never_given
from dagwright.interfaces.http.event_models import event_schemas
from dagwright.interfaces.http.guard import Guard
from dagwright.interfaces.http.headers import OF_ALL
from dagwright.interfaces.http.health import add_health
from dagwright.interfaces.http.hosts import Hosts, listed
from dagwright.interfaces.http.operation_ids import operation_id
from dagwright.interfaces.http.patience import Patience
from dagwright.interfaces.http.request_ids import HEADER as REQUEST_ID_HEADER
from dagwright.interfaces.http.request_ids import RequestIds

_ABOUT = (
    "OpenAI's protocol in front of durable runs. A model is one of the service, or `plan/NAME`, `agent/NAME`, "
    "`profile/NAME`. docs/gateway.md says what is beside that protocol."
)
_ROUTED = (
    model_list,
    completions,
    responses,
    orchestration,
    plan_routes,
    run_routes,
    feedback,
    steering_routes,
    terms_routes,
)
_DOCUMENTED_KEY = Depends(HTTPBearer(auto_error=False, description="A key of `dagwright keys add`, if there are any."))
"""For the document of the API alone: the guard looks at keys."""
_EXPOSED = (
    "X-Run-Id",
    "X-Session-Id",
    "X-Routing-Mode",
    "Retry-After",
    "x-should-retry",
    REQUEST_ID_HEADER,
    "Location",
)
"""Headers of answers that pages of other origins may read."""


class _App(FastAPI):
    """An application whose every answer, that of a defect too, pages of some other origins may read.

    Its document tells of each operation the errors that it can give.
    """

    origins: Sequence[str] = ()

    def build_middleware_stack(self) -> ASGIApp:
        """Returns all that a request goes through."""
        inside = super().build_middleware_stack()
        if not self.origins:
            return RequestIds(inside)
        inside = CORSMiddleware(
            inside,
            allow_origins=self.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=_EXPOSED,
        )
        return RequestIds(inside)

    def openapi(self) -> dict[str, Any]:
        """Returns the document of the API."""
        document = super().openapi()
        for name, schema in event_schemas().items():
            document["components"]["schemas"].setdefault(name, schema)
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                for answer in operation["responses"].values():
                    answer.setdefault("headers", {}).update(OF_ALL)
                for status in never_given(path, method.upper()):
                    operation["responses"].pop(str(status), None)
        return document


def create_app(desk: Desk, *, host: str = "localhost") -> FastAPI:
    """Returns the application; whoever serves it opens the desk before, and closes it afterwards.

    Args:
        host: where it listens, as somebody named it.
    """
    names, origins = listed(desk.settings.api_hosts), listed(desk.settings.api_origins)
    app = _App(
        title="Dagwright",
        description=_ABOUT,
        version="0.1.0",
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
        routes=[*_routes()],
    )
    app.state.desk = desk
    install_errors(app)

    async def reach() -> None:
        await desk.runs.reach()

    app.add_middleware(Patience, reach=reach)
    app.add_middleware(
        Guard, keys=desk.keys, uses=desk.uses, hosts=Hosts(names, origins, own=host), leaving=desk.leaving
    )
    app.origins = origins

    add_health(app, desk)
    add_console(app)
    return app


@functools.cache
def _routes() -> Sequence[BaseRoute]:
    """Return the routes that all applications of a process share: FastAPI analyzes each signature."""
    shared = APIRouter(generate_unique_id_function=operation_id)
    for each in _ROUTED:
        shared.include_router(each.router, responses=DOCUMENTED, dependencies=[_DOCUMENTED_KEY])
    return tuple(shared.routes)
