"""What a call of a worker here knows of its earlier attempts: it stands in the heartbeat, so it outlives each of them.

Failures are counted by kind. The number of the attempt counts all of them, and a search server that was away for a
while must not use up what a slow answer, or a model, may take.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from dagwright.tools import context


@dataclass(frozen=True, slots=True)
class Kept:
    """What all attempts of a call have come to so far, this one with them.

    Args:
        answer: the newest answer of the model; `None` if there is none, or none that fits its schema.
        answers: how many the model has given, those that did not fit too.
        model_silent: how often it was asked and gave none.
        search_silent: how often the search server was there and gave no answer that is of use.
    """

    answer: Any = None
    answers: int = 0
    model_silent: int = 0
    search_silent: int = 0


def kept() -> Kept:
    """Returns what the call that runs has kept."""
    told = context().newest_heartbeat
    if not isinstance(told, dict):
        return Kept()
    return Kept(**{field.name: told[field.name] for field in fields(Kept) if field.name in told})


def keep(**changed: Any) -> None:
    """Keeps some fields of `Kept` for what comes, also for the next attempt, and the others as they are."""
    context().heartbeat(asdict(replace(kept(), **changed)))
