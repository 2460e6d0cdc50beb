"""`why` on the real server: sub-plans are followed to what holds them back, while they run and after the end."""

from typing import Any

import pytest

from dagwright.history.explaining import Explaining, NodeUnknown
from dagwright.history.run_reader import RunFeed
from tests.support.eventually import eventually
from tests.support.runs import Handle, Runs, document_of
from tests.support.tools import Bench

pytestmark = pytest.mark.server


def _explaining(runs: Runs) -> Explaining:
    return Explaining(lambda workflow_id: RunFeed(runs.client, workflow_id), runs.store)


def _plan(name: str) -> dict[str, Any]:
    """Returns a plan that waits for a held tool, two runs below."""
    inner = {"nodes": [{"id": "held", "tool": "hold", "arguments": {"name": name}}]}
    middle = {"nodes": [{"id": "in/ner", "plan": inner}]}
    return {
        "nodes": [
            {"id": "outer", "plan": middle},
            {"id": "publish", "tool": "echo", "depends_on": ["outer"]},
        ]
    }


async def _words(runs: Runs, handle: Handle, node: str) -> str:
    found = await _explaining(runs).of_node(handle.id, node)
    return found.words(lambda _: "then")


async def test_waiting_node_is_followed_into_sub_plans(runs: Runs, bench: Bench, unique: str) -> None:
    handle = await runs.start(_plan(unique))
    await eventually(lambda: unique in bench.entered)

    expected = (
        "publish waits for outer, which runs as a run of its own since then, which runs as a run of its own since "
        "then, which runs since then"
    )
    assert await _words(runs, handle, "publish") == expected
    assert await _words(runs, handle, "outer/in/ner/held") == "outer/in/ner/held runs since then"
    whole = (await _explaining(runs).of_run(handle.id)).to_json()
    assert [(each["node"], each["why"], each["because"]) for each in whole["chain"]] == [
        ("outer", "run", ["outer/in/ner"]),
        ("outer/in/ner", "run", ["outer/in/ner/held"]),
        ("outer/in/ner/held", "running", []),
    ]
    with pytest.raises(NodeUnknown, match="has no node 'publsh'; did you mean 'publish'"):
        await _explaining(runs).of_node(handle.id, "publsh")
    bench.open(unique)
    await document_of(handle)


async def test_end_of_a_run_is_told_by_what_failed_in_a_sub_plan(runs: Runs) -> None:
    inner = {"nodes": [{"id": "bad", "tool": "fail", "arguments": {"message": "no such file"}}]}
    handle = await runs.start(
        {"nodes": [{"id": "outer", "plan": inner}, {"id": "after", "tool": "echo", "depends_on": ["outer"]}]}
    )
    await document_of(handle)

    told = await _explaining(runs).of_run(handle.id)
    assert [(each.node, each.kind, [*each.because]) for each in told.chain.reasons] == [
        ("outer", "failed", ["outer/bad"]),
        ("outer/bad", "failed", []),
    ]
    assert told.words(lambda _: "then").endswith("no such file)")
    assert (await _words(runs, handle, "after")).startswith("after is blocked by outer at then, which failed at then")


@pytest.mark.usefixtures("small_pages")
async def test_nodes_inside_of_large_regions_are_told(runs: Runs) -> None:
    count = 410
    nodes: list[dict[str, Any]] = [{"id": "n0", "tool": "add", "arguments": {"left": 1, "right": 1}}]
    nodes += [
        {"id": f"n{number}", "tool": "add", "arguments": {"left": f"{{{{n{number - 1}.result}}}}", "right": 1}}
        for number in range(1, count)
    ]
    handle = await runs.start({"nodes": nodes})
    await document_of(handle)

    told = await _explaining(runs).of_node(handle.id, "n2")
    assert [(each.node, each.kind, [*each.because]) for each in told.chain.reasons] == [
        ("n2", "completed", ["n1"]),
        ("n1", "completed", ["n0"]),
        ("n0", "completed", []),
    ]
