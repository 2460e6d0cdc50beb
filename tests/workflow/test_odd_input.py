"""Invalid inputs, signals and results of a run: the run ends in a valid state, and no workflow task fails."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from dagwright.core.model.tools import Effects, ToolDeclaration
from tests.support.eventually import eventually
from tests.support.runs import Runs, bare_document, completed_node, document_of, raw_value
from tests.support.tools import CallHarness
from tests.workflow.building import Gate, final_status_or_error_type

pytestmark = pytest.mark.server

_VALID_PLAN = {"nodes": [{"id": "a", "tool": "echo"}]}
_COMPILED_PLAN = {"format": 1, "nodes": [{"id": "a", "tool": "echo"}], "tools": {}}
_BATCH_WITH_RUNNING_NODE = {"node_ends": [["a", "running", 1, 0, 0]], "items": {"value": []}}


_INVALID_INPUTS: list[tuple[tuple[Any, ...], str]] = [
    ((), "invalid: the input must be an object"),
    (({"plan": _VALID_PLAN}, {"second": 1}), "invalid: the input must be an object"),
    (({"plan": _VALID_PLAN, "compiled": {}},), "invalid: the input must contain exactly one of"),
    (({"plan": _VALID_PLAN, "options": {"deadline": "soon"}},), "invalid: options.deadline must be a duration: 'soon'"),
    (({"plan": _VALID_PLAN, "parent": "above"},), "invalid: 'parent' must have 'run_id' and 'task'"),
    (({"compiled": {"format": 2}},), "invalid: invalid input: compiled "),
    (({"compiled": _COMPILED_PLAN, "map_batch": {}},), "invalid: invalid input: not a map batch"),
    (
        ({"compiled": _COMPILED_PLAN, "map_batch": _BATCH_WITH_RUNNING_NODE},),
        "invalid: invalid input: the items of a map batch read",
    ),
    (({"plan": None},), "invalid_field: "),
    (({"plan": {"nodes": []}},), "empty_plan: "),
    ((raw_value(b"{"),), "invalid: the payload is not JSON"),
    ((raw_value(b"[" * 100_000),), "invalid: the payload is not JSON"),
    ((raw_value(b'{"plan": 1e999}'),), "invalid: the payload is not JSON"),
    ((raw_value(b'{"plan": {"nodes": [{"id": "\\ud800", "tool": "echo"}]}}'),), "invalid: the payload is not JSON"),
    (
        (raw_value(b'{"compiled": {"format": 1, "nodes": [{"id": "a", "title": "\\udfff"}]}}'),),
        "invalid: the payload is not JSON",
    ),
    ((raw_value(b"\x00", "binary/encrypted"),), "invalid: the payload is not JSON"),
    ((raw_value(b"", "binary/null"),), "invalid: the input must be an object"),
    ((raw_value(b"\xff", "binary/plain"), 1), "invalid: the input must be an object"),
    (
        ({"plan": _VALID_PLAN}, raw_value(b"{"), raw_value(b"\xff", "binary/encrypted")),
        "invalid: the input must be an object",
    ),
]
"""Pairs of the arguments of a run and the start of its error message."""


async def test_invalid_input_fails_the_run_with_the_reason(runs: Runs) -> None:
    documents = await asyncio.gather(*(runs.run_raw(*arguments) for arguments, _ in _INVALID_INPUTS))
    for document in documents:
        assert (document["status"], document["nodes"]) == ("failed", {}), document
    errors = [document["error"][: len(error)] for document, (_, error) in zip(documents, _INVALID_INPUTS, strict=True)]
    assert errors == [error for _, error in _INVALID_INPUTS]


async def test_every_problem_of_a_raw_plan_is_reported(runs: Runs) -> None:
    nodes = [{"id": "a", "tool": "nope"}, {"id": "b", "tool": "add", "arguments": {"left": "x"}, "depends_on": ["c"]}]
    document = await document_of(await runs.start_raw({"plan": {"nodes": nodes}}))
    codes = [problem["code"] for problem in document["error"]["errors"]]
    assert sorted(set(codes)) == ["invalid_arguments", "unknown_dependency", "unknown_tool"]


async def test_raw_plans_of_two_dialects_run(runs: Runs) -> None:
    intents_plan = {
        "intents": [{"verb": "echo", "params": {"x": 1}}, {"verb": "echo", "params": {}, "refs": {"x": "@result_1"}}]
    }
    native_plan = {"plan": 1, "nodes": [{"id": "a", "tool": "echo", "arguments": {"x": "{{PLACEHOLDER_x}}"}}]}
    documents = [
        await runs.run_raw({"plan": intents_plan}),
        await runs.run_raw({"plan": native_plan, "inputs": {"x": "1"}}),
    ]
    assert [document["nodes"] for document in documents] == [
        {"@result_1": completed_node({"x": 1}), "@result_2": completed_node({"x": {"x": 1}})},
        {"a": completed_node({"x": "1"})},
    ]


_UNUSUAL_IDS = [
    "計" * 66,
    "a/b",
    "line\nbreak",
    "👩‍🚀",
    'q"uote\\',
    "nul\x00",
    "~",
    "a|b",
    " a ",
    "x" * 200,
    "compile_plan",
]


async def test_nodes_with_unusual_ids_run(runs: Runs) -> None:
    documents = await asyncio.gather(*(runs.run(_plan_with_node_id(node_id)) for node_id in _UNUSUAL_IDS))
    for node_id, document in zip(_UNUSUAL_IDS, documents, strict=True):
        assert document["nodes"] == {
            **{
                node_id: completed_node({"x": 1}),
                "sub": completed_node({node_id: {"a": {}}}),
                "each": completed_node([{}, {}]),
            },
            **{
                f"each[{node_id}]": completed_node({}),
                f"each[{'y' * 190}]": completed_node({}),
                "reader": completed_node({"value": 1}),
            },
        }


def _plan_with_node_id(node_id: str) -> dict[str, Any]:
    return {
        "nodes": [
            {"id": node_id, "tool": "echo", "arguments": {"x": 1}},
            {"id": "sub", "plan": {"nodes": [{"id": node_id, "plan": _VALID_PLAN}]}},
            {"id": "each", "tool": "echo", "for_each": [node_id, "y" * 190], "key": "{{item}}"},
            {"id": "reader", "tool": "echo", "arguments": {"value": f"{{{{{node_id}.result.x}}}}"}},
        ]
    }


async def test_plan_that_grows_when_it_is_encoded_again_is_rejected(runs: Runs) -> None:
    encoded_plan = (
        b'{"plan": {"nodes": [{"id": "a", "tool": "echo", "arguments": {"x": ['
        + b",".join([b"1e15"] * 200_000)
        + b"]}}]}}"
    )
    assert (await runs.run_raw(raw_value(encoded_plan)))["error"].startswith("too_large: ")


async def test_plan_with_very_many_problems_is_rejected(runs: Runs) -> None:
    nodes = [{"id": f"n{number}" + "z" * 180, "tool": f"nope{number}"} for number in range(4_000)]
    assert (await runs.run_raw({"plan": {"nodes": nodes}}))["error"].startswith("unknown_tool: ")


INVALID_SIGNAL_ARGUMENTS: list[tuple[Any, ...]] = [
    *((), ("text",), ({"reason": {"a": [1]}, "by": 5},), (raw_value(b"{"),)),
    *((raw_value(b"\xff", "binary/plain"), 1), (raw_value(b"\xff", "binary/encrypted"), raw_value(b"{"))),
]
"""Invalid arguments of signals."""


async def test_signal_cancel_works_with_any_payload(runs: Runs, harness: CallHarness, unique_name: str) -> None:
    async def is_cancelled_by(arguments: tuple[Any, ...], *, gate_name: str) -> bool:
        node = {"id": "a", "tool": "hold", "arguments": {"name": gate_name}, "heartbeat": "1s"}
        handle = await runs.start({"nodes": [node]})
        await eventually(lambda: gate_name in harness.entered)
        await handle.signal("cancel", args=arguments)
        return bool((await document_of(handle))["status"] == "cancelled")

    cancellations = [
        is_cancelled_by(arguments, gate_name=f"{unique_name} {number}")
        for number, arguments in enumerate(INVALID_SIGNAL_ARGUMENTS)
    ]
    assert await asyncio.gather(*cancellations) == [True] * len(INVALID_SIGNAL_ARGUMENTS)


async def test_invalid_signals_add_notes_and_change_no_node(runs: Runs, gate: Gate) -> None:
    node = {"id": "a", "tool": "hold", "arguments": {"name": gate.name}}
    handle = await gate.start_run(runs, {"nodes": [node]})
    forged_report = {"task": "a", "status": "completed", "output": "forged"}
    for arguments in (*INVALID_SIGNAL_ARGUMENTS, ({"task": "unknown"},), (forged_report,)):
        for signal in ("sub_plan_ended", "feedback", "unknown_signal"):
            await handle.signal(signal, args=arguments)
    gate.open()
    document = bare_document(await document_of(handle))
    assert document["nodes"] == {"a": completed_node(gate.name)}
    expected = ["message_rejected"] * 3 * (len(INVALID_SIGNAL_ARGUMENTS) + 2)
    assert [note["code"] for note in document["notes"]] == expected


async def test_notes_about_rejected_signals_are_limited(runs: Runs, gate: Gate) -> None:
    node = {"id": "a", "tool": "hold", "arguments": {"name": gate.name}}
    handle = await gate.start_run(runs, {"nodes": [node]})
    for _ in range(120):
        await handle.signal("sub_plan_ended", "x")
    gate.open()
    document = await document_of(handle)
    # After 100 notes, one note counts the other notes.
    assert len(document["notes"]) == 101
    assert document["notes"][-1] == {"code": "omitted", "node_id": None, "message": "20 more notes are omitted"}


# Foreign workers.


@activity.defn(name="foreign.answer")
async def _answer(arguments: dict[str, Any]) -> RawValue:
    return _FOREIGN_RESULTS[arguments["kind"]]


@activity.defn(name="foreign.fail")
async def _fail(arguments: dict[str, Any]) -> None:
    details = RawValue(Payload(metadata={"encoding": b"binary/encrypted"}, data=b"\xff"))
    raise ApplicationError("no", details, type="Foreign", non_retryable=True)


@activity.defn(name="foreign.describe")
async def _describe(arguments: dict[str, Any]) -> dict[str, Any]:
    info = activity.info()
    return {"id": info.activity_id, "attempt": info.attempt, "arguments": arguments}


_FOREIGN_RESULTS = {
    "binary": raw_value(b"\x00\x01", "binary/plain"),
    "encrypted": raw_value(b"\x00\x01", "binary/encrypted"),
    "broken": raw_value(b'{"a": '),
    "nan": raw_value(b"NaN"),
    "infinite": raw_value(b'{"a": [1e999]}'),
    "digits": raw_value(b"9" * 5_000),
    "surrogate": raw_value(b'"\\ud800"'),
    "deep": raw_value(b"[" * 100_000 + b"]" * 100_000),
    "null": raw_value(b"", "binary/null"),
    "no_encoding": RawValue(Payload(data=b"1")),
    "odd_attempt": RawValue(
        Payload(metadata={"encoding": b"json/plain", "dagwright": b'{"attempt":"many","at":-1}'}, data=b"1")
    ),
}


@pytest.fixture(scope="session")
async def foreign_queue(client: Client) -> AsyncIterator[str]:
    queue = f"foreign-{uuid4().hex}"
    async with Worker(client, task_queue=queue, activities=[_answer, _fail, _describe]):
        yield queue


def _with_foreign_tools(runs: Runs, queue: str, *, effects: Effects = Effects.READ) -> Runs:
    names = ("foreign.answer", "foreign.fail", "foreign.describe", "foreign.missing")
    declarations = {
        name: ToolDeclaration(name, effects=effects, task_queue=queue, is_foreign=True, timeout_s=10) for name in names
    }
    runs.tools = {**runs.tools, **declarations}
    return runs


async def test_results_of_foreign_workers_that_are_not_json_fail_their_node(runs: Runs, foreign_queue: str) -> None:
    nodes = [{"id": kind, "tool": "foreign.answer", "arguments": {"kind": kind}} for kind in _FOREIGN_RESULTS]
    document = await _with_foreign_tools(runs, foreign_queue).run({"nodes": nodes})
    outcomes = {node_id: node.get("error", "result: ").partition(":")[0] for node_id, node in document["nodes"].items()}
    assert outcomes == {**dict.fromkeys(_FOREIGN_RESULTS, "invalid_result"), "null": "result", "odd_attempt": "result"}


async def test_failures_of_foreign_workers_are_reported(runs: Runs, foreign_queue: str) -> None:
    nodes = [
        {"id": "fail", "tool": "foreign.fail", "arguments": {}},
        {"id": "missing", "tool": "foreign.missing", "arguments": {}, "retry": {"max_attempts": 1}},
        {"id": "valid", "tool": "foreign.describe", "arguments": {"x": 1}},
    ]
    document = await _with_foreign_tools(runs, foreign_queue).run({"nodes": nodes})
    assert document["nodes"]["fail"] == {"status": "failed", "error": "Foreign: no"}
    assert document["nodes"]["missing"]["error"].startswith("NotFoundError: ")
    assert document["nodes"]["valid"] == completed_node({"id": "valid", "attempt": 1, "arguments": {"x": 1}})


_INVALID_FIELDS: list[dict[str, Any]] = [
    *({"timeout_s": None}, {"priority": "high"}, {"tool": "x" * 2_000}, {"tool": 5}, {"title": 5}),
    *({"dependencies": [7]}, {"arguments": 5}, {"for_each": 5}, {"kind": "plan"}, {"when": "1 +"}),
]

_INVALID_QUEUES: list[Any] = ["/_sys/queue", "q" * 2_000, 5]

_DEADLINE_S = 0.5
"""Deadline of each run: it ends the runs whose calls have no worker."""


async def test_run_of_an_invalid_compiled_plan_ends(runs: Runs) -> None:
    statuses = await _run_and_get_statuses(
        runs, *(({"id": "a", "tool": "echo", **fields}, {}) for fields in _INVALID_FIELDS)
    )
    assert set(statuses) <= {"failed", "InternalError"}


async def test_tool_of_a_compiled_plan_on_an_invalid_queue_fails_the_run(runs: Runs) -> None:
    tools_of_runs = ({"echo": {"effects": "read", "task_queue": queue}} for queue in _INVALID_QUEUES)
    statuses = await _run_and_get_statuses(runs, *(({"id": "a", "tool": "echo"}, tools) for tools in tools_of_runs))
    assert statuses == ["failed"] * len(_INVALID_QUEUES)


async def _run_and_get_statuses(runs: Runs, *nodes_and_tools: tuple[dict[str, Any], dict[str, Any]]) -> list[str]:
    """Run a compiled plan for each node and its tools, all concurrently, and return the final statuses."""

    async def run_and_get_status(node: dict[str, Any], tools: dict[str, Any]) -> str:
        compiled = {"format": 1, "nodes": [node], "tools": tools, "deadline_s": _DEADLINE_S}
        return await final_status_or_error_type(await runs.start_raw({"compiled": compiled}))

    return await asyncio.gather(*(run_and_get_status(node, tools) for node, tools in nodes_and_tools))
