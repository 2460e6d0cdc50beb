"""The payload store that the workers of a task queue use: published on the server by the first worker.

Workers with different stores cannot read each other's values, and runs would fail. A worker therefore compares the ID
of its store with the published ID, and does not start if they differ. The ID is published in a note
(`dagwright.server.note_workflows`), which all workers see immediately.
"""

from dataclasses import dataclass

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire
from dagwright.server.note_workflows import find_open_workflow, note_id, start_note, terminate_if_open
from dagwright.store import PayloadStore, StoreMismatch


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """ID and location of a payload store.

    Args:
        store_id: ID of the store.
        location: location of the store in the settings of the process that uses or published the store.
    """

    store_id: str
    location: str


async def publish_store(client: Client, store: PayloadStore, *, task_queue: str) -> None:
    """Publish the store of a worker, or compare it with the published store.

    Raises:
        StoreMismatch: the workers of the queue use another store.
        StoreUnavailable: the store does not respond.
    """
    own_store = StoreIdentity(await store.identify(), store.location)
    # A user may end the note between the two calls. In that case, this worker publishes its store.
    for _ in range(2):
        if await _start_note(client, own_store, task_queue=task_queue):
            return
        if (current_store := await published_store(client, task_queue)) is not None:
            _reject_other_store(own_store, current_store, client.namespace, task_queue)
            return


async def check_store(client: Client, store: PayloadStore, *, task_queue: str) -> None:
    """Compare the store of a process that starts runs with the published store, if there is one.

    Raises:
        StoreMismatch: the workers of the queue use another store.
        StoreUnavailable: the store does not respond.
    """
    current_store = await published_store(client, task_queue)
    if current_store is not None:
        own_store = StoreIdentity(await store.identify(), store.location)
        _reject_other_store(own_store, current_store, client.namespace, task_queue)


async def adopt_store(client: Client, store: PayloadStore, *, task_queue: str) -> StoreIdentity | None:
    """Publish a store in place of the published store; return the replaced store, if any.

    Raises:
        RPCError: the server rejects the request.
        StoreUnavailable: the store does not respond.
    """
    own_store = StoreIdentity(await store.identify(), store.location)
    previous_store = await published_store(client, task_queue)
    if previous_store is not None:
        await terminate_if_open(client, _note_id(task_queue), reason=f"replaced by {own_store.location}")
    await _start_note(client, own_store, task_queue=task_queue)
    return previous_store


async def published_store(client: Client, task_queue: str) -> StoreIdentity | None:
    """Return the published store of a task queue.

    Returns:
        `None` if no store is published, or if the client has no permission to read the note.
    """
    try:
        note = await find_open_workflow(client, _note_id(task_queue))
    except RPCError as error:
        if error.status is RPCStatusCode.PERMISSION_DENIED:
            return None
        raise
    if note is None:
        return None
    memo = await note.memo()
    return StoreIdentity(str(memo.get(wire.MEMO_STORE_ID, "")), str(memo.get(wire.MEMO_STORE_LOCATION, "")))


async def _start_note(client: Client, store: StoreIdentity, *, task_queue: str) -> bool:
    """Publish a store unless one is published; return whether this call has published it."""
    try:
        return await start_note(
            client,
            wire.WORKFLOW_PAYLOAD_STORE,
            _note_id(task_queue),
            memo={wire.MEMO_STORE_ID: store.store_id, wire.MEMO_STORE_LOCATION: store.location},
            summary=f"the payload store of task queue {task_queue}: {store.location}",
            details="This is a note that no worker polls. `dagwright store adopt` replaces it.",
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.PERMISSION_DENIED:
            raise
        # Without permission for this workflow type, the stores are not compared.
        return True


def _reject_other_store(
    own_store: StoreIdentity, current_store: StoreIdentity, namespace: str, task_queue: str
) -> None:
    if own_store.store_id == current_store.store_id:
        return
    adopt_hint = "to use this store without the values of the other store, run `dagwright store adopt --yes`"
    if own_store.location == current_store.location:
        raise StoreMismatch(
            f"the ID of the payload store {own_store.location} has changed from {current_store.store_id[:12]} to "
            f"{own_store.store_id[:12]}: its values were removed, or its disk is not mounted; restore the values, or "
            f"mount the disk; {adopt_hint}"
        )
    raise StoreMismatch(
        f"the workers of task queue {task_queue!r} in namespace {namespace!r} use the payload store "
        f"{current_store.location} (ID {current_store.store_id[:12]}), and this process uses {own_store.location} "
        f"(ID {own_store.store_id[:12]}): set DAGWRIGHT_PAYLOAD_STORE to the same store; to move a store, copy it with "
        f"its file `store-id`; {adopt_hint}"
    )


def _note_id(task_queue: str) -> str:
    return note_id(wire.ID_PAYLOAD_STORE, task_queue)
