"""Prints what the core makes of a fixed set of plans, right and wrong; run by `test_hash_seeds.py` as a program."""

import json
import random
import sys
from typing import Any

from dagwright.contracts.documents import graph_document
from dagwright.plan.compilation import compile_plan
from dagwright.plan.compiled import plan_to_json
from dagwright.plan.errors import NodeError, PlanInvalid
from dagwright.plan.scheduler import Scheduler
from tests.unit.plan.building import check, node, plan_of


def random_plan(source: random.Random) -> dict[str, Any]:
    """Returns a plan of a dozen nodes with every kind of edge; about half of them are wrong."""
    ids = [f"node {letter}" for letter in "abcdefghijkl"]
    nodes = []
    for number, name in enumerate(ids):
        others = ids if source.random() < 0.05 else ids[:number]
        needs = source.sample(others, min(len(others), source.randint(0, 3)))
        reads = source.sample(others, min(len(others), source.randint(0, 2)))
        made = node(
            name,
            *needs,
            tool=source.choice(["any", "single", "pair"]),
            arguments={f"x{place}": "<{{" + need + ".result}}>" for place, need in enumerate(reads)},
            join=source.choice(["all", "all_done"]),
            on_error=source.choice(["block", "skip", {"value": {"b": 1, "a": 2}}]),
            priority=source.randint(1, 5),
        )
        if reads and source.random() < 0.3:
            made["when"] = f'nodes["{reads[0]}"].status != "failed"'
        if source.random() < 0.3:
            made |= {"for_each": [3, 1, 2], "key": "k{{item}}", "max_parallel": 2}
        nodes.append(made)
    source.shuffle(nodes)
    return plan_of(*nodes)


def history_of(raw: dict[str, Any], source: random.Random) -> list[Any]:
    """Returns everything that can be seen of a plan: its problems, or its compiled form and one whole run."""
    try:
        checked = check(raw)
    except PlanInvalid as invalid:
        return [problem.to_json() for problem in invalid.problems]
    plan = compile_plan(checked)
    seen: list[Any] = [plan_to_json(plan), checked.levels, checked.critical_path]
    scheduler = Scheduler(plan, {})
    scheduler.begin(0.0)
    running: list[str] = []
    while True:
        while (task := scheduler.next_task(0.0)) is not None:
            running.append(task.id)
            seen.append([task.id, task.arguments])
        if not running:
            break
        ended = running.pop(source.randrange(len(running)))
        if source.random() < 0.2:
            scheduler.fail(ended, NodeError("tool_failed", ended), at=1.0)
        else:
            scheduler.complete(ended, {"b": ended, "a": 1}, at=1.0)
    return [*seen, graph_document(scheduler), scheduler.output()[0], scheduler.status()]


def main() -> None:
    """Writes one JSON document to standard output."""
    source = random.Random(7)
    json.dump([history_of(random_plan(source), source) for _ in range(60)], sys.stdout)


if __name__ == "__main__":
    main()
