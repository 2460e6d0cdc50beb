"""State of one call of a worker tool. Each attempt of the call passes the state to the next attempt in a heartbeat.

Failures are counted by kind, because an outage of the search server must not use up the attempts for model failures or
slow queries.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from dagwright.tools import context


@dataclass(frozen=True, slots=True)
class AttemptState:
    """State of all attempts of a call so far, including the current attempt.

    Args:
        answer: the model's latest answer; `None` if there is no answer, or if the latest answer does not match the
            schema.
        answer_count: number of answers of the model, including those that did not match the schema.
        model_failures: number of model calls without an answer.
        search_failures: number of requests that a running search server did not answer.
    """

    answer: Any = None
    answer_count: int = 0
    model_failures: int = 0
    search_failures: int = 0


def load_state() -> AttemptState:
    """Return the state of the current call."""
    heartbeat = context().current_heartbeat
    if not isinstance(heartbeat, dict):
        return AttemptState()
    return AttemptState(
        **{field.name: heartbeat[field.name] for field in fields(AttemptState) if field.name in heartbeat}
    )


def save_state(**changes: Any) -> None:
    """Update fields of the state, and report the state in a heartbeat for the next attempt."""
    context().heartbeat(asdict(replace(load_state(), **changes)))
