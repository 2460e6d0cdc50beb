"""State of a run for a request, and its next extension: planning calls, nodes of plans, or the answer.

Replay: IDs, order and content of the nodes are part of the history of a run.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dagwright.core.boundary.limits import MESSAGE_LIMIT_BYTES
from dagwright.core.expressions.references import ResultOf
from dagwright.core.expressions.stored_values import Projection
from dagwright.core.model.compiled import HIDDEN_KINDS, Binding, CompiledNode
from dagwright.core.model.states import NodeError, NodeStatus, Record
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import task_of_call
from dagwright.core.text import cut_bytes
from dagwright.features.plan_edits.extension_checks import free_id
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.planning.model_calls.model_requests import (
    CALL_MODEL,
    ModelRequest,
    model_node,
    user,
)
from dagwright.planning.model_calls.response_summary import (
    ANSWER_PROJECTIONS,
    has_text_in_output,
    missing_information,
)
from dagwright.planning.plan_and_execute.goal_nodes import (
    answer_request,
    conflict_message,
    output_of_plan,
    parser_options,
    plan_request,
    problems_text,
    read_node,
    with_accepted_projection,
)
from dagwright.planning.plan_and_execute.goal_spec import (
    ANSWER,
    APPROVE,
    LOW_CONFIDENCE,
    PLAN,
    PLAN_INVALID,
    READ,
    READ_MODEL_PLAN,
    REPAIR,
    REPLAN,
    Goal,
    PlannedNodes,
    is_reserved,
    planned_nodes_from_json,
    role_of,
)
from dagwright.planning.plan_and_execute.replan_context import (
    EXISTING_NODE,
    REPLACEABLE,
    REPLAN_CONTEXTS,
    ReplanContext,
    encoded_replan_context,
    is_stand_in,
)
from dagwright.planning.plan_and_execute.replans import (
    ReplanReason,
    is_replan,
    reason_of_gaps,
    reasons_of,
    replan_context_of,
    replan_messages,
    title_of,
    unreachable_nodes,
)
from dagwright.planning.plan_and_execute.step_messages import Step

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState

Output = tuple[Any, Sequence[Binding]]
"""Output of a run: JSON with null at every binding, and its bindings."""
_PROBLEMS_BYTES = 1_500
"""Size limit of the problems that precede the plan in a request for approval."""


class Stage(Enum):
    """Stage of the newest plan, if the run needs no extension for it now."""

    OPEN = "the plan is still being written, parsed or approved"
    FINISHED = "the nodes of the plan are in the run, or the plan was dropped"


class GoalState:
    """State of a run for a request."""

    def __init__(self, state: "RunState", goal: Goal) -> None:
        self._state = state
        self._goal = goal

    def newest(self, role: str) -> int | None:
        """Return the number of the newest node with a role, which is one of `RESERVED_IDS`, or `None`."""
        return max(self._numbers_with_role(role), default=None)

    def _numbers_with_role(self, role: str) -> Iterator[int]:
        written_nodes = self._state.plan.nodes[: self._state.plan.written_count]
        return (number for number, node in enumerate(written_nodes) if role_of(node.id) == role)

    def _plan_steps(self) -> Iterator[tuple[CompiledNode, Record]]:
        """Yield the nodes of the plan and the nodes that people added, without superseded nodes."""
        for node, record in self._state.visible_nodes():
            if not is_reserved(node.id) and record.status is not NodeStatus.SUPERSEDED:
                yield node, record

    def parsed_plan_of(self, number: int) -> Mapping[str, Any] | None:
        """Return the result of the node that parsed a plan; `None` if the node has not completed."""
        record = self._state.records[number]
        if record.status is not NodeStatus.COMPLETED:
            return None
        parsed = record.result
        if not isinstance(parsed, Mapping) or not isinstance(parsed.get("valid"), bool):
            name = self._state.plan.nodes[number].id
            raise GoalUnreachable(NodeError("invalid_result", f"the result of {name!r} is not a parsed plan"))
        return parsed

    def fail_if_ending_without_plan(self, parser: int) -> None:
        """Keep a run without a parsed plan from ending as if it had succeeded.

        Raises:
            GoalUnreachable: the run is about to end without a plan.
        """
        records = [record for _, record in self._state.visible_nodes()]
        if not all(record.status.is_final for record in records):
            return
        last = self.newest(PLAN)
        number = parser if last is None or self._state.records[last].status is NodeStatus.COMPLETED else last
        record, node_id = self._state.records[number], self._state.plan.nodes[number].id
        if record.status is NodeStatus.FAILED and not any(record.status is NodeStatus.COMPLETED for record in records):
            # A run in which no node has completed fails without this check.
            return
        message = f"there is no plan to continue with: {node_id!r} was {record.status.value}"
        raise GoalUnreachable(
            record.error or NodeError("no_plan", f"{message}{f': {record.reason}' if record.reason else ''}")
        )

    # Replanning.

    @cached_property
    def _round_start(self) -> int:
        """Number of the planning call that started the newest round of planning."""
        plans = list(self._numbers_with_role(PLAN))
        return next((number for number in reversed(plans) if self._is_replan(number)), plans[0])

    def _is_replan(self, number: int) -> bool:
        return is_replan(self._state.plan.nodes[number])

    @cached_property
    def _replan_context(self) -> ReplanContext | None:
        """State of the run at the start of the newest round of planning; `None` in the first round."""
        return self._replan_context_at(self._round_start) if self._is_replan(self._round_start) else None

    def _replan_context_at(self, number: int) -> ReplanContext | None:
        nodes = self._state.plan.nodes
        parsers = (nodes[parser] for parser in self._numbers_with_role(READ))
        parser = next((node for node in parsers if number in node.dependencies), None)
        return REPLAN_CONTEXTS.decode(parser.arguments.get("replan_context")) if parser is not None else None

    def stage_without_plan(self, parser: int) -> Stage:
        """Return the stage of a plan that was not parsed; a replan has then finished without effect.

        Raises:
            GoalUnreachable: the run is about to end without any plan.
        """
        if self._replan_context is not None:
            return Stage.FINISHED if self._state.records[parser].status.is_final else Stage.OPEN
        self.fail_if_ending_without_plan(parser)
        return Stage.OPEN

    def stage_without_approval(self, approval: int) -> Stage:
        """Return the stage of a plan that was not approved; a rejected replan has then finished without effect."""
        is_rejected = self._replan_context is not None and self._state.records[approval].status.is_final
        return Stage.FINISHED if is_rejected else Stage.OPEN

    def stage_of_reasons(self) -> Stage | None:
        """Return the stage of a replan whose reasons have changed since it started; `None` if it is still needed.

        A person may have retried a failed node: the replan waits for that node, and is not needed if the retry
        succeeds.
        """
        replan_context = self._replan_context
        if replan_context is None:
            return None
        state = self._state
        numbers = [number for node_id in replan_context.because if (number := state.number_of(node_id)) is not None]
        if not all(state.records[number].status.is_final for number in numbers):
            return Stage.OPEN
        is_needed = any(
            state.records[number].status is NodeStatus.FAILED
            or state.plan.nodes[number].kind == "human"
            or is_reserved(state.plan.nodes[number].id)
            for number in numbers
        )
        return None if is_needed else Stage.FINISHED

    def replan(self, reasons: Sequence[ReplanReason]) -> Extension:
        """Build a replan: the planning call, with the state of the run, and the node that parses its result."""
        steps = list(self._plan_steps())
        replan_context = replan_context_of(self._state, steps, reasons)
        prompt = replan_messages(self._goal, steps, reasons)
        last_parser = max(
            parser
            for parser in self._numbers_with_role(READ)
            if self._state.records[parser].status is NodeStatus.COMPLETED
        )
        # The earlier conversation is in the store.
        request = replace(
            plan_request(self._goal, prompt.messages, purpose=REPLAN, replan_context=replan_context),
            before="",
            cuts=dict(prompt.cuts),
        )
        previous_id = self._state.plan.nodes[self._state.plan.nodes[last_parser].dependencies[0]].id
        conversation = ResultOf(previous_id, "result", ("conversation",))
        bindings: list[Binding] = [(("before",), (conversation,)), *prompt.bindings]
        title = title_of(reasons, count=self._replan_count() + 1, max_replans=self._goal.replans)
        # Completed nodes are never replaced, so these edges never form a cycle.
        last_numbers = self._last_numbers([step for step in steps if step[1].status is NodeStatus.COMPLETED])
        return self._planning_call(
            request,
            title=title,
            dependencies=[last_parser, *last_numbers],
            bindings=bindings,
            replan_context=replan_context,
        )

    def _replan_count(self) -> int:
        return sum(
            is_replan(node) and record.status is not NodeStatus.SUPERSEDED
            for node, record in self._state.visible_nodes()
        )

    def conclude(self) -> Extension | None:
        """Return the next extension when there is nothing left to add for the newest plan: a replan or the answer."""
        steps = list(self._plan_steps())
        if self._goal.profile == "intents":
            # The output of the run is the result of the intents; without intents, the output is empty.
            return None if steps or self._state.plan.output is not None else self._extension(output=({}, ()))
        answer = self.newest(ANSWER)
        if not all(record.status.is_final for _, record in steps):
            return None
        if answer is not None and not self._state.records[answer].status.is_final:
            return None
        if answer is not None and answer < max((self._number(node) for node, _ in steps), default=0):
            # The answer does not include the newest results.
            answer = None
        if answer is not None and (output := self._changed_output(answer)) is not None:
            return self._extension(output=output)
        reasons = self._replan_reasons(steps, answer)
        if reasons and self._can_replan():
            return self.replan(reasons)
        return self.answer() if answer is None else None

    def _replan_reasons(self, steps: Sequence[Step], answer: int | None) -> list[ReplanReason]:
        """Return the reasons for a replan that have not caused one yet.

        Args:
            answer: number of the node with the current answer, if there is one.
        """
        handled = {
            node_id
            for plan in self._numbers_with_role(PLAN)
            if self._is_replan(plan) and (replan_context := self._replan_context_at(plan)) is not None
            for node_id in replan_context.because
        }
        reasons = reasons_of(steps, handled=handled)
        if answer is None or self._state.plan.nodes[answer].id in handled:
            return reasons
        node, record = self._state.plan.nodes[answer], self._state.records[answer]
        can_have_gaps = record.status is NodeStatus.COMPLETED and not self._goal.output_schema
        gaps = missing_information(record.result) if can_have_gaps else ()
        return [*reasons, reason_of_gaps(node, gaps)] if gaps else reasons

    def _can_replan(self) -> bool:
        return self._replan_count() < self._goal.replans

    def _changed_output(self, answer: int) -> Output | None:
        """Return the answer field of a JSON answer as the output of the run; `None` if there is no change."""
        record = self._state.records[answer]
        if self._goal.output_schema:
            return None
        if record.status is not NodeStatus.COMPLETED or not has_text_in_output(record.result):
            return None
        output = _output_at(*ANSWER_PROJECTIONS[0][0])
        return None if tuple(self._state.plan.output_bindings) == tuple(output[1]) else output

    def _last_numbers(self, steps: Sequence[Step]) -> list[int]:
        dependencies = {number for node, _ in steps for number in node.dependencies}
        return [number for node, _ in steps if (number := self._number(node)) not in dependencies]

    def _number(self, node: CompiledNode) -> int:
        number = self._state.number_of(node.id)
        assert number is not None
        return number

    # The nodes of a plan.

    def id_conflicts(self, parsed: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the problems of a plan whose node IDs are already used in the run; empty if there are none."""
        nodes = [node for node in _planned_nodes(parsed).nodes if not is_stand_in(node)]
        ids = Counter(self._new_id(node) for node in nodes)
        used_ids = [
            node.id
            for node in nodes
            if not self.is_in_run(node) and (self._is_taken(node.id) or ids[self._new_id(node)] > 1)
        ]
        problems = [
            {"code": "duplicate_id", "message": f"the run has another node {node_id!r} already: choose another id"}
            for node_id in used_ids
        ]
        return {"problems": problems, "problem_count": len(problems)} if problems else {}

    def _is_taken(self, node_id: str) -> bool:
        """Check whether an ID is used in the run by a node that cannot be replaced."""
        number = self._state.number_of(self._state.newest_id(node_id))
        if number is None or number > self._round_start:
            return self._state.find(node_id) is not None or task_of_call(self._state, node_id) is not None
        return self._state.records[number].status not in (*REPLACEABLE, NodeStatus.SUPERSEDED)

    def _new_id(self, node: CompiledNode) -> str:
        """Return the ID that a node of a plan gets in the run: a new ID if it replaces another node."""
        number = self._state.number_of(self._state.newest_id(node.id))
        return node.id if number is None or self.is_in_run(node) else free_id(self._state, number)

    def is_empty(self, parsed: Mapping[str, Any]) -> bool:
        """Check whether a plan has no new nodes, so there is nothing left to do."""
        return all(node.get("tool") == EXISTING_NODE.name for node in parsed["nodes"])

    def has_all_nodes(self, parsed: Mapping[str, Any]) -> bool:
        """Check whether all nodes of a plan are in the run; streaming adds some of them before the plan is complete."""
        ids = [str(node["id"]) for node in parsed["nodes"] if node.get("tool") != EXISTING_NODE.name]
        newest = {node_id: self._state.newest_id(node_id) for node_id in ids}
        if any((self._state.number_of(newest[node_id]) or 0) <= self._round_start for node_id in ids):
            return False
        # Nodes that people have added are different nodes, unless they do the same.
        added = {node_id for node_id in ids if self._state.is_added_by_person(newest[node_id])}
        return not added or all(self._is_same(node) for node in _planned_nodes(parsed).nodes if node.id in added)

    def is_in_run(self, node: CompiledNode) -> bool:
        """Check whether a node was accepted before its plan was complete, or is a stand-in for an existing node."""
        number = self._state.number_of(self._state.newest_id(node.id))
        if is_stand_in(node) or node.kind == "lookup":
            return number is not None
        return number is not None and number > self._round_start and self._goal.streams and self._is_same(node)

    def _is_same(self, node: CompiledNode) -> bool:
        number = self._state.number_of(self._state.newest_id(node.id))
        assert number is not None
        existing = self._state.plan.nodes[number]
        return (existing.tool, existing.arguments, existing.bindings) == (node.tool, node.arguments, node.bindings)

    def _free_id(self, name: str) -> str:
        number = self._state.number_of(name)
        assert number is not None
        return free_id(self._state, number)

    def _extension(self, *nodes: CompiledNode, output: Output | None = None) -> Extension:
        tools = {tool.name: tool for tool in (CALL_MODEL, READ_MODEL_PLAN)}
        used_tools = {node.tool for node in nodes}
        return Extension(
            self._state.plan.written_count,
            nodes,
            {name: tool for name, tool in tools.items() if name in used_tools},
            output=output,
        )

    # The plan.

    def next_plan(self, parser: int, parsed: Mapping[str, Any]) -> Extension | Stage:
        """Build the call that shows the model the problems of its plan, and the node that parses the next plan.

        Raises:
            GoalUnreachable: the model has written the maximum number of plans, and the run has no other plan.
        """
        last = self.newest(PLAN)
        assert last is not None
        round_start, replan_context = self._round_start, self._replan_context
        plan_count = sum(number > round_start for number in self._numbers_with_role(READ))
        if plan_count >= self._goal.plans and replan_context is not None:
            return Stage.FINISHED
        if plan_count >= self._goal.plans:
            message = f"the model wrote {plan_count} plan{'s' if plan_count > 1 else ''}, and none can be run"
            raise GoalUnreachable(
                NodeError(PLAN_INVALID, cut_bytes(f"{message}; {problems_text(parsed)}", max_bytes=MESSAGE_LIMIT_BYTES))
            )
        messages = [user("" if "repair" in parsed else conflict_message(parsed))]
        # The earlier conversation is in the store and is not repeated in each call.
        request = replace(plan_request(self._goal, messages, purpose=REPAIR, replan_context=replan_context), before="")
        conversation = ResultOf(self._state.plan.nodes[last].id, "result", ("conversation",))
        bindings: list[Binding] = [(("before",), (conversation,))]
        if "repair" in parsed:
            repair = ResultOf(self._state.plan.nodes[parser].id, "result", ("repair",))
            bindings.append((("messages", 0, "content"), (repair,)))
        # Nodes with conflicting IDs were not accepted, so they must not be listed as accepted.
        if self._goal.streams and "repair" in parsed:
            accepted = ResultOf(self._state.plan.nodes[last].id, "result", ("accepted",))
            bindings.append((("planning", "accepted"), (accepted,)))
        return self._planning_call(
            request, title="repairing the plan", dependencies=[parser], bindings=bindings, replan_context=replan_context
        )

    def _planning_call(
        self,
        request: ModelRequest,
        *,
        title: str,
        dependencies: Sequence[int],
        bindings: Sequence[Binding],
        replan_context: ReplanContext | None,
    ) -> Extension:
        plan_id, read_id = self._free_id(PLAN), self._free_id(READ)
        plan = model_node(plan_id, request, title=title, dependencies=dependencies, bindings=bindings)
        number = self._state.plan.written_count
        return self._extension(
            with_accepted_projection(plan, self._goal),
            read_node(read_id, plan_id, self._goal, number=number, replan_context=replan_context),
            output=output_of_plan(self._goal, read_id),
        )

    def needs_approval(self, parsed: Mapping[str, Any]) -> bool:
        """Check whether a person has to approve a parsed plan before any of it runs.

        Raises:
            GoalUnreachable: the confidence of the model is too low, and the run is non-interactive.
        """
        if self.is_empty(parsed):
            return False
        if self._goal.approve_plan or (self._state.policy.approves_changes and parsed.get("changes", 0) > 0):
            return True
        # A plan without a confidence counts as confidence 0.
        required, confidence = self._goal.confidence, parsed.get("confidence", 0)
        if required is None or confidence >= required:
            return False
        if not self._state.options.interactive:
            text = (
                f"the model gives its intents a confidence of {confidence:.4g}, but {required:.4g} is required and "
                "this run is not interactive, so nothing was done; repeat the request with `approve_plan` or a lower "
                "`confidence`"
            )
            raise GoalUnreachable(NodeError(LOW_CONFIDENCE, text))
        return True

    def request_approval(
        self, parser: int, parsed: Mapping[str, Any], *, problems: Mapping[str, Any] | None = None
    ) -> Extension:
        """Build the node that asks a person to approve a plan.

        Args:
            parser: number of the node that parsed the plan.
            problems: problems of a plan that a person submitted instead.
        """
        last = self.newest(APPROVE)
        node_id = APPROVE if last is None else self._free_id(APPROVE)
        text = str(parsed.get("summary", ""))
        if problems is not None:
            message = cut_bytes(problems_text(problems), max_bytes=_PROBLEMS_BYTES)
            text = f"The plan that was given instead cannot be run: {message}\n\n{text}"
        plan_nodes = [
            node
            for node in parsed["nodes"]
            if node.get("tool") != EXISTING_NODE.name and node.get("kind") not in HIDDEN_KINDS
        ]
        if undescribed := len(plan_nodes) - len(_described_nodes(parsed)):
            text = (
                f"{text}\n\n{undescribed:,} of its nodes are not shown completely; the policy decides on each of them."
            )
        prompt = f"May this plan run?\n\n{text}"
        node = CompiledNode(
            node_id,
            title="asking whether the plan may run",
            tool=READ_MODEL_PLAN.name,
            arguments={
                "plan": parsed["plan"],
                "tools": list(self._goal.tools),
                **parser_options(self._goal),
                **encoded_replan_context(self._replan_context),
            },
            dependencies=(parser if last is None else max(parser, last),),
            approval={"type": "APPROVAL", "prompt": prompt},
            cache_s=0.0,
        )
        return self._extension(node)

    def add_nodes(self, parser: int, parsed: Mapping[str, Any]) -> Extension:
        """Return the nodes of a plan that are not yet in the run.

        Nodes without dependencies depend on the node that parsed the plan. In a replan, a node with the ID of a node
        that can no longer run replaces that node.
        """
        base = self._state.plan.written_count
        planned = _planned_nodes(parsed)
        numbers = self._numbers_of(planned, base=base)
        described, is_approved = _described_nodes(parsed), role_of(self._state.plan.nodes[parser].id) == APPROVE
        nodes = []
        projections: dict[str, Sequence[Projection]] = {}
        for node in planned.nodes:
            if self.is_in_run(node):
                existing_id = self._state.newest_id(node.id)
                projections |= {existing_id: node.projections} if node.projections else {}
                continue
            dependencies = tuple(numbers[number] for number in node.dependencies)
            if all(planned.nodes[number].kind == "lookup" for number in node.dependencies):
                dependencies = (*dependencies, parser)
            # A person has approved this node. The policy can still deny it.
            is_described = is_approved and node.id in described
            approval = "never" if is_described and node.approval == "policy" else node.approval
            is_new = self._state.number_of(node.id) is None
            replaced_id = None if is_new else self._state.newest_id(node.id)
            nodes.append(
                replace(
                    node, id=self._new_id(node), dependencies=dependencies, approval=approval, supersedes=replaced_id
                )
            )
        replaced = [node.supersedes for node in nodes if node.supersedes is not None]
        return Extension(base, tuple(nodes), planned.tools, projections, abandoned=self._unreachable(replaced))

    def skip_unreachable(self, parsed: Mapping[str, Any]) -> Extension | None:
        """Skip the nodes that can no longer run, for a replan whose nodes were all added before it was complete.

        Afterwards, the plan has no node that failed before the replan.
        """
        replan_context = self._replan_context
        if replan_context is None or self.is_empty(parsed):
            return None
        failed = replan_context.ended.get(NodeStatus.FAILED.value, ())
        has_failed_nodes = any(
            node.id in failed and record.status is NodeStatus.FAILED and node.on_error != "skip"
            for node, record in self._plan_steps()
        )
        return replace(self._extension(), abandoned=self._unreachable(())) if has_failed_nodes else None

    def _unreachable(self, replaced: Sequence[str]) -> tuple[str, ...]:
        replan_context = self._replan_context
        if replan_context is None:
            return ()
        ended = frozenset(replan_context.not_referable)
        return unreachable_nodes(self._state, [step for step in self._plan_steps() if step[0].id in ended], replaced)

    def _numbers_of(self, planned: PlannedNodes, *, base: int) -> list[int]:
        numbers: list[int] = []
        next_number = base
        for node in planned.nodes:
            existing = self._state.number_of(self._state.newest_id(node.id)) if self.is_in_run(node) else None
            numbers.append(next_number if existing is None else existing)
            next_number += existing is None
        # Generated nodes of the plan follow all of its written nodes.
        return [
            number + next_number - base if number >= base and self.is_in_run(node) else number
            for node, number in zip(planned.nodes, numbers, strict=True)
        ]

    def answer(self) -> Extension:
        """Build the call that writes the answer from the results of the plan."""
        steps = list(self._plan_steps())
        request, bindings = answer_request(self._goal, steps, can_replan=self._can_replan())
        last = self._last_numbers(steps)
        node_id = ANSWER if self.newest(ANSWER) is None else self._free_id(ANSWER)
        node = model_node(node_id, request, title="answering the request", dependencies=last, bindings=bindings)
        superseded_id = None if node_id == ANSWER else self._state.newest_id(ANSWER)
        projections = (*node.projections, *ANSWER_PROJECTIONS) if request.call.output is not None else node.projections
        output_path = _output_at("message", "content")
        if self._goal.output_schema:
            projections, output_path = (*node.projections, _OUTPUT_PROJECTION), _output_at(*_OUTPUT_PROJECTION[0])
        answer_node = replace(node, join=("all_done", 0), supersedes=superseded_id, projections=projections)
        return self._extension(answer_node, output=output_path)


_OUTPUT_PROJECTION: Projection = (("output",), "value")


def _output_at(*path: str) -> Output:
    return None, (((), (ResultOf(ANSWER, "result", path),)),)


def _planned_nodes(parsed: Mapping[str, Any]) -> PlannedNodes:
    """Decode the nodes of a parsed plan.

    Raises:
        GoalUnreachable: the result has no valid nodes.
    """
    try:
        return planned_nodes_from_json(parsed)
    except ValueError as error:
        raise GoalUnreachable(NodeError("invalid_result", str(error))) from None


def _described_nodes(parsed: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(parsed.get("described", ()))
