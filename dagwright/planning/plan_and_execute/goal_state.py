"""State of a run for a goal: its planning calls, its plans, and the stage of the newest plan.

A planning round is the first planning or a replan, including the repairs of its plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dagwright.core.model.compiled import Binding, CompiledNode
from dagwright.core.model.states import NodeError, NodeStatus, Record
from dagwright.core.scheduler.extension import Extension
from dagwright.features.plan_edits.extension_checks import free_id
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.planning.model_calls.model_requests import CALL_MODEL
from dagwright.planning.plan_and_execute.goal_spec import PLAN, READ, READ_MODEL_PLAN, Goal, is_reserved, role_of
from dagwright.planning.plan_and_execute.replan_context import REPLAN_CONTEXTS, ReplanContext
from dagwright.planning.plan_and_execute.replans import is_replan
from dagwright.planning.plan_and_execute.step_messages import Step

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState

Output = tuple[Any, Sequence[Binding]]
"""Output of a run: JSON with null at every binding, and its bindings."""


class Stage(Enum):
    """Stage of the newest plan while it has nothing to add to the run."""

    OPEN = "the plan is still being written, parsed or approved"
    FINISHED = "the nodes of the plan are in the run, or the plan was dropped"


class GoalState:
    """State of a run for a goal."""

    def __init__(self, state: "RunState", goal: Goal) -> None:
        self.state = state
        self.goal = goal

    def newest_number(self, role: str) -> int | None:
        """Return the number of the newest node with a role, or `None`. Roles are the entries of `RESERVED_IDS`."""
        return max(self.numbers_with_role(role), default=None)

    def numbers_with_role(self, role: str) -> Iterator[int]:
        """Yield the numbers of the nodes with a role."""
        visible_nodes = self.state.plan.nodes[: self.state.plan.visible_count]
        return (number for number, node in enumerate(visible_nodes) if role_of(node.id) == role)

    def plan_steps(self) -> Iterator[tuple[CompiledNode, Record]]:
        """Yield the nodes of the plan and the nodes that people added, without superseded nodes."""
        for node, record in self.state.visible_nodes():
            if not is_reserved(node.id) and record.status is not NodeStatus.SUPERSEDED:
                yield node, record

    def parsed_plan_of(self, number: int) -> Mapping[str, Any] | None:
        """Return the result of the node that parsed a plan; `None` if the node has not completed."""
        record = self.state.records[number]
        if record.status is not NodeStatus.COMPLETED:
            return None
        parsed_plan = record.result
        if not isinstance(parsed_plan, Mapping) or not isinstance(parsed_plan.get("valid"), bool):
            node_id = self.state.plan.nodes[number].id
            raise GoalUnreachable(NodeError("invalid_result", f"the result of {node_id!r} is not a parsed plan"))
        return parsed_plan

    def _fail_if_ending_without_plan(self, parser_number: int) -> None:
        """Keep a run without a parsed plan from ending as if it had succeeded.

        Raises:
            GoalUnreachable: the run is about to end without a plan.
        """
        records = [record for _, record in self.state.visible_nodes()]
        if not all(record.status.is_final for record in records):
            return
        call_number = self.newest_number(PLAN)
        has_call_completed = call_number is not None and self.state.records[call_number].status is NodeStatus.COMPLETED
        number = parser_number if call_number is None or has_call_completed else call_number
        record, node_id = self.state.records[number], self.state.plan.nodes[number].id
        if record.status is NodeStatus.FAILED and not any(record.status is NodeStatus.COMPLETED for record in records):
            # The run fails anyway, because no node has completed.
            return
        message = f"there is no plan to continue with: {node_id!r} was {record.status.value}"
        raise GoalUnreachable(
            record.error or NodeError("no_plan", f"{message}{f': {record.reason}' if record.reason else ''}")
        )

    @cached_property
    def round_start(self) -> int:
        """Number of the planning call that started the newest planning round."""
        plan_numbers = list(self.numbers_with_role(PLAN))
        return next((number for number in reversed(plan_numbers) if self.is_replan_call(number)), plan_numbers[0])

    def is_replan_call(self, number: int) -> bool:
        """Check whether a planning call is a replan."""
        return is_replan(self.state.plan.nodes[number])

    @cached_property
    def replan_context(self) -> ReplanContext | None:
        """State of the run at the start of the newest planning round; `None` in the first round."""
        return self.replan_context_at(self.round_start) if self.is_replan_call(self.round_start) else None

    def replan_context_at(self, number: int) -> ReplanContext | None:
        """Return the state of the run at the start of a planning call; `None` if the call is not a replan."""
        nodes = self.state.plan.nodes
        parsers = (nodes[parser_number] for parser_number in self.numbers_with_role(READ))
        parser = next((node for node in parsers if number in node.dependencies), None)
        return REPLAN_CONTEXTS.decode(parser.arguments.get("replan_context")) if parser is not None else None

    def stage_without_plan(self, parser_number: int) -> Stage:
        """Return the stage of a plan without a parsed result.

        If the parser of a replan has ended without a parsed plan, the replan is finished and has no effect.

        Raises:
            GoalUnreachable: the run is about to end without any plan.
        """
        if self.replan_context is not None:
            return Stage.FINISHED if self.state.records[parser_number].status.is_final else Stage.OPEN
        self._fail_if_ending_without_plan(parser_number)
        return Stage.OPEN

    def stage_without_approval(self, approval_number: int) -> Stage:
        """Return the stage of a plan that is not approved yet, or was rejected. A rejected replan has no effect."""
        is_rejected = self.replan_context is not None and self.state.records[approval_number].status.is_final
        return Stage.FINISHED if is_rejected else Stage.OPEN

    def stage_after_changed_reasons(self) -> Stage | None:
        """Return the stage of a replan that must wait, or that is no longer needed.

        A person may have retried a failed node: the replan waits for that node, and is not needed if the retry
        succeeds.

        Returns:
            `None` if the replan is needed, or if the newest plan is not a replan.
        """
        replan_context = self.replan_context
        if replan_context is None:
            return None
        state = self.state
        numbers = [number for node_id in replan_context.cause_ids if (number := state.number_of(node_id)) is not None]
        if not all(state.records[number].status.is_final for number in numbers):
            return Stage.OPEN
        is_needed = any(
            state.records[number].status is NodeStatus.FAILED
            or state.plan.nodes[number].kind == "human"
            or is_reserved(state.plan.nodes[number].id)
            for number in numbers
        )
        return None if is_needed else Stage.FINISHED

    def replan_count(self) -> int:
        """Return the number of replans of the run."""
        return sum(
            is_replan(node) and record.status is not NodeStatus.SUPERSEDED
            for node, record in self.state.visible_nodes()
        )

    def can_replan(self) -> bool:
        """Check whether the goal allows another replan."""
        return self.replan_count() < self.goal.max_replans

    def numbers_of_steps_without_dependents(self, steps: Sequence[Step]) -> list[int]:
        """Return the numbers of the steps on which no other step depends."""
        dependencies = {number for node, _ in steps for number in node.dependencies}
        return [number for node, _ in steps if (number := self.number_of(node)) not in dependencies]

    def number_of(self, node: CompiledNode) -> int:
        """Return the number of a node of the run."""
        number = self.state.number_of(node.id)
        assert number is not None
        return number

    def free_id(self, role: str) -> str:
        """Return an unused ID for another node with a role."""
        number = self.state.number_of(role)
        assert number is not None
        return free_id(self.state, number)

    def extension(self, *nodes: CompiledNode, output: Output | None = None) -> Extension:
        """Return an extension with nodes that the run itself adds."""
        tools = {tool.name: tool for tool in (CALL_MODEL, READ_MODEL_PLAN)}
        used_tools = {node.tool for node in nodes}
        return Extension(
            self.state.plan.visible_count,
            nodes,
            {name: tool for name, tool in tools.items() if name in used_tools},
            output=output,
        )
