"""Runs that take back what they did over several executions: the server suggests a new one after 150 events."""

from unittest.mock import patch

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from dagwright.core.boundary import limits
from dagwright.history.run_reader import RunFeed
from dagwright.settings import Settings
from dagwright.store.folder import FolderStore
from tests.support.ledger import Ledger
from tests.support.runs import chain_of, document_of, end_of, serving_runs

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("low_marks")]


async def test_undoing_goes_on_in_new_executions(
    eager_client: Client, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ledger = Ledger()
    names = [f"n{number}" for number in range(40)]
    nodes = [{"id": name, "tool": "make", "arguments": {"name": f"t:{name}"}} for name in names]
    plan = {"nodes": [*nodes, {"id": "refuse", "tool": "refuse", "depends_on": names}], "deadline": "1h"}
    settings = Settings(state_dir=tmp_path_factory.mktemp("undoing"))
    async with serving_runs(eager_client, ledger.registry(), settings=settings) as runs:
        handle = await runs.start(plan, all_or_nothing=True, max_in_flight=1)
        document = await document_of(handle)
        chain = await chain_of(runs.client, handle)
        view = await RunFeed(runs.client, handle.id).read()
        await runs.check_ended()
    assert len(chain) > 3
    assert [end_of(history) for history in chain] == ["continued"] * (len(chain) - 1) + ["failed"]
    assert document["error"]["message"] == "'refuse' failed: no; what it did was taken back (40 in all)"
    assert ledger.of("t") == [f"+{name}" for name in names] + [f"-{name}" for name in reversed(names)]
    told = view.unfilled_document()
    assert {name: node["status"] for name, node in told["nodes"].items()} == {
        name: node["status"] for name, node in document["nodes"].items()
    }


@pytest.mark.parametrize("is_full", [False, True], ids=["with room", "full"])
async def test_run_that_cannot_be_handed_on_takes_back_what_it_did_as_far_as_its_history_goes(
    eager_client: Client, tmp_path_factory: pytest.TempPathFactory, *, is_full: bool
) -> None:
    ledger = Ledger()
    steps = ({"id": f"n{number}", "tool": "make", "arguments": {"name": f"t:n{number}"}} for number in range(60))
    refused = patch.object(FolderStore, "put", side_effect=ApplicationError("given up by hand", non_retryable=True))
    room = 220 if is_full else limits.HISTORY_LIMIT_EVENTS
    small = patch.multiple(limits, INLINE_STATE_BYTES=100, HISTORY_LIMIT_EVENTS=room)
    settings = Settings(state_dir=tmp_path_factory.mktemp("refused"))
    async with serving_runs(eager_client, ledger.registry(), settings=settings) as runs:
        with small, refused:
            handle = await runs.start({"nodes": list(steps)}, all_or_nothing=True, max_in_flight=1)
            document = await document_of(handle)
            view = await RunFeed(runs.client, handle.id).read()
            await runs.check_ended()
    assert (document["status"], document["error"]["code"]) == ("failed", "store_refused")
    done = [name.removeprefix("+") for name in ledger.of("t") if name.startswith("+")]
    gone = [name.removeprefix("-") for name in ledger.of("t") if name.startswith("-")]
    standing = [note["node"] for note in document["notes"] if note["code"] == "stands"]
    assert 20 < len(done) < 60
    assert (gone, standing) == (done[::-1][: len(gone)], done[: len(done) - len(gone)])
    if is_full:
        assert 0 < len(gone) < len(done)
        assert document["nodes"]["undo n0"]["reason"] == "the history is full"
    else:
        assert document["error"]["message"].endswith(f"; what it did was taken back ({len(done)} in all)")
    told = view.unfilled_document()["nodes"]
    assert {name: node["status"] for name, node in told.items()} == {
        name: node["status"] for name, node in document["nodes"].items()
    }
