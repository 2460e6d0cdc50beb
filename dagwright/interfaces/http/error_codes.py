"""The codes of error responses, each with its status, type, meaning and remedy.

The reference page is generated from `ErrorCode`. Responses about failed runs and invalid plans have other codes: the
code of the run's `error`, or of the plan's first problem.
"""

from typing import Final, Self

from dagwright.core.error_codes import DescribedCode

INVALID_REQUEST_ERROR: Final = "invalid_request_error"
SERVER_ERROR: Final = "server_error"
RUN_ERROR: Final = "run_error"
"""Error type of a run without an answer. It is not `server_error`, because clients would retry and start another run.
"""
RUN_FAILED_STATUS: Final = 422
"""Status of the response for a run that ended without an answer. Clients do not retry a request with this status."""
_RATE_LIMIT_ERROR: Final = "rate_limit_error"
_STATUS_TYPES: Final = {RUN_FAILED_STATUS: RUN_ERROR, 429: _RATE_LIMIT_ERROR}
"""Status -> error type. Other statuses have the type `server_error` from 500, else `invalid_request_error`."""
_RETRIED_STATUSES: Final = frozenset({408, 409, 429})
"""Statuses below 500 that OpenAI's clients retry. They also retry every status from 500."""
_IS_RETRYABLE: Final = True


