"""Documents, query results, messages, idempotency keys, size limits and the published schema."""

import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pydantic_core
import pytest
from temporalio.api.common.v1 import Payload

from dagwright.core.boundary.limits import MAX_INLINE_VALUE_BYTES, short_id, summary_of
from dagwright.core.boundary.wire import METADATA_ATTEMPT, METADATA_CACHED
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.actor import Actor
from dagwright.core.model.policy import Policy
from dagwright.core.model.states import Attempt, NodeStatus
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.commands.node_commands import RetryNode
from dagwright.features.commands.steering import apply_command
from dagwright.features.regions.batches import end_from_json, end_to_json
from dagwright.features.run_scheduler import RunScheduler
from dagwright.plans.schema import SCHEMA_FILE, agents_schema, schema_texts
from dagwright.protocol.attempts import attempt_of_details, encode_attempt, read_attempt
from dagwright.protocol.command_messages import actor_from_any_message
from dagwright.protocol.compact_documents import (
    closing_document,
    compact_document,
    compact_value,
    full_closing_document,
    replace_nodes_by_counts,
)
from dagwright.protocol.documents import RunFacts, graph_document, result_document, result_document_with_counts
from dagwright.protocol.failures import run_error_of
from dagwright.protocol.idempotency import derived_key, idempotency_key
from dagwright.protocol.messages import MessageInvalid, Parent, SubPlanEnd, sub_plan_end_from_json
from dagwright.protocol.node_paths import is_sub_plan, running_sub_plan_of, sub_plan_of_path
from dagwright.protocol.outcomes import apply_result, apply_sub_plan_end, read_result
from dagwright.protocol.query_results import graph_result, node_result, status_result
from dagwright.protocol.ready_calls import next_call
from dagwright.protocol.run_input import START_FIELDS, START_OPTIONS, RunInput, run_input_from_json, run_input_to_json
from dagwright.workflows.activity_calls import RunContext
from tests.support.docs import ROOT
from tests.support.plan_building import (
    compiled_plan,
    node,
    plan_of,
    problems_of,
    scheduler_of,
    start_ready_tasks,
    started_run,
    tool_error,
)
from tests.unit.core.test_compilation import FULL_PLAN

FACTS = RunFacts("w1", "r1", title="T")
_CHILD_PLAN = plan_of(node("b/c"), node("c"))
_SINGLE_NODE_PLAN = compiled_plan(plan_of(node("a")))
_NOTE = {"code": "x", "message": "y"}


def ended_run_document() -> dict[str, Any]:
    return result_document(ended_scheduler(), FACTS)


def ended_scheduler() -> RunScheduler:
    scheduler = scheduler_of(
        node("a", title="First", tool="typed", arguments={"name": "Jo"}), node("b", "a"), node("m", for_each=[1])
    )
    start_ready_tasks(scheduler, at=1.5)
    scheduler.complete("a", {"n": 1}, at=2.25, attempt=Attempt(2, 1.75, "v1"))
    start_ready_tasks(scheduler, at=2.25)
    scheduler.fail("b", tool_error("no"), at=3.0)
    scheduler.complete("m[0]", "x" * 10_000, at=4.0)
    return scheduler


def test_result_document_has_the_documented_fields() -> None:
    document = ended_run_document()
    assert list(document) == [
        *("run_id", "execution_id", "status", "title", "output", "error", "nodes", "waiting_for", "usage", "notes")
    ]
    assert (document["status"], document["output"]) == ("completed_with_failures", {"m": ["x" * 10_000]})
    assert list(document["nodes"]) == ["a", "b", "m", "m[0]"]
    times = {"started_at": "1970-01-01T00:00:01.500Z", "ended_at": "1970-01-01T00:00:02.250Z"}
    assert document["nodes"]["a"] == {
        **{"status": "completed", "title": "First", "tool": "typed", "result": {"n": 1}, "error": None},
        **{"attempts": 2, **times, "blocked_by": [], "supersedes": None, "partial": False, "reason": None},
        "lineage": {"inputs": [], "effects": "pure", "tool_version": "v1", "attempts": 2, **times},
    }
    assert document["nodes"]["b"]["error"] == {"code": "tool_failed", "message": "no", "retryable": False}
    assert document["nodes"]["b"]["lineage"]["inputs"] == ["a"]


