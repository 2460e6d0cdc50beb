"""Messages to a call limit: each message is either rejected or leaves the limit usable."""

from decimal import Decimal
from typing import Any

import pydantic_core
import pytest

from dagwright.core.model.call_limits import CallLimitInvalid, parse_limit
from dagwright.core.model.states import Usage
from dagwright.features.call_limits.limit_state import LimitState, limit_state_from_json
from dagwright.protocol.call_limit_messages import CallRequest, LimitMessage, limit_message_from_json

_NAN = float("nan")


def test_limit_message_survives_serialization() -> None:
    usage = Usage(calls=1, prompt_tokens=7, money=Decimal("0.5"))
    requests = {"a": CallRequest(has_waited=True, kind="model_call", lead_s=0.5)}
    message = LimitMessage(requests, ["b"], ["c"], [7], usage, 3.0, "429 from api.example.org")
    assert limit_message_from_json(pydantic_core.from_json(pydantic_core.to_json(message.to_json()))) == message


@pytest.mark.parametrize(
    "message",
    [
        *({"tokens": tokens} for tokens in ([10**400], [1e308], [-5])),
        *({"hold_s": seconds} for seconds in (float("inf"), 10**300)),
        {"requests": {"a": [True, "call", 1e300]}},
        {"usage": {"prompt_tokens": 10**14}},
    ],
)
def test_limit_stays_usable_after_large_numbers(message: Any) -> None:
    limit, state, now = parse_limit("tokens=100 5/s money=5/day concurrency=2"), LimitState(), 1e9
    decoded_message = limit_message_from_json(message)
    for tokens in decoded_message.tokens:
        state.add_tokens(limit, tokens)
    state.day_use.add(decoded_message.usage, now)
    if decoded_message.hold_s:
        state.hold.extend(now + decoded_message.hold_s, now, requested_by="429 from api.example.org")
    for call, request in decoded_message.requests.items():
        state.request(limit, call, now, has_waited=request.has_waited, lead_s=request.lead_s)
    state = limit_state_from_json(pydantic_core.from_json(pydantic_core.to_json(state.to_json())))
    assert state.request(limit, "another", now, kind="model_call").delay_s <= 301
    assert state.waiting_count(limit, now) >= 0


@pytest.mark.parametrize(
    "message",
    [
        *([], "x", 5, None, {"requests": [1]}, {"requests": {"a": [True]}}, {"releases": 5}),
        *({"requests": {"a": [True, "call", lead_s]}} for lead_s in (_NAN, -1e300, "x", 10**400)),
        *({"hold_s": seconds} for seconds in (_NAN, -1, "x", 10**400)),
        *({"tokens": tokens} for tokens in ([_NAN], [float("inf")], "x")),
        *({"usage": usage} for usage in ("x", {"money": "NaN"}, {"money": "1e999999999"}, {"calls": 10**300})),
        {"requests": {"a": [True, "unknown", 0.0]}},
    ],
)
def test_invalid_message_is_rejected(message: Any) -> None:
    with pytest.raises(CallLimitInvalid, match="invalid message to a limit"):
        limit_message_from_json(message)
