"""The real gateway for tests: HTTP on a free port in this process, with a worker and a scripted model."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import SecretStr

from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.context import HEARTBEAT_S, GatewayContext, open_context
from dagwright.process.listening import address_of, open_socket, serving_app
from dagwright.server import open_connection
from dagwright.settings import Settings
from dagwright.testing import ModelServer
from dagwright.toolset.toolset import load_toolset
from dagwright.worker import serving as worker
from tests.support.eventually import eventually
from tests.support.server import LiveServer
from tests.support.templates import load_templates

CHAT = "/v1/chat/completions"


def chat_body(model: str, text: str = "{}", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway; `url` has no `/v1`, and the `openai` client does not retry."""

    url: str
    context: GatewayContext
    model_server: ModelServer
    openai: AsyncOpenAI
    http: httpx.AsyncClient

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """Post JSON; underscores in header names become hyphens."""
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.http.post(path, json=body, headers=header_fields)

    async def start(self, plan: Any, **fields: Any) -> str:
        """Start a run of a plan, and return the ID of the run."""
        response = await self.post("/v1/runs", {"plan": plan, **fields})
        assert response.status_code == 201, response.text
        return str(response.json()["run_id"])

    async def chat(self, model: str, text: str = "{}", **fields: Any) -> httpx.Response:
        """Post a chat completion without streaming; `fields` are more fields of the request body."""
        return await self.post(CHAT, chat_body(model, text, **fields))

    async def document(self, run_id: str) -> dict[str, Any]:
        return dict((await self.http.get(f"/v1/runs/{run_id}")).json())

    async def wait_for_end(self, run_id: str) -> dict[str, Any]:
        """Wait for the end of a run and return its document."""

        async def has_ended() -> bool:
            return (await self.document(run_id))["status"] not in ("running", "waiting")

        await eventually(has_ended)
        return await self.document(run_id)

    async def wait_for_requests(self, run_id: str) -> list[dict[str, Any]]:
        """Wait until a run has open requests and return them."""
        open_requests: list[dict[str, Any]] = []

        async def has_requests() -> bool:
            open_requests[:] = (await self.http.get(f"/v1/runs/{run_id}/feedback")).json()["data"]
            return bool(open_requests)

        await eventually(has_requests)
        return open_requests

    async def stream(self, path: str, body: Any, **headers: str) -> "list[Event]":
        """Post JSON and return the events of the response; an empty list for a response without content (204)."""
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.stream("POST", path, json=body, headers=header_fields) as response:
            text = (await response.aread()).decode()
            assert response.is_success, text
        return events_of(text)


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event; `content` is the parsed JSON, or the text of an event without JSON."""

    id: str | None
    content: Any
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class NamedEvent:
    """One server-sent event with a name."""

    id: str | None
    name: str
    content: Any


def named_events_of(text: str) -> list[NamedEvent]:
    """Return the named events of a stream, without comments."""
    events = []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if "event" in fields:
            events.append(NamedEvent(fields.get("id"), fields["event"], json.loads(fields["data"])))
    return events


async def blocks_of(response: httpx.Response) -> AsyncIterator[str]:
    """Yield the text of each event of a stream."""
    text = ""
    async for piece in response.aiter_text():
        text += piece
        while "\n\n" in text:
            block, _, text = text.partition("\n\n")
            yield f"{block}\n\n"


def events_of(text: str) -> list[Event]:
    events = []
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(":", 1) for line in block.split("\n"))
        message = fields.get("data", "").strip()
        content = message if message in ("", "[DONE]") else json.loads(message)
        comment = fields.get("")
        events.append(Event(fields["id"].strip() if "id" in fields else None, content, comment and comment.strip()))
    return events


def assert_sequence_numbers_increase(numbers: Sequence[tuple[int, bool]]) -> None:
    """Assert that the sequence numbers of events increase; progress events repeat the previous number."""
    previous_number = -1
    for number, is_progress in numbers:
        assert number == previous_number if is_progress else number > previous_number, numbers
        previous_number = number


@asynccontextmanager
async def gateway(
    server: LiveServer,
    *script: Any,
    folder: Path,
    plans: Mapping[str, Any] | None = None,
    references: Sequence[str] = (),
    models: Sequence[str] | None = None,
    queue: str | None = None,
    has_worker: bool = True,
    port: int = 0,
    provider_url: str | None = None,
    heartbeat_s: float = HEARTBEAT_S,
    extra_settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[Gateway]:
    """Run a gateway with a scripted model inside the block.

    Args:
        folder: folder for the templates.
        plans: name of a template -> plan.
        references: tools and agents, as returned by `references_of`.
        models: IDs of the models that the scripted server has; `None` for every ID.
        queue: task queue of the runs, to share a worker between gateways.
        port: listening port; 0 for any free port.
        heartbeat_s: interval of keep-alive comments in a silent stream.
        extra_settings: settings in addition to those of the scripted model.
        provider_url: URL of another model service, which the gateway uses instead of the scripted server.
    """
    templates_folder = folder / f"plans-{uuid4().hex[:8]}"
    templates_folder.mkdir()
    for name, plan in (plans or {}).items():
        (templates_folder / f"{name}.json").write_text(json.dumps(plan), encoding="utf-8")
    async with ModelServer(*script, models=models) as model_server:
        settings = Settings(
            state_dir=server.settings.state_dir,
            task_queue=queue or f"gateway-{uuid4().hex[:8]}",
            model="small",
            openai_base_url=provider_url or model_server.base_url,
            openai_api_key=SecretStr("key"),
            **(extra_settings or {}),
        )
        toolset = load_toolset(settings, references)
        templates = load_templates(templates_folder, toolset.declarations()) if plans else {}
        listener = open_socket("127.0.0.1", port)
        url = address_of(listener)
        async with (
            # This connection does not use `extra_settings`, because API keys would disable the UI of the shared server.
            open_connection(server.settings) as connection,
            _serving_worker(connection, toolset, settings=settings, has_worker=has_worker),
            open_context(settings, connection, toolset, templates=templates, heartbeat_s=heartbeat_s) as context,
            serving_app(create_app(context), listener, stop_event=context.stop_event),
            # The clients load no certificates: loading would take as long as the start of the gateway.
            DefaultAsyncHttpxClient(verify=False) as openai_http,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=openai_http) as openai,
            httpx.AsyncClient(base_url=url, timeout=60, verify=False) as http,
        ):
            yield Gateway(url, context, model_server, openai, http)


@asynccontextmanager
async def _serving_worker(
    connection: Any, toolset: Any, *, settings: Settings, has_worker: bool
) -> AsyncIterator[None]:
    if not has_worker:
        yield
        return
    async with worker.serving(connection.client, toolset, task_queue=settings.task_queue):
        yield
