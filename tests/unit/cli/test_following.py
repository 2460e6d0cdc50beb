"""What is said of a run that a command follows, before anything of it is shown."""

import pytest

from dagwright.interfaces.cli.running import Followed


@pytest.mark.parametrize(
    ("followed", "while_open", "when_closed"),
    [
        # A worker in the background may be faster than the first look.
        (Followed("r", is_new=True), "run r", "run r"),
        (Followed("r", " in the session s", is_new=True), "run r in the session s", "run r in the session s"),
        (Followed("r", " is there already"), "run r is there already", "run r has ended already"),
        (Followed("r"), "run r", "run r has ended already"),
    ],
)
def test_run_that_was_started_just_now_has_not_ended_already(
    followed: Followed, while_open: str, when_closed: str
) -> None:
    assert (followed.greeting(has_ended=False), followed.greeting(has_ended=True)) == (while_open, when_closed)
