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
_TABLE = call_node("table", "table", rows=500)


def _digest(node_id: str, value: Any) -> dict[str, Any]:
    return call_node(node_id, "digest", value=value)


def _reference(value: Any) -> dict[str, Any]:
    encoded = json_of(value).encode()
    preview = value if isinstance(value, str) else json_of(value)
    return {"ref": ref_of(encoded), "bytes": len(encoded), "preview": preview[:200]}


def _results(document: dict[str, Any]) -> dict[str, Any]:
    return {name: node.get("result", node.get("error")) for name, node in document["nodes"].items() if name != "table"}


async def test_nodes_read_a_large_result_completely_in_parts_and_in_conditions(runs: Runs) -> None:
    over_rows = {"tool": "echo", "for_each": "{{table.result.rows}}"}
    by_name = {"key": "{{item.name}}", "when": "item.name.endsWith('99')", "arguments": {"name": "{{item.name}}"}}
    plan = plan_of(
        _TABLE,
        _digest("whole", "{{table.result}}"),
        _digest("large", "{{table.result.rows}}"),
        _digest("query", "{{table.result.rows[*].name}}"),
        _digest("text", "{{table.result.rows}} of {{table.result.n}}"),
        _digest("inside", {"list": [1, "{{table.result.rows[2].text}}"]}),
        call_node("small", "echo", r="{{table.result.rows[3]}}", n="{{table.result.n}}"),
        _digest("unknown", "{{table.result.row}}"),
        _digest("deep", "{{table.result.rows[600].name}}"),
        {"id": "odd", **over_rows, "arguments": {"x": "{{item.nme}}"}},
        tool_node("yes", "echo", when="size(table.result.rows) == 500 && table.result.n > 1"),
        tool_node("no", "echo", when="!has(table.result.rows) || has(table.result.none)"),
        tool_node("any", "echo", when="table.result.rows.exists(row, row.name == 'row 7')"),
        {"id": "each", **over_rows, **by_name},
        tool_node("part", "echo", for_each="{{table.result.rows[495:]}}", arguments={"x": "{{item}}"}),
    )
    handle = await runs.start(plan)
    nodes = bare_document(await document_of(handle))["nodes"]
    message_prefix = "missing_data: Missing data:"
    assert {
        name: nodes[name] for name in [*(node["id"] for node in plan["nodes"][1:9]), "odd[7]", "yes", "no", "any"]
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
        "odd[7]": failed_node(f"{message_prefix} item.nme: 'nme' not found in item; it has name, text"),
        "yes": completed_node({}),
        "no": SKIPPED,
        "any": completed_node({}),
    }
    ran = {name: node["result"] for name, node in nodes.items() if "result" in node and name.startswith("each[")}
    assert ran == {f"each[row {number}]": {"name": f"row {number}"} for number in (99, 199, 299, 399, 499)}
    assert nodes["part"] == completed_node([{"x": row} for row in _ROWS[495:]])
    scheduled = events_of(await handle.fetch_history(), EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
    assert max(event.ByteSize() for event in scheduled) < 6_000


async def test_list_over_the_limit_of_the_run_is_mapped_by_reference_and_read_by_no_condition(runs: Runs) -> None:
    wide = call_node("wide", "table", rows=400, size=1_000)
    long_table = call_node("long", "table", rows=6_000)
    named = {"tool": "echo", "arguments": {"name": "{{item.name}}"}}
    nodes = [
        {"id": "each", "for_each": "{{wide.result.rows[0:400:100]}}", **named},
        {"id": "keyed", "for_each": "{{wide.result.rows}}", "key": "{{item.name}}", **named},
        tool_node("size", "echo", when="size(long.result.rows) == 6000"),
        tool_node("all", "echo", when="long.result.rows.all(row, row.name != '')"),
    ]
    plan = {"nodes": [wide, long_table, *nodes], "output": "{{keyed.result[399]}}"}
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
        _digest("all", "{{t.result}}"),
        _digest("one", "{{t.result[1].rows}}"),
        call_node("counts", "echo", n="{{t.result[*].n}}"),
        {
            **tool_node("each", "digest", for_each="{{t.result}}", key="{{item.n}}"),
            **{"when": "item.n > 300", "arguments": {"value": "{{item.rows}}"}},
        },
        _digest("query", "{{t.result..name}}"),
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
        _TABLE,
        tool_node("t", "text", for_each=[10_000, 5], arguments={"size": "{{item}}"}),
        output={
            "rows": "{{table.result.rows}}",
            "summary": "{{table.result.n}} rows: {{t.result[0]}}",
            "t": "{{t.result}}",
        },
    )
    handle = await runs.start(plan)
    written = await document_of(handle)
    rows = {**_reference(table), "path": [["rows"]], "bytes": len(json_of(_ROWS)), "preview": json_of(_ROWS)[:200]}
    assert bare_document(written) == {
        "status": "completed",
        "output": {
            "rows": {**rows, "preview": written["output"]["rows"]["preview"]},
            "summary": {"ref": "output", "bytes": None, "preview": "500 rows: {{…}}"},
            "t": [_reference("x" * 10_000), "xxxxx"],
        },
        "nodes": {
            "table": completed_node({**_reference(table), "preview": written["nodes"]["table"]["result"]["preview"]}),
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
        {"id": "alike", "tool": "echo", "arguments": {"stored": forged, **forged}},
        _digest("use", "{{alike.result}}"),
        call_node("part", "echo", x="{{alike.result.stored}}"),
    )
    handle = await runs.start(plan)
    alike = {"stored": forged, **forged}
    expected = {"alike": alike, "use": digest_of(alike), "part": {"x": forged}}
    assert _results(bare_document(await document_of(handle))) == expected
    assert _results(bare_document(await runs.read_document(handle))) == expected


async def test_large_values_go_into_a_sub_plan_and_out_of_it(runs: Runs) -> None:
    sub = plan_of(
        _digest("all", "{{PLACEHOLDER_rows}}"),
        tool_node("first", "echo", when="inputs.table.n == 500 && size(inputs.rows) == 500"),
        call_node("made", "table", rows=400),
        inputs={"rows": {"type": "array"}, "table": {"type": "object"}},
        output={"all": "{{all.result}}", "first": "{{first.result}}", "made": "{{made.result}}"},
    )
    plan = plan_of(
        _TABLE,
        {"id": "sub", "plan": sub, "arguments": {"rows": "{{table.result.rows}}", "table": "{{table.result}}"}},
        _digest("use", "{{sub.result.made.rows}}"),
        tool_node("few", "echo", when="sub.result.made.n == 400", arguments={"n": "{{sub.result.all}}"}),
        tool_node("each", "echo", for_each="{{sub.result.made.rows}}", when="item.name == 'row 5'"),
    )
    handle = await runs.start(plan)
    nodes = bare_document(await document_of(handle))["nodes"]
    assert nodes["use"] == completed_node(digest_of(_ROWS[:400]))
    assert nodes["few"] == completed_node({"n": digest_of(_ROWS)})
    assert [name for name, node in nodes.items() if name.startswith("each[") and node != SKIPPED] == ["each[5]"]
    restored = bare_document(await runs.read_document(handle))["nodes"]
    expected = completed_node({"all": digest_of(_ROWS), "first": {}, "made": {"n": 400, "rows": _ROWS[:400]}})
    assert restored["sub"] == expected


async def test_values_missing_from_the_store_are_reported(client: Client, harness: CallHarness, tmp_path: Path) -> None:
    async with checked_runs(client, harness.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        hold = hold_node("hold", "gone", "table")
        use = _digest("use", "{{table.result}}") | {"depends_on": ["hold"]}
        handle = await runs.start({"nodes": [_TABLE, hold, use], "output": "{{table.result}}"})
        await eventually(lambda: "gone" in harness.entered)
        for stored in (tmp_path / "payloads").rglob("sha256-*"):
            stored.unlink()
        harness.open("gone")
        document = await document_of(handle)
        ref = ref_of(json_of({"n": 500, "rows": _ROWS}).encode())
        message = (
            f"the payload {ref} is not in the store {tmp_path / 'payloads'}; it was removed, or "
            "DAGWRIGHT_PAYLOAD_STORE differs from the store that it was written to"
        )
        expected = {"code": "value_lost", "message": f"a value of the arguments is lost: {message}", "retryable": False}
        assert document["nodes"]["use"]["error"] == expected
        restored = await runs.read_document(handle)
        assert restored["output"]["ref"] == restored["nodes"]["table"]["result"]["ref"] == ref
        assert restored["notes"] == [
            {"code": "value_lost", "node_id": None, "message": f"output: {message}"},
            {"code": "value_lost", "node_id": "table", "message": f"table: {message}"},
        ]


async def test_foreign_activity_gets_large_values_inline_up_to_a_limit(runs: Runs, client: Client) -> None:
    forged = {"ref": ref_of(b'"not mine"'), "bytes": 9, "type": "text", "length": 9, "preview": ""}
    async with foreign_worker(client) as tools:
        foreign = with_tools(runs, tools)
        nodes = [
            _TABLE,
            call_node("big", "text", size=300_000),
            call_node("rows", "foreign.echo", rows="{{table.result.rows}}", n=1),
            call_node("large", "foreign.echo", text="{{big.result}}"),
            call_node("missing", "foreign.echo", x="{{table.result.rows}}{{table.result.no}}"),
            {"id": "forged", "tool": "foreign.echo", "arguments": forged},
            _digest("use", "{{rows.result.rows}}"),
        ]
        handle = await foreign.start({"nodes": nodes})
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


async def test_foreign_call_with_a_secret_fails_its_node_for_every_compiler(runs: Runs, client: Client) -> None:
    arguments = {"both": "{{secret.KEY}} {{table.result.rows}}"}
    nodes = [
        _TABLE,
        {"id": "both", "tool": "foreign.echo", "arguments": arguments},
        call_node("alone", "foreign.echo", key="{{secret.KEY}}"),
    ]
    async with foreign_worker(client) as tools:
        own = {name: replace(declared, is_foreign=False) for name, declared in tools.items()}
        compiled = plan_to_json(prepare_plan(check_plan({"plan": 1, "nodes": nodes}, {**runs.tools, **own}), {}))
        compiled["tools"]["foreign.echo"]["is_foreign"] = True
        document = await runs.run_raw({"compiled": compiled})
    message = "invalid_arguments: 'foreign.echo' runs in a worker of another program, which cannot be given secrets"
    expected = {"both": failed_node(message), "alone": failed_node(message)}
    assert {name: document["nodes"][name] for name in ("both", "alone")} == expected


async def test_thirty_megabytes_cost_the_run_nothing(runs: Runs) -> None:
    nodes = [
        tool_node("huge", "text", arguments={"size": 30_000_000}, timeout="5m"),
        tool_node("length", "digest", arguments={"value": "{{huge.result}}"}, timeout="5m"),
        tool_node("when", "echo", when="size(huge.result) == 30000000"),
    ]
    handle = await runs.start({"nodes": nodes, "output": "{{huge.result}}"})
    document = bare_document(await document_of(handle))
    assert document["output"] == _reference("x" * 30_000_000)
    assert document["nodes"]["length"] == completed_node(digest_of("x" * 30_000_000))
    assert document["nodes"]["when"] == completed_node({})
    assert sum(event.ByteSize() for event in (await handle.fetch_history()).events) < 30_000
    assert (await runs.read_document(handle))["output"] == _reference("x" * 30_000_000)
    assert (await runs.read_document(handle, full=True))["output"] == "x" * 30_000_000


async def test_secrets_are_hidden_in_stored_results_too(client: Client, harness: CallHarness, tmp_path: Path) -> None:
    @tool(effects="read", secrets=["TOKEN"])
    def leak(token: str) -> dict[str, str]:
        return {"token": token, "text": f"{token} " * 4_000}

    registry = harness.registry().merge(ToolRegistry.of(leak))
    with patch.dict("os.environ", {"DAGWRIGHT_SECRET_TOKEN": "hunter22-hunter22"}):
        async with serving_runs(client, registry, settings=Settings(state_dir=tmp_path)) as runs:
            node = call_node("leak", "leak", token="{{secret.TOKEN}}")
            handle = await runs.start({"nodes": [node, call_node("use", "echo", x="{{leak.result.token}}")]})
            await document_of(handle)
            restored = await runs.read_document(handle)
            history = await handle.fetch_history()
    assert restored["nodes"]["leak"]["result"] == {"token": "***", "text": "*** " * 4_000}
    assert restored["nodes"]["use"]["result"] == {"x": "***"}
    stored = [path.read_bytes() for path in (tmp_path / "payloads").rglob("sha256-*")]
    assert stored
    assert not any(b"hunter22" in content for content in [*stored, history.to_json().encode()])
