"""Webhook of a worker, and the signature of its messages as defined by Standard Webhooks (standardwebhooks.com).

The receiver computes the signature with the shared secret and compares the signatures. The time is part of the
signature, so the receiver can reject old messages that are sent again. The id identifies duplicates.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

_BASE64_PREFIX = "whsec_"
"""Prefix of a secret whose rest is base64."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Webhook that is notified of requests.

    Args:
        url: may contain a secret, so it is never logged.
        key: result of `signing_key`.
        ui_url: address of the Temporal UI without a trailing slash, if it is known.
    """

    url: str = field(repr=False)
    key: bytes = field(repr=False)
    ui_url: str | None = None


def signing_key(secret: str) -> bytes:
    """Return the bytes of a secret, or no bytes if the secret is invalid."""
    if not secret.startswith(_BASE64_PREFIX):
        return secret.encode(errors="replace")
    try:
        return base64.b64decode(secret.removeprefix(_BASE64_PREFIX), validate=True)
    except binascii.Error:
        return b""


def signed_headers(body: bytes, key: bytes, *, message_id: str, at_s: int) -> Mapping[str, str]:
    """Return the headers of a message, with its signature.

    Args:
        key: result of `signing_key`.
        message_id: id of the message, the same in each attempt.
        at_s: time of this attempt, in seconds since the epoch.
    """
    signed_content = f"{message_id}.{at_s}.".encode() + body
    signature = base64.b64encode(hmac.new(key, signed_content, hashlib.sha256).digest()).decode()
    return {"webhook-id": message_id, "webhook-timestamp": str(at_s), "webhook-signature": f"v1,{signature}"}
