"""The protocols between the scheduler, its components and its driver.

A component is one feature of a run, such as its budget or its requests to people. It owns the state of that feature.
The scheduler calls the hooks of the components at fixed points. For each hook, `Hooks` lists the components that
override and currently need it, in the order in which they were attached. A feature that a run does not use costs
nothing.

The driver sets `RunOptions` once, before the run starts. Lookup nodes are hidden nodes (`kind="lookup"`) that find
values for other nodes. `dagwright.features.lookups.entity_resolver` implements `NodeResolver` with the tools of the
application's resolver. This module must not import the scheduler.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.states import Attempt, NodeError, Record, RunStatus, Task, TaskRef
from dagwright.core.model.tools import ToolDeclaration

HOOKS = (
    "on_node_ready",
    "items_may_open_requests",
    "before_dispatch",
    "before_start",
    "on_attempt",
    "on_result",
    "on_node_failed",
    "on_node_ended",
    "on_node_reset",
    "on_rebuild",
    "before_propagation",
    "after_update",
    "on_quiescent",
    "on_idle",
    "on_stop",
)
"""Frequent hooks, which are called only on components that override them."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of a task after a component has processed it.

    Args:
        error: error if the task counts as failed; the value is then not used.
        message: text that accompanies the value.
    """

    value: Any
    error: NodeError | None = None
    is_partial: bool = False
    message: str | None = None


class SchedulerComponent:
    """One feature of a run. Every hook does nothing unless a component overrides it.

    Times (`at`) are seconds since the epoch, as passed by the driver. A hook ends a node through the scheduler and
    never changes counters itself.
    """

    hooks: ClassVar[frozenset[str]] = frozenset()
    """Names of the hooks that the class overrides."""

    def __init_subclass__(cls) -> None:
        cls.hooks = frozenset(name for name in HOOKS if getattr(cls, name) is not getattr(SchedulerComponent, name))

    def needed_hooks(self) -> Collection[str]:
        """Return which of `hooks` have to be called now.

        When the result changes, the component has to call `Scheduler.update_hooks`.
        """
        return self.hooks

    # Life cycle of a node.

    def on_node_ready(self, ref: TaskRef, at: float) -> bool:  # noqa: ARG002 - a hook
        """Handle a node or item whose join and condition allow it to start.

        Returns:
            Whether the component has ended the node or made it wait; otherwise the node is queued.
        """
        return False

    def items_may_open_requests(self, number: int) -> bool:  # noqa: ARG002 - a hook
        """Return whether the items of a node may open requests, so that they must be tasks of this run."""
        return False

    def before_dispatch(self, ref: TaskRef, at: float) -> bool:  # noqa: ARG002 - a hook
        """Check a queued task again before its arguments are resolved.

        Returns:
            Whether the component has ended the task or made it wait.
        """
        return False

    def before_start(self, task: Task, at: float) -> bool:  # noqa: ARG002 - a hook
        """Complete the fields of a task, or prevent its start.

        Returns:
            Whether the component has ended the task or made it wait. It has then also released the task's slots.

        Raises:
            UnresolvedReference, ComputeBudgetExceeded: the task cannot start; its node fails.
        """
        return False

    def on_attempt(self, task_id: str, ref: TaskRef, attempt: Attempt) -> None:
        """Record the attempts of a running task, before the task ends."""

    def on_result(self, ref: TaskRef, value: Any) -> TaskResult | None:  # noqa: ARG002 - a hook
        """Process the result of a call.

        Returns:
            The processed result, or `None` to leave the result unchanged.
        """
        return None

    def on_node_failed(self, ref: TaskRef, error: NodeError, at: float) -> bool:  # noqa: ARG002 - a hook
        """Handle a failure before the node ends.

        Returns:
            Whether the node waits instead of ending.
        """
        return False

    def on_node_ended(self, ref: TaskRef, at: float) -> None:
        """Handle the end of a node or item. Its record is final, its dependents are not updated yet."""

    def on_node_reset(self, ref: TaskRef, at: float) -> None:
        """Handle a record that is about to be replaced."""

    # The run as a whole.

    def on_rebuild(self, base: int, added_count: int) -> None:
        """Update state that depends on node numbers or records. `added_count` nodes were inserted at number `base`."""

    def before_propagation(self, at: float) -> None:
        """Handle the time that has passed, before the consequences of an event are applied."""

    def after_update(self, at: float) -> bool:  # noqa: ARG002 - a hook
        """Do one step that requires all dependents to be updated.

        Returns:
            Whether the component did anything; the hook is then called again.
        """
        return False

    def on_quiescent(self, at: float) -> None:
        """Act when no node changes any more: extend the plan, compensate, admit waiting nodes."""

    def on_idle(self, at: float) -> None:
        """Act when `next_task` has no further task that can start now."""

    def on_stop(self, at: float) -> None:
        """Act after the run was cancelled or aborted. All nodes that had not started have ended."""

    @property
    def next_timer(self) -> float | None:
        """Time at which `on_timer` has to be called, or `None`."""
        return None

    def on_timer(self, at: float) -> None:
        """Handle every deadline that is due."""

    @property
    def is_waiting(self) -> bool:
        """Whether the component waits for people."""
        return False

    def run_status(self, status: RunStatus) -> RunStatus:
        """Return the status of the run, given the status derived from its nodes."""
        return status


Components = tuple[SchedulerComponent, ...]


class Hooks:
    """Components to call at each hook, in the order in which they were attached."""

    on_node_ready: Components = ()
    items_may_open_requests: Components = ()
    before_dispatch: Components = ()
    before_start: Components = ()
    on_attempt: Components = ()
    on_result: Components = ()
    on_node_failed: Components = ()
    on_node_ended: Components = ()
    on_node_reset: Components = ()
    on_rebuild: Components = ()
    before_propagation: Components = ()
    after_update: Components = ()
    on_quiescent: Components = ()
    on_idle: Components = ()
    on_stop: Components = ()

    def __init__(self) -> None:
        self.components: Sequence[SchedulerComponent] = ()

    def update(self) -> None:
        """Update the lists with the hooks that the components need now."""
        components_by_hook: dict[str, list[SchedulerComponent]] = {name: [] for name in HOOKS}
        for component in self.components:
            for name in component.needed_hooks():
                components_by_hook[name].append(component)
        for name, components in components_by_hook.items():
            setattr(self, name, tuple(components))


UNRESOLVED_REASON = "not every lookup could be resolved"
"""Reason of cancelled nodes in a run that ends because a lookup could not be resolved."""


class NodeResolver:
    """Behaviour of the lookup nodes of an application. The defaults are for plans without lookup nodes."""

    def known_result(self, node: CompiledNode) -> Any | None:  # noqa: ARG002 - a default
        """Return the result of a lookup node if it is known without a call, else `None`."""
        return None

    def non_interactive_arguments(
        self,
        node: CompiledNode,  # noqa: ARG002 - a default
        arguments: dict[str, Any],
    ) -> dict[str, Any]:
        """Return the arguments of a call that must not ask a person."""
        return arguments

    def error_in(self, node: CompiledNode, result: Any) -> NodeError | None:  # noqa: ARG002 - a default
        """Return the error if the result of a lookup node is a failure, else `None`."""
        return None

    def is_reusable(self, node: CompiledNode, result: Any) -> bool:  # noqa: ARG002 - a default
        """Return whether a fork may reuse the result of a lookup node."""
        return True

    def changed_something(self, result: Any) -> bool:  # noqa: ARG002 - a default
        """Return whether the call with this result may have changed external state."""
        return True

    def describe_use(self, plan: CompiledPlan, task_id: str) -> str:  # noqa: ARG002 - a default
        """Return a sentence for users about the use of a lookup's value; empty if the use is unknown."""
        return ""

    def entities_in_call(
        self,
        node: CompiledNode,  # noqa: ARG002 - a default
        arguments: Any,  # noqa: ARG002 - a default
        record_of: Callable[[str], Record | None],  # noqa: ARG002 - a default
    ) -> Mapping[str, str]:
        """Return names for the resolved values in the arguments of a call: value -> name."""
        return {}


