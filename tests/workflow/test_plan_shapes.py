"""What a plan can say, run on the real server: shapes, conditions, joins, items and errors."""

import pytest

from tests.support.runs import SKIPPED, Runs, bare, blocked, cancelled, document_of, done, end_of, failed
from tests.support.tools import Bench

pytestmark = pytest.mark.server


async def test_chain_hands_values_on(runs: Runs) -> None:
    plan = {
        "nodes": [
            {"id": "a", "tool": "echo", "arguments": {"list": [1, {"k": None}]}},
            {"id": "b", "tool": "echo", "arguments": {"got": "{{a.result.list}}", "text": "<{{a.result.list[0]}}>"}},
            {"id": "c", "tool": "add", "arguments": {"left": "{{b.result.got[0]}}", "right": 0.5}},
        ],
        "output": {"sum": "{{c.result}}", "first": "{{a.result.list}}"},
    }
    assert await runs.run(plan) == {
        "status": "completed",
        "output": {"sum": 1.5, "first": [1, {"k": None}]},
        "nodes": {
            "a": done({"list": [1, {"k": None}]}),
            "b": done({"got": [1, {"k": None}], "text": "<1>"}),
            "c": done(1.5),
        },
    }


async def test_diamond_joins_both_branches(runs: Runs) -> None:
    plan = {
        "nodes": [
            {"id": "d", "tool": "add", "arguments": {"left": "{{b.result}}", "right": "{{c.result}}"}},
            {"id": "b", "tool": "add", "arguments": {"left": "{{a.result}}", "right": 10}},
            {"id": "c", "tool": "add", "arguments": {"left": "{{a.result}}", "right": 100}},
            {"id": "a", "tool": "add", "arguments": {"left": 1, "right": 1}},
        ]
    }
    assert await runs.run(plan) == {
        "status": "completed",
        "output": {"d": 114.0},
        "nodes": {"d": done(114.0), "b": done(12.0), "c": done(102.0), "a": done(2.0)},
    }


async def test_fan_out_joins_every_branch_once(runs: Runs) -> None:
    width = 60
    branches = [
        {"id": f"n{number}", "tool": "add", "arguments": {"left": "{{root.result}}", "right": number}}
        for number in range(width)
    ]
    join = {
        "id": "join",
        "tool": "echo",
        "arguments": {"values": [f"{{{{n{number}.result}}}}" for number in range(width)]},
    }
    root = {"id": "root", "tool": "add", "arguments": {"left": 0, "right": 0}}
    document = await runs.run({"nodes": [root, *branches, join]})
    assert document == {
        "status": "completed",
        "output": {"join": {"values": [float(number) for number in range(width)]}},
        "nodes": {
            "root": done(0.0),
            **{f"n{number}": done(float(number)) for number in range(width)},
            "join": done({"values": [float(number) for number in range(width)]}),
        },
    }


async def test_failure_blocks_its_dependents_and_nothing_else(runs: Runs) -> None:
    plan = {
        "nodes": [
            {"id": "bad", "tool": "fail", "arguments": {"message": "no mail"}},
            {"id": "next", "tool": "echo", "depends_on": ["bad"]},
            {"id": "last", "tool": "echo", "depends_on": ["next", "good"]},
            {"id": "good", "tool": "echo", "arguments": {"x": 1}},
            {"id": "apart", "tool": "echo", "depends_on": ["good"]},
        ]
    }
    assert await runs.run(plan) == {
        "status": "completed_with_failures",
        "output": {"apart": {}},
        "nodes": {
            "bad": failed("tool_failed: no mail"),
            "next": blocked("bad"),
            "last": blocked("bad"),
            "good": done({"x": 1}),
            "apart": done({}),
        },
    }


async def test_run_fails_when_nothing_it_is_for_completed(runs: Runs) -> None:
    handle = await runs.start(
        {"nodes": [{"id": "a", "tool": "echo"}, {"id": "b", "tool": "give_up", "depends_on": ["a"]}]}
    )
    document = bare(await document_of(handle))
    assert document == {
        "status": "failed",
        "output": {},
        "nodes": {"a": done({}), "b": failed("tool_failed: no")},
    }
    assert end_of(await handle.fetch_history()) == "failed"


async def test_fail_fast_stops_what_runs_and_what_waits(runs: Runs, bench: Bench, unique: str) -> None:
    plan = {
        "on_failure": "fail_fast",
        "nodes": [
            {"id": "slow", "tool": "hold", "arguments": {"name": unique}, "heartbeat": "1s"},
            {"id": "after", "tool": "echo", "depends_on": ["slow"]},
            {"id": "first", "tool": "add", "arguments": {"left": 1, "right": 1}},
            {"id": "bad", "tool": "fail", "depends_on": ["first"]},
            {"id": "hit", "tool": "echo", "depends_on": ["bad"]},
        ],
    }
    reason = "'bad' failed: no"
    assert await runs.run(plan) == {
        "status": "failed",
        "output": {},
        "error": f"fail_fast: {reason}",
        "nodes": {
            "slow": cancelled(),
            "after": cancelled(reason),
            "first": done(2.0),
            "bad": failed("tool_failed: no"),
            "hit": blocked("bad"),
        },
    }
    assert bench.cleaned.count(unique) == bench.entered.count(unique)


