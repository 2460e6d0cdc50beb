"""State of the requests to people: the requests, and the inputs and approvals that people gave for the whole run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.model.requests import Feedback
from dagwright.features.feedback.request_registry import RequestRegistry


@dataclass(slots=True)
class FeedbackState:
    """State of the human feedback of one run.

    Args:
        given_inputs: inputs that a person provided after the start.
        approved_nodes: number of nodes, from the first, that were approved together with the plan.
        approved_by: user who approved them.
        policy_changed: whether a person changed the policy of the run.
    """

    requests: RequestRegistry = field(default_factory=RequestRegistry)
    given_inputs: dict[str, Any] = field(default_factory=dict)
    approved_nodes: int = 0
    approved_by: str = ""
    policy_changed: bool = False


RunAnswer = Callable[[Any, Feedback, float], None]
"""Function that applies the answer to a request of the run itself."""
