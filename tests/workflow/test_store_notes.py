"""Which payload store the workers of a task queue use, as the server knows it."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client

from dagwright.server.retained import retained_of
from dagwright.server.store_notes import PublishedStore, adopt_store, check_store, publish_store, published_store
from dagwright.settings import Settings
from dagwright.store import OtherStore, StoreUnavailable
from dagwright.store.folder import FolderStore
from dagwright.toolset.toolset import load_toolset
from worker import serving

pytestmark = pytest.mark.server


@pytest.fixture
def queue() -> str:
    return f"stores-{uuid4().hex}"


async def test_worker_with_another_store_does_not_start(client: Client, queue: str, tmp_path: Path) -> None:
    first, second = (
        load_toolset(Settings(state_dir=tmp_path, payload_store=str(tmp_path / name))) for name in ("first", "second")
    )
    async with serving(client, first, task_queue=queue):
        with pytest.raises(OtherStore) as refused:
            async with serving(client, second, task_queue=queue):
                pass
        # Another queue has other workers.
        async with serving(client, second, task_queue=f"{queue}-other"):
            pass
    ids = [(await toolset.store.identify())[:12] for toolset in (first, second)]
    assert str(refused.value) == (
        f"the workers of task queue '{queue}' in namespace 'default' use the payload store {tmp_path / 'first'} "
        f"(ID {ids[0]}), and this process has {tmp_path / 'second'} (ID {ids[1]}): set DAGWRIGHT_PAYLOAD_STORE to the "
        "same store; to move a store, copy it with its file `store-id`; to use this one without the values of the "
        "other, run `dagwright store adopt --yes`"
    )


async def test_workers_that_start_at_once_agree_on_one_store(client: Client, queue: str, tmp_path: Path) -> None:
    stores = [FolderStore(tmp_path / str(number)) for number in range(4)]
    ended = await asyncio.gather(
        *(publish_store(client, store, task_queue=queue) for store in stores), return_exceptions=True
    )
    assert [type(each) for each in ended if each is not None] == [OtherStore] * 3
    winner = stores[ended.index(None)]
    assert await published_store(client, queue) == PublishedStore(await winner.identify(), winner.location)


async def test_store_that_was_moved_with_its_id_is_the_same(client: Client, queue: str, tmp_path: Path) -> None:
    await publish_store(client, FolderStore(tmp_path / "old"), task_queue=queue)
    (tmp_path / "old").rename(tmp_path / "new")
    await publish_store(client, FolderStore(tmp_path / "new"), task_queue=queue)
    with pytest.raises(OtherStore):
        await check_store(client, FolderStore(tmp_path / "old"), task_queue=queue)


async def test_store_that_was_emptied_is_told_from_one_that_is_elsewhere(
    client: Client, queue: str, tmp_path: Path
) -> None:
    await publish_store(client, FolderStore(tmp_path / "store"), task_queue=queue)
    (tmp_path / "store").rename(tmp_path / "away")
    with pytest.raises(OtherStore, match="has another ID than it had: its values were removed, or its disk is not"):
        await publish_store(client, FolderStore(tmp_path / "store"), task_queue=queue)


async def test_adopted_store_takes_the_place_of_the_other(client: Client, queue: str, tmp_path: Path) -> None:
    old, new = FolderStore(tmp_path / "old"), FolderStore(tmp_path / "new")
    await check_store(client, new, task_queue=queue)
    await publish_store(client, old, task_queue=queue)
    before = await adopt_store(client, new, task_queue=queue)
    assert before == PublishedStore(await old.identify(), old.location)
    await publish_store(client, new, task_queue=queue)
    with pytest.raises(OtherStore):
        await publish_store(client, old, task_queue=queue)


async def test_note_keeps_no_payload_from_the_clean_up(client: Client, queue: str, tmp_path: Path) -> None:
    await publish_store(client, FolderStore(tmp_path), task_queue=queue)
    assert not [run for run in (await retained_of(client)).runs if queue in run.workflow_id]


async def test_store_that_is_away_stops_a_worker_from_starting(client: Client, queue: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable):
        await publish_store(client, FolderStore(tmp_path / "file" / "store"), task_queue=queue)
    assert await published_store(client, queue) is None