def test_lineage_names_the_call_that_computed_a_cached_result() -> None:
    provenance = {"made_at": "2026-01-01T00:00:00.000Z", "run_id": "run-1", "node_id": "x"}
    scheduler = started_run(node("a"))
    metadata = {"encoding": b"json/plain", METADATA_CACHED: pydantic_core.to_json(provenance)}
    apply_result(scheduler, "a", Payload(metadata=metadata, data=b"5"), at=1.0)
    document = result_document(scheduler, FACTS)["nodes"]["a"]
    assert (document["result"], document["lineage"]["cached"]) == (5, provenance)
    assert end_from_json(end_to_json(scheduler.records[0])) == scheduler.records[0]


@pytest.mark.parametrize("metadata", [b"", b"[1]", b"no JSON"])
def test_invalid_cache_metadata_of_a_result_is_ignored(metadata: bytes) -> None:
    payload = Payload(metadata={"encoding": b"json/plain", METADATA_CACHED: metadata}, data=b"5")
    assert read_result(payload, name="a.result") == (5, Attempt())


def test_large_values_are_replaced_by_references() -> None:
    document = ended_run_document()
    compact_run_document = compact_document(document, node_count=1)
    reference = {"ref": "output", "bytes": encoded_size(document["output"]), "preview": ""}
    assert {**compact_run_document["output"], "preview": ""} == reference
    reference = {"ref": "node:m[0]", "bytes": 10_002, "preview": "x" * 200}
    assert compact_run_document["nodes"]["m[0]"]["result"] == reference
    assert compact_run_document["nodes"]["a"] == document["nodes"]["a"]
    # `node_count` is the number of nodes in the plan as written. Even if it is small, the nodes in a too large document
    # are replaced by counts.
    nodes = {f"n{number}": {"status": "completed", "result": "x" * 5_000} for number in range(300)}
    document_with_counts = compact_document({"output": None, "nodes": nodes}, node_count=1)
    assert document_with_counts["nodes"] == {}
    assert document_with_counts["nodes_ref"] == {"ref": "history", "counts": {"completed": 300}}
    text_at_the_limit = "x" * (MAX_INLINE_VALUE_BYTES - 2)
    assert compact_value(text_at_the_limit, ref="r") == text_at_the_limit
    reference = {"ref": "r", "bytes": MAX_INLINE_VALUE_BYTES + 1, "preview": "x" * 200}
    assert compact_value(text_at_the_limit + "x", ref="r") == reference


def test_document_with_counts_has_the_error_of_the_first_failed_node() -> None:
    scheduler = ended_scheduler()
    document = result_document_with_counts(scheduler, FACTS)
    assert document == replace_nodes_by_counts(result_document(scheduler, FACTS)) == replace_nodes_by_counts(document)
    reference = document["nodes_ref"]
    assert (reference["ref"], reference["counts"]) == ("history", {"completed": 3, "failed": 1})
    nodes = {
        name: {"status": status, "result": None, "error": error and {"code": "tool_failed", "message": error}}
        for name, status, error in (("a", "completed", None), ("b", "failed", "no"), ("c", "failed", "nor this"))
    }
    document_with_counts = replace_nodes_by_counts({"status": "failed", "error": None, "output": None, "nodes": nodes})
    fields = {"code": "node_failed", "message": "'b' failed: no; 1 more failed", "node_id": "b"}
    assert run_error_of(document_with_counts) == run_error_of(replace_nodes_by_counts(document_with_counts)) == fields


def test_closing_document_omits_fields_that_readers_restore() -> None:
    scheduler = ended_scheduler()
    document = result_document_with_counts(scheduler, FACTS)
    closing_fields = closing_document(document)
    assert [*closing_fields] == ["status", "title", "output", "nodes_ref"]
    assert closing_fields["output"] == compact_value(document["output"], ref="output")
    restored_fields = {"run_id": "w1", "execution_id": "r1", "output": document["output"]}
    assert full_closing_document(closing_fields) | restored_fields == document
    assert closing_document(result_document(scheduler, FACTS)) == closing_fields
    error = {"code": "invalid", "message": "no"}
    document_of_rejected_run = result_document(None, RunFacts("w1", "r1", error=error))
    assert closing_document(document_of_rejected_run) == {"status": "failed", "error": error}


@pytest.mark.parametrize(
    "attempt", [Attempt(), Attempt(2), Attempt(1, 5.0, "v#7"), Attempt(2, 1_706_933_106.789, "v1")]
)
def test_attempt_of_a_result_is_decoded(attempt: Attempt) -> None:
    encoded_attempt = encode_attempt(attempt.count, attempt.started_at or 0.0, attempt.tool_version)
    assert read_attempt({METADATA_ATTEMPT: encoded_attempt}) == replace(attempt, started_at=attempt.started_at or 0.0)


