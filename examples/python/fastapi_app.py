"""A FastAPI application that starts runs, streams their events and accepts answers.

uvicorn --app-dir examples/python fastapi_app:app --port 8080
curl -X POST localhost:8080/refills -H 'Content-Type: application/json' -d '{"item": "lamp", "amount": 20}'
curl -N localhost:8080/refills/RUN_ID/events
curl -X POST localhost:8080/refills/RUN_ID/approval -H 'Content-Type: application/json' -d '{"approved": true}'
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from dagwright import Client, DagwrightError, Effects, Plan, Run, RunNotFound, Worker, ask_human, tool


@tool(effects=Effects.WRITE)
def order(item: str, amount: int) -> str:
    """Order an article."""
    return f"ordered {amount} x {item}"


plan = Plan("Refill")
item, amount = plan.input("item", type=str), plan.input("amount", type=int)
approval_node = plan.add(ask_human(plan.text("Order {amount} x {item}?", amount=amount, item=item)), id="approval")
plan.output = plan.add(order, item=item, amount=amount, when=approval_node["approved"])


class Refill(BaseModel):
    """An order."""

    item: str
    amount: int


class Approval(BaseModel):
    """The answer of a person."""

    approved: bool
    reason: str | None = None


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect, and serve runs, while the application runs."""
    async with Client.connect() as client, Worker(client, tools=[order]):
        app.state.client = client
        yield


app = FastAPI(title="Refills", lifespan=lifespan)


@app.exception_handler(DagwrightError)
async def error_response(_: Request, error: DagwrightError) -> JSONResponse:
    """Return the message of an error: 404 for an unknown run, else 409."""
    return JSONResponse({"detail": str(error)}, 404 if isinstance(error, RunNotFound) else 409)


def connected_client(request: Request) -> Client:
    """Return the client of the application."""
    client: Client = request.app.state.client
    return client


def requested_run(run_id: str, client: Annotated[Client, Depends(connected_client)]) -> Run:
    """Return the run with the ID in the path."""
    return client.get_run(run_id)


@app.post("/refills", status_code=201)
async def start_run(refill: Refill, client: Annotated[Client, Depends(connected_client)]) -> dict[str, str]:
    """Start a run."""
    run = await client.start(plan, inputs=refill.model_dump())
    return {"run_id": run.id}


@app.get("/refills/{run_id}")
async def read_run(run: Annotated[Run, Depends(requested_run)]) -> dict[str, Any]:
    """Return the status and output of a run."""
    snapshot = await run.snapshot()
    return {"run_id": run.id, "status": snapshot.status.value, "output": snapshot.output}


@app.get("/refills/{run_id}/events")
async def stream_events(
    run: Annotated[Run, Depends(requested_run)], last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """Stream the events of a run; a client that reconnects with `Last-Event-ID` misses nothing."""
    # An unknown run raises an error here, before the response starts.
    await run.status()

    async def lines() -> AsyncIterator[str]:
        async for event in run.events(after=last_event_id):
            yield f"id: {event.cursor}\nevent: {event.type}\ndata: {json.dumps(event.to_json())}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


@app.post("/refills/{run_id}/approval")
async def approve(approval: Approval, run: Annotated[Run, Depends(requested_run)]) -> dict[str, str]:
    """Answer the request of a run."""
    message = await run.feedback("approval", approved=approval.approved, reason=approval.reason or "")
    return {"message": message}
