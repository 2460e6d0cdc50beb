"""Answer to a goal: the model call that writes the answer from the results of the plan, and the output of the run.

Replay: ID and content of the node are part of a run's history.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dagwright.core.expressions.references import ResultOf
from dagwright.core.expressions.stored_values import Projection
from dagwright.core.model.compiled import Binding
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import PURPOSE_ANSWER
from dagwright.core.scheduler.extension import Extension
from dagwright.planning.model_calls.model_requests import (
    CallLabels,
    ModelCall,
    ModelRequest,
    OutputSchema,
    model_node,
    system,
    user,
)
from dagwright.planning.model_calls.response_summary import ANSWER_FIELD, ANSWER_PROJECTIONS, has_text_in_output
from dagwright.planning.plan_and_execute.goal_spec import ANSWER, Goal
from dagwright.planning.plan_and_execute.step_messages import Step, step_messages

if TYPE_CHECKING:
    from dagwright.planning.plan_and_execute.goal_state import GoalState, Output

_OUTPUT_PROJECTION: Projection = (("output",), "value")


def changed_output(run: "GoalState", answer_number: int) -> "Output | None":
    """Return the answer field of a JSON answer as the output of the run; `None` if there is no change."""
    record = run.state.records[answer_number]
    if run.goal.output_schema:
        return None
    if record.status is not NodeStatus.COMPLETED or not has_text_in_output(record.result):
        return None
    output = _output_at(*ANSWER_PROJECTIONS[0][0])
    return None if tuple(run.state.plan.output_bindings) == tuple(output[1]) else output


def request_answer(run: "GoalState") -> Extension:
    """Build the model call that writes the answer from the results of the plan."""
    steps = list(run.plan_steps())
    model_request, bindings = _model_request(run.goal, steps, can_replan=run.can_replan())
    step_numbers = run.numbers_of_steps_without_dependents(steps)
    node_id = ANSWER if run.newest_number(ANSWER) is None else run.free_id(ANSWER)
    node = model_node(
        node_id, model_request, title="answering the request", dependencies=step_numbers, bindings=bindings
    )
    superseded_id = None if node_id == ANSWER else run.state.newest_id(ANSWER)
    projections = (
        (*node.projections, *ANSWER_PROJECTIONS) if model_request.call.output is not None else node.projections
    )
    output = _output_at("message", "content")
    if run.goal.output_schema:
        projections, output = (*node.projections, _OUTPUT_PROJECTION), _output_at(*_OUTPUT_PROJECTION[0])
    answer_node = replace(node, join=("all_done", 0), supersedes=superseded_id, projections=projections)
    return run.extension(answer_node, output=output)


def _model_request(goal: Goal, steps: Sequence[Step], *, can_replan: bool) -> tuple[ModelRequest, Sequence[Binding]]:
    """Return the model request of the call that writes the answer, and the bindings of its messages.

    Args:
        can_replan: whether another replan is possible. If not, the answer is a text that also names missing
            information.
    """
    opening_messages = [system(goal.answer_prompt), user(f"Request:\n{goal.request}")]
    step_texts = step_messages(steps, first_index=len(opening_messages))
    schema = goal.answer_schema if can_replan else {}
    output = OutputSchema("answer", schema, is_enforced=False) if schema else None
    streamed_field: str | None = "" if output is None else ANSWER_FIELD
    if goal.output_schema:
        # A program reads the JSON and needs all of it, so the answer is not streamed.
        output, streamed_field = OutputSchema("answer", goal.output_schema), None
    labels = CallLabels(purpose=PURPOSE_ANSWER)
    call = ModelCall((*opening_messages, *step_texts.messages), config=goal.config, output=output, labels=labels)
    return ModelRequest(call, cuts=step_texts.cuts, streamed_field=streamed_field), step_texts.bindings


def _output_at(*path: str) -> "Output":
    return None, (((), (ResultOf(ANSWER, "result", path),)),)
