"""Fixture types, nodes and checks of ended runs that workflow tests share."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from dagwright.testing import ModelServer
from tests.support.people import view_of
from tests.support.runs import Document, Handle, Runs, document_of, with_run_error

ServeScript = Callable[..., AbstractAsyncContextManager[tuple[ModelServer, Runs]]]
"""A function that serves runs with a scripted model, and yields the model server and the runs: see `scripted_runs`."""


async def ended_document(runs: Runs, handle: Handle) -> Document:
    """Return the document of an ended run. Assert that `RunReader` returns the same document."""
    document = await document_of(handle)
    assert (await view_of(runs, handle)).document() == with_run_error(document)
    return document


def pure_node(node_id: str, left: Any, right: Any = 1, **fields: Any) -> Document:
    return {"id": node_id, "tool": "add", "arguments": {"left": left, "right": right}, **fields}


def value_of(number: int) -> int:
    """Return the value of the node `n<number>`: 2 for `n0`, else 1 more than the value of `n<number // 2>`."""
    return number.bit_length() + 2


async def end_of_run(handle: Handle) -> str:
    """Return the final status of a run, or the type of its error if the run has no document."""
    try:
        return str((await document_of(handle))["status"])
    except AssertionError as error:
        return str(error).partition(":")[0]
