"""What a tool asks while it runs: its answers go out with its next call, within bounds."""

from typing import Any

from dagwright.contracts.outcomes import next_call
from dagwright.plan.asking import ANSWERS_BYTES, Raised
from dagwright.plan.requests import Feedback
from dagwright.plan.scheduler import Scheduler
from dagwright.plan.states import Attempt
from tests.unit.plan.building import node, scheduler_of, states

_ATTEMPT = Attempt(1)


def _asked_and_answered(scheduler: Scheduler, text: str, *, checkpoint: Any = None) -> str | None:
    """Starts the one node, which asks; answers it, and returns why it could not ask."""
    task = scheduler.next_task(0.0)
    assert task is not None
    problem = scheduler.ask("n", Raised("Go on?", checkpoint), at=1.0, attempt=_ATTEMPT)
    if problem is None:
        [request] = scheduler.requests.open
        assert scheduler.answer(Feedback(request, {"text": text}, by="ann"), 2.0) is None
    return problem


def test_call_is_given_all_answers_and_the_last_checkpoint() -> None:
    scheduler = scheduler_of(node("n"))
    for number in range(3):
        assert _asked_and_answered(scheduler, f"answer {number}", checkpoint=number) is None
    task = scheduler.next_task(3.0)
    assert task is not None
    assert list(task.answers) == [
        {"request": "n", "answer": {"text": "answer 0"}},
        {"request": "n#2", "answer": {"text": "answer 1"}},
        {"request": "n#3", "answer": {"text": "answer 2"}, "checkpoint": 2},
    ]


def test_answers_count_in_what_a_call_sends() -> None:
    scheduler = scheduler_of(node("n"))
    assert _asked_and_answered(scheduler, "x" * 10_000) is None
    ready = next_call(scheduler, 3.0)
    assert ready is not None
    assert ready.size_bytes > 10_000


def test_call_that_was_answered_very_much_asks_no_more() -> None:
    scheduler = scheduler_of(node("n"))
    text = "x" * 200_000
    assert [_asked_and_answered(scheduler, text) for _ in range(4)] == [
        *[None] * 3,
        f"its answers have over {ANSWERS_BYTES:,} bytes, and it asks again",
    ]
    assert states(scheduler) == {"n": "failed"}
