"""The graphs on DBOS with a SQLite database.

`python -m benchmarks.peers.dbos_graphs FOLDER` serves requests. When the process starts, DBOS continues the
runs of an earlier process automatically.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID
from sqlalchemy import Engine, event

from benchmarks.peers import graphs, serving


@event.listens_for(Engine, "connect")
def _set_durability(connection: Any, _: Any) -> None:
    """Use the same journal mode and sync mode as the other engines."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


@DBOS.step()
def total(values: list[int]) -> int:
    """Return the sum of the values."""
    return graphs.total(values)


@DBOS.step()
async def total_async(values: list[int]) -> int:
    """Return the sum of the values."""
    return graphs.total(values)


@DBOS.step()
async def draft() -> str:
    """Return a document."""
    return graphs.draft()


@DBOS.step()
async def rotate(text: str, shift: int) -> str:
    """Move the first `shift` characters of a document to its end."""
    return graphs.rotate(text, shift)


@DBOS.step()
async def checksum(texts: list[str]) -> int:
    """Return the checksum of the documents, in order."""
    return graphs.checksum(texts)


@DBOS.step()
def append(ledger: str, number: int) -> int:
    """Append a number to the ledger after some time."""
    return graphs.append(ledger, number)


@DBOS.workflow()
def chain() -> int:
    """Run the steps one after the other."""
    value = total([1])
    for _ in range(1, graphs.CHAIN_LENGTH):
        value = total([value, 1])
    return value


@DBOS.workflow()
async def fan_out() -> int:
    """Run the leaves at once."""
    root = await total_async([1])
    leaves = await asyncio.gather(*(total_async([root, index]) for index in range(graphs.FAN_WIDTH)))
    return await total_async(list(leaves))


@DBOS.workflow()
async def layers() -> int:
    """Run layer after layer."""
    values: list[int] = []
    for _ in range(graphs.LAYERS):
        steps = (total_async([index, *values]) for index in range(graphs.LAYER_WIDTH))
        values = list(await asyncio.gather(*steps))
    return await total_async(values)


@DBOS.workflow()
async def documents() -> int:
    """Run the leaves at once."""
    root = await draft()
    return await checksum(list(await asyncio.gather(*(rotate(root, index) for index in range(graphs.DOCUMENTS)))))


@DBOS.workflow()
def effects(ledger: str) -> int:
    """Run the steps one after the other."""
    number = 0
    for _ in range(graphs.EFFECT_COUNT):
        number = append(ledger, number)
    return number


ASYNC_WORKFLOWS = {graphs.FAN_OUT: fan_out, graphs.LAYERED: layers, graphs.DOCUMENT_FAN: documents}


def main() -> None:
    """Serve requests."""
    folder = Path(sys.argv[1])
    DBOS(
        config={
            "name": "peers",
            "system_database_url": f"sqlite:///{folder / 'dbos.db'}",
            "application_version": "1",
            "log_level": "WARNING",
        }
    )
    DBOS.launch()

    def run(graph: str, run_id: str, is_resumed: bool) -> int:
        if is_resumed:
            return int(DBOS.retrieve_workflow(run_id).get_result())
        with SetWorkflowID(run_id):
            if graph == graphs.CHAIN:
                return chain()
            if graph == graphs.EFFECT_CHAIN:
                return effects(str(folder / graphs.LEDGER))
            return asyncio.run(ASYNC_WORKFLOWS[graph]())

    serving.serve(run)


if __name__ == "__main__":
    main()