@pytest.mark.parametrize(
    "encoded_attempt",
    [*(b"", b"1", b"AAAAAAA", b"AAAAAA==v1", b"________", b"\xff" * 100, b'[1706933106789, "v1"]')],
)
def test_invalid_attempt_metadata_is_read_as_the_first_attempt(encoded_attempt: bytes) -> None:
    assert read_attempt({METADATA_ATTEMPT: encoded_attempt}) == Attempt()


@pytest.mark.parametrize("count", [b"", b"0", b"-1", b"many", b"9" * 5000, "²".encode(), "٣".encode(), b"\xff"])
def test_invalid_attempt_count_is_read_as_the_first_attempt(count: bytes) -> None:
    assert read_attempt({METADATA_ATTEMPT: b"AAAAAAAAv1#" + count}).count == 1


@pytest.mark.parametrize("encoded_attempt", [b"", b"1", b"\xff", b'{"0": 1}'])
def test_invalid_failure_details_are_read_as_the_first_attempt(encoded_attempt: bytes) -> None:
    invalid_text = encoded_attempt.decode(errors="replace")
    details = {"attempt": encoded_attempt, "started_at": invalid_text, "tool_version": 7}
    assert attempt_of_details(details) == Attempt()


def test_worker_derives_the_keys_of_pure_and_read_calls_in_the_first_execution_of_a_root_run() -> None:
    run = RunContext("r1", (), "queue", execution_id="r1")
    scheduler = scheduler_of(node("a"), node("m", for_each=[1]))
    task, item_task = (call.task for call in iter(lambda: next_call(scheduler, 1.0), None))
    for effects, queue in itertools.product(Effects, ("", "other-queue")):
        tool = ToolDeclaration("any", effects=effects, task_queue=queue)
        assert run.has_derived_key(task, tool) == (effects in ("pure", "read"))
    tool = ToolDeclaration("any", effects=Effects.READ)
    assert run.key_of(None, task.path) == derived_key("r1", "a")
    later_execution, child_run = replace(run, execution_id="r2"), replace(run, path=(("node", "sub"),))
    assert not any(context.has_derived_key(task, tool) for context in (later_execution, child_run))
    assert not run.has_derived_key(item_task, tool)


def test_graph_document_has_edges_from_a_node_to_its_dependents() -> None:
    scheduler = scheduler_of(node("b", "a"), node("a", title="T"))
    nodes = [
        {"node_id": "b", "title": None, "status": "pending", "tool": "any"},
        {"node_id": "a", "title": "T", "status": "ready", "tool": "any"},
    ]
    assert graph_document(scheduler) == graph_result(scheduler) == {"nodes": nodes, "edges": [["a", "b"]]}


def test_idempotency_keys_are_stable_and_unique() -> None:
    path = [["node", "a"], ["item", "k"]]
    keys = [
        idempotency_key(scope, path, generation=generation) for scope in ("run-1", "run-2") for generation in (0, 1)
    ]
    # If this key changed, a running plan would repeat its side effects.
    assert keys[0] == idempotency_key("run-1", path) == "dw1_7fd3t757y6lnyw7rupcysbld5gd4iorgtzrs"
    other_paths = ([["node", "a"], ["node", "k"]], [["node", "a[k]"]], [["node", "a"]])
    keys += [idempotency_key("run-1", other_path) for other_path in other_paths]
    assert len({*keys}) == len(keys) == 7


def test_summaries_and_ids_are_shortened_at_whole_characters_and_ids_stay_unique() -> None:
    assert summary_of("  a\n b\t" + "c" * 300).startswith("a b ccc")
    assert all(len(summary_of(text * 300).encode()) <= 400 for text in ("x", "日", "é"))
    first_id, second_id = short_id("日" * 400 + "a", max_bytes=200), short_id("日" * 400 + "b", max_bytes=200)
    assert first_id != second_id
    assert max(len(first_id.encode()), len(second_id.encode())) <= 200
    assert short_id("plain", max_bytes=200) == "plain"


