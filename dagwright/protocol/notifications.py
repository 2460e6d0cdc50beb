"""Notifications of requests to a webhook, signed as Standard Webhooks specifies (standardwebhooks.com)."""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.exceptions import ActivityError, ApplicationError

from dagwright.core.boundary.limits import MESSAGE_LIMIT_BYTES, NOTICE_BYTES
from dagwright.core.boundary.text import cut_bytes
from dagwright.core.model.requests import Closing, Notice
from dagwright.core.model.times import format_time
from dagwright.protocol.documents import encoded_size

_ENCODED = "whsec_"
"""Begins a secret whose rest is base64."""


@dataclass(frozen=True, slots=True)
class Hook:
    """Who is told what happens to requests.

    Args:
        url: may hold a secret, so it stands in no message.
        key: of `signing_key`.
        ui_url: address of the Temporal UI without a slash at its end, if it is known.
    """

    url: str = field(repr=False)
    key: bytes = field(repr=False)
    ui_url: str | None = None


def signing_key(secret: str) -> bytes:
    """Returns the bytes that a secret stands for, none if it stands for nothing."""
    if not secret.startswith(_ENCODED):
        return secret.encode(errors="replace")
    try:
        return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    except binascii.Error:
        return b""


def signed_headers(body: bytes, key: bytes, *, message_id: str, at_s: int) -> Mapping[str, str]:
    """Returns the headers that go with a body.

    Args:
        key: of `signing_key`.
        message_id: the same in each attempt.
        at_s: time of this attempt, in seconds since the epoch.
    """
    signed = f"{message_id}.{at_s}.".encode() + body
    signature = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {"webhook-id": message_id, "webhook-timestamp": str(at_s), "webhook-signature": f"v1,{signature}"}


NOTE = "notify"
"""Code of the note that the hook did not take something."""


def notice_json(notice: Notice, closing: Closing | None, *, workflow_id: str, identity: Sequence[Any]) -> Any:
    """Returns a notice as the activity takes it.

    Args:
        closing: how the request ended, if it has.
        identity: scope and path of the run, the same in each of its executions.
    """
    request = notice.request.to_json(workflow_id)
    if encoded_size(request) > NOTICE_BYTES:
        prompt = cut_bytes(notice.request.prompt, max_bytes=NOTICE_BYTES // 4)
        request |= {"prompt": prompt, "schema": None, "options": None, "arguments": None, "shortened": True}
    return {
        "id": _id_of(notice, identity),
        "kind": notice.kind,
        "at": format_time(notice.at),
        "request": request,
        "closing": None if closing is None else _closing_json(closing),
    }


def _id_of(notice: Notice, identity: Sequence[Any]) -> str:
    canonical = json.dumps([*identity, *notice.key], ensure_ascii=True, separators=(",", ":"))
    return "msg_" + base64.b32encode(hashlib.sha256(canonical.encode()).digest()).decode().lower()[:32]


def _closing_json(closing: Closing) -> dict[str, Any]:
    """Returns how a request ended; what was answered is nothing for a hook."""
    return {name: part for name, part in closing.to_json().items() if name != "arguments"}


def told(notices: Sequence[Any]) -> str:
    """Returns how notices are called in a sentence: `check opened and 3 more`."""
    first = notices[0]
    more = f" and {len(notices) - 1:,} more" if len(notices) > 1 else ""
    return cut_bytes(f"{first['request']['id']} {first['kind']}", max_bytes=300) + more


def failure_note(error: BaseException) -> str:
    """Returns what to say of notices that the hook did not take in time."""
    cause = error.__cause__ if isinstance(error, ActivityError) else error
    if isinstance(cause, ApplicationError):
        return cut_bytes(cause.message, max_bytes=MESSAGE_LIMIT_BYTES)
    return f"the hook could not be told: {type(cause).__name__}: {cause}"


def forgotten_note(count: int, *, why: str) -> str:
    """Returns what to say of notices that are not told any more."""
    return f"{count:,} {'notice was' if count == 1 else 'notices were'} not told: {why}"
