"""Convert the errors of MCP calls to results with the error codes of the command line and the HTTP API."""

from collections.abc import Sequence
from typing import Final

import mcp_types as types
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.errors import CommandRejected, FeedbackRejected, ServerRejected, SessionNotFound
from dagwright.core.errors import PlanInvalid
from dagwright.history.executions import RunClosed, RunNotFound
from dagwright.interfaces.mcp.elicitation import StateUnreadable
from dagwright.interfaces.mcp.tool_definitions import GET_RUN
from dagwright.interfaces.mcp.tool_results import error_result, invalid_plan_result
from dagwright.server import UNREACHABLE_STATUSES
from dagwright.store import StoreError


class McpCallRejected(Exception):
    """A call is rejected.

    Args:
        code: error code, as in documents of the command line.
        message: the problem, and what to do.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


_CODES: Final[Sequence[tuple[type[Exception], str]]] = (
    (StateUnreadable, "invalid_value"),
    (RunNotFound, "not_found"),
    (SessionNotFound, "not_found"),
    (FeedbackRejected, "answer_rejected"),
    (ServerRejected, "server_rejected"),
    (CommandRejected, "command_rejected"),
    (StoreError, "store_unavailable"),
)
"""Exceptions whose messages are sent unchanged, with their codes."""
KNOWN_ERRORS: Final[tuple[type[Exception], ...]] = (
    PlanInvalid,
    McpCallRejected,
    RunClosed,
    RPCError,
    *(kind for kind, _ in _CODES),
)
"""Exceptions of calls that are not bugs."""


def result_of_error(error: Exception) -> types.CallToolResult:
    """Return the result of a call that raised one of `KNOWN_ERRORS`."""
    match error:
        case PlanInvalid():
            return invalid_plan_result(error)
        case McpCallRejected():
            return error_result(error.code, str(error))
        case RunClosed():
            return error_result("run_ended", f"{error}; {GET_RUN} returns its result")
        case RPCError():
            return _result_of_server_error(error)
    return error_result(next(code for kind, code in _CODES if isinstance(error, kind)), str(error))


def _result_of_server_error(error: RPCError) -> types.CallToolResult:
    if error.status in UNREACHABLE_STATUSES:
        hint = f"started runs continue, and {GET_RUN} returns them later"
        return error_result("server_unavailable", f"the Temporal server does not respond; {hint}")
    if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
        return error_result("server_busy", f"the Temporal server is overloaded: {error.message}; try again")
    return error_result("server_rejected", f"the Temporal server rejected the request: {error.message}")
