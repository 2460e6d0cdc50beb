"""The key under which an effect happens at most once (docs/guards.md F4)."""

import base64
import hashlib
from collections.abc import Sequence

import pydantic_core

_KEY_CHARACTERS = 36
_DIGEST_BYTES = 25
"""Of the digest these stand in the key; base32 makes 8 characters of 5 bytes."""


def idempotency_key(scope: str, path: Sequence[Sequence[str]], *, generation: int = 0) -> str:
    """Returns the 40-character key of a node's effect.

    Args:
        scope: `first_execution_run_id` of the root run.
        path: typed path from the root: `[["node", id], ["item", key], …]`.
        generation: rises only when a person asks for the effect again.

    Replay: attempts, crashes, continue-as-new and resets keep the key, so none of the arguments may depend on them.
    """
    digest = hashlib.sha256(pydantic_core.to_json([scope, path, generation])).digest()
    return "dw1_" + base64.b32encode(digest[:_DIGEST_BYTES]).decode().lower()[:_KEY_CHARACTERS]
