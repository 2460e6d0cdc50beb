"""`GET /livez` and `GET /readyz` of the gateway; they need no key."""

from fastapi import FastAPI

from dagwright.interfaces.http import examples
from dagwright.interfaces.http.answer_models import HealthDocument, ReadinessDocument
from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ERROR_RESPONSES, ApiError, draining_error
from dagwright.interfaces.http.run_models import response_docs
from dagwright.process.health import LIVEZ, READYZ, RETRY_AFTER_S, Readiness


def add_health(app: FastAPI, context: GatewayContext) -> None:
    """Add both endpoints to the application."""

    async def check_temporal() -> None:
        await context.runs.check_connection()

    async def check_store() -> None:
        await context.toolset.store.check()

    readiness = Readiness({"temporal": check_temporal, "store": check_store}, stop_event=context.stop_event)

    @app.get(
        LIVEZ,
        tags=["health"],
        summary="Check that the gateway responds",
        responses=response_docs(HealthDocument, examples.HEALTH),
    )
    async def livez() -> HealthDocument:
        return HealthDocument(status="ok")

    @app.get(
        READYZ,
        tags=["health"],
        summary="Check that Temporal and the payload store respond",
        responses={**response_docs(ReadinessDocument, examples.READY), 503: ERROR_RESPONSES[503]},
    )
    async def readyz() -> ReadinessDocument:
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        if readiness.is_draining:
            raise draining_error()
        if problems := await readiness.problems():
            # Only the log has the reasons, because callers need no key.
            message = f"not ready: no answer from {' and '.join(problems)}"
            raise ApiError(ErrorCode.NOT_READY, message, headers=headers)
        return ReadinessDocument(status="ok", checks={"temporal": "ok", "store": "ok"})
