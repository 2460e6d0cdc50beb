"""Lookups with a resolver that has other tools, types and filters than the resolver of the onboarding application."""

from typing import Any

from dagwright.core.expressions.references import Lookup
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.lookups import (
    KnownEntities,
    known_entities_from_json,
    known_result,
    resolved_lookups,
    with_lookups,
)
from dagwright.core.model.resolvers import Resolver
from dagwright.features.lookups.entity_resolver import EntityResolver
from tests.support.plan_building import start_ready_tasks, started_scheduler

RESOLVER = Resolver(
    "seek", "settle", types={"client": "client", "account": "account"}, filters={"city": "", "land": ""}
)


def plan_with_lookups(*lookups: Lookup) -> CompiledPlan:
    return with_lookups(CompiledPlan((CompiledNode("pay", tool="pay"),)), lookups, RESOLVER)


def ann_lookup(**filters: str) -> Lookup:
    return Lookup("Ann", "client", tuple(sorted(filters.items())))


def test_text_added_by_the_bind_tool_is_not_a_filter_in_the_next_run() -> None:
    plan = plan_with_lookups(ann_lookup(city="LU"))
    scheduler = started_scheduler(plan, setup={"resolver": EntityResolver(RESOLVER)})
    entry: dict[str, Any] = {"entity": {"id": "c1", "name": "Ann"}, "reason": "found"}
    results: tuple[Any, ...] = (entry, [{**entry, "note": "by alias"}])
    for result in results:
        [task] = start_ready_tasks(scheduler)
        scheduler.complete(task.id, result, at=0.0)
    assert [*known_entities_from_json([*resolved_lookups(plan, scheduler.records)])] == [ann_lookup(city="LU")]


def test_known_entity_of_a_removed_type_is_looked_up_again() -> None:
    (node,) = [node for node in plan_with_lookups(Lookup("Ann", "account")).nodes if node.tool == "seek"]
    known_entities = KnownEntities({Lookup("Ann", "person"): {"id": "p1", "kind": "person"}}, RESOLVER)
    assert known_result(node, known_entities) is None