class ErrorCode(DescribedCode):
    """Code of an error response.

    Args:
        status: HTTP status.
        is_retryable: whether the same request may succeed later.
        type: error type, in OpenAI's terms.
    """

    status: int
    is_retryable: bool
    type: str

    def __new__(
        cls, code: str, status: int, meaning: str, remedy: str, is_retryable: bool = False, type: str = ""
    ) -> Self:
        """Create a member from its row."""
        facts = {"status": status, "is_retryable": is_retryable}
        error_type = type or _STATUS_TYPES.get(status) or (SERVER_ERROR if status >= 500 else INVALID_REQUEST_ERROR)
        return cls.create_member(code, meaning=meaning, remedy=remedy, type=error_type, **facts)

    ANSWER_REJECTED = (
        "answer_rejected",
        400,
        "The answer is invalid, or no node of the run can open a request with this ID.",
        "Send an answer that matches `answer_schema` of a request in `GET /v1/inbox`.",
    )
    ANSWER_REQUIRED = (
        "answer_required",
        RUN_FAILED_STATUS,
        "The run needs an answer of a person before it has the requested output.",
        "Answer the request, and send the same `Idempotency-Key`.",
    )
    COMMAND_REJECTED = ("command_rejected", 400, "The run rejects the command.", "See the message.")
    CONTENT_FILTER = ("content_filter", 400, "A content filter blocked the answer of the model.", "Change the request.")
    CONTENT_POLICY_VIOLATION = (
        "content_policy_violation",
        400,
        "The model declined the request.",
        "Change the request.",
    )
    CONTEXT_LENGTH_EXCEEDED = (
        "context_length_exceeded",
        400,
        "The request exceeds the context window of the model.",
        "Send less, or choose another model.",
    )
    DEFECT = ("defect", 500, "A defect of the gateway.", "Report it with the log of the gateway.", _IS_RETRYABLE)
    DRAINING = (
        "draining",
        503,
        "The gateway is stopping.",
        "Send the request again, to another gateway.",
        _IS_RETRYABLE,
    )
    EMPTY_REQUEST = ("empty_request", 400, "The message is empty.", "Describe the task in text.")
    FOREIGN_HOST = ("foreign_host", 403, "The header `Host` names another host.", "Add it to `DAGWRIGHT_API_HOSTS`.")
    FOREIGN_ORIGIN = (
        "foreign_origin",
        403,
        "A page of another origin sent the request.",
        "Add the origin to `DAGWRIGHT_API_ORIGINS`.",
    )
    FORK_REJECTED = ("fork_rejected", 400, "The fork is not possible.", "See the message.")
    IDEMPOTENCY_KEY_IN_USE = ("idempotency_key_in_use", 409, "The key belongs to another request.", "Use another key.")
    INPUTS_EXPECTED = (
        "inputs_expected",
        400,
        "The message has text instead of the inputs of the plan.",
        "Send the inputs as JSON.",
    )
    INSUFFICIENT_QUOTA = (
        "insufficient_quota",
        429,
        "The credit of the model service is used up.",
        "Raise the quota.",
        False,
        "insufficient_quota",
    )
    INSUFFICIENT_SCOPE = (
        "insufficient_scope",
        403,
        "The key lacks a scope.",
        "Create a key with `dagwright keys add`.",
    )
    INVALID = ("invalid", 400, "The session rejects the request.", "See the message.")
    INVALID_API_KEY = ("invalid_api_key", 401, "The key is missing or unknown.", "Send `Authorization: Bearer KEY`.")
    INVALID_FIELD = ("invalid_field", 400, "The text of the request is not valid Unicode.", "Send text in UTF-8.")
    INVALID_JSON = (
        "invalid_json",
        400,
        "The body is not valid JSON.",
        "Correct it, and send it with `Content-Type: application/json`.",
    )
    INVALID_RUN_ID = ("invalid_run_id", 400, "The ID is not valid for a run.", "Choose an ID that the message allows.")
    INVALID_SESSION_ID = (
        "invalid_session_id",
        400,
        "The ID is not valid for a session.",
        "Choose an ID that the message allows.",
    )
    INVALID_VALUE = ("invalid_value", 400, "The field in `param` is invalid.", "Correct it.")
    KEYS_UNREADABLE = ("keys_unreadable", 503, "The file of keys cannot be read.", "Repair the file.", _IS_RETRYABLE)
    METHOD_NOT_ALLOWED = (
        "method_not_allowed",
        405,
        "The path does not support the method.",
        "Use a method of the header `Allow`.",
    )
    MODEL_ADDRESS_INVALID = (
        "model_address_invalid",
        503,
        "The address of the model service is wrong.",
        "Correct `OPENAI_BASE_URL` of the gateway.",
    )
    MODEL_FORBIDDEN = (
        "model_forbidden",
        503,
        "The key of the gateway may not use the model.",
        "Grant access at the model service, or choose another model.",
    )
    MODEL_KEY_MISSING = (
        "model_key_missing",
        503,
        "The gateway has no key for the model service.",
        "Set `OPENAI_API_KEY` of the gateway.",
    )
    MODEL_KEY_REJECTED = (
        "model_key_rejected",
        503,
        "The model service rejects the key of the gateway.",
        "Correct `OPENAI_API_KEY` of the gateway.",
    )
    MODEL_NOT_FOUND = ("model_not_found", 404, "The model is unknown.", "List the models with `GET /v1/models`.")
    MODEL_NOT_SET = ("model_not_set", 400, "The request names no model.", "List the models with `GET /v1/models`.")
    MODEL_OUTPUT_INVALID = (
        "model_output_invalid",
        502,
        "The answer of the model does not match its schema.",
        "Retry, or choose another model.",
        _IS_RETRYABLE,
    )
    MODEL_REQUEST_INVALID = (
        "model_request_invalid",
        400,
        "The model service rejects the request.",
        "See the message, which quotes the service.",
    )
    MODEL_RESPONSE_INVALID = (
        "model_response_invalid",
        502,
        "The model service returned an invalid answer.",
        "Retry.",
        _IS_RETRYABLE,
    )
    MODEL_TRUNCATED = ("model_truncated", 400, "The answer exceeds `max_tokens`.", "Raise `max_tokens`.")
    MODEL_UNAVAILABLE = (
        "model_unavailable",
        503,
        "The model service does not respond.",
        "Retry after `Retry-After` seconds.",
        _IS_RETRYABLE,
    )
    NOT_FOUND = (
        "not_found",
        404,
        "The run, plan, node, session, request or limit does not exist for the key.",
        "Check the ID.",
    )
    NOT_READY = (
        "not_ready",
        503,
        "Temporal or the payload store does not respond to the gateway.",
        "See the log of the gateway.",
        _IS_RETRYABLE,
    )
    NOT_STARTED = ("not_started", 409, "The run of the turn could not be started.", "Retry.", _IS_RETRYABLE)
    NO_OPEN_REQUEST = (
        "no_open_request",
        409,
        "The run has no open request, or the form of the answer needs an open request with this ID.",
        "List the open requests with `GET /v1/inbox`.",
    )
    NO_TOOLS = ("no_tools", 400, "There is no tool for the request.", "Name tools or agents that the gateway has.")
    NO_WORKER = (
        "no_worker",
        503,
        "No worker serves the session or the run.",
        "Retry after `Retry-After` seconds.",
        _IS_RETRYABLE,
    )
    OUTPUT_INVALID = (
        "output_invalid",
        RUN_FAILED_STATUS,
        "The output of the run does not match the requested format.",
        "Change the plan, or the format.",
    )
    PLAN_UNUSABLE = (
        "plan_unusable",
        RUN_FAILED_STATUS,
        "A published plan is invalid.",
        "Correct the file of the plan.",
        False,
        INVALID_REQUEST_ERROR,
    )
    RATE_LIMIT_EXCEEDED = (
        "rate_limit_exceeded",
        429,
        "A limit of the key or of the model service is exceeded.",
        "Retry after `Retry-After` seconds.",
        _IS_RETRYABLE,
    )
    REQUEST_TOO_LARGE = ("request_too_large", 413, "The body is too large.", "Send less.")
    ROUTING_MODE_UNFIT = (
        "routing_mode_unfit",
        400,
        "The request cannot be handled in this routing mode.",
        "Omit `routing_mode`.",
    )
    RUN_CANCELLED = (
        "run_cancelled",
        RUN_FAILED_STATUS,
        "The run was cancelled before it had an answer.",
        "Start it again.",
    )
    RUN_ENDED = (
        "run_ended",
        409,
        "The run has ended, so it accepts no commands.",
        "Start another run, or fork the ended run.",
    )
    RUN_FAILED = (
        "run_failed",
        RUN_FAILED_STATUS,
        "The run failed; its error has no code.",
        "See `GET /v1/runs/{run_id}/explain`.",
    )
    SERVER_BUSY = ("server_busy", 429, "Temporal is overloaded.", "Retry after `Retry-After` seconds.", _IS_RETRYABLE)
    SERVER_REJECTED = ("server_rejected", 400, "The Temporal server rejects the request.", "See the message.")
    SERVER_UNAVAILABLE = (
        "server_unavailable",
        503,
        "Temporal does not respond.",
        "Retry after `Retry-After` seconds.",
        _IS_RETRYABLE,
    )
    SESSION_BUSY = (
        "session_busy",
        409,
        "Another turn of the session is running.",
        "Retry when it has ended.",
        _IS_RETRYABLE,
    )
    SESSION_CHANGED = (
        "session_changed",
        409,
        "The session changed while the turn was prepared.",
        "Retry.",
        _IS_RETRYABLE,
    )
    SESSION_ENDING = (
        "session_ending",
        409,
        "The session is ending.",
        "Retry, or use another session.",
        _IS_RETRYABLE,
    )
    SESSION_WAITS_FOR_ANSWER = (
        "session_waits_for_answer",
        409,
        "A request of the session must be answered first.",
        "Answer it, or cancel its run.",
    )
    STORE_UNAVAILABLE = (
        "store_unavailable",
        503,
        "The payload store does not respond.",
        "Retry after `Retry-After` seconds.",
        _IS_RETRYABLE,
    )
    TOO_LARGE = (
        "too_large",
        400,
        "A part of the request is over a limit, or nested too deep.",
        "Send less; see [limits](limits.md).",
    )
    UNKNOWN_ITEM = ("unknown_item", 400, "`input` references an unknown item.", "Send the items of the last response.")
    UNKNOWN_TOOL_CALL = (
        "unknown_tool_call",
        400,
        "The conversation has the result of an unknown call.",
        "Send the messages of the last response.",
    )
    UNKNOWN_URL = ("unknown_url", 404, "The path does not exist.", "See `GET /openapi.json`.")
    UNSUPPORTED_CONTENT = (
        "unsupported_content",
        400,
        "The content is not text, or has an unsupported type.",
        "Send text.",
    )
    UNSUPPORTED_PARAMETER = (
        "unsupported_parameter",
        400,
        "The gateway does not support the parameter.",
        "Omit it.",
    )
    UNSUPPORTED_TOOL = (
        "unsupported_tool",
        400,
        "The gateway does not support the type of the tool.",
        "Send functions only.",
    )

    @property
    def forbids_retries(self) -> bool:
        """Whether the response needs `x-should-retry: false`: clients retry this status, but a retry cannot help."""
        return not self.is_retryable and (self.status in _RETRIED_STATUSES or self.status >= 500)
