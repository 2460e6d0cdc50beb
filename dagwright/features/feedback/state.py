"""What a run knows of its requests to people: the requests, and what people gave or approved for the run as a whole."""

from dataclasses import dataclass, field
from typing import Any

from dagwright.core.model.requests import RequestBook


@dataclass(slots=True)
class FeedbackState:
    """State of the human feedback of one run.

    Args:
        given_inputs: inputs that a person gave after the start.
        approved_nodes: how many nodes, from the first, were approved with the plan as a whole.
        approved_by: who approved them.
        policy_changed: a person changed the policy of the run.
    """

    requests: RequestBook = field(default_factory=RequestBook)
    given_inputs: dict[str, Any] = field(default_factory=dict)
    approved_nodes: int = 0
    approved_by: str = ""
    policy_changed: bool = False
