"""The key under which an effect happens at most once (design.md section 5, engine-findings.md 4)."""

import base64
import hashlib
import json
from collections.abc import Sequence


def idempotency_key(scope: str, path: Sequence[Sequence[str]], *, generation: int = 0) -> str:
    """Returns the 40-character key of a node's effect.

    Args:
        scope: `first_execution_run_id` of the root run.
        path: typed path from the root: `[["node", id], ["item", key], …]`.
        generation: rises only when a person asks for the effect again.

    Replay: attempts, crashes, continue-as-new and resets keep the key, so none of the arguments may depend on them.
    """
    canonical = json.dumps([scope, path, generation], ensure_ascii=False, separators=(",", ":"))
    digest = base64.b32encode(hashlib.sha256(canonical.encode()).digest()).decode().lower()
    return "dw1_" + digest[:36]
