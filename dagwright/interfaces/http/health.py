"""`GET /livez` and `GET /readyz` of the gateway; they need no key."""

from fastapi import FastAPI

from dagwright.interfaces.http import examples
from dagwright.interfaces.http.answer_models import Health, Ready
from dagwright.interfaces.http.desk import Desk
from dagwright.interfaces.http.errors import DOCUMENTED, ApiError, draining
from dagwright.interfaces.http.run_models import answered
from dagwright.process.health import LIVEZ, READYZ, RETRY_AFTER_S, Readiness


def add_health(app: FastAPI, desk: Desk) -> None:
    """Add both endpoints to the application."""

    async def temporal() -> None:
        await desk.runs.reach()

    async def store() -> None:
        await desk.toolset.store.check()

    readiness = Readiness({"temporal": temporal, "store": store}, stopped=desk.leaving)

    @app.get(
        LIVEZ,
        tags=["health"],
        summary="Liveness: the gateway responds",
        responses=answered(Health, examples.HEALTH),
    )
    async def livez() -> Health:
        return Health(status="ok")

    @app.get(
        READYZ,
        tags=["health"],
        summary="Readiness: Temporal and the payload store respond",
        responses={**answered(Ready, examples.READY), 503: DOCUMENTED[503]},
    )
    async def readyz() -> Ready:
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        if readiness.is_draining:
            raise draining()
        if problems := await readiness.problems():
            # The reason is in the log alone: the caller needs no key.
            words = f"not ready: no answer from {' and '.join(problems)}"
            raise ApiError(503, words, "server_error", code="not_ready", headers=headers)
        return Ready(status="ok", checks={"temporal": "ok", "store": "ok"})
