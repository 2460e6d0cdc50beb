"""Options of a run that its driver sets once, before the run starts, and the interface of resolver nodes.

Resolver nodes are hidden nodes (`kind="lookup"`) that find values a plan needs before it starts.
`dagwright.features.lookups.entity_resolver` implements it with the tools of the application's resolver.
This module must not import the scheduler.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.errors import NodeError
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.states import Record
from dagwright.core.model.tools import ToolDeclaration

UNRESOLVED = "not every lookup could be resolved"
"""Reason of the nodes of a run that ends because a value could not be resolved."""


class NodeResolver:
    """Behaviour of the resolver nodes of an application; the defaults are for plans without resolver nodes."""

    def known_result(self, node: CompiledNode) -> Any | None:  # noqa: ARG002 - a default
        """Return the result of a resolver node if it is known without a call, else `None`."""
        return None

    def arguments_without_people(
        self,
        node: CompiledNode,  # noqa: ARG002 - a default
        arguments: dict[str, Any],
    ) -> dict[str, Any]:
        """Return the arguments of a call that must not ask a person."""
        return arguments

    def error_in(self, node: CompiledNode, result: Any) -> NodeError | None:  # noqa: ARG002 - a default
        """Return the error if the result of a resolver node is a failure, else `None`."""
        return None

    def is_reusable(self, node: CompiledNode, result: Any) -> bool:  # noqa: ARG002 - a default
        """Return whether a fork may reuse the result of a resolver node."""
        return True

    def has_changed(self, result: Any) -> bool:  # noqa: ARG002 - a default
        """Return whether the call with this result may have changed anything outside the run."""
        return True

    def request_context(self, plan: CompiledPlan, task_id: str) -> str:  # noqa: ARG002 - a default
        """Return a text for people that explains the use of the node's value; empty if it is unknown."""
        return ""

    def names_in_call(
        self,
        node: CompiledNode,  # noqa: ARG002 - a default
        arguments: Any,  # noqa: ARG002 - a default
        record_of: Callable[[str], Record | None],  # noqa: ARG002 - a default
    ) -> Mapping[str, str]:
        """Return names for the resolved values in the arguments of a call: value -> name."""
        return {}


WithAgents = Callable[[CompiledPlan, Mapping[str, ToolDeclaration]], CompiledPlan]
"""Function that replaces nodes of `llm` agents by sub-plans, given the known tools."""
KeyOf = Callable[[str | None, Sequence[Sequence[str]]], str]
"""Function that computes the idempotency key of a call from its scope (`None`: scope of the run) and its path."""


def _without_agents(plan: CompiledPlan, tools: Mapping[str, ToolDeclaration]) -> CompiledPlan:  # noqa: ARG001 - see above
    return plan


def _no_key(scope: str | None, path: Sequence[Sequence[str]]) -> str:  # noqa: ARG001 - see above
    """Return a placeholder with the length of a key, for schedulers whose tasks are never executed."""
    return "dw1_" + "0" * 36


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options that never change during a run.

    Args:
        interactive: the run may ask people to resolve ambiguous values; otherwise an ambiguous value ends the run.
        compensate: completed calls are compensated unless the root run completes.
        is_child: the run has a parent run, which decides about compensation.
        only_compensates: the run only compensates calls of an earlier run, whose state it continues.
        reads_starts: a `write` that timed out without a recorded start counts as not called.
        key_of: function that computes idempotency keys.
        with_agents: function that compiles agent nodes among nodes that are added later.
        resolver: behaviour of the resolver nodes of the application.
    """

    interactive: bool = True
    compensate: bool = False
    is_child: bool = False
    only_compensates: bool = False
    reads_starts: bool = False
    key_of: KeyOf = _no_key
    with_agents: WithAgents = _without_agents
    resolver: NodeResolver = field(default_factory=NodeResolver)
