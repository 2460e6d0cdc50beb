"""Plans in `examples/` that need only built-in tools. They run with these tools and without a server."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.states import NodeError, Task
from dagwright.dialects.reading import inline_files, read_plan_file
from dagwright.features.run_scheduler import RunScheduler
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.settings import Settings
from dagwright.tools.testing import tool_context
from dagwright.toolset.toolset import Toolset, load_toolset
from tests.support.plan_building import error_of, started_scheduler, statuses_of

EXAMPLES_FOLDER = Path(__file__).parents[3] / "examples"


@pytest.fixture
def toolset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolset:
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("DAGWRIGHT_FILES_ROOT", str(EXAMPLES_FOLDER.parent))
    return load_toolset(Settings())


def run_plan(plan: CompiledPlan, inputs: Mapping[str, Any], toolset: Toolset) -> RunScheduler:
    scheduler = started_scheduler(plan, inputs)
    while (task := scheduler.next_task(0.0)) is not None:
        try:
            value = call_task(task, toolset)
        except Exception as error:
            scheduler.fail(task.id, NodeError("tool_failed", str(error)), at=1.0)
        else:
            scheduler.complete(task.id, value, at=1.0)
    assert scheduler.is_finished
    return scheduler


def call_task(task: Task, toolset: Toolset) -> Any:
    if task.node.sub_plan is not None:
        return run_plan(task.node.sub_plan, task.arguments, toolset).output()[0]
    spec = toolset.built_in[task.node.tool]
    assert spec.function is not None
    with tool_context(node_id=task.id):
        value = spec.function(**spec.bind(task.arguments))
        return asyncio.run(value) if spec.is_async else value


def run_example(name: str, toolset: Toolset, inputs: Mapping[str, Any]) -> RunScheduler:
    path = EXAMPLES_FOLDER / name
    raw = inline_files(read_plan_file(path), base=path.parent)
    checked_plan = check_plan(raw, toolset.declarations())
    prepare_plan(checked_plan, inputs)
    # The plan is compiled without regions, so that every node is called separately.
    return run_plan(compile_plan(checked_plan), inputs, toolset)


def test_failing_plan_keeps_results_that_do_not_depend_on_the_failed_node(toolset: Toolset) -> None:
    scheduler = run_example("failing-plan/plan.yaml", toolset, {})
    completed_nodes = dict.fromkeys(("south", "south total", "report", "rate", "converted"), "completed")
    assert statuses_of(scheduler) == {"north": "failed", "north total": "blocked", "both": "blocked", **completed_nodes}
    assert scheduler.status() == "completed_with_failures"
    reason = "There is no file 'examples/failing-plan/there-is-no-such-file.txt' in the files folder"
    assert scheduler.output() == ({"report": f"North blocked: {reason}. South: 100.25.", "south in euro": 100.25}, None)


def test_sub_plan_runs_once_for_each_order(toolset: Toolset) -> None:
    scheduler = run_example("sub-plan/plan.yaml", toolset, {"vat": 10})
    assert scheduler.output() == ("Order A-1: 59.97 net, 65.967 to pay.\nOrder A-2: 60 net, 66 to pay.\n", None)


def test_file_fan_out_adds_up_the_files_and_counts_an_invalid_file_as_zero(toolset: Toolset) -> None:
    scheduler = run_example("file-fan-out/plan.yaml", toolset, {})
    assert scheduler.status() == "completed"
    assert scheduler.output() == (
        {
            "files": ["east.txt", "north.txt", "south.txt", "west.txt"],
            "totals": [650, 555.5, 100.25, 0],
            "together": 1305.75,
        },
        None,
    )
    assert error_of(scheduler, "total[3]")[0] == "tool_failed"
