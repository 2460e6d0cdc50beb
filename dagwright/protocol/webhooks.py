"""The hook of a worker, and how what is sent there is signed: as Standard Webhooks has it (standardwebhooks.com).

The receiver computes the same signature with the secret that both know, and compares. The time is signed too, so an
old message cannot be sent again by somebody else for long; the id tells doubles.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

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
