"""Approval of a parsed plan by a person: when it is needed, and the node that requests it.

Replay: the ID and content of this node are part of a run's history.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagwright.core.model.compiled import HIDDEN_KINDS, CompiledNode
from dagwright.core.model.states import NodeError
from dagwright.core.scheduler.extension import Extension
from dagwright.core.text import cut_bytes
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.planning.plan_and_execute.goal_nodes import parser_options, problems_text
from dagwright.planning.plan_and_execute.goal_spec import (
    APPROVE,
    LOW_CONFIDENCE,
    READ_MODEL_PLAN,
    described_ids_of,
    is_empty,
)
from dagwright.planning.plan_and_execute.replan_context import EXISTING_NODE, encoded_replan_context

if TYPE_CHECKING:
    from dagwright.planning.plan_and_execute.goal_state import GoalState

_MAX_PROBLEMS_BYTES = 1_500
"""Size limit of the problems that precede the plan in a request for approval."""


def needs_approval(run: "GoalState", parsed_plan: Mapping[str, Any]) -> bool:
    """Check whether a person has to approve a parsed plan before its nodes run.

    Raises:
        GoalUnreachable: the confidence of the model is too low, and the run is non-interactive.
    """
    if is_empty(parsed_plan):
        return False
    if run.goal.approve_plan or (run.state.policy.changes_need_plan_approval and parsed_plan.get("changes", 0) > 0):
        return True
    # A plan without a confidence counts as confidence 0.
    required_confidence, confidence = run.goal.confidence, parsed_plan.get("confidence", 0)
    if required_confidence is None or confidence >= required_confidence:
        return False
    if not run.state.options.is_interactive:
        text = (
            f"the model recognized the intents of the request with a confidence of {confidence:.4g}, but "
            f"{required_confidence:.4g} is required and this run is not interactive, so nothing was done; repeat the "
            "request with `approve_plan` or a lower `confidence`"
        )
        raise GoalUnreachable(NodeError(LOW_CONFIDENCE, text))
    return True


def request_approval(
    run: "GoalState", parser_number: int, parsed_plan: Mapping[str, Any], *, problems: Mapping[str, Any] | None = None
) -> Extension:
    """Build an extension with a node that requests approval of a plan, and then parses the approved plan.

    The node is a call of `READ_MODEL_PLAN` that waits for its approval. A person may approve it with an edited plan.

    Args:
        parser_number: number of the node that parsed the plan.
        problems: problems of the plan in the answer to the previous request for approval.
    """
    last_approval = run.newest_number(APPROVE)
    node_id = APPROVE if last_approval is None else run.free_id(APPROVE)
    text = str(parsed_plan.get("summary", ""))
    if problems is not None:
        message = cut_bytes(problems_text(problems), max_bytes=_MAX_PROBLEMS_BYTES)
        text = f"The plan in the answer cannot be run: {message}\n\n{text}"
    plan_nodes = [
        node
        for node in parsed_plan["nodes"]
        if node.get("tool") != EXISTING_NODE.name and node.get("kind") not in HIDDEN_KINDS
    ]
    if undescribed_count := len(plan_nodes) - len(described_ids_of(parsed_plan)):
        note = f"{undescribed_count:,} of its nodes are not shown completely; the policy decides on each of them."
        text = f"{text}\n\n{note}"
    prompt = f"May this plan run?\n\n{text}"
    node = CompiledNode(
        node_id,
        title="asking whether the plan may run",
        tool=READ_MODEL_PLAN.name,
        arguments={
            "plan": parsed_plan["plan"],
            "tools": list(run.goal.tools),
            **parser_options(run.goal),
            **encoded_replan_context(run.replan_context),
        },
        dependencies=(parser_number if last_approval is None else max(parser_number, last_approval),),
        approval={"type": "APPROVAL", "prompt": prompt},
        cache_s=0.0,
    )
    return run.extension(node)
