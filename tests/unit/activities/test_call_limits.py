"""Calls that wait in their slots for a limit, without a server."""

import asyncio
from typing import Any

from dagwright.activities.call_limits import CallLimits
from dagwright.activities.limiter import Limiter
from dagwright.core.model.call_limits import Subject, parse_limit
from dagwright.features.call_limits.limit_state import LimitAnswer
from dagwright.protocol.call_limit_messages import CallRequest, LimitSettings

_MODEL = Subject("model", "small")
_NO_CLIENT: Any = None


class _Limiter(Limiter):
    """A limit with given answers; records the times of requests."""

    def __init__(self, *answers: LimitAnswer) -> None:
        settings = LimitSettings(_MODEL, parse_limit("concurrency=5"))
        super().__init__(_NO_CLIENT, settings, declared=None, task_queue="queue")
        self.answers, self.requested_at = list(answers), list[float]()

    async def request(self, call: str, request: CallRequest) -> LimitAnswer:
        self.requested_at.append(asyncio.get_running_loop().time())
        return self.answers.pop(0)

    def _send_soon(self) -> None:
        pass


class _Heartbeats:
    def report_limit(self, reason: str | None) -> None:
        pass


async def _admitted(limiter: _Limiter) -> None:
    class Known(CallLimits):
        async def limiters(self, subjects: Any) -> list[Limiter]:
            return [limiter]

    heartbeats: Any = _Heartbeats()
    admission = await Known(_NO_CLIENT, task_queue="queue").admit_model_call([_MODEL], "call", heartbeats)
    admission.leases.clear()


async def test_model_call_of_a_tool_keeps_its_start_after_a_hold_although_another_call_ends() -> None:
    limiter = _Limiter(LimitAnswer("later", 0.1, "was asked to wait until"), LimitAnswer("start"))
    waiting = asyncio.create_task(_admitted(limiter))
    await asyncio.sleep(0)
    limiter.release("another")
    await waiting
    assert limiter.requested_at[1] - limiter.requested_at[0] >= 0.1


async def test_model_call_of_a_tool_that_is_next_for_a_lease_requests_it_when_another_call_ends() -> None:
    limiter = _Limiter(LimitAnswer("line", 5.0, "concurrency limit 5"), LimitAnswer("start"))
    waiting = asyncio.create_task(_admitted(limiter))
    await asyncio.sleep(0)
    limiter.release("another")
    await asyncio.wait_for(waiting, 2)
