"""Input of a batch of a large region."""

from dataclasses import replace

import pydantic_core

from dagwright.core.compiler.offloaded_regions import offload_regions
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.regions.offloaded_batches import encode_offloaded_batch
from dagwright.features.run_scheduler import create_scheduler
from dagwright.plans.preparation import check_plan, prepare_plan
from tests.support.plan_building import node, plan_of

_READS = 2_000
_TOOLS = {
    "look": ToolDeclaration("look", Effects.READ, {"type": "object"}),
    "work": ToolDeclaration("work", Effects.PURE, {"type": "object"}),
}


def test_completed_unread_nodes_of_an_offloaded_region_are_not_reported() -> None:
    reads = [node(f"r{number}", tool="look") for number in range(_READS)]
    join = node("join", *(f"r{number}" for number in range(_READS)), tool="work", arguments={"n": "{{r7.result}}"})
    inside = [node(f"n{number}", "join", tool="work") for number in range(400)]
    plan = offload_regions(prepare_plan(check_plan(plan_of(*reads, join, *inside), _TOOLS), {})).plan
    region = next(number for number, each in enumerate(plan.nodes) if each.kind == "region")
    nodes = list(plan.nodes)
    nodes[region] = replace(nodes[region], inner="sha256-0")
    scheduler = create_scheduler(replace(plan, nodes=tuple(nodes)), {})
    scheduler.start(0.0)
    while (task := scheduler.next_task(1.0)) is not None and task.ref.node != region:
        scheduler.complete(task.id, task.ref.node, at=2.0)
    assert task is not None
    encoded = pydantic_core.from_json(encode_offloaded_batch(scheduler, task))
    outside = {"node_ends": [["r7", "completed", 7, 1.0, 2.0]], "inputs": {}}
    assert encoded == {"inner": "sha256-0", "before": None, "outside": outside}
