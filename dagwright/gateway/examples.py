"""Examples of answers, for the document of the API; each test of the document compares them with real ones."""

from collections.abc import Mapping
from typing import Any

Example = Mapping[str, Any]
_AT = "2026-01-05T09:30:00.000Z"

RUNS: Example = {
    "object": "list",
    "data": [
        {
            "workflow_id": "run-1",
            "status": "completed",
            "title": "Double a number",
            "started_at": _AT,
            "ended_at": _AT,
            "nodes_done": 1,
            "nodes_total": 1,
            "session": None,
        }
    ],
}
_NODE: Example = {
    "title": None,
    "status": "completed",
    "tool": "calculator",
    "attempts": 1,
    "result": 42,
    "error": None,
    "started_at": _AT,
    "ended_at": _AT,
}
RUN: Example = {
    "workflow_id": "run-1",
    "run_id": "3c4e1a5e-0c6f-4d4b-9f0a-5f0c1a0e7d11",
    "status": "completed",
    "title": "Double a number",
    "output": 42,
    "error": None,
    "nodes": {"double": dict(_NODE)},
    "waiting_for": [],
    "usage": {},
    "notes": [],
    "offset": "1-11",
    "session_id": None,
}
EVENTS = """\
id: 1-5
event: nodes
data: {"run_id":"run-1","nodes":[{"node_id":"double","status":"running","attempts":1}]}

id: 1-5
event: run
data: {"run_id":"run-1","status":"running","nodes":{"running":1},"waiting_for":[],"notes":[]}

id: 1-11
event: nodes
data: {"run_id":"run-1","nodes":[{"node_id":"double","status":"completed","attempts":1}]}

id: 1-11e
event: end
data: {"run_id":"run-1","status":"completed","error":null,"output":42}

"""
GRAPH: Example = {
    "run_id": "run-1",
    "offset": "1-11",
    "nodes": [{"id": "double", "title": None, "status": "completed", "tool": "calculator"}],
    "edges": [],
    "notes": [],
}
NODE: Example = {"id": "double", **_NODE, "notes": []}
WHY: Example = {
    "workflow_id": "run-1",
    "run_id": "3c4e1a5e-0c6f-4d4b-9f0a-5f0c1a0e7d11",
    "status": "completed",
    "node": None,
    "message": "the run run-1 completed",
    "chain": [],
    "left_out": 0,
    "error": None,
    "notes": [],
}
SESSION: Example = {
    "session": "main",
    "status": "idle",
    "version": 2,
    "context": {},
    "lookups": [],
    "turns": [{"number": 1, "run": "run-1", "request": "Double 21.", "status": "completed", "response": "42"}],
    "turns_left_out": 0,
    "policy": None,
    "workflow_id": "session-main",
    "began_at": _AT,
    "run": None,
}
REQUESTS: Example = {
    "object": "list",
    "data": [
        {
            "id": "check",
            "run_id": "run-1",
            "node": "check",
            "type": "APPROVAL",
            "prompt": "Publish?",
            "schema": None,
            "options": None,
            "assignee": None,
            "opened_at": _AT,
            "deadline": None,
            "answer_schema": {
                "type": "object",
                "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
                "required": ["approved"],
                "additionalProperties": False,
            },
        }
    ],
}
ANSWERED: Example = {"run_id": "run-1", "ok": True, "message": "'check' is approved"}
CANCELLED: Example = {"run_id": "run-1", "ok": True, "message": "the run is cancelled"}
PAUSED: Example = {"run_id": "run-1", "ok": True, "message": "the run is paused"}
CHECKED: Example = {
    "status": "valid",
    "dialect": "dagwright",
    "title": None,
    "inputs": {"type": "object", "properties": {}},
    "nodes": 1,
    "errors": [],
}
STARTED: Example = {"run_id": "run-1", "status": "running", "is_new": True}
FORK: Example = {
    "run_id": "run-1",
    "fork": "run-1-fork-1f0a2b3c",
    "is_started": False,
    "difference": {
        "reused": [],
        "runs": [{"node": "double", "why": "reads another input", "effects": "pure"}],
        "undecided": [],
        "later": [],
    },
}