async def test_when_skips_a_node_and_what_depends_on_it(runs: Runs) -> None:
    plan = {
        "nodes": [
            {"id": "a", "tool": "echo", "arguments": {"n": 3}},
            {"id": "yes", "tool": "echo", "when": "a.result.n > 2"},
            {"id": "no", "tool": "echo", "when": "a.result.n > 3"},
            {"id": "after", "tool": "echo", "depends_on": ["no"]},
            {"id": "any", "tool": "echo", "join": "any", "arguments": {"no": "{{no.result}}"}, "depends_on": ["a"]},
            {"id": "wrong", "tool": "echo", "when": "a.result.n"},
        ]
    }
    document = await runs.run(plan)
    wrong = document["nodes"].pop("wrong")
    assert (wrong["status"], wrong["error"].partition(":")[0]) == ("failed", "invalid_condition")
    assert document["nodes"] == {
        "a": done({"n": 3}),
        "yes": done({}),
        "no": SKIPPED,
        "after": SKIPPED,
        "any": done({"no": None}),
    }


async def test_joins_start_when_they_say(runs: Runs) -> None:
    nodes = [
        {"id": "ok", "tool": "echo"},
        {"id": "ok2", "tool": "echo"},
        {"id": "bad", "tool": "fail"},
        {"id": "all", "tool": "echo", "depends_on": ["ok", "bad"]},
        {"id": "any", "tool": "echo", "depends_on": ["ok", "bad"], "join": "any"},
        {"id": "two", "tool": "echo", "depends_on": ["ok", "ok2", "bad"], "join": {"at_least": 2}},
        {"id": "three", "tool": "echo", "depends_on": ["ok", "ok2", "bad"], "join": {"at_least": 3}},
        {
            "id": "done",
            "tool": "echo",
            "join": "all_done",
            "arguments": {"status": "{{bad.status}}", "why": "{{bad.error.message}}", "ok": "{{ok.result}}"},
        },
    ]
    assert await runs.run({"nodes": nodes, "output": "{{done.result.status}}"}) == {
        "status": "completed_with_failures",
        "output": "failed",
        "nodes": {
            "ok": done({}),
            "ok2": done({}),
            "bad": failed("tool_failed: no"),
            "all": blocked("bad"),
            "any": done({}),
            "two": done({}),
            "three": blocked("bad"),
            "done": done({"status": "failed", "why": "no", "ok": {}}),
        },
    }


async def test_on_error_decides_what_a_failure_means(runs: Runs) -> None:
    plan = {
        "nodes": [
            {"id": "value", "tool": "fail", "on_error": {"value": {"n": 1}}},
            {"id": "uses", "tool": "echo", "arguments": {"got": "{{value.result.n}}", "why": "{{value.error.code}}"}},
            {"id": "skip", "tool": "fail", "on_error": "skip"},
            {"id": "skipped", "tool": "echo", "depends_on": ["skip"]},
            {"id": "block", "tool": "fail", "on_error": "block"},
            {"id": "blocked", "tool": "echo", "depends_on": ["block"]},
        ]
    }
    assert await runs.run(plan) == {
        "status": "completed_with_failures",
        "output": {"uses": {"got": 1, "why": "tool_failed"}},
        "nodes": {
            "value": done({"n": 1}, error="tool_failed: no"),
            "uses": done({"got": 1, "why": "tool_failed"}),
            "skip": failed("tool_failed: no"),
            "skipped": SKIPPED,
            "block": failed("tool_failed: no"),
            "blocked": blocked("block"),
        },
    }


async def test_missing_data_fails_the_node_that_asked(runs: Runs) -> None:
    plan = {
        "nodes": [
            {"id": "mail", "tool": "echo", "arguments": {"data": [{"email": "e", "name": "n"}]}},
            {"id": "ask", "tool": "echo", "arguments": {"to": "{{mail.result.data[0].emial}}"}},
        ],
        "output": "{{mail.result.data[1]}}",
    }
    document = await runs.run(plan)
    assert document["nodes"]["ask"] == failed(
        "missing_data: Missing data: mail.result.data[0].emial: 'emial' not found in mail.result.data[0]; "
        "it has email, name"
    )
    assert (document["status"], document["output"]) == ("completed_with_failures", None)
    assert document["error"].startswith("missing_data: output: Missing data: mail.result.data[1]: ")


async def test_text_of_a_result_is_never_read_as_a_reference(runs: Runs) -> None:
    text = 'cost $100, "{{a.result}}" \\{{secret.X}}\n{{PLACEHOLDER_p}}'
    plan = {
        "inputs": {"p": {"type": "string"}},
        "nodes": [
            {"id": "a", "tool": "echo", "arguments": {"text": "{{PLACEHOLDER_p}}"}},
            {"id": "b", "tool": "echo", "arguments": {"same": "{{a.result.text}}", "in": "<{{a.result.text}}>"}},
        ],
    }
    document = await runs.run(plan, inputs={"p": text})
    assert document["nodes"] == {"a": done({"text": text}), "b": done({"same": text, "in": f"<{text}>"})}


async def test_worker_results_tell_success_partial_and_failure(runs: Runs) -> None:
    plan = {
        "sub_goals": [
            {"id": number, "description": outcome, "worker": "find", "params": {"outcome": outcome}}
            for number, outcome in enumerate(["success", "partial", "failed"], 1)
        ],
    }
    document = await runs.run(plan, dialect="subgoals")
    assert document["nodes"] == {
        "sg1": done({"found": 1}),
        "sg2": done({"found": 1}, partial=True),
        "sg3": failed("worker_failed: no luck"),
    }
