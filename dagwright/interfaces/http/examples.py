"""Example responses for the OpenAPI document; tests compare them with real responses."""

from collections.abc import Mapping
from typing import Any

Example = Mapping[str, Any]
_TIME = "2026-01-05T09:30:00.000Z"

RUNS: Example = {
    "object": "list",
    "data": [
        {
            "run_id": "run-1",
            "status": "completed",
            "title": "Double a number",
            "started_at": _TIME,
            "ended_at": _TIME,
            "nodes_done": 1,
            "nodes_total": 1,
            "session_id": None,
            "error": None,
            "tags": {"order": "4711"},
        }
    ],
    "has_more": False,
    "cursor": None,
    "ui_url": "http://127.0.0.1:8233/namespaces/default/workflows",
}
_NODE: Example = {
    "title": None,
    "status": "completed",
    "tool": "calculator",
    "attempts": 1,
    "result": 42,
    "error": None,
    "started_at": _TIME,
    "ended_at": _TIME,
}
RUN: Example = {
    "run_id": "run-1",
    "execution_id": "3c4e1a5e-0c6f-4d4b-9f0a-5f0c1a0e7d11",
    "status": "completed",
    "title": "Double a number",
    "output": 42,
    "error": None,
    "nodes": {"double": dict(_NODE)},
    "tags": {"order": "4711"},
    "waiting_for": [],
    "usage": {},
    "notes": [],
    "started_at": _TIME,
    "ended_at": _TIME,
    "cursor": "1-11",
    "session_id": None,
    "ui_url": "http://127.0.0.1:8233/namespaces/default/workflows/run-1/3c4e1a5e-0c6f-4d4b-9f0a-5f0c1a0e7d11/history",
}
EVENTS = """\
event: node.started
data: {"run_id":"run-1","node_id":"double","status":"running","attempts":1}

id: 1-5
event: run.running
data: {"run_id":"run-1","status":"running","node_counts":{"running":1},"waiting_for":[],"notes":[]}

id: 1-11
event: node.completed
data: {"run_id":"run-1","node_id":"double","status":"completed","attempts":1}

id: 1-11e
event: run.completed
data: {"run_id":"run-1","status":"completed","node_counts":{"completed":1},"waiting_for":[],"notes":[],\
"error":null,"output":42}

"""
ORCHESTRATION_EVENTS = """\
event: node_started
data: {"type":"node_started","node_id":"double","data":{"status":"running","attempts":1}}

id: 1-11
event: node_completed
data: {"type":"node_completed","node_id":"double","data":{"status":"completed","attempts":1}}

"""
INPUTS: Example = {
    "run_id": "run-1",
    "input_schema": {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    },
    "inputs": {"number": 21},
}
GRAPH: Example = {
    "run_id": "run-1",
    "cursor": "1-11",
    "nodes": [{"node_id": "double", "title": None, "status": "completed", "tool": "calculator"}],
    "edges": [],
    "notes": [],
}
NODE: Example = {"node_id": "double", **_NODE, "arguments": {"expression": "21 * 2"}, "notes": []}
EXPLANATION: Example = {
    "run_id": "run-1",
    "execution_id": "3c4e1a5e-0c6f-4d4b-9f0a-5f0c1a0e7d11",
    "status": "completed",
    "node_id": None,
    "message": "the run run-1 completed",
    "chain": [],
    "omitted": 0,
    "error": None,
    "notes": [],
}
SESSION: Example = {
    "session_id": "main",
    "status": "idle",
    "version": 2,
    "context": {},
    "lookups": [],
    "turns": [{"number": 1, "run_id": "run-1", "request": "Double 21.", "status": "completed", "response": "42"}],
    "omitted_turns": 0,
    "policy": None,
    "started_at": _TIME,
    "run": None,
}
SESSIONS: Example = {
    "object": "list",
    "data": [
        {
            "session_id": "main",
            "status": "idle",
            "started_at": _TIME,
            "turn_count": 1,
            "last_request": "Double 21.",
            "last_run_id": "run-1",
        }
    ],
    "has_more": False,
    "cursor": None,
}
REQUESTS: Example = {
    "object": "list",
    "data": [
        {
            "request_id": "check",
            "run_id": "run-1",
            "title": "Publish a number",
            "node_id": "check",
            "type": "APPROVAL",
            "prompt": "Publish?",
            "schema": None,
            "options": None,
            "assignee": None,
            "opened_at": _TIME,
            "deadline": None,
            "answer_schema": {
                "type": "object",
                "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
                "required": ["approved"],
                "additionalProperties": False,
            },
        }
    ],
    "has_more": False,
    "cursor": None,
}
INBOX: Example = {**REQUESTS, "omitted": [{"run_id": "run-2", "count": 950}]}
REQUEST_ANSWERED: Example = {"run_id": "run-1", "ok": True, "message": "'check' is answered"}
RUN_CANCELLED: Example = {"run_id": "run-1", "ok": True, "message": "the run is being stopped"}
LIMITS_CHANGED: Example = {"run_id": "run-1", "ok": True, "message": "the run now has max_parallel 8 and deadline 4h"}
LIMITS: Example = {"run_id": "run-1", "max_parallel": 8, "deadline": "2026-01-05T13:30:00.000Z"}
POLICY_CHANGED: Example = {"run_id": "run-1", "ok": True, "message": "the policy is changed"}
POLICY: Example = {
    "run_id": "run-1",
    "policy": {"rules": [{"effects": ["write"], "then": "ask"}], "otherwise": "run"},
}
CALL_LIMIT: Example = {
    "subject": "tool:http_request",
    "limit": "20/s concurrency=5",
    "is_declared": False,
    "by": "ann",
}
CALL_LIMITS: Example = {"object": "list", "data": [{**CALL_LIMIT, "running": 5, "waiting": 12}]}
REMOVED_CALL_LIMIT: Example = {"subject": "tool:http_request", "limit": "20/s concurrency=5"}
RUN_PAUSED: Example = {"run_id": "run-1", "ok": True, "message": "the run is paused; running nodes finish"}
PLAN_CHECK: Example = {
    "status": "valid",
    "dialect": "plan",
    "title": None,
    "node_count": 1,
    "edge_count": 0,
    "critical_path": ["sum"],
    "input_schema": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    "notes": [],
    "errors": [],
}
PUBLISHED_PLAN: Example = {
    "name": "double",
    "title": "Double a number",
    "description": None,
    "dialect": "plan",
    "input_schema": {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    },
    "plan": {
        "plan": 1,
        "title": "Double a number",
        "inputs": {"number": {"type": "integer"}},
        "nodes": [{"id": "double", "tool": "calculator", "arguments": {"expression": "{{PLACEHOLDER_number}} * 2"}}],
        "output": "{{double.result}}",
    },
}
STARTED_RUN: Example = {"run_id": "run-1", "status": "running", "created": True}
FORK: Example = {
    "run_id": "run-1",
    "fork_run_id": "run-1-fork-1f0a2b3c",
    "started": False,
    "difference": {
        "reused": [],
        "executed": [{"node_id": "double", "reason": "reads another input", "effects": "pure"}],
        "reused_if_unchanged": [],
        "decided_later": [],
        "planned_again": [],
    },
}

