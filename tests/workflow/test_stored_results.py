"""Large results stay in the payload store: the run holds references, and plans can use the values."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from dagwright.core.model.compiled import plan_to_json
from dagwright.history.run_reader import RunReader
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.settings import Settings
from dagwright.store import ref_of
from dagwright.tools import ToolRegistry, tool
from tests.support.eventually import eventually
from tests.support.foreign import foreign_worker, with_tools
from tests.support.goals import call_node
from tests.support.people import hold_node, tool_node
from tests.support.plan_building import plan_of
from tests.support.runs import (
    SKIPPED,
    Runs,
    bare_document,
    checked_runs,
    completed_node,
    document_of,
    events_of,
    failed_node,
    serving_runs,
)
from tests.support.tools import CallHarness, digest_of, json_of

pytestmark = pytest.mark.server

_ROWS = [{"name": f"row {number}", "text": "x" * 20} for number in range(500)]
_TABLE_NODE = call_node("table", "table", rows=500)


def _digest_node(node_id: str, value: Any) -> dict[str, Any]:
    return call_node(node_id, "digest", value=value)


def _reference(value: Any) -> dict[str, Any]:
    """Return the reference to a value, as documents show it."""
    encoded = json_of(value).encode()
    preview = value if isinstance(value, str) else json_of(value)
    return {"ref": ref_of(encoded), "bytes": len(encoded), "preview": preview[:200]}


def _results_except_table(document: dict[str, Any]) -> dict[str, Any]:
    """Return the result or error of each node except `table`."""
    return {name: node.get("result", node.get("error")) for name, node in document["nodes"].items() if name != "table"}


async def test_nodes_and_conditions_can_read_a_large_result_or_its_parts(runs: Runs) -> None:
    map_fields = {"tool": "echo", "for_each": "{{table.result.rows}}"}
    fields_with_item_names = {
        "key": "{{item.name}}",
        "when": "item.name.endsWith('99')",
        "arguments": {"name": "{{item.name}}"},
    }
    plan = plan_of(
        _TABLE_NODE,
        _digest_node("whole", "{{table.result}}"),
        _digest_node("large", "{{table.result.rows}}"),
        _digest_node("query", "{{table.result.rows[*].name}}"),
        _digest_node("text", "{{table.result.rows}} of {{table.result.n}}"),
        _digest_node("inside", {"list": [1, "{{table.result.rows[2].text}}"]}),
        call_node("small", "echo", r="{{table.result.rows[3]}}", n="{{table.result.n}}"),
        _digest_node("unknown", "{{table.result.row}}"),
        _digest_node("deep", "{{table.result.rows[600].name}}"),
        {"id": "unknown_field", **map_fields, "arguments": {"x": "{{item.nme}}"}},
        tool_node("yes", "echo", when="size(table.result.rows) == 500 && table.result.n > 1"),
        tool_node("no", "echo", when="!has(table.result.rows) || has(table.result.none)"),
        tool_node("any", "echo", when="table.result.rows.exists(row, row.name == 'row 7')"),
        {"id": "each", **map_fields, **fields_with_item_names},
        tool_node("part", "echo", for_each="{{table.result.rows[495:]}}", arguments={"x": "{{item}}"}),
    )
    handle = await runs.start(plan)
    nodes = bare_document(await document_of(handle))["nodes"]
    message_prefix = "missing_data: Missing data:"
    # The nodes 1 to 8 are `whole` to `deep`.
    assert {
        name: nodes[name]
        for name in [*(node["id"] for node in plan["nodes"][1:9]), "unknown_field[7]", "yes", "no", "any"]
    } == {
        "whole": completed_node(digest_of({"n": 500, "rows": _ROWS})),
        "large": completed_node(digest_of(_ROWS)),
        "query": completed_node(digest_of([row["name"] for row in _ROWS])),
        "text": completed_node(digest_of(f"{json_of(_ROWS)} of 500")),
        "inside": completed_node(digest_of({"list": [1, "x" * 20]})),
        "small": completed_node({"r": _ROWS[3], "n": 500}),
        "unknown": failed_node(f"{message_prefix} table.result.row: 'row' not found in table.result; it has n, rows"),
        "deep": failed_node(
            f"{message_prefix} table.result.rows[600].name: [600] not found in table.result.rows; it has 500 items"
        ),
        "unknown_field[7]": failed_node(f"{message_prefix} item.nme: 'nme' not found in item; it has name, text"),
        "yes": completed_node({}),
        "no": SKIPPED,
        "any": completed_node({}),
    }
    item_results = {
        name: node["result"] for name, node in nodes.items() if "result" in node and name.startswith("each[")
    }
    assert item_results == {f"each[row {number}]": {"name": f"row {number}"} for number in (99, 199, 299, 399, 499)}
    assert nodes["part"] == completed_node([{"x": row} for row in _ROWS[495:]])
    scheduled_events = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    assert max(event.ByteSize() for event in scheduled_events) < 6_000


async def test_list_over_the_limit_can_be_mapped_but_a_condition_cannot_read_its_items(runs: Runs) -> None:
    wide_table = call_node("wide", "table", rows=400, size=1_000)
    long_table = call_node("long", "table", rows=6_000)
    name_fields = {"tool": "echo", "arguments": {"name": "{{item.name}}"}}
    nodes = [
        {"id": "each", "for_each": "{{wide.result.rows[0:400:100]}}", **name_fields},
        {"id": "keyed", "for_each": "{{wide.result.rows}}", "key": "{{item.name}}", **name_fields},
        tool_node("size", "echo", when="size(long.result.rows) == 6000"),
        tool_node("all", "echo", when="long.result.rows.all(row, row.name != '')"),
    ]
    plan = {"nodes": [wide_table, long_table, *nodes], "output": "{{keyed.result[399]}}"}
    document = bare_document(await document_of(await runs.start(plan)))
    assert (document["nodes"]["keyed"]["status"], document["output"]) == ("completed", {"name": "row 399"})
    assert {name: document["nodes"][name] for name in ("each", "size", "all")} == {
        "each": completed_node([{"name": f"row {number}"} for number in (0, 100, 200, 300)]),
        "size": completed_node({}),
        "all": failed_node(
            "too_large: when: long.result.rows has 298,891 bytes as JSON and is in the payload store, where the run "
            "itself cannot read it; refer to a smaller part, or compute the value in a tool and "
            "read the result of the tool"
        ),
    }


async def test_items_with_large_results_are_passed_by_reference(runs: Runs) -> None:
    plan = plan_of(
        tool_node("t", "table", for_each=[300, 400], arguments={"rows": "{{item}}"}),
        _digest_node("all", "{{t.result}}"),
        _digest_node("one", "{{t.result[1].rows}}"),
        call_node("counts", "echo", n="{{t.result[*].n}}"),
        {
            **tool_node("each", "digest", for_each="{{t.result}}", key="{{item.n}}"),
            **{"when": "item.n > 300", "arguments": {"value": "{{item.rows}}"}},
        },
        _digest_node("query", "{{t.result..name}}"),
    )
    nodes = bare_document(await document_of(await runs.start(plan)))["nodes"]
    tables = [{"n": count, "rows": _ROWS[:count]} for count in (300, 400)]
    assert {name: nodes[name] for name in ("all", "one", "counts", "each[300]", "each[400]")} == {
        "all": completed_node(digest_of(tables)),
        "one": completed_node(digest_of(_ROWS[:400])),
        "counts": completed_node({"n": [300, 400]}),
        "each[300]": SKIPPED,
        "each[400]": completed_node(digest_of(_ROWS[:400])),
    }
    assert nodes["query"]["error"].startswith(
        "too_large: the query '$..name' reads a value that is too large: a part of t.result"
    )


async def test_document_has_large_values_by_reference_and_the_commands_load_them(runs: Runs) -> None:
    table = {"n": 500, "rows": _ROWS}
    plan = plan_of(
        _TABLE_NODE,
        tool_node("t", "text", for_each=[10_000, 5], arguments={"size": "{{item}}"}),
        output={
            "rows": "{{table.result.rows}}",
            "summary": "{{table.result.n}} rows: {{t.result[0]}}",
            "t": "{{t.result}}",
        },
    )
    handle = await runs.start(plan)
    recorded_document = await document_of(handle)
    rows = {**_reference(table), "path": [["rows"]], "bytes": len(json_of(_ROWS)), "preview": json_of(_ROWS)[:200]}
    assert bare_document(recorded_document) == {
        "status": "completed",
        "output": {
            "rows": {**rows, "preview": recorded_document["output"]["rows"]["preview"]},
            "summary": {"ref": "output", "bytes": None, "preview": "500 rows: {{…}}"},
            "t": [_reference("x" * 10_000), "xxxxx"],
        },
        "nodes": {
            "table": completed_node(
                {**_reference(table), "preview": recorded_document["nodes"]["table"]["result"]["preview"]}
            ),
            "t": completed_node([_reference("x" * 10_000), "xxxxx"]),
            "t[0]": completed_node(_reference("x" * 10_000)),
            "t[1]": completed_node("xxxxx"),
        },
    }
    assert bare_document(await runs.read_document(handle)) == {
        "status": "completed",
        "output": {"rows": _ROWS, "summary": "500 rows: " + "x" * 10_000, "t": ["x" * 10_000, "xxxxx"]},
        "nodes": {
            "table": completed_node(table),
            "t": completed_node(["x" * 10_000, "xxxxx"]),
            "t[0]": completed_node("x" * 10_000),
            "t[1]": completed_node("xxxxx"),
        },
    }


async def test_result_that_looks_like_a_reference_is_plain_data(runs: Runs) -> None:
    forged = {"ref": ref_of(b'"secret of another run"'), "bytes": 9_000, "projections": [[[], {"value": 1}]]}
    plan = plan_of(
        {"id": "lookalike", "tool": "echo", "arguments": {"stored": forged, **forged}},
        _digest_node("use", "{{lookalike.result}}"),
        call_node("part", "echo", x="{{lookalike.result.stored}}"),
    )
    handle = await runs.start(plan)
    result = {"stored": forged, **forged}
    expected = {"lookalike": result, "use": digest_of(result), "part": {"x": forged}}
    assert _results_except_table(bare_document(await document_of(handle))) == expected
    assert _results_except_table(bare_document(await runs.read_document(handle))) == expected


async def test_large_values_go_into_a_sub_plan_and_out_of_it(runs: Runs) -> None:
    child_plan = plan_of(
        _digest_node("all", "{{PLACEHOLDER_rows}}"),
        tool_node("first", "echo", when="inputs.table.n == 500 && size(inputs.rows) == 500"),
        call_node("made", "table", rows=400),
        inputs={"rows": {"type": "array"}, "table": {"type": "object"}},
        output={"all": "{{all.result}}", "first": "{{first.result}}", "made": "{{made.result}}"},
    )
    plan = plan_of(
        _TABLE_NODE,
        {"id": "sub", "plan": child_plan, "arguments": {"rows": "{{table.result.rows}}", "table": "{{table.result}}"}},
        _digest_node("use", "{{sub.result.made.rows}}"),
        tool_node("few", "echo", when="sub.result.made.n == 400", arguments={"n": "{{sub.result.all}}"}),
        tool_node("each", "echo", for_each="{{sub.result.made.rows}}", when="item.name == 'row 5'"),
    )
    handle = await runs.start(plan)
    nodes = bare_document(await document_of(handle))["nodes"]
    assert nodes["use"] == completed_node(digest_of(_ROWS[:400]))
    assert nodes["few"] == completed_node({"n": digest_of(_ROWS)})
    assert [name for name, node in nodes.items() if name.startswith("each[") and node != SKIPPED] == ["each[5]"]
    loaded_nodes = bare_document(await runs.read_document(handle))["nodes"]
    expected = completed_node({"all": digest_of(_ROWS), "first": {}, "made": {"n": 400, "rows": _ROWS[:400]}})
    assert loaded_nodes["sub"] == expected


async def test_values_missing_from_the_store_are_reported(client: Client, harness: CallHarness, tmp_path: Path) -> None:
    async with checked_runs(client, harness.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        held_node = hold_node("hold", "gone", "table")
        digest_node = _digest_node("use", "{{table.result}}") | {"depends_on": ["hold"]}
        handle = await runs.start({"nodes": [_TABLE_NODE, held_node, digest_node], "output": "{{table.result}}"})
        await eventually(lambda: "gone" in harness.entered)
        for payload_file in (tmp_path / "payloads").rglob("sha256-*"):
            payload_file.unlink()
        harness.open("gone")
        document = await document_of(handle)
        ref = ref_of(json_of({"n": 500, "rows": _ROWS}).encode())
        message = (
            f"the payload {ref} is not in the store {tmp_path / 'payloads'}; it was removed, or "
            "DAGWRIGHT_PAYLOAD_STORE differs from the store that it was written to"
        )
        expected = {"code": "value_lost", "message": f"a value of the arguments is lost: {message}", "retryable": False}
        assert document["nodes"]["use"]["error"] == expected
        loaded_document = await runs.read_document(handle)
        assert loaded_document["output"]["ref"] == loaded_document["nodes"]["table"]["result"]["ref"] == ref
        assert loaded_document["notes"] == [
            {"code": "value_lost", "node_id": None, "message": f"output: {message}"},
            {"code": "value_lost", "node_id": "table", "message": f"table: {message}"},
        ]


async def test_foreign_activity_receives_large_values_inline_up_to_a_limit(runs: Runs, client: Client) -> None:
    forged = {"ref": ref_of(b'"not mine"'), "bytes": 9, "type": "text", "length": 9, "preview": ""}
    async with foreign_worker(client) as tools:
        runs_with_tools = with_tools(runs, tools)
        nodes = [
            _TABLE_NODE,
            call_node("big", "text", size=300_000),
            call_node("rows", "foreign.echo", rows="{{table.result.rows}}", n=1),
            call_node("large", "foreign.echo", text="{{big.result}}"),
            call_node("missing", "foreign.echo", x="{{table.result.rows}}{{table.result.no}}"),
            {"id": "forged", "tool": "foreign.echo", "arguments": forged},
            _digest_node("use", "{{rows.result.rows}}"),
        ]
        handle = await runs_with_tools.start({"nodes": nodes})
        document = bare_document(await document_of(handle))
        view = await RunReader(client, handle.id).read()
    actual = {name: document["nodes"][name] for name in ("large", "missing", "forged", "use")}
    assert actual == {
        "large": failed_node(
            "too_large: the arguments have 300,011 bytes with their values, over the limit of "
            "262,144 for an activity outside Dagwright; pass a smaller part, or a file name"
        ),
        "missing": failed_node(
            "missing_data: Missing data: table.result.no: 'no' not found in table.result; it has n, rows"
        ),
        "forged": completed_node(forged),
        "use": completed_node(digest_of(_ROWS)),
    }
    assert document["nodes"]["rows"]["result"]["bytes"] == len(json_of({"rows": _ROWS, "n": 1}))
    expected = {**document["nodes"], "rows": completed_node({"rows": _ROWS, "n": 1})}
    assert bare_document(view.document())["nodes"] == expected


async def test_foreign_call_with_a_secret_fails_its_node_in_an_unchecked_compiled_plan(
    runs: Runs, client: Client
) -> None:
    arguments = {"both": "{{secret.KEY}} {{table.result.rows}}"}
    nodes = [
        _TABLE_NODE,
        {"id": "both", "tool": "foreign.echo", "arguments": arguments},
        call_node("alone", "foreign.echo", key="{{secret.KEY}}"),
    ]
    async with foreign_worker(client) as tools:
        # The check of the plan rejects secrets for foreign tools, so the tools are foreign only after the check.
        tools_as_own = {name: replace(declaration, is_foreign=False) for name, declaration in tools.items()}
        compiled = plan_to_json(
            prepare_plan(check_plan({"plan": 1, "nodes": nodes}, {**runs.tools, **tools_as_own}), {})
        )
        compiled["tools"]["foreign.echo"]["is_foreign"] = True
        document = await runs.run_raw({"compiled": compiled})
    message = "invalid_arguments: 'foreign.echo' runs in a worker of another program, which cannot be given secrets"
    expected = {"both": failed_node(message), "alone": failed_node(message)}
    assert {name: document["nodes"][name] for name in ("both", "alone")} == expected


async def test_result_of_thirty_megabytes_adds_few_bytes_to_the_history(runs: Runs) -> None:
    nodes = [
        tool_node("huge", "text", arguments={"size": 30_000_000}, timeout="5m"),
        tool_node("digest", "digest", arguments={"value": "{{huge.result}}"}, timeout="5m"),
        tool_node("condition", "echo", when="size(huge.result) == 30000000"),
    ]
    handle = await runs.start({"nodes": nodes, "output": "{{huge.result}}"})
    document = bare_document(await document_of(handle))
    assert document["output"] == _reference("x" * 30_000_000)
    assert document["nodes"]["digest"] == completed_node(digest_of("x" * 30_000_000))
    assert document["nodes"]["condition"] == completed_node({})
    assert sum(event.ByteSize() for event in (await handle.fetch_history()).events) < 30_000
    assert (await runs.read_document(handle))["output"] == _reference("x" * 30_000_000)
    assert (await runs.read_document(handle, full=True))["output"] == "x" * 30_000_000


async def test_secrets_are_hidden_in_stored_results(client: Client, harness: CallHarness, tmp_path: Path) -> None:
    @tool(effects="read", secrets=["TOKEN"])
    def leak(token: str) -> dict[str, str]:
        return {"token": token, "text": f"{token} " * 4_000}

    registry = harness.registry().merge(ToolRegistry.of(leak))
    with patch.dict("os.environ", {"DAGWRIGHT_SECRET_TOKEN": "hunter22-hunter22"}):
        async with serving_runs(client, registry, settings=Settings(state_dir=tmp_path)) as runs:
            node = call_node("leak", "leak", token="{{secret.TOKEN}}")
            handle = await runs.start({"nodes": [node, call_node("use", "echo", x="{{leak.result.token}}")]})
            await document_of(handle)
            loaded_document = await runs.read_document(handle)
            history = await handle.fetch_history()
    assert loaded_document["nodes"]["leak"]["result"] == {"token": "***", "text": "*** " * 4_000}
    assert loaded_document["nodes"]["use"]["result"] == {"x": "***"}
    payloads = [path.read_bytes() for path in (tmp_path / "payloads").rglob("sha256-*")]
    assert payloads
    assert not any(b"hunter22" in content for content in [*payloads, history.to_json().encode()])
