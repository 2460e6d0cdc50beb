"""The workers of a benchmark, and the check of effects after workers were killed."""

from typing import Any

from benchmarks.workers import tools
from benchmarks.workers.__main__ import roles_of
from benchmarks.workers.effects import NODES, Tally, compare_with_ledger, effects_plan
from dagwright.plans.preparation import check_plan
from dagwright.protocol.idempotency import idempotency_key
from dagwright.tools import load_tools


def _node(tool: str, code: str | None = None) -> dict[str, Any]:
    return {"tool": tool, "error": None if code is None else {"code": code}}


def _key(node_id: str) -> str:
    return idempotency_key("execution", [["node", node_id]])


def test_worker_roles_alternate_so_that_workers_of_both_roles_are_killed() -> None:
    assert roles_of("2") == ["all", "all"]
    assert roles_of("1+3") == ["workflows", "tools", "tools", "tools"]
    assert roles_of("2+2") == ["workflows", "tools"] * 2


def test_effects_plan_is_valid_and_has_twenty_nodes() -> None:
    checked_plan = check_plan(effects_plan("/ledger"), load_tools([tools.__file__]).declarations())
    assert len(checked_plan.nodes) == NODES == 20


def test_retried_idempotent_nodes_and_unknown_outcomes_are_accepted() -> None:
    unknown_node = _node("write_key", "outcome_unknown")
    nodes = {"a": _node("write_key"), "b": _node("apply_key"), "made": unknown_node, "not-made": unknown_node}
    keys = [_key(node_id) for node_id in ("a", "b", "b", "made")]
    actual = compare_with_ledger({"execution": {"status": "completed", "nodes": nodes}}, keys)
    expected = Tally(
        nodes=4, once=2, repeated_writes=0, missing=0, unplanned=0, unknown=2, repeated_idempotent=1, lost_runs=0
    )
    assert (actual, actual.is_correct) == (expected, True)


def test_duplicate_lost_and_unplanned_effects_and_lost_runs_are_rejected() -> None:
    nodes = {"twice": _node("write_key"), "lost": _node("apply_key")}
    keys = [_key("twice"), _key("twice"), "dw1_other"]
    actual = compare_with_ledger({"execution": {"status": "failed", "nodes": nodes}}, keys)
    expected = Tally(
        nodes=2, once=0, repeated_writes=1, missing=1, unplanned=1, unknown=0, repeated_idempotent=0, lost_runs=1
    )
    assert (actual, actual.is_correct) == (expected, False)
