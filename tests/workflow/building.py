"""Helpers that workflow tests share: fixture types, nodes, and checks of ended runs."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from dagwright.client.runs import Runs as ClientRuns
from dagwright.server import Connection, Server
from dagwright.testing import ModelServer
from tests.support.eventually import eventually
from tests.support.run_views import view_of
from tests.support.runs import Document, Handle, Runs, document_of, with_run_error
from tests.support.tools import CallHarness

ServeScript = Callable[..., AbstractAsyncContextManager[tuple[ModelServer, Runs]]]
"""A function that serves runs with a scripted model: see `scripted_runs`."""


class Gate:
    """A gate of one test: calls of `hold` and its variants with this name wait until the test opens the gate."""

    def __init__(self, harness: CallHarness, name: str) -> None:
        self._harness = harness
        self.name = name

    async def start_run(self, runs: Runs, plan: Any, **options: Any) -> Handle:
        """Start a run, and wait until a tool waits at the gate."""
        handle = await runs.start(plan, **options)
        await self.wait_for_call()
        return handle

    async def wait_for_call(self) -> None:
        await eventually(lambda: self.name in self._harness.entered)

    def open(self) -> None:
        self._harness.open(self.name)

    def open_for_threads(self) -> None:
        """Open the gate for calls of `pure_hold`."""
        self._harness.thread_gates[self.name].set()

    @property
    def call_count(self) -> int:
        return self._harness.entered.count(self.name)

    @property
    def clean_up_count(self) -> int:
        return self._harness.clean_ups.count(self.name)

    @property
    def running_count(self) -> int:
        return self._harness.running[self.name]

    @property
    def max_running_count(self) -> int:
        return self._harness.max_running[self.name]

    @property
    def effects(self) -> list[str]:
        """The idempotency key of each effect with the name of the gate, in order."""
        return self._harness.effects[self.name]


def client_runs_of(runs: Runs) -> ClientRuns:
    connection = Connection(runs.client, Server("nowhere", runs.client.namespace), frozenset())
    return ClientRuns(connection, task_queue=runs.task_queue, store=runs.store)


async def ended_document(runs: Runs, handle: Handle) -> Document:
    """Return the document of an ended run. Assert that `RunReader` returns the same document."""
    document = await document_of(handle)
    assert (await view_of(runs, handle)).document() == with_run_error(document)
    return document


def pure_node(node_id: str, left: Any, right: Any = 1, **fields: Any) -> Document:
    """Return a node that adds `left` and `right`."""
    return {"id": node_id, "tool": "add", "arguments": {"left": left, "right": right}, **fields}


def binary_tree_value(number: int) -> int:
    """Return the value of the node `n<number>` in a plan whose nodes form a binary tree.

    The value of `n0` is 2. The value of each other node is 1 more than the value of `n<number // 2>`.
    """
    return number.bit_length() + 2


async def wait_for_continue_as_new(runs: Runs, handle: Handle) -> Handle:
    """Wait until a run has continued as new, and return a handle of its newest execution."""
    newest_execution = runs.client.get_workflow_handle(handle.id)

    async def has_continued() -> bool:
        return bool((await newest_execution.describe()).run_id != handle.first_execution_run_id)

    await eventually(has_continued)
    return newest_execution


async def final_status_or_error_type(handle: Handle) -> str:
    """Return the final status of a run, or the type of its error if the run has no document."""
    try:
        return str((await document_of(handle))["status"])
    except AssertionError as error:
        return str(error).partition(":")[0]
