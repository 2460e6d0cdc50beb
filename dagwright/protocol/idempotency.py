"""Idempotency key of an effect (docs/contributing/guards.md F4)."""

import base64
import hashlib
from collections.abc import Sequence

import pydantic_core

_ENCODED_CHARACTERS = 36
_DIGEST_BYTES = 25
"""Bytes of the digest in the key; base32 encodes 5 bytes as 8 characters."""


def idempotency_key(scope: str, path: Sequence[Sequence[str]], *, generation: int = 0) -> str:
    """Return the 40-character key of a node's effect.

    Args:
        scope: `first_execution_run_id` of the root run.
        path: typed path from the root run: `[["node", id], ["item", key], …]`.
        generation: increased only when a person requests the effect again.

    Replay: the key stays the same after another attempt, a crash, continue-as-new or a reset, so no argument may change
    through any of these events.
    """
    digest = hashlib.sha256(pydantic_core.to_json([scope, path, generation])).digest()
    return "dw1_" + base64.b32encode(digest[:_DIGEST_BYTES]).decode().lower()[:_ENCODED_CHARACTERS]


def derived_key(execution_id: str, activity_id: str) -> str:
    """Return the idempotency key of a call without a key in its headers.

    Args:
        execution_id: ID of the first execution of a root run; only this execution makes calls without a key.
    """
    return idempotency_key(execution_id, [["node", activity_id]])
