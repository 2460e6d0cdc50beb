"""Print the results of the core for random plans.

A fixed seed makes the plans the same in every process. `test_hash_seeds.py` runs this module with different hash seeds.
"""

import json
import random
import sys
from collections.abc import Mapping
from typing import Any

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.errors import PlanInvalid
from dagwright.core.expressions.references import Lookup
from dagwright.core.model.compiled import plan_to_json
from dagwright.core.model.lookups import with_lookups
from dagwright.core.model.resolvers import Resolver
from dagwright.core.model.states import NodeError, Task
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.features.commands.steering import current_notes
from dagwright.protocol.documents import RunFacts, graph_document, result_document
from dagwright.protocol.sessions import SessionRecord
from dagwright.protocol.turns import TurnStart, end_of_turn
from tests.support import plan_building as building
from tests.support.plan_building import check, node, plan_of, started_scheduler

_TOOLS: Mapping[str, ToolDeclaration] = {
    **building.TOOLS,
    # Each call of `make` sets the name `@made` of the session.
    "make": ToolDeclaration("make", Effects.IDEMPOTENT, undo="unmake", sets="made"),
    "unmake": ToolDeclaration("unmake", Effects.IDEMPOTENT),
}
_NAMES = ["Ann Lee", "Bob Ray", "Eva Twin", "Max Ade"]


def random_plan(random_source: random.Random) -> dict[str, Any]:
    """Return a plan of twelve nodes with every kind of edge; about half of these plans are invalid."""
    ids = [f"node {letter}" for letter in "abcdefghijkl"]
    nodes = []
    for number, name in enumerate(ids):
        candidates = ids if random_source.random() < 0.05 else ids[:number]
        needs = random_source.sample(candidates, min(len(candidates), random_source.randint(0, 3)))
        reads = random_source.sample(candidates, min(len(candidates), random_source.randint(0, 2)))
        raw_node = node(
            name,
            *needs,
            tool=random_source.choice(["any", "single", "pair", "make"]),
            arguments={f"x{position}": "<{{" + read_id + ".result}}>" for position, read_id in enumerate(reads)},
            join=random_source.choice(["all", "all_done"]),
            on_error=random_source.choice(["block", "skip", {"value": {"b": 1, "a": 2}}]),
            priority=random_source.randint(1, 5),
        )
        if reads and random_source.random() < 0.3:
            raw_node["when"] = f'nodes["{reads[0]}"].status != "failed"'
        if random_source.random() < 0.3:
            raw_node |= {"for_each": [3, 1, 2], "key": "k{{item}}", "max_parallel": 2}
        nodes.append(raw_node)
    random_source.shuffle(nodes)
    return plan_of(*nodes)


def outputs_of(raw: dict[str, Any], random_source: random.Random, session: SessionRecord) -> list[Any]:
    """Return the problems of a plan, or its compiled form and the documents of one run.

    The run has lookups and compensation, and is a turn of a session.
    """
    try:
        checked = check(raw, tools=_TOOLS)
    except PlanInvalid as invalid:
        return [problem.to_json() for problem in invalid.problems]
    plan = with_lookups(
        compile_plan(checked),
        [Lookup(name, "person") for name in random_source.sample(_NAMES, 3)],
        Resolver("find", "bind"),
    )
    outputs: list[Any] = [plan_to_json(plan), checked.levels, checked.critical_path]
    scheduler = started_scheduler(plan, setup={"compensate": True})
    running_tasks: list[Task] = []
    while True:
        while (task := scheduler.next_task(0.0)) is not None:
            running_tasks.append(task)
            outputs.append([task.id, task.arguments])
        if not running_tasks:
            break
        task = running_tasks.pop(random_source.randrange(len(running_tasks)))
        if task.node.kind != "lookup" and random_source.random() < 0.05:
            scheduler.fail(task.id, NodeError("tool_failed", task.id), at=1.0)
        else:
            scheduler.complete(task.id, _result_of(task), at=1.0)
    document = result_document(scheduler, RunFacts("run", "1", notes=current_notes(scheduler)))
    turn = TurnStart(f"run {session.version}", {}, "Do it.")
    session.start_turn(turn, at=1.0)
    session.end_turn(turn.run_id, end_of_turn(document, scheduler), at=2.0)
    return [*outputs, graph_document(scheduler), document, session.to_json(), scheduler.status()]


def _result_of(task: Task) -> Any:
    match task.node.tool:
        case "find":
            name = task.arguments["search_text"]
            return {"entity": {"id": f"id {name}", "name": name, "kind": "person"}}
        case "bind":
            return [{**party, "reason": "exact name", "created": True} for party in task.arguments["found"]]
    return {"b": task.id, "a": 1, "id": task.id}


def main() -> None:
    random_source = random.Random(7)
    session = SessionRecord("seeds")
    json.dump([outputs_of(random_plan(random_source), random_source, session) for _ in range(60)], sys.stdout)


if __name__ == "__main__":
    main()
