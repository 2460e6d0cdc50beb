"""Kills of a worker in a call batch: only calls without a recorded result run again, with the same idempotency key."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.chaos import WorkerProcess, result_within, start_run
from tests.support.chaos_tools import attempts_of, effects_of
from tests.support.people import tool_node
from tests.support.runs import check_history
from tests.support.server import LiveServer

pytestmark = pytest.mark.server

_CHAIN_LENGTH, _LEAF_COUNT = 8, 10


def _call(name: str, predecessor: str | None = None) -> dict[str, Any]:
    arguments = {"name": name, **({} if predecessor is None else {"previous_result": f"{{{{{predecessor}.result}}}}"})}
    return tool_node(name, "short_effect", arguments=arguments, retry={"max_attempts": 5})


async def test_calls_without_a_recorded_result_are_repeated_after_a_kill(
    private_server: LiveServer, worker: WorkerProcess, folder: Path
) -> None:
    client = await private_server.start()
    await worker.stop()
    await worker.start_and_wait_until_ready()
    chain = [f"c{number}" for number in range(_CHAIN_LENGTH)]
    leaves = [f"leaf{number}" for number in range(_LEAF_COUNT)]
    nodes = [_call(name, chain[position - 1] if position else None) for position, name in enumerate(chain)]
    nodes += [_call(name, chain[-1]) for name in leaves]
    last_node = tool_node("last", "short_effect", *leaves, arguments={"name": "last"})
    # The worker dies once in each of these calls, after the effect.
    for name in ("c4", "leaf5"):
        (folder / f"die-{name}").touch()
    handle = await start_run(client, {"nodes": [*nodes, last_node]}, run_id="short")
    for _ in range(2):
        await worker.wait_for_death()
        await worker.start()
    document = await result_within(handle, 120)
    names = [*chain, *leaves, "last"]
    assert document["status"] == "completed"
    assert {name: document["nodes"][name]["result"] for name in names} == {name: name for name in names}
    assert effects_of(folder) == sorted(names), "each effect was made with one idempotency key"
    attempts = Counter(attempts_of(folder))
    # Each call of the chain was recorded before the next one started.
    assert {name: attempts[name] for name in chain} == {name: 2 if name == "c4" else 1 for name in chain}
    assert document["nodes"]["c4"]["attempts"] == 2
    assert document["nodes"]["c3"]["attempts"] == 1
    assert attempts["leaf5"] == 2
    assert max(attempts.values()) == 2
    assert attempts["last"] == 1
    await check_history(await handle.fetch_history())
