"""What a stranger may send: a parent that cannot be told, and the end of a sub-plan that is none."""

from typing import Any

import pytest
from pydantic import JsonValue

from dagwright.contracts.messages import MessageInvalid, SubPlanEnd, run_input_from_json
from dagwright.contracts.outcomes import is_sub_plan, next_call, take_sub_plan_end
from dagwright.dialects import to_document
from dagwright.plan.compilation import compile_plan
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.states import NodeStatus
from dagwright.plan.validation import check_document

SUB_PLAN: JsonValue = {"plan": 1, "nodes": [{"id": "inner", "tool": "t"}]}


@pytest.mark.parametrize(
    "parent",
    [
        5,
        "x",
        [],
        {"task": "t"},
        {"workflow_id": "", "task": "t"},
        {"workflow_id": 5, "task": "t"},
        {"workflow_id": "w" * 1001, "task": "t"},
        {"workflow_id": "w", "task": None},
    ],
)
def test_parent_that_no_report_could_reach_is_refused(parent: Any) -> None:
    with pytest.raises(MessageInvalid, match="'parent' must name a workflow_id and a task"):
        run_input_from_json({"plan": {}, "parent": parent})


def test_end_of_a_node_with_items_cannot_come_from_outside() -> None:
    plan: JsonValue = {
        "plan": 1,
        "nodes": [{"id": "each", "plan": SUB_PLAN, "for_each": [1, 2]}, {"id": "one", "plan": SUB_PLAN}],
    }
    scheduler = Scheduler(compile_plan(check_document(to_document(plan), tools={}, any_tool=True)), {})
    scheduler.begin(0)
    while next_call(scheduler, 0) is not None:
        pass
    names = ["each", "each[0]", "each[1]", "one", "nobody"]
    assert [is_sub_plan(scheduler, name) for name in names] == [False, True, True, True, False]
    take_sub_plan_end(scheduler, SubPlanEnd("each", "completed", 7, None), at=1)
    assert [record.status for record in scheduler.records] == [NodeStatus.RUNNING, NodeStatus.RUNNING]