_USAGE: Example = {
    "prompt_tokens": 812,
    "completion_tokens": 64,
    "total_tokens": 876,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
_RUN_SUMMARY: Example = {"run_id": "run-1", "session_id": None, "status": "completed", "node_counts": {"completed": 1}}
MODEL: Example = {
    "id": "plan/double",
    "object": "model",
    "created": 0,
    "owned_by": "dagwright",
    "dagwright": {
        "kind": "plan",
        "title": "Double a number",
        "input_schema": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}
MODELS: Example = {
    "object": "list",
    "data": [
        {
            "id": "gpt-4o-mini",
            "object": "model",
            "created": 0,
            "owned_by": "service",
            "dagwright": {"kind": "model"},
        },
        MODEL,
    ],
}
COMPLETION: Example = {
    "id": "chatcmpl-run-1",
    "object": "chat.completion",
    "created": 1_767_605_400,
    "model": "plan/double",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "42", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": _USAGE,
    "dagwright": _RUN_SUMMARY,
}
CHUNKS = """\
id: run-1/c1/1-0/0.0.00000000./0
data: {"id":"chatcmpl-run-1","object":"chat.completion.chunk","created":1767605400,"model":"plan/double",\
"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}

id: run-1/c1/1-11/2.2.3224b088./0.24abb25b
data: {"id":"chatcmpl-run-1","object":"chat.completion.chunk","created":1767605400,"model":"plan/double",\
"choices":[{"index":0,"delta":{"content":"42"},"logprobs":null,"finish_reason":null}]}

id: run-1/c1/1-11/2.2.3224b088./2.24abb25b
data: {"id":"chatcmpl-run-1","object":"chat.completion.chunk","created":1767605400,"model":"plan/double",\
"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],\
"dagwright":{"run_id":"run-1","session_id":null,"status":"completed","node_counts":{"completed":1}}}

id: run-1/c1/1-11/2.2.3224b088./3.24abb25b
data: [DONE]

"""
RESPONSE: Example = {
    "id": "resp_run-1.cGxhbi9kb3VibGU",
    "object": "response",
    "created_at": 1_767_605_400,
    "status": "completed",
    "background": False,
    "error": None,
    "model": "plan/double",
    "output": [
        {
            "type": "message",
            "id": "msg_run-1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "42", "annotations": [], "logprobs": []}],
        }
    ],
    "usage": {
        "input_tokens": 812,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 64,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 876,
    },
    "dagwright": _RUN_SUMMARY,
}
RESPONSE_EVENTS = """\
id: run-1/r1/1-0/0.0.00000000./0
event: response.created
data: {"type":"response.created","sequence_number":0,\
"response":{"id":"resp_run-1.cGxhbi9kb3VibGU","status":"in_progress"}}

id: run-1/r4/1-11/2.2.3224b088./0.24abb25b
event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":10376,"output_index":0,"item_id":"msg_run-1",\
"content_index":0,"delta":"42","logprobs":[]}

id: run-1/r4/1-11/2.2.3224b088./5.24abb25b
event: response.completed
data: {"type":"response.completed","sequence_number":12292,\
"response":{"id":"resp_run-1.cGxhbi9kb3VibGU","status":"completed"}}

"""
HEALTH: Example = {"status": "ok"}
READY: Example = {"status": "ok", "checks": {"temporal": "ok", "store": "ok"}}


def _error(
    message: str, code: str, *, type: str = "invalid_request_error", param: str | None = None
) -> Mapping[str, Any]:
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


ERRORS: Mapping[int, Example] = {
    400: _error("stream_progress must be content, progress, full, not 'all'", "invalid_value", param="stream_progress"),
    401: _error("this gateway needs a key: send Authorization: Bearer KEY", "invalid_api_key"),
    403: _error(
        "this key lacks the scope 'run'; create one that has it with `dagwright keys add`", "insufficient_scope"
    ),
    404: _error("there is no run 'run-1'", "not_found"),
    409: _error("the id 'run-1' belongs to another run", "idempotency_key_in_use"),
    413: _error("the body may have at most 33,554,432 bytes", "request_too_large"),
    422: _error(
        "the run 'run-1' failed: 'double' failed; "
        "`dagwright explain run-1` or GET /v1/runs/run-1/explain has the details",
        "run_failed",
        type="run_error",
    ),
    429: _error("a key may make 600 requests a minute", "rate_limit_exceeded", type="rate_limit_error"),
    502: _error("the model 'gpt-4o-mini' returned an invalid answer", "model_response_invalid", type="server_error"),
    503: _error(
        "the Temporal server does not respond; nothing was lost, try again", "server_unavailable", type="server_error"
    ),
}
"""Status -> example of the error body."""
