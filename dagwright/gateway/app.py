"""The web application, made of the parts that it is given."""

from fastapi import Depends, FastAPI, Request
from fastapi.security import HTTPBearer
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

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
)
from dagwright.gateway.answer_models import Health
from dagwright.gateway.bodies import refuse_unsendable
from dagwright.gateway.console import add_console
from dagwright.gateway.desk import Desk, TheDesk
from dagwright.gateway.errors import DOCUMENTED, install_errors
from dagwright.gateway.guard import Guard
from dagwright.gateway.looking import told_json
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
)
_DOCUMENTED_KEY = Depends(HTTPBearer(auto_error=False, description="A key of `dagwright keys add`, if there are any."))
"""For the document of the API alone: the guard looks at keys."""


async def sendable(request: Request) -> None:
    """Refuses a body with what JSON can say and no run or history could hold.

    Raises:
        ApiError: it is one.
    """
    try:
        body = await request.json() if await request.body() else None
    except ValueError:
        # Told with the place that is wrong when the body is read.
        return
    refuse_unsendable(body)


def create_app(desk: Desk) -> FastAPI:
    """Returns the application; whoever serves it opens the desk before, and closes it afterwards."""
    app = FastAPI(title="Dagwright", description=_ABOUT, version="0.1.0", docs_url=None, redoc_url=None)
    app.state.desk = desk
    install_errors(app)
    for each in _ROUTED:
        app.include_router(each.router, responses=DOCUMENTED, dependencies=[_DOCUMENTED_KEY, Depends(sendable)])

    app.add_middleware(Guard, keys=desk.keys, uses=desk.uses)
    if origins := desk.settings.api_origins:
        # Outermost, so that a page can read why it was refused.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[each.strip() for each in origins.split(",")],
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Run-Id", "X-Session-Id", "X-Routing-Mode", "Retry-After"],
        )

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
