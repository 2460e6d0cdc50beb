"""Views of runs, read from their histories without a worker, and waits until a view satisfies a condition."""

from collections.abc import Callable

from temporalio.client import Client

from dagwright.history.run_reader import RunReader
from dagwright.history.run_view import RunView
from tests.support.eventually import eventually
from tests.support.runs import Handle, Runs


async def view_of(runs: Runs, handle: Handle) -> RunView:
    return await RunReader(runs.client, handle.id).read()


async def wait_for_view(client: Client, run_id: str, condition: Callable[[RunView], bool]) -> RunView:
    """Wait until the view of a run satisfies a condition, and return this view. No worker is needed."""
    views: list[RunView] = []

    async def is_satisfied() -> bool:
        views.append(await RunReader(client, run_id).read())
        return condition(views[-1])

    await eventually(is_satisfied)
    return views[-1]


async def wait_for_status(client: Client, run_id: str, status: str) -> RunView:
    """Wait until a run has a status, and return its view."""
    return await wait_for_view(client, run_id, lambda view: view.status == status)


async def wait_for_node(runs: Runs, handle: Handle, node_id: str, status: str) -> None:
    def has_status(view: RunView) -> bool:
        nodes = view.document()["nodes"]
        return node_id in nodes and bool(nodes[node_id]["status"] == status)

    await wait_for_view(runs.client, handle.id, has_status)


async def wait_for_notes(runs: Runs, handle: Handle, count: int) -> None:
    await wait_for_view(runs.client, handle.id, lambda view: len(view.notes) == count)


async def wait_for_note(client: Client, run_id: str, code: str) -> RunView:
    """Wait until a run has a note with a code, and return its view."""
    return await wait_for_view(client, run_id, lambda view: any(note["code"] == code for note in view.notes))
