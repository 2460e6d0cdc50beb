"""Options of a run that its driver sets once, before the run starts. It must not import the scheduler."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.scheduler.node_resolver import NodeResolver, NoResolver

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
    resolver: NodeResolver = field(default_factory=NoResolver)
