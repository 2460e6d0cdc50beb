"""Connections of worker tools to the search server: waits for an unavailable server, and limits from the settings."""

import inspect
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import pytest
from opensearchpy import AsyncOpenSearch

from dagwright.tools import load_tools
from dagwright.tools.errors import GiveUp, RetryLater
from dagwright.tools.testing import tool_context
from dagwright.toolset.toolset import environment_of
from dagwright_maritime.connection import SERVER_ATTEMPTS, Search, connect_search
from dagwright_maritime.search.client import SearchClients
from dagwright_maritime.search.requests import RETRY_AFTER, QueryTimeout, ServerUnresponsive
from dagwright_maritime.search.server import RunningSearch
from dagwright_maritime.settings import MaritimeSettings

UNREACHABLE_URL = "http://127.0.0.1:1"


@asynccontextmanager
async def connect(**settings: Any) -> AsyncIterator[Search]:
    """Connect to the server like a worker with these settings."""
    environment = environment_of(MaritimeSettings(**settings))
    try:
        with tool_context(environment=environment):
            async with connect_search() as search:
                yield search
    finally:
        await environment.resources.close()


async def test_call_fails_at_once_if_no_server_was_configured_or_started(tmp_path: Path) -> None:
    with pytest.raises(GiveUp, match="start one with `make search-server`, or set DAGWRIGHT_OPENSEARCH_URL"):
        async with connect(state_dir=tmp_path):
            pass


async def test_call_is_retried_if_the_server_has_stopped(tmp_path: Path) -> None:
    running_search = RunningSearch(address="http://127.0.0.1:1", pid=1)
    (tmp_path / "search.json").write_text(running_search.model_dump_json(), encoding="utf-8")
    with pytest.raises(RetryLater, match="no search server runs in") as error:
        async with connect(state_dir=tmp_path):
            pass
    assert error.value.after == RETRY_AFTER


async def test_tool_called_outside_of_a_worker_has_no_search_server() -> None:
    with tool_context(), pytest.raises(GiveUp, match="has no MaritimeSettings"):
        async with connect_search():
            pass


async def test_limits_and_index_prefix_come_from_the_settings() -> None:
    settings: dict[str, Any] = {"opensearch_prefix": "other", "opensearch_max_rows": 7, "opensearch_timeout_s": 2.5}
    async with connect(opensearch_url=UNREACHABLE_URL, **settings) as search:
        assert (search.indices.shipments, search.limits.rows, search.limits.timeout_s) == ("other-shipments", 7, 2.5)


async def test_calls_of_a_process_share_a_client_that_is_closed_with_the_process() -> None:
    closed_clients: list[AsyncOpenSearch] = []

    class RecordingClients(SearchClients):
        async def close(self) -> None:
            closed_clients.extend(self._clients.values())
            await super().close()

    environment = environment_of(MaritimeSettings(opensearch_url=UNREACHABLE_URL))
    clients = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dagwright_maritime.connection.SearchClients", RecordingClients)
        for _ in range(2):
            with tool_context(environment=environment):
                async with connect_search() as search:
                    clients.append(search.client)
        assert (clients[0] is clients[1], closed_clients) == (True, [])
        await environment.resources.close()
    assert closed_clients == [clients[0]]


async def test_each_server_address_has_a_separate_client() -> None:
    clients = SearchClients()
    first, second = clients.client(UNREACHABLE_URL), clients.client("http://127.0.0.1:2")
    assert (first is second, clients.client(UNREACHABLE_URL) is first) == (False, True)
    await clients.close()


async def errors_of_attempts(*failures: RetryLater) -> list[Exception]:
    """Attempt a call once for each failure, and return the error that each attempt reports."""
    environment = environment_of(MaritimeSettings(opensearch_url=UNREACHABLE_URL))
    errors: list[Exception] = []
    last_heartbeat = None
    for number, failure in enumerate(failures, start=1):
        with tool_context(attempt=number, last_heartbeat=last_heartbeat, environment=environment) as call:
            with pytest.raises((RetryLater, GiveUp)) as error:
                async with connect_search():
                    raise failure
            errors.append(error.value)
        last_heartbeat = call.heartbeats[-1] if call.heartbeats else last_heartbeat
    await environment.resources.close()
    return errors


@pytest.mark.parametrize(
    ("error_type", "remedy"),
    [
        (QueryTimeout, "request less, such as fewer groups"),
        (ServerUnresponsive, "the server answers no request: check it"),
    ],
)
async def test_last_attempt_reports_how_to_fix_the_error(error_type: type[QueryTimeout], remedy: str) -> None:
    *_, last_error = await errors_of_attempts(*[error_type("It is slow")] * 3)
    assert isinstance(last_error, GiveUp)
    assert str(last_error).startswith(f"It is slow; 3 attempts got no response; {remedy}")


async def test_attempts_during_an_outage_do_not_count_as_attempts_with_a_slow_server() -> None:
    outage_error, slow_query_error = RetryLater("no response"), QueryTimeout("It is slow")
    errors = await errors_of_attempts(
        *[outage_error] * 12, slow_query_error, outage_error, slow_query_error, outage_error, slow_query_error
    )
    expected = [*["no response"] * 12, "It is slow", "no response", "It is slow", "no response"]
    assert [str(error) for error in errors[:-1]] == expected
    assert isinstance(errors[-1], GiveUp)
    assert str(errors[-1]).startswith("It is slow; 3 attempts got no response")


async def test_slow_search_keeps_the_stored_model_answers() -> None:
    environment = environment_of(MaritimeSettings(opensearch_url=UNREACHABLE_URL))
    last_heartbeat = {"answer": {"n": 4}, "answer_count": 2, "model_failures": 1, "search_failures": 1}
    with tool_context(last_heartbeat=last_heartbeat, environment=environment) as call, pytest.raises(QueryTimeout):
        async with connect_search():
            raise QueryTimeout("It is slow")
    await environment.resources.close()
    assert call.heartbeats == [{**last_heartbeat, "search_failures": 2}]


def test_worker_tools_that_search_survive_a_server_outage_of_over_a_minute() -> None:
    specs = load_tools(["dagwright_maritime"])
    sources = {spec.name: inspect.getsource(cast("FunctionType", spec.function)) for spec in specs}
    searching_tools = [name for name, source in sources.items() if "connect_search()" in source]
    assert len(searching_tools) == 6
    assert searching_tools == [spec.name for spec in specs if spec.declaration.max_attempts == SERVER_ATTEMPTS]
    assert (SERVER_ATTEMPTS - 1) * RETRY_AFTER.total_seconds() > 60


async def test_client_of_the_search_server_does_not_log_each_failed_request(caplog: pytest.LogCaptureFixture) -> None:
    async with connect(opensearch_url=UNREACHABLE_URL):
        logging.getLogger("opensearch").warning("GET http://127.0.0.1:9200/goods [status:N/A request:0.001s]")
    assert caplog.records == []
