"""Calls under a call limit, without a server: waits that hold a worker slot, and messages that the limit rejects."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dagwright.activities import limiter
from dagwright.activities.call_limits import CallLimits
from dagwright.activities.errors import CallDeferred
from dagwright.activities.limiter import Limiter
from dagwright.core.model.call_limits import Subject, parse_limit
from dagwright.features.call_limits.limit_state import LimitAnswer
from dagwright.protocol.call_limit_messages import CallRequest, LimitMessage, LimitReply, LimitSettings
from dagwright.server.call_limits import LimitMessageRejected

_MODEL = Subject("model", "small")
_NO_CLIENT: Any = None


class _ScriptedLimiter(Limiter):
    """Fake limiter that returns scripted answers, and records the time and the lead of each request.

    The lead of a request is the minimum number of seconds until the start of the call.
    """

    def __init__(self, *answers: LimitAnswer, limit: str = "concurrency=5") -> None:
        super().__init__(_NO_CLIENT, LimitSettings(_MODEL, parse_limit(limit)), declared_limit=None, task_queue="queue")
        self.answers, self.requested_at, self.leads_s = list(answers), list[float](), list[float]()

    async def request(self, call: str, request: CallRequest) -> LimitAnswer:
        self.leads_s.append(request.lead_s)
        self.requested_at.append(asyncio.get_running_loop().time())
        return self.answers.pop(0)

    def _send_soon(self) -> None:
        pass


class _FakeHeartbeats:
    def __init__(self, deferred_state: Any = None) -> None:
        self.deferred_state = deferred_state

    def report_limit(self, reason: str | None) -> None:
        pass


class _FakeCallLimits(CallLimits):
    """Fake call limits of a worker: every call has the same limiter."""

    def __init__(self, scripted_limiter: _ScriptedLimiter) -> None:
        super().__init__(_NO_CLIENT, task_queue="queue")
        self.scripted_limiter = scripted_limiter

    async def limiters(self, subjects: Any) -> list[Limiter]:
        return [self.scripted_limiter]


async def _admit_while_another_call_ends(scripted_limiter: _ScriptedLimiter) -> None:
    heartbeats: Any = _FakeHeartbeats()
    admission = _FakeCallLimits(scripted_limiter).admit_model_call([_MODEL], "call", heartbeats)
    admission_task = asyncio.create_task(admission)
    await asyncio.sleep(0)
    scripted_limiter.release("another")
    (await asyncio.wait_for(admission_task, 2)).leases.clear()


async def test_deferred_model_call_waits_for_its_delay_even_if_another_call_ends() -> None:
    scripted_limiter = _ScriptedLimiter(LimitAnswer("defer", 0.1, "was asked to wait until"), LimitAnswer("start"))
    await _admit_while_another_call_ends(scripted_limiter)
    assert scripted_limiter.requested_at[1] - scripted_limiter.requested_at[0] >= 0.1


async def test_queued_model_call_requests_a_lease_again_when_another_call_ends() -> None:
    scripted_limiter = _ScriptedLimiter(LimitAnswer("queue", 5.0, "concurrency limit 5"), LimitAnswer("start"))
    await _admit_while_another_call_ends(scripted_limiter)


async def test_next_attempt_of_a_deferred_call_keeps_the_lead_that_a_late_answer_caused() -> None:
    scripted_limiter = _ScriptedLimiter(
        LimitAnswer("start", -0.6, "rate limit 1/min"),
        LimitAnswer("defer", 55.0, "rate limit 1/min"),
        LimitAnswer("start"),
        limit="1/min",
    )

    limits = _FakeCallLimits(scripted_limiter)
    info: Any = SimpleNamespace(workflow_run_id="run", activity_id="a", start_to_close_timeout=None)
    first_attempt: Any = _FakeHeartbeats()
    with pytest.raises(CallDeferred, match="rate limit 1/min") as deferral:
        await limits.admit([_MODEL], info, first_attempt)
    second_attempt: Any = _FakeHeartbeats(deferral.value.state)
    (await limits.admit([_MODEL], info, second_attempt)).release()
    assert scripted_limiter.leads_s == [0.0, pytest.approx(0.6, abs=0.2), scripted_limiter.leads_s[1]]


async def test_rejected_message_defers_its_calls_and_later_messages_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages: list[LimitMessage] = []

    async def send_limit_message(_client: Any, _subject: Subject, message: LimitMessage) -> LimitReply:
        messages.append(message)
        if len(messages) == 1:
            raise LimitMessageRejected("the limit of model:small rejects the message: unknown kind of request")
        return LimitReply(1_000.0, {call: LimitAnswer("start") for call in message.requests})

    monkeypatch.setattr(limiter, "send_limit_message", send_limit_message)
    settings = LimitSettings(_MODEL, parse_limit("concurrency=5"))
    real_limiter = Limiter(_NO_CLIENT, settings, declared_limit=None, task_queue="queue")
    real_limiter.release("ended")
    with pytest.raises(CallDeferred, match="model:small rejects the message: unknown kind"):
        await real_limiter.request("a", CallRequest())
    assert (await real_limiter.request("b", CallRequest())).decision == "start"
    # The rejected message is not repeated, because the limit would reject it again.
    assert [(sorted(message.requests), list(message.releases)) for message in messages] == [
        (["a"], ["ended"]),
        (["b"], []),
    ]
