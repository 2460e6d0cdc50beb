"""Guards against large values: no large argument, result, document or message terminates or blocks a run.

The numbers of guards refer to docs/contributing/guards.md.
"""

from collections import Counter
from typing import Any

import pytest

from dagwright.core.boundary import limits
from dagwright.core.errors import PlanInvalid
from dagwright.history.document_hydration import hydrated_document
from dagwright.history.run_reader import RunReader
from tests.support.goals import call_node
from tests.support.people import tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import Runs, chain_of, completed_node, document_of, scheduled_calls
from tests.workflow.building import pure_node

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("small_pages")]

_REGION_NODES = 410
"""Number of pure nodes in an offloaded region."""
_SMALL_TEXT_NODE = call_node("small", "text", size=8_000)
"""A node whose result is small enough to be inlined in arguments."""


def _large_text(copies: int) -> str:
    """Return a text with `copies` copies of the result of `small`."""
    return "{{small.result}}" * copies


async def test_arguments_over_two_megabytes_fail_their_node(runs: Runs) -> None:
    """Guard S1: the server would terminate the run."""
    plan = plan_of(
        _SMALL_TEXT_NODE,
        call_node("large", "echo", text=_large_text(300)),
        call_node("independent", "echo", text="small"),
    )
    document = await runs.run(plan)
    assert document["status"] == "completed_with_failures"
    assert document["nodes"]["large"]["status"] == "failed"
    assert document["nodes"]["large"]["error"].startswith("too_large: the arguments have 2,4")
    assert document["nodes"]["independent"] == completed_node({"text": "small"})


async def test_arguments_over_two_megabytes_for_a_foreign_activity_fail_their_node(foreign_runs: Runs) -> None:
    """Guard S1: activities of other programs receive all values inline, up to a limit."""
    node = call_node("large", "foreign.text", size=1, more=_large_text(300))
    document = await foreign_runs.run({"nodes": [_SMALL_TEXT_NODE, node]})
    assert document["nodes"]["large"]["error"].startswith("too_large: the arguments have 2,4")


async def test_output_over_three_megabytes_is_a_reference(runs: Runs) -> None:
    """Guard S2: the server would terminate a run with such a large result."""
    handle = await runs.start({"nodes": [_SMALL_TEXT_NODE], "output": [_large_text(100)] * 4})
    document = await document_of(handle)
    assert document["status"] == "completed"
    assert document["output"].keys() == {"ref", "bytes", "preview"}
    assert document["output"]["bytes"] > 3_000_000


async def test_document_over_three_megabytes_has_only_counts_of_its_nodes(runs: Runs) -> None:
    """Guard S2: titles and small results of many nodes add up."""
    items = [f"{number} {'x' * 3_000}" for number in range(200)]
    echo_each = {"tool": "echo", "for_each": items, "arguments": {"a": "{{item}}", "b": "{{item}}"}}
    plan = plan_of(
        {"id": "each", **echo_each}, {"id": "more", **echo_each}, title="t" * 100_000, output="{{each.status}}"
    )
    document = await document_of(await runs.start(plan))
    assert (document["status"], document["output"]) == ("completed", "completed")
    assert document["nodes"] == {}
    # The counts include both nodes and the items of both nodes.
    assert document["nodes_ref"]["counts"] == {"completed": 2 + 2 * len(items)}


async def test_result_of_three_megabytes_of_a_foreign_activity_fails_its_node(foreign_runs: Runs) -> None:
    """Guard S3: the server rejects the result, and the run continues without it."""
    nodes = [
        tool_node("large", "foreign.text", arguments={"size": 3_000_000}, retry={"max_attempts": 1}),
        call_node("independent", "foreign.text", size=3),
    ]
    document = await foreign_runs.run({"nodes": nodes})
    assert document["nodes"]["large"]["status"] == "failed"
    assert document["nodes"]["independent"]["status"] == "completed"


async def test_input_that_the_server_would_reject_is_reported_by_the_client(runs: Runs) -> None:
    """Guard S4: five megabytes of inputs are a problem of the plan, not a transport error."""
    plan = {"inputs": {"text": {"type": "string"}}, "nodes": [call_node("a", "echo")]}
    with pytest.raises(PlanInvalid) as error:
        await runs.start(plan, inputs={"text": "x" * 5_000_000})
    assert [problem.code for problem in error.value.problems] == ["too_large"]


async def test_ready_calls_of_eight_megabytes_are_split_between_workflow_tasks(runs: Runs) -> None:
    """Guard S5: over 4 MB in one workflow task would block the run."""
    nodes = [call_node(f"n{number}", "echo", text=_large_text(25)) for number in range(40)]
    small_nodes = [pure_node(f"u{number}", 1) for number in range(5)]
    handle = await runs.start({"nodes": [_SMALL_TEXT_NODE, *nodes, *small_nodes], "output": "{{n0.status}}"})
    document = await document_of(handle)
    assert (document["status"], document["output"]) == ("completed", "completed")
    sizes: Counter[int] = Counter()
    for scheduled_call in scheduled_calls(await handle.fetch_history()):
        sizes[scheduled_call.workflow_task_completed_event_id] += scheduled_call.input.ByteSize()
    assert sum(sizes.values()) > 8_000_000
    assert max(sizes.values()) < 2_000_000


