"""Messages of a limit workflow: its input, its configuration, and the requests of calls."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, cast, get_args

from dagwright.core.model.call_limits import (
    MAX_COUNT,
    CallLimit,
    CallLimitInvalid,
    Subject,
    parse_limit,
    parse_subject,
)
from dagwright.core.model.states import NO_USAGE, Usage, usage_from_json
from dagwright.features.call_limits.hold import MAX_HOLD_S
from dagwright.features.call_limits.limit_state import LimitAnswer, RequestKind


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Settings of one limit.

    Args:
        declared_limit: limit that workers declare, with a tool or in their settings.
        override: limit that was set at run time; overrides `declared_limit`.
        by: name of the person who set the override, if it is known.
    """

    subject: Subject
    declared_limit: CallLimit | None = None
    override: CallLimit | None = None
    by: str | None = None

    @property
    def limit(self) -> CallLimit | None:
        """Return the limit that applies, if any."""
        return self.override or self.declared_limit

    def apply_change(self, message: Any) -> "LimitSettings":
        """Return the settings after a change.

        Args:
            message: `declared_limit` or `override` with a limit or null, and optionally `by`.

        Raises:
            CallLimitInvalid: the change is invalid.
        """
        if not isinstance(message, Mapping):
            raise CallLimitInvalid(f"a change of a limit is an object, not {message!r:.80}")
        return limit_settings_from_json({**self.to_json(), **message, "subject": str(self.subject)})

    def to_json(self) -> dict[str, Any]:
        return {
            "subject": str(self.subject),
            "declared_limit": None if self.declared_limit is None else str(self.declared_limit),
            "override": None if self.override is None else str(self.override),
            "by": self.by,
        }


def limit_settings_from_json(encoded: Any) -> LimitSettings:
    """Decode `LimitSettings.to_json`.

    Raises:
        CallLimitInvalid: the settings are invalid.
    """
    if not isinstance(encoded, Mapping):
        raise CallLimitInvalid(f"the settings of a limit are an object, not {encoded!r:.80}")
    declared_limit, override, by = encoded.get("declared_limit"), encoded.get("override"), encoded.get("by")
    return LimitSettings(
        parse_subject(str(encoded.get("subject"))),
        None if declared_limit is None else parse_limit(str(declared_limit)),
        None if override is None else parse_limit(str(override)),
        None if by is None else str(by),
    )


MAX_LEAD_S = 10.0
"""Maximum of `CallRequest.lead_s`: the time that a worker waits for a limit to answer
(`call_limits.RESPONSE_TIMEOUT_S`)."""
_MAX_USAGE = 10**15
"""Largest number of tokens, calls or units of money in one message."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """Request to start a call; see `LimitState.request`.

    Args:
        has_waited: whether the limit has deferred an earlier request of the call.
        kind: kind of the request, which determines the parts of the limit that apply.
        lead_s: minimum seconds until the start of the call.
    """

    has_waited: bool = False
    kind: RequestKind = "call"
    lead_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LimitMessage:
    """Message of a worker to a limit.

    Args:
        requests: ID of each call that the worker wants to start -> request of the call.
        releases: IDs of calls that have ended.
        renewals: IDs of running calls, whose leases are renewed.
        tokens: tokens that model calls have used, one number for each call.
        usage: usage of model calls for the daily budget.
        hold_s: seconds for which no call may start.
        held_by: service that requested the pause of `hold_s`.
    """

    requests: Mapping[str, CallRequest] = field(default_factory=dict)
    releases: Sequence[str] = ()
    renewals: Sequence[str] = ()
    tokens: Sequence[int] = ()
    usage: Usage = NO_USAGE
    hold_s: float = 0.0
    held_by: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether the message has no parts."""
        return not self.to_json()

    def to_json(self) -> dict[str, Any]:
        parts = {
            "requests": {call: list(astuple(request)) for call, request in self.requests.items()},
            "releases": list(self.releases),
            "renewals": list(self.renewals),
            "tokens": list(self.tokens),
            "usage": self.usage.to_json() if self.usage.is_nonzero else None,
            "hold_s": self.hold_s,
            "held_by": self.held_by,
        }
        return {name: part for name, part in parts.items() if part}


def limit_message_from_json(encoded: Any) -> LimitMessage:
    """Decode `LimitMessage.to_json`.

    Raises:
        CallLimitInvalid: the message is invalid.
    """
    try:
        return LimitMessage(
            {
                str(call): CallRequest(bool(has_waited), _kind(kind), _seconds(*lead_s, maximum=MAX_LEAD_S))
                for call, (has_waited, kind, *lead_s) in encoded.get("requests", {}).items()
            },
            [str(call) for call in encoded.get("releases", ())],
            [str(call) for call in encoded.get("renewals", ())],
            [min(max(int(count), 0), MAX_COUNT) for count in encoded.get("tokens", ())],
            _usage(encoded.get("usage", {})),
            _seconds(encoded.get("hold_s", 0.0), maximum=MAX_HOLD_S),
            str(encoded.get("held_by", "")),
        )
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise CallLimitInvalid(f"invalid message to a limit: {error}") from None


def _kind(encoded: object) -> RequestKind:
    if encoded not in get_args(RequestKind):
        raise ValueError(f"unknown kind of request {encoded!r:.80}")
    return cast(RequestKind, encoded)


def _seconds(encoded: Any = 0.0, *, maximum: float) -> float:
    seconds = float(encoded)
    if not seconds >= 0:
        raise ValueError(f"{encoded!r:.40} is not a number of seconds")
    return min(seconds, maximum)


def _usage(encoded: object) -> Usage:
    usage = usage_from_json(encoded)
    # The sum of a day must not overflow.
    if max(usage.tokens, usage.calls) > _MAX_USAGE or usage.money > _MAX_USAGE:
        raise ValueError("the usage is too large")
    return usage


@dataclass(frozen=True, slots=True)
class LimitReply:
    """Reply of a limit to the message of a worker.

    Args:
        now: time of the limit workflow, in seconds since the epoch; the delays in the answers count from this
            time.
        answers: ID of each call in the message -> answer to its request.
    """

    now: float
    answers: Mapping[str, LimitAnswer] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {"now": self.now, "answers": {call: answer.to_json() for call, answer in self.answers.items()}}


def limit_reply_from_json(encoded: Any) -> LimitReply:
    """Decode `LimitReply.to_json`."""
    return LimitReply(encoded["now"], {call: LimitAnswer(*answer) for call, answer in encoded["answers"].items()})
