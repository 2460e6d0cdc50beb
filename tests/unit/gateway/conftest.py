"""A gateway whose Temporal server does not answer."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.interfaces.http import Desk, create_app, open_desk
from dagwright.interfaces.http.examples import PUBLISHED
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset, load_toolset
from tests.support.templates import load_templates

_SERVICES = ("service_client", "workflow_service", "operator_service")
"""Attributes of a client that have methods of their own."""


class _Service:
    """A service of the client `away`, which counts the calls."""

    def __init__(self, away: "Away") -> None:
        self._away = away

    def __getattr__(self, name: str) -> Any:
        return getattr(self._away, name)


class Away:
    """A client of Temporal whose server does not answer; counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def ask(*_: Any, **__: Any) -> Any:
            self.asked.append(name)
            raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")

        class Listing:
            """What the client tells of a list."""

            current_page = None
            next_page_token = None

            async def fetch_next_page(self) -> None:
                await ask()

            async def __aiter__(self) -> AsyncIterator[Any]:
                await ask()
                yield None

        if name in _SERVICES:
            # A slow machine is enough for a look to ask whether the server is there.
            return _Service(self)
        if name == "get_workflow_handle":
            return lambda *_, **__: SimpleNamespace(
                id="run-1", describe=ask, execute_update=ask, signal=ask, cancel=ask
            )
        return (lambda *_, **__: Listing()) if name == "list_workflows" else ask


Apart = tuple[httpx.AsyncClient, Away, Desk]


@pytest.fixture(scope="session")
def toolset(tmp_path_factory: pytest.TempPathFactory) -> Toolset:
    """Tools that no test calls: building them takes 30 ms of CPU time."""
    return load_toolset(Settings(state_dir=tmp_path_factory.mktemp("tools"), model="small"), ())


@pytest.fixture
async def away(tmp_path: Path, toolset: Toolset) -> AsyncIterator[Apart]:
    client = Away()
    settings = Settings(state_dir=tmp_path, model="small")
    connection = Connection(cast(Any, client), Server("nowhere", "default"), frozenset())
    plans = tmp_path / "plans"
    plans.mkdir()
    (plans / "double.json").write_text(json.dumps(PUBLISHED["plan"]), encoding="utf-8")
    templates = load_templates(plans, toolset.declarations())
    async with open_desk(settings, connection, toolset, templates=templates) as desk:
        transport = httpx.ASGITransport(create_app(desk), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield http, client, desk
