"""The web application, made of the parts that it is given."""

from fastapi import FastAPI

from dagwright.gateway import completions, model_list, responses
from dagwright.gateway.desk import Desk, TheDesk
from dagwright.gateway.errors import install_errors

_ABOUT = (
    "OpenAI's protocol in front of durable runs. A model is one of the service, or `plan/NAME`, `agent/NAME`, "
    "`profile/NAME`. docs/gateway.md says what is beside that protocol."
)


def create_app(desk: Desk) -> FastAPI:
    """Returns the application; whoever serves it opens the desk before, and closes it afterwards."""
    app = FastAPI(title="Dagwright", description=_ABOUT, version="0.1.0", docs_url=None, redoc_url=None)
    app.state.desk = desk
    install_errors(app)
    app.include_router(model_list.router)
    app.include_router(completions.router)
    app.include_router(responses.router)

    @app.get("/healthz", tags=["health"], summary="Whether the gateway and its Temporal server answer")
    async def healthz(desk: TheDesk) -> dict[str, str]:
        await desk.runs.reach()
        return {"status": "ok"}

    return app
