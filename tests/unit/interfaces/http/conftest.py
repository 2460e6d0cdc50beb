"""A gateway whose Temporal server does not respond, and updates of runs for subscriptions."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.model.states import NodeStatus
from dagwright.history.moment_facts import TaskState
from dagwright.history.run_subscriptions import RunUpdate
from dagwright.history.run_view import RunView
from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.context import GatewayContext, open_context
from dagwright.interfaces.http.examples import PUBLISHED_PLAN
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset, load_toolset
from tests.support.templates import load_templates

JSON = {"Content-Type": "application/json"}
_SERVICES = ("service_client", "workflow_service", "operator_service")
"""Attributes of a Temporal client whose values are objects with methods."""


class OfflineTemporalClient:
    """Temporal client whose server does not respond. It records the names of the called methods."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any, **__: Any) -> Any:
            self.calls.append(name)
            raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")

        class Listing:
            current_page = None
            next_page_token = None

            async def fetch_next_page(self) -> None:
                await fail()

            async def __aiter__(self) -> AsyncIterator[Any]:
                await fail()
                yield None

        if name in _SERVICES:
            # The methods of these objects fail too. A slow request checks the connection with one of them.
            return self
        if name == "get_workflow_handle":
            return lambda *_, **__: SimpleNamespace(
                id="run-1", describe=fail, execute_update=fail, signal=fail, cancel=fail, query=fail
            )
        return (lambda *_, **__: Listing()) if name == "list_workflows" else fail


OfflineGateway = tuple[httpx.AsyncClient, OfflineTemporalClient, GatewayContext]


@pytest.fixture(scope="session")
def toolset(tmp_path_factory: pytest.TempPathFactory) -> Toolset:
    """Toolset shared by all tests, since building it takes 30 ms of CPU time. No test calls its tools."""
    return load_toolset(Settings(state_dir=tmp_path_factory.mktemp("tools"), model="small"), ())


def client_of(context: GatewayContext, *, url: str = "http://localhost", **options: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(context, **options), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=url)


def status_and_code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def status_and_param_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["param"]


def status_code_and_param_of(response: httpx.Response) -> tuple[int, str, str]:
    return *status_and_code_of(response), response.json()["error"]["param"]


def message_of(response: httpx.Response) -> str:
    return str(response.json()["error"]["message"])


def write_plan(folder: Path, plan: Any, name: str = "double.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(plan), encoding="utf-8")
    return folder


@pytest.fixture
async def offline_gateway(tmp_path: Path, toolset: Toolset) -> AsyncIterator[OfflineGateway]:
    client = OfflineTemporalClient()
    settings = Settings(state_dir=tmp_path, model="small")
    connection = Connection(cast(Any, client), Server("nowhere", "default"), frozenset())
    templates = load_templates(write_plan(tmp_path / "plans", PUBLISHED_PLAN["plan"]), toolset.declarations())
    async with open_context(settings, connection, toolset, templates=templates) as context, client_of(context) as http:
        yield http, client, context


@pytest.fixture
def http(offline_gateway: OfflineGateway) -> httpx.AsyncClient:
    return offline_gateway[0]


@pytest.fixture
def offline_http(offline_gateway: OfflineGateway) -> Iterator[httpx.AsyncClient]:
    """Client of a gateway that must respond to each request without a call to Temporal."""
    yield offline_gateway[0]
    assert not offline_gateway[1].calls


def run_update(view: RunView, **states: NodeStatus) -> RunUpdate:
    return RunUpdate(view, tuple(states), {name: TaskState(status, 1, None) for name, status in states.items()})


async def async_updates(*updates: RunUpdate | Exception) -> AsyncGenerator[RunUpdate, None]:
    """Yield updates, or raise the exception among them."""
    for update in updates:
        if isinstance(update, Exception):
            raise update
        yield update
