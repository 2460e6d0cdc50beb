"""The event loop of a worker: it has its turn soon while threads work hard, and else as in any program."""

import sys
import threading

from dagwright.event_loop import SWITCH_INTERVAL_S, hard_work


def test_threads_switch_soon_until_the_last_one_that_works_hard_has_ended() -> None:
    usual_s = sys.getswitchinterval()
    begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        with hard_work:
            begun.set()
            may_end.wait(10)

    first = threading.Thread(target=work)
    with hard_work:
        first.start()
        assert begun.wait(10)
    seen_s = sys.getswitchinterval()
    may_end.set()
    first.join()
    assert (seen_s, sys.getswitchinterval()) == (SWITCH_INTERVAL_S, usual_s)
    assert usual_s > SWITCH_INTERVAL_S
