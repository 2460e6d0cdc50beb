"""Resolver nodes: hidden nodes (`kind="lookup"`) that find values which must be known before a plan starts.

`dagwright.features.lookups.entity_resolver` implements it with the tools of the application's resolver. It must not
import the scheduler.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import Record

UNRESOLVED = "not all that is looked up could be bound"
"""Reason of the nodes of a run that ends because a value could not be resolved."""


class NodeResolver(Protocol):
    """What an application knows of its resolver nodes."""

    def known_result(self, node: CompiledNode) -> Any | None:
        """Return the result of a resolver node that is known without a call; `None` if it has to be called."""
        ...

    def arguments_without_people(self, node: CompiledNode, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call that must not ask a person."""
        ...

    def error_in(self, node: CompiledNode, result: Any) -> NodeError | None:
        """Return why the result of a resolver node is a failure, if it is one."""
        ...

    def is_reusable(self, node: CompiledNode, result: Any) -> bool:
        """Tell whether a fork may reuse the result of a resolver node."""
        ...

    def has_changed(self, result: Any) -> bool:
        """Tell whether the call that has this result changed anything outside the run."""
        ...

    def request_context(self, plan: CompiledPlan, task_id: str) -> str:
        """Return what the value of a node is needed for, in words for a person; empty if that is not known."""
        ...

    def names_in_call(
        self, node: CompiledNode, arguments: Any, record_of: Callable[[str], Record | None]
    ) -> Mapping[str, str]:
        """Return names for the resolved values in the arguments of a call: value -> name."""
        ...


class NoResolver:
    """For plans without resolver nodes."""

    def known_result(self, node: CompiledNode) -> Any | None:  # noqa: ARG002 - a resolver
        """Return `None`."""
        return None

    def arguments_without_people(
        self,
        node: CompiledNode,  # noqa: ARG002 - a resolver
        arguments: dict[str, Any],
    ) -> dict[str, Any]:
        """Return the arguments as they are."""
        return arguments

    def error_in(self, node: CompiledNode, result: Any) -> NodeError | None:  # noqa: ARG002 - a resolver
        """Return `None`."""
        return None

    def is_reusable(self, node: CompiledNode, result: Any) -> bool:  # noqa: ARG002 - a resolver
        """Return true."""
        return True

    def has_changed(self, result: Any) -> bool:  # noqa: ARG002 - a resolver
        """Return true: nothing is known of the call."""
        return True

    def request_context(self, plan: CompiledPlan, task_id: str) -> str:  # noqa: ARG002 - a resolver
        """Return nothing."""
        return ""

    def names_in_call(
        self,
        node: CompiledNode,  # noqa: ARG002 - a resolver
        arguments: Any,  # noqa: ARG002 - a resolver
        record_of: Callable[[str], Record | None],  # noqa: ARG002 - a resolver
    ) -> Mapping[str, str]:
        """Return nothing."""
        return {}
