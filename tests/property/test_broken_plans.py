"""A compiled plan with changed values is rejected or runs without an exception."""

import copy
import random
from dataclasses import replace
from typing import Any

import pydantic_core
import pytest

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.compiler.node_columns import nodes_from_columns, nodes_to_columns
from dagwright.core.model.compiled import plan_to_json
from dagwright.core.model.states import NodeError
from dagwright.features.run_scheduler import RunScheduler, create_scheduler
from dagwright.protocol.compact_documents import compact_document
from dagwright.protocol.documents import RunFacts, result_document
from dagwright.protocol.run_input import compiled_plan_from_json, plan_from_pages
from tests.support.example_counts import example_count
from tests.support.json_paths import paths_of
from tests.support.plan_building import check, node, plan_of

_PLAN = plan_of(
    node("a", arguments={"x": [1, {"y": 2}], "name": "n"}),
    node("b", "a", arguments={"x": "{{a.result.rows[0]}} and {{PLACEHOLDER_p}}", "deep": {"er": ["{{a.status}}"]}}),
    node("c", arguments={"x": "{{a.result[?@.n > 1].n}}"}, when="a.result.n > 0", on_error={"value": [1]}),
    node("each", for_each="{{a.result.rows}}", key="{{item.k}}", arguments={"x": "{{item}}", "at": "{{index}}"}),
    node("list", for_each=[1, "{{a.result.n}}"], arguments={"x": "{{item}}"}, max_parallel=1),
    node("any", join="any", arguments={"b": "{{b.result}}", "c": "{{c.result}}"}, retry={"max_attempts": 2}),
    output={"b": "{{b.result}}", "all": ["{{each.result}}", "{{c.error}}"]},
)
_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**30, -0.5, "", "a", "{{x}}", "\u0000", "$[?"),
    *([], [[]], ["x"], [None], {}, {"a": 1}, [["v", "x"]]),
)


def _mutate(encoded: Any, random_source: random.Random) -> Any:
    mutated_json = copy.deepcopy(encoded)
    for _ in range(random_source.choice((1, 1, 2))):
        *path, last_key = random_source.choice(paths_of(mutated_json)[1:])
        container = mutated_json
        for step in path:
            container = container[step]
        if isinstance(container, dict) and random_source.random() < 0.15:
            del container[last_key]
        else:
            container[last_key] = copy.deepcopy(random_source.choice(_VALUES))
    return mutated_json


@pytest.mark.parametrize("seed", range(example_count(40)))
def test_plan_with_a_changed_page_is_rejected_or_runs_without_an_exception(seed: int) -> None:
    random_source = random.Random(seed)
    plan = compile_plan(check(_PLAN))
    head = plan_to_json(replace(plan, nodes=()))
    page = pydantic_core.from_json(pydantic_core.to_json(nodes_to_columns(plan.nodes)))
    for _ in range(50):
        try:
            changed_plan = plan_from_pages(head, nodes_from_columns(_mutate(page, random_source)))
        except ValueError:
            continue
        _run(create_scheduler(changed_plan, {}), random_source)


@pytest.mark.parametrize("seed", range(example_count(40)))
def test_changed_plan_is_rejected_or_runs_without_an_exception(seed: int) -> None:
    random_source = random.Random(seed)
    encoded = plan_to_json(compile_plan(check(_PLAN)))
    for _ in range(100):
        mutated_json = _mutate(encoded, random_source)
        try:
            plan = compiled_plan_from_json(mutated_json)
        except ValueError:
            continue
        _run(create_scheduler(plan, {}), random_source)


def _run(scheduler: RunScheduler, random_source: random.Random) -> None:
    now = 0.0
    scheduler.start(now)
    while not scheduler.is_finished and now < 200:
        now += 1
        task = scheduler.next_task(now)
        if task is None:
            break
        if random_source.random() < 0.2:
            scheduler.fail(task.id, NodeError("tool_failed", "no"), at=now)
        else:
            scheduler.complete(task.id, {"n": 2, "rows": [{"k": "p", "n": 1}, {"k": "q", "n": 2}]}, at=now)
    compact_document(result_document(scheduler, RunFacts("w", "r")), node_count=1)