@pytest.mark.parametrize(
    "run_input",
    [
        RunInput(plan={"plan": 1, "nodes": []}, inputs={"a": 1}, context={"cbu": "x"}),
        RunInput(compiled=compiled_plan(FULL_PLAN), max_in_flight=7, deadline_s=1.5),
        RunInput(
            compiled=_SINGLE_NODE_PLAN, scope="s", path=(("node", "x"), ("item", "k")), parent=Parent("w", "x[k]")
        ),
        RunInput(plan={}, notes=({"code": "tool", "node_id": "a", "message": "repaired: x"},)),
    ],
)
def test_input_of_a_run_survives_serialization(run_input: RunInput) -> None:
    assert run_input_from_json(json.loads(json.dumps(run_input_to_json(run_input)))) == run_input


def test_client_sends_exactly_the_documented_start_fields_and_options() -> None:
    plan = {"plan": 1, "nodes": []}
    options: dict[str, Any] = {"notifies": True, "policy": Policy(), "needs_approval": True, "is_interactive": False}
    options |= {"budget": {"tokens": 1}, "compensate": True, "model": {"model": "m"}, "max_in_flight": 7}
    run_input = RunInput(plan=plan, dialect="plan", inputs={"a": 1}, context={"b": "x"}, deadline_s=1.5, **options)
    message = run_input_to_json(run_input)
    assert {*message, "goal"} == {*START_FIELDS}
    assert message["options"].keys() == START_OPTIONS.keys()
    assert run_input_from_json({"goal": "Double it."}).plan == {"goal": "Double it."}


@pytest.mark.parametrize(
    "message",
    [
        *(None, 5, [], "text", {}, {"plan": {}, "compiled": {}}, {"compiled": 5}),
        {"compiled": {"format": 1, "nodes": [5]}},
        *({"plan": {}, "inputs": 5}, {"plan": {}, "options": "fast"}, {"plan": {}, "path": 5}),
        *({"plan": {}, "path": ["x"]}, {"plan": {}, "parent": "w"}, {"plan": {}, "notes": "x"}),
        *({"plan": {}, "options": {"max_parallel": value}} for value in (0, True, "5")),
        *({"plan": {}, "options": {"deadline": value}} for value in (5, "soon")),
        *({"plan": {}, "notes": value} for value in (_NOTE, [{"code": 1, "message": "y"}], [_NOTE] * 101)),
    ],
)
def test_invalid_run_input_is_rejected_with_a_one_line_message(message: Any) -> None:
    with pytest.raises(MessageInvalid) as caught:
        run_input_from_json(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (None, Actor()),
        (["x"], Actor()),
        ("too late", Actor(None, "too late")),
        ({"reason": 5, "by": None}, Actor(None, "5")),
        ({"reason": "r", "by": "ann", "more": 1}, Actor("ann", "r")),
    ],
)
def test_cancel_command_accepts_any_payload(message: Any, expected: Actor) -> None:
    assert actor_from_any_message(message, source="signal") == expected


def test_invalid_end_of_a_sub_plan_is_rejected() -> None:
    encoded_end = {"task": "a", "status": "completed", "output": 5, "error": None}
    assert sub_plan_end_from_json(encoded_end) == SubPlanEnd("a", "completed", 5, None)
    for invalid_end in (None, {}, {"task": 5}, [encoded_end]):
        with pytest.raises(MessageInvalid):
            sub_plan_end_from_json(invalid_end)


def test_schemas_accept_valid_documents_and_reject_invalid_documents() -> None:
    validator = jsonschema_rs.Draft202012Validator(agents_schema())
    valid_agent = {"description": "Writes", "objective_template": "Write {what}", "type": "llm", "prompt": "Write!"}
    assert validator.is_valid({"agents": {"w": {**valid_agent, "tools": ["read_file"]}}})
    invalid_agents: list[dict[str, Any]] = [{}, {"w": {**valid_agent, "model": "m"}}, {"w": {}}]
    for invalid_document in ({}, *({"agents": agents} for agents in invalid_agents)):
        assert not validator.is_valid(invalid_document), invalid_document
    validator = jsonschema_rs.Draft202012Validator(json.loads(schema_texts()[SCHEMA_FILE]))
    assert [plan for plan in VALID_PLANS if not validator.is_valid(plan)] == []
    assert [plan for plan in INVALID_PLANS if validator.is_valid(plan)] == []
    assert [plan for plan in INVALID_PLANS if not problems_of(plan)] == []


def test_published_schema_files_are_current() -> None:
    command = [sys.executable, "-m", "dagwright.plans.schema", "--check"]
    result = subprocess.run(command, check=False, capture_output=True)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