WithAgentSubPlans = Callable[[CompiledPlan, Mapping[str, ToolDeclaration]], CompiledPlan]
"""Function that replaces nodes of `llm` agents with sub-plans, given the known tools."""
KeyOf = Callable[[str | None, Sequence[Sequence[str]]], str]
"""Function that computes the idempotency key of a call from its scope (`None`: scope of the run) and its path."""


def _without_agent_sub_plans(plan: CompiledPlan, tools: Mapping[str, ToolDeclaration]) -> CompiledPlan:  # noqa: ARG001 - see above
    return plan


def _no_key(scope: str | None, path: Sequence[Sequence[str]]) -> str:  # noqa: ARG001 - see above
    """Return a placeholder with the length of a key, for schedulers whose tasks are never executed."""
    return "dw1_" + "0" * 36


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options that never change during a run.

    Args:
        is_interactive: the run may ask people to resolve ambiguous values; otherwise an ambiguous value ends the run.
        compensate: completed calls are compensated unless the root run completes.
        is_child: the run has a parent run, which decides about compensation.
        only_compensates: the run only compensates calls of an earlier run, whose state it continues.
        key_of: function that computes idempotency keys.
        with_agent_sub_plans: function that replaces agent nodes among added nodes with sub-plans.
        resolver: behaviour of the lookup nodes of the application.
    """

    is_interactive: bool = True
    compensate: bool = False
    is_child: bool = False
    only_compensates: bool = False
    key_of: KeyOf = _no_key
    with_agent_sub_plans: WithAgentSubPlans = _without_agent_sub_plans
    resolver: NodeResolver = field(default_factory=NodeResolver)