@pytest.mark.alone
async def test_results_that_would_fill_the_history_do_not_terminate_the_run(foreign_runs: Runs) -> None:
    """Guard S8, F2: at 50 MB of history the server would terminate the run."""
    node = tool_node("each", "foreign.text", for_each=list(range(260)), arguments={"size": 200_000})
    document = await document_of(await foreign_runs.start({"nodes": [node]}))
    completed_count = Counter(node["status"] for node in document["nodes"].values())["completed"]
    if document["status"] == "completed":
        # The document has the node and its 260 items.
        assert completed_count == 261
        return
    assert document["error"]["code"] == "too_large"
    assert "which is too large for continue-as-new" in document["error"]["message"]
    assert 0 < completed_count * 200_000 <= limits.HISTORY_LIMIT_BYTES


@pytest.mark.slow
@pytest.mark.alone
async def test_foreign_results_near_the_server_limit_do_not_terminate_the_run(foreign_runs: Runs) -> None:
    """Guard F2: a result of an activity of another program may have 2 MB, and is stored in history."""
    node = tool_node("each", "foreign.text", for_each=list(range(28)), arguments={"size": 1_900_000})
    document = await document_of(await foreign_runs.start({"nodes": [node]}))
    assert document["status"] == "completed" or document["error"]["code"] == "too_large"


async def test_foreign_failure_messages_of_any_size_fail_only_their_node(foreign_runs: Runs) -> None:
    """Guard S14, F16: the server rejects a message of over 4 MB, so the attempt times out."""
    single_attempt = {"retry": {"max_attempts": 1}, "timeout": "2s"}
    nodes = [
        {"id": f"mb{size}", "tool": "foreign.fail", "arguments": {"size": size * 1_000_000}, **single_attempt}
        for size in (1, 3, 5)
    ]
    document = await foreign_runs.run({"nodes": [*nodes, pure_node("independent", 1)]})
    codes = {node_id: node.get("error", "").partition(":")[0] for node_id, node in document["nodes"].items()}
    assert codes["mb1"] == "Foreign"
    assert len(document["nodes"]["mb1"]["error"]) < 5_000
    assert codes["mb3"]
    assert codes["mb5"] == "timeout"
    assert document["nodes"]["independent"] == completed_node(2.0)


def _region_nodes(first_fields: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return a chain of `count` pure nodes. `first_fields` are extra fields of the first node."""
    later_nodes = [pure_node(f"n{number}", f"{{{{n{number - 1}.result}}}}") for number in range(1, count)]
    return [{"id": "n0", "tool": "add", "arguments": {"left": 0, "right": 1}, **first_fields}, *later_nodes]


async def test_offloaded_region_receives_all_inputs_of_the_run(runs: Runs) -> None:
    """Guard S1: the run does not know which inputs the nodes of an offloaded region read."""
    first_fields = {"when": "size(inputs.text) > 7 && inputs.text.startsWith('xx')"}
    plan = plan_of(
        *_region_nodes(first_fields, _REGION_NODES),
        inputs={"text": {"type": "string"}},
        output=f"{{{{n{_REGION_NODES - 1}.result}}}}",
    )
    document = await document_of(await runs.start(plan, inputs={"text": "x" * 999_000}))
    assert (document["status"], document["output"]) == ("completed", _REGION_NODES)


async def test_region_that_reads_two_megabytes_of_small_results_fails_as_too_large(runs: Runs) -> None:
    """Guard S1: small values are inline in the call. Without a limit, their total size would terminate the run."""
    count = 270
    text_nodes = [call_node(f"t{number}", "echo", text="x" * 8_000) for number in range(count)]
    condition = f"[{','.join(f't{number}.result' for number in range(count))}] != []"
    independent_node = tool_node("independent", "echo", "t0", arguments={"text": "small"})
    plan = plan_of(
        *text_nodes,
        *_region_nodes({"when": condition}, _REGION_NODES),
        independent_node,
        output="{{independent.result}}",
    )
    document = await document_of(await runs.start(plan))
    assert (document["status"], document["output"]) == ("completed_with_failures", {"text": "small"})
    view = await RunReader(runs.client, document["run_id"]).read()
    error = (await hydrated_document(view, runs.store, only_node="n0"))["nodes"]["n0"]["error"]
    assert error["code"] == "too_large"
    assert error["message"].startswith("its 410 pure nodes read 2,1")


async def test_large_sub_plans_do_not_fill_the_history(cached_runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard S8: each start of a sub-plan adds its plan to the history. 20 starts would add 14 MB."""
    monkeypatch.setattr(limits, "DRAIN_AT_BYTES", 4_000_000)
    monkeypatch.setattr(limits, "HISTORY_LIMIT_BYTES", 10_000_000)
    steps = [call_node(f"s{number}", "echo", text="y" * 240_000) for number in range(3)]
    nodes = [{**step, "when": "inputs.n < 0"} for step in steps]
    child_plan = {"inputs": {"n": {"type": "integer"}}, "nodes": nodes}
    node = {
        "id": "each",
        "plan": child_plan,
        "for_each": list(range(20)),
        "arguments": {"n": "{{item}}"},
        "max_parallel": 5,
    }
    handle = await cached_runs.start({"nodes": [node], "output": "{{each.status}}"})
    document = await document_of(handle)
    assert (document["status"], document["output"]) == ("completed", "completed")
    for history in await chain_of(cached_runs.client, handle):
        assert sum(event.ByteSize() for event in history.events) < limits.HISTORY_LIMIT_BYTES
    await cached_runs.check_runs()