VALID_PLANS: list[dict[str, Any]] = [
    FULL_PLAN,
    plan_of(node("a", human={"type": "SELECTION", "options": ["x"], "on_timeout": {"escalate": "ann"}})),
    plan_of(node("s", plan=plan_of(node("t", plan=plan_of(node("u")))))),
    plan_of(node("s", plan={"dag": []}), node("f", plan="other.yaml")),
    plan_of(node("a", cache={"ttl": "1h"}, approval="never", on_error="ask")),
]
INVALID_PLANS: list[dict[str, Any]] = [
    plan_of(),
    {"plan": 2, "nodes": [node("a")]},
    plan_of({"id": "a"}),
    plan_of(node("a", agent="x", tool="y")),
    plan_of(node("item")),
    plan_of(node("a", dependson=[])),
    plan_of(node("a", join="most")),
    plan_of(node("a", on_error={"value": 1, "more": 2})),
    plan_of(node("a", timeout="soon")),
    plan_of(node("s", plan=plan_of())),
    plan_of(node("s", plan=plan_of(node("x", tool="t", priority=9)))),
    plan_of(node("a"), inputs={"no name": {}}),
]


DURATION_HINT = "write a number and a unit, such as 500ms, 30s, 5m, 2h or 7d"


def test_all_problems_of_the_options_are_reported() -> None:
    policy = {"rules": [{"effects": ["write"], "then": "stop"}]}
    options = {"max_parallel": 0, "deadlin": "1h", "deadline": "soon", "policy": policy, "approve_plan": "yes"}
    with pytest.raises(MessageInvalid) as caught:
        run_input_from_json({"plan": {}, "options": options})
    assert [(problem.pointer, problem.message) for problem in caught.value.problems] == [
        ("/options/max_parallel", "options.max_parallel must be a number from 1 to 500, not 0"),
        ("/options/deadlin", "unknown option 'deadlin'"),
        ("/options/deadline", f"options.deadline must be a duration: 'soon' is not a duration; {DURATION_HINT}"),
        ("/options/policy", "options.policy is not a policy: rules[0].then: expected run, ask or deny, not 'stop'"),
        ("/options/approve_plan", "options.approve_plan must be true or false, not 'yes'"),
    ]
    assert str(caught.value) == "; ".join(problem.text for problem in caught.value.problems)


def test_rounds_are_shortened_in_a_too_large_document() -> None:
    short_fields = {"phase": "done", "round": 3, "final_response": "So."}
    rounds_document = {**short_fields, "sub_goals": ["x" * 600_000], "rounds": []}
    assert replace_nodes_by_counts({**ended_run_document(), "rounds": rounds_document})["rounds"] == rounds_document
    page = (ROOT / "docs/reference/documents.md").read_text(encoding="utf-8")
    documented_fields = re.findall(r"`(\w+)`", page.partition("its `rounds` has only")[2].partition("\n")[0])
    all_fields = dict.fromkeys([*documented_fields[:-1], *rounds_document], "x" * 1_000) | {"rounds": ["x" * 1_200_000]}
    assert [*replace_nodes_by_counts({**ended_run_document(), "rounds": all_fields})["rounds"]] == documented_fields
    large_document = {**ended_run_document(), "rounds": {**rounds_document, "rounds": ["x" * 600_000]}}
    expected = {**short_fields, "omitted": "sub-goals and rounds: too large"}
    assert replace_nodes_by_counts(large_document)["rounds"] == expected


def test_graph_that_is_too_large_for_a_query_is_replaced_by_its_counts() -> None:
    scheduler = started_run(*(node(f"n{number}", *(["n0"] if number else [])) for number in range(5_001)))
    reason = "5,001 nodes and 5,000 edges are too large for a query"
    note = f"{reason}; `dagwright graph RUN` draws them, and `dagwright graph RUN --format json` lists all"
    counts = {"pending": 5_000, "running": 1}
    assert graph_result(scheduler) == {"nodes": [], "edges": [], "node_counts": counts, "note": note}
    scheduler_with_long_titles = scheduler_of(*(node(f"n{number}", title="x" * 3_000) for number in range(500)))
    assert graph_result(scheduler_with_long_titles)["node_counts"] == {"ready": 500}


