"""Start, find and stop the search server as a program, and load data into the server."""

import asyncio
import os
import signal
import sys
from datetime import date
from pathlib import Path

import pytest

from dagwright.settings import Settings
from dagwright_maritime.index_loading import ForeignIndex, articles, is_loaded, load
from dagwright_maritime.indices import Indices
from dagwright_maritime.names import name_documents
from dagwright_maritime.search.client import open_client
from dagwright_maritime.search.server import LocalSearch, find_address
from dagwright_maritime.settings import MaritimeSettings
from dagwright_maritime.shipments import DataSet
from tests.e2e.command import CommandLine, wait_for_exit
from tests.support.eventually import eventually
from tests.support.search import LiveSearch, Maritime

pytestmark = pytest.mark.search

_SERVER_PROGRAM = ("-m", "dagwright_maritime.search")
_DATA_PROGRAM = ("-m", "dagwright_maritime")


@pytest.fixture
def commands(tmp_path: Path) -> CommandLine:
    """Commands with their own state folder."""
    return CommandLine(tmp_path, {**os.environ, "DAGWRIGHT_STATE_DIR": str(tmp_path / "state")})


async def test_concurrent_starts_share_a_server_and_a_restart_uses_its_port(commands: CommandLine) -> None:
    settings = MaritimeSettings(state_dir=commands.folder / "state")
    local_search = LocalSearch.from_settings(settings)
    try:
        processes = [await commands.start("up", program=_SERVER_PROGRAM) for _ in range(2)]
        first_result, second_result = [await wait_for_exit(process) for process in processes]
        assert (first_result.code, second_result.code) == (0, 0)
        address = find_address(settings)
        assert (first_result.stdout, second_result.stdout) == (f"{address}\n", f"{address}\n")
        first_server = local_search.find()
        assert first_server is not None

        load_result = await wait_for_exit(await commands.start("load", "--documents", "500", program=_DATA_PROGRAM))
        assert (load_result.code, load_result.stderr) == (0, "")
        assert load_result.stdout.startswith("loaded 500 shipments of ")
        assert f" (seed 20260101) into maritime-* at {address} in " in load_result.stdout

        os.kill(first_server.pid, signal.SIGKILL)
        await eventually(lambda: local_search.find() is None)
        failed_load_result = await wait_for_exit(await commands.start("load", program=_DATA_PROGRAM))
        assert (failed_load_result.code, failed_load_result.stdout) == (4, "")
        assert "no search server runs in" in failed_load_result.stderr

        repeated_result = await wait_for_exit(await commands.start("up", program=_SERVER_PROGRAM))
        assert (repeated_result.code, repeated_result.stdout) == (0, f"{address}\n")
        second_server = local_search.find()
        assert second_server is not None
        assert second_server.pid != first_server.pid
        async with open_client(find_address(settings)) as client:
            assert (await client.count(index="maritime-shipments"))["count"] == 500
    finally:
        down_result = await wait_for_exit(await commands.start("down", program=_SERVER_PROGRAM))
    assert (down_result.code, down_result.stdout) == (0, "the search server was stopped\n")
    down_result = await wait_for_exit(await commands.start("down", program=_SERVER_PROGRAM))
    assert down_result.stdout == f"no search server runs in {settings.state_dir}\n"


async def test_server_ends_with_the_block_that_started_the_server(tmp_path: Path) -> None:
    local_search = LocalSearch(tmp_path, Settings().cache_home)
    async with local_search.hold() as first_server:
        async with local_search.hold() as second_server:
            assert second_server == first_server
        assert local_search.find() == first_server
    assert local_search.find() is None


