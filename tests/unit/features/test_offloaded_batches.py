"""Encoded input of a batch of an offloaded region."""

from dataclasses import replace

import pydantic_core

from dagwright.core.compiler.offloaded_regions import offload_regions
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.regions.offloaded_batches import encode_offloaded_batch
from dagwright.features.run_scheduler import create_scheduler
from dagwright.plans.preparation import check_plan, prepare_plan
from tests.support.plan_building import node, plan_of

_READ_COUNT = 2_000
_TOOLS = {
    "look": ToolDeclaration("look", Effects.READ, {"type": "object"}),
    "work": ToolDeclaration("work", Effects.PURE, {"type": "object"}),
}


def test_batch_of_an_offloaded_region_has_only_the_outside_results_that_it_reads() -> None:
    reads = [node(f"r{number}", tool="look") for number in range(_READ_COUNT)]
    join = node("join", *(f"r{number}" for number in range(_READ_COUNT)), tool="work", arguments={"n": "{{r7.result}}"})
    inner_nodes = [node(f"n{number}", "join", tool="work") for number in range(400)]
    plan = offload_regions(prepare_plan(check_plan(plan_of(*reads, join, *inner_nodes), _TOOLS), {})).plan
    region_number = next(number for number, plan_node in enumerate(plan.nodes) if plan_node.kind == "region")
    nodes = list(plan.nodes)
    nodes[region_number] = replace(nodes[region_number], inner="sha256-0")
    scheduler = create_scheduler(replace(plan, nodes=tuple(nodes)), {})
    scheduler.start(0.0)
    while (task := scheduler.next_task(1.0)) is not None and task.ref.node != region_number:
        scheduler.complete(task.id, task.ref.node, at=2.0)
    assert task is not None
    encoded = pydantic_core.from_json(encode_offloaded_batch(scheduler, task))
    outside = {"node_ends": [["r7", "completed", 7, 1.0, 2.0]], "inputs": {}}
    assert encoded == {"inner": "sha256-0", "before": None, "outside": outside}
