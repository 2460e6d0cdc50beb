"""Operation IDs of the API, which generated clients use as method names."""

from collections.abc import Mapping

from fastapi.routing import APIRoute

_NAMES: Mapping[str, str] = {
    "GET /v1/models": "listModels",
    "GET /v1/models/{model:path}": "getModel",
    "POST /v1/chat/completions": "createChatCompletion",
    "POST /v1/responses": "createResponse",
    "GET /v1/responses/{response_id}": "getResponse",
    "POST /v1/responses/{response_id}/cancel": "cancelResponse",
    "GET /v1/sessions": "listSessions",
    "GET /v1/sessions/{session_id}": "getSession",
    "GET /v1/sessions/{session_id}/events": "streamSessionEvents",
    "GET /v1/sessions/{session_id}/graph": "getSessionGraph",
    "GET /v1/sessions/{session_id}/feedback": "listSessionRequests",
    "POST /v1/sessions/{session_id}/feedback": "answerSessionRequest",
    "POST /v1/sessions/{session_id}/cancel": "cancelSessionRun",
    "GET /v1/orchestration/{session_id}/events": "streamOrchestrationEvents",
    "POST /v1/plans/check": "checkPlan",
    "GET /v1/plans/{name}": "getPlan",
    "POST /v1/runs": "createRun",
    "GET /v1/runs": "listRuns",
    "GET /v1/runs/{run_id}": "getRun",
    "GET /v1/runs/{run_id}/answer": "streamRunAnswer",
    "GET /v1/runs/{run_id}/events": "streamRunEvents",
    "GET /v1/runs/{run_id}/inputs": "getRunInputs",
    "GET /v1/runs/{run_id}/graph": "getRunGraph",
    "GET /v1/runs/{run_id}/explain": "explainRun",
    "GET /v1/runs/{run_id}/feedback": "listRunRequests",
    "POST /v1/runs/{run_id}/feedback": "answerRunRequest",
    "POST /v1/runs/{run_id}/cancel": "cancelRun",
    "POST /v1/runs/{run_id}/pause": "pauseRun",
    "POST /v1/runs/{run_id}/resume": "resumeRun",
    "POST /v1/runs/{run_id}/fork": "forkRun",
    "GET /v1/runs/{run_id}/limits": "getRunLimits",
    "POST /v1/runs/{run_id}/limits": "updateRunLimits",
    "GET /v1/runs/{run_id}/policy": "getRunPolicy",
    "POST /v1/runs/{run_id}/policy": "updateRunPolicy",
    "POST /v1/runs/{run_id}/nodes": "addNodes",
    "GET /v1/runs/{run_id}/nodes/{node:path}": "getNode",
    "POST /v1/runs/{run_id}/nodes/{node:path}/cancel": "cancelNode",
    "POST /v1/runs/{run_id}/nodes/{node:path}/retry": "retryNode",
    "POST /v1/runs/{run_id}/nodes/{node:path}/result": "setNodeResult",
    "GET /v1/inbox": "listInbox",
    "GET /livez": "getLiveness",
    "GET /readyz": "getReadiness",
}


def operation_id(route: APIRoute) -> str:
    """Return the ID of an operation; the name of its function if it has none here."""
    names = [_NAMES.get(f"{method} {route.path}") for method in sorted(route.methods or ())]
    return next(filter(None, names), route.name)