def test_long_list_of_the_dependencies_of_a_node_is_shortened() -> None:
    node_ids = [f"{number}{'x' * 150}" for number in range(8_000)]
    scheduler = scheduler_of(*(node(node_id) for node_id in node_ids), node("end", *node_ids))
    result = node_result(scheduler, "end")
    assert result is not None
    inputs = result["lineage"]["inputs"]
    assert (inputs, 2_000 < len(inputs) < 3_000) == (node_ids[: len(inputs)], True)
    assert result["note"] == "too large for a query: lists are cut; `dagwright node RUN 'end' --full` shows all of it"
    assert encoded_size(result) < 1_500_000


def test_node_with_a_large_result_is_reported_with_a_reference() -> None:
    scheduler = scheduler_of(node("a", for_each=list(range(300))))
    for task in start_ready_tasks(scheduler):
        scheduler.complete(task.id, "x" * 8_000, at=1.0)
    result = node_result(scheduler, "a")
    assert result is not None
    assert (result["result"]["ref"], result["result"]["bytes"]) == ("node:a", 300 * 8_003 + 1)
    item_result = node_result(scheduler, "a[7]")
    assert item_result is not None
    assert (item_result["result"], "note" in item_result) == ("x" * 8_000, False)
    assert node_result(scheduler, "b") is None


def test_long_list_of_requests_in_a_status_is_shortened() -> None:
    scheduler = scheduler_of(node("a"))
    document = result_document(scheduler, RunFacts("run", "id"))
    assert status_result(document) == document
    requests: list[dict[str, Any]] = [{"id": f"r{number}", "prompt": "x" * 4_000} for number in range(1_000)]
    status = status_result({**document, "waiting_for": requests})
    assert status["waiting_for"] == requests[:99]
    omitted = "901 of 1,000 requests are omitted, because they are too large for a query"
    message = f"{omitted}; `dagwright status RUN --json` lists all"
    assert status["notes"] == [{"code": "too_large", "node_id": None, "message": message}]


@pytest.mark.parametrize(
    "parent",
    [
        *(5, "x", [], {"task": "t"}, {"run_id": "w", "task": None}),
        *({"run_id": run_id, "task": "t"} for run_id in ("", 5, "w" * 1001)),
    ],
)
def test_parent_without_a_valid_run_id_or_task_is_rejected(parent: Any) -> None:
    with pytest.raises(MessageInvalid, match="'parent' must have 'run_id' and 'task'"):
        run_input_from_json({"plan": {}, "parent": parent})


def test_sub_plan_end_of_a_node_with_items_is_ignored() -> None:
    scheduler = started_run(node("each", plan=_CHILD_PLAN, for_each=[1, 2]), node("single", plan=_CHILD_PLAN))
    node_ids = ["each", "each[0]", "each[1]", "single", "unknown"]
    assert [is_sub_plan(scheduler, node_id) for node_id in node_ids] == [False, True, True, True, False]
    apply_sub_plan_end(scheduler, SubPlanEnd("each", "completed", 7, None), at=1)
    assert [record.status for record in scheduler.records] == [NodeStatus.RUNNING, NodeStatus.RUNNING]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/c", ("a", "c")),
        ("a/b/c", ("a/b", "c")),
        ("a/b/b/c", ("a/b", "b/c")),
        ("a/b", None),
        ("a/b#2", None),
        ("m[x/y]/c", ("m[x/y]", "c")),
        ("m/c", ("m", "c")),
        ("tool/c", None),
        ("unknown/c", None),
    ],
)
def test_path_is_resolved_to_the_longest_sub_plan_id(path: str, expected: tuple[str, str] | None) -> None:
    map_node = node("m", plan=_CHILD_PLAN, for_each=["x/y"], key="{{item}}")
    scheduler = scheduler_of(node("a", plan=_CHILD_PLAN), node("a/b", plan=_CHILD_PLAN), node("tool"), map_node)
    assert sub_plan_of_path(scheduler, path) == expected
    assert running_sub_plan_of(scheduler, path) is None
    start_ready_tasks(scheduler)
    # The node `m` has items: each item is a child run, and the node `m` itself is not.
    is_started = expected is not None and expected[0] != "m"
    assert running_sub_plan_of(scheduler, path) == (expected if is_started else None)


def test_retried_sub_plan_is_found_by_its_new_id() -> None:
    scheduler = started_run(node("a", plan=plan_of(node("c"))))
    scheduler.fail("a", tool_error(), at=1.0)
    assert apply_command(RetryNode("a", {"x": 1}), scheduler, at=2.0) is None
    start_ready_tasks(scheduler)
    assert running_sub_plan_of(scheduler, "a#2/c") == ("a#2", "c")