async def test_loaded_shipments_equal_the_generated_shipments(maritime: Maritime) -> None:
    expected = [shipment for shipment in maritime.shipments() if shipment["destination_port_code"] == "USHOU"]
    query = {"term": {"destination_port_code": "USHOU"}}
    async with maritime.client() as client:
        body = {"query": query, "size": 5_000, "sort": ["shipment_id"]}
        actual = await client.search(index=maritime.indices.shipments, body=body)
        counts = [(await client.count(index=index))["count"] for index in maritime.indices.bodies()]
        assert await is_loaded(client, maritime.indices, maritime.data)
        assert not await is_loaded(client, maritime.indices, DataSet(date(2026, 2, 11)))
        assert not await is_loaded(client, Indices("absent"), maritime.data)
    assert [hit["_source"] for hit in actual["hits"]["hits"]] == expected
    assert counts == [10_000, len(list(name_documents())), len(articles())]


async def test_mapping_on_the_server_describes_the_fields(maritime: Maritime) -> None:
    index = maritime.indices.shipments
    async with maritime.client() as client:
        mapping = (await client.indices.get_mapping(index=index))[index]["mappings"]
    assert mapping["_meta"]["fields"].keys() == mapping["properties"].keys()
    assert "expected to arrive" in mapping["_meta"]["fields"]["eta_date"]["description"]


@pytest.mark.parametrize("spelling", ["l.a.", "LA", "Los Angeles", "LOS ANGELES", "port of la"])
async def test_names_are_found_in_any_spelling(spelling: str, maritime: Maritime) -> None:
    clauses = [{"term": {field: spelling}} for field in ("name.folded", "aliases.folded")]
    async with maritime.client() as client:
        actual = await client.search(index=maritime.indices.names, body={"query": {"dis_max": {"queries": clauses}}})
    assert [hit["_source"]["code"] for hit in actual["hits"]["hits"]] == ["USLAX"]


async def test_load_rebuilds_its_indices_and_rejects_foreign_indices(search: LiveSearch) -> None:
    indices, day = Indices("rebuilt"), date(2026, 2, 10)
    async with open_client(search.address) as client:
        await load(client, indices, DataSet(day, 300))
        await load(client, indices, DataSet(day, 200))
        assert (await client.count(index=indices.shipments))["count"] == 200

        foreign_indices = Indices("foreign")
        await client.indices.create(index=foreign_indices.names)
        with pytest.raises(ForeignIndex, match="'foreign-names' exists and was not created by a load of shipments"):
            await load(client, foreign_indices, DataSet(day, 200))
        assert not await client.indices.exists(index=foreign_indices.shipments)


async def test_interrupted_load_is_not_reported_as_loaded(search: LiveSearch) -> None:
    indices, data_set = Indices("broken"), DataSet(date(2026, 2, 10), 20_000)

    class Interrupted(Exception):
        """The load was interrupted."""

    def interrupt(sent: int) -> None:
        raise Interrupted

    async with open_client(search.address) as client:
        with pytest.raises(Interrupted):
            await load(client, indices, data_set, on_progress=interrupt)
        assert not await is_loaded(client, indices, data_set)
        await load(client, indices, data_set)
        assert await is_loaded(client, indices, data_set)


async def test_load_rejects_invalid_options(commands: CommandLine) -> None:
    for arguments, message in [
        (("--prefix", "*"), "invalid index prefix '*'"),
        (("--documents", "0"), "must be 1 to 10,000,000"),
        (("--today", "yesterday"), "'yesterday' is not a date; write it like 2026-03-31"),
    ]:
        result = await wait_for_exit(await commands.start("load", *arguments, program=_DATA_PROGRAM))
        assert (result.code, message in result.stderr) == (2, True), result.stderr


async def test_unreachable_server_is_reported_without_its_password(commands: CommandLine) -> None:
    environment = {**commands.environment, "DAGWRIGHT_OPENSEARCH_URL": "http://me:hidden@127.0.0.1:9"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *_DATA_PROGRAM, "load"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 4
    assert "loading into the search server at http://127.0.0.1:9 failed: " in errors.decode()
    assert "hidden" not in errors.decode()
