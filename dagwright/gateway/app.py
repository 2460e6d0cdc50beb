"""The web application, made of the parts that it is given."""

import asyncio
from collections.abc import Sequence
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.security import HTTPBearer
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from dagwright.gateway import (
    completions,
    examples,
    feedback_routes,
    model_list,
    orchestration,
    plan_routes,
    responses,
    run_routes,
    steering_routes,
    terms_routes,
)
from dagwright.gateway.answer_models import Health
from dagwright.gateway.bodies import refuse_unsendable, too_deep
from dagwright.gateway.console import add_console
from dagwright.gateway.desk import Desk, TheDesk
from dagwright.gateway.errors import DOCUMENTED, install_errors, never_given
from dagwright.gateway.guard import Guard
from dagwright.gateway.hosts import Hosts, listed
from dagwright.gateway.looking import told_json
from dagwright.gateway.patience import Patience
from dagwright.gateway.run_models import answered

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
    feedback_routes,
    steering_routes,
    terms_routes,
)
_DOCUMENTED_KEY = Depends(HTTPBearer(auto_error=False, description="A key of `dagwright keys add`, if there are any."))
"""For the document of the API alone: the guard looks at keys."""
_LARGE_BYTES = 64 * 1024
"""A body above this is looked through beside the event loop."""


async def sendable(request: Request) -> None:
    """Refuses a body with what JSON can say and no run or history could hold.

    Raises:
        ApiError: it is one.
    """
    try:
        size = len(await request.body())
        body = await request.json() if size else None
    except RecursionError:
        raise too_deep() from None
    except ValueError:
        # Told with the place that is wrong when the body is read.
        return
    if size > _LARGE_BYTES:
        await asyncio.to_thread(refuse_unsendable, body)
    else:
        refuse_unsendable(body)


class _App(FastAPI):
    """An application whose every answer, that of a defect too, pages of some other origins may read.

    Its document tells of each operation the errors that it can give.
    """

    origins: Sequence[str] = ()

    def build_middleware_stack(self) -> ASGIApp:
        """Returns all that a request goes through."""
        inside = super().build_middleware_stack()
        if not self.origins:
            return inside
        return CORSMiddleware(
            inside,
            allow_origins=self.origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Run-Id", "X-Session-Id", "X-Routing-Mode", "Retry-After", "x-should-retry"],
        )

    def openapi(self) -> dict[str, Any]:
        """Returns the document of the API."""
        document = super().openapi()
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                for status in never_given(path, method.upper()):
                    operation["responses"].pop(str(status), None)
        return document


def create_app(desk: Desk, *, host: str = "localhost") -> FastAPI:
    """Returns the application; whoever serves it opens the desk before, and closes it afterwards.

    Args:
        host: where it listens, as somebody named it.
    """
    names, origins = listed(desk.settings.api_hosts), listed(desk.settings.api_origins)
    app = _App(title="Dagwright", description=_ABOUT, version="0.1.0", docs_url=None, redoc_url=None)
    app.state.desk = desk
    install_errors(app)
    for each in _ROUTED:
        app.include_router(each.router, responses=DOCUMENTED, dependencies=[_DOCUMENTED_KEY, Depends(sendable)])

    async def reach() -> None:
        await desk.runs.reach()

    app.add_middleware(Patience, reach=reach)
    app.add_middleware(Guard, keys=desk.keys, uses=desk.uses, hosts=Hosts(names, origins, own=host))
    app.origins = origins

    @app.get(
        "/healthz",
        tags=["health"],
        summary="Whether gateway and Temporal answer",
        responses={**answered(Health, examples.HEALTH), 503: DOCUMENTED[503]},
    )
    async def healthz(desk: TheDesk) -> Response:
        await desk.runs.reach()
        return told_json({"status": "ok"})

    add_console(app)
    return app
