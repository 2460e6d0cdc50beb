"""Documents of open requests."""

from typing import Any

OPENED_AT = 1_700_000_000.0


def open_request(request_id: str = "check", **fields: Any) -> dict[str, Any]:
    """Return an open APPROVAL request to ann, changed by `fields`."""
    return {
        "request_id": request_id,
        "node_id": request_id,
        "run_id": "run-1",
        "type": "APPROVAL",
        "prompt": "Publish?",
        "schema": None,
        "options": None,
        "assignee": "ann",
        "opened_at": "2023-11-14T22:13:20.000Z",
        "deadline": None,
        **fields,
    }
