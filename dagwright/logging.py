"""Log lines: structlog on stderr, for people or as JSON, with workflow_id, node_id and attempt.

All lines pass the root logger of the standard library, so lines of Temporal's SDK and of its `workflow.logger`
(silent on replay) have the same format. Workflow code logs through `workflow.logger` and never imports this module;
all other code uses loggers from `structlog.stdlib.get_logger`.
"""

import functools
import logging
import re
import sys
import time
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger
from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

from dagwright.core.boundary.wire import INTERNAL_ACTIVITIES
from dagwright.settings import Settings

OWN_LOGGERS = (
    "dagwright",
    "temporalio.workflow",
    "temporalio.activity",
)
"""Loggers that follow `log_level`. Other loggers log at `warning` and higher, because clients log each request."""

_CORE_LOGGER = "temporalio.core"
_ACTIVITY_LOGGER = "temporalio.activity"
_FAILED_MESSAGE = "Completing activity as failed"
"""Message of the SDK for each failed attempt, with the traceback, in `temporalio/worker/_activity.py`."""
_LOST_SERVER_MESSAGE = re.compile(r"tonic::transport::Error|[Cc]ode: Unavailable")
"""Messages of the SDK's core, several per second, while the server is unavailable."""
_LOST_SERVER_PAUSE_S = 30.0


def configure_logging(settings: Settings) -> None:
    """Write all log lines of this process to stderr in the configured format; call this function once."""
    pre_chain: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_call,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *pre_chain,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = _StderrHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*pre_chain, structlog.stdlib.ExtraAdder(), _add_temporal_ids],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(settings)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_CORE_LOGGER).filters = [_LostServer()]
    logging.getLogger(_ACTIVITY_LOGGER).filters = [_ExpectedFailures()]
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(settings.log_level.upper())
    workflow.logger.workflow_info_on_message = False
    activity.logger.activity_info_on_message = False


@functools.cache
def temporal_runtime() -> Runtime:
    """Return the runtime of all Temporal clients of this process; its log lines have the configured format.

    By default, the SDK's core writes log lines itself, which would break the live progress display.
    """
    forwarding = LogForwardingConfig(
        logging.getLogger(_CORE_LOGGER), append_target_to_name=False, prepend_target_on_message=False
    )
    core = LoggingConfig(TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding=forwarding)
    return Runtime(telemetry=TelemetryConfig(logging=core))


def configure_default_logging(settings: Settings, *, level: str | None = None) -> None:
    """Configure logging for a program that has not configured any.

    Otherwise the SDK writes a traceback for each failure.

    Args:
        level: lowest level, unless the settings have one.
    """
    if logging.getLogger().handlers or structlog.is_configured():
        return
    if level is not None and "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": level})
    configure_logging(settings)


def _renderers(settings: Settings) -> list[Processor]:
    # Tracebacks are plain: rich tracebacks print local variables, which may be secrets.
    if settings.log_format == "json":
        return [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
        ]
    colors = settings.no_color is None and sys.stderr.isatty()
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]


def add_call(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the call and the attempt that wrote a line, if a call wrote it."""
    if activity.in_activity():
        info = activity.info()
        _add_call(event, info.workflow_id, kind=info.activity_type, activity_id=info.activity_id, attempt=info.attempt)
    return event


def _add_call(event: EventDict, workflow_id: Any, *, kind: Any, activity_id: Any, attempt: Any) -> None:
    event.setdefault("run_id", workflow_id)
    if kind in INTERNAL_ACTIVITIES:
        # The activity ID is a number or a marker, not a node ID.
        event.setdefault("activity", kind)
    else:
        event.setdefault("node_id", activity_id)
    event.setdefault("attempt", attempt)


def _add_temporal_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Copy the IDs that Temporal's loggers attach to a record; existing IDs are not replaced."""
    workflow_fields = event.pop("temporal_workflow", None)
    activity_fields = event.pop("temporal_activity", None)
    for key in [key for key in event if key.startswith(("temporal_", "__temporal_"))]:
        del event[key]
    if isinstance(workflow_fields, MutableMapping):
        event.setdefault("run_id", workflow_fields.get("workflow_id"))
        event.setdefault("attempt", workflow_fields.get("attempt"))
    if isinstance(activity_fields, MutableMapping):
        kind, activity_id = activity_fields.get("activity_type"), activity_fields.get("activity_id")
        attempt = activity_fields.get("attempt")
        _add_call(event, activity_fields.get("workflow_id"), kind=kind, activity_id=activity_id, attempt=attempt)
    return event


class _LostServer(logging.Filter):
    """Replaces the messages of the core about an unavailable server by one sentence from time to time."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at = -_LOST_SERVER_PAUSE_S

    def filter(self, record: logging.LogRecord) -> bool:
        if _LOST_SERVER_MESSAGE.search(record.getMessage()) is None:
            return True
        now = time.monotonic()
        if now - self._logged_at < _LOST_SERVER_PAUSE_S:
            return False
        self._logged_at = now
        record.msg, record.args = "the Temporal server does not respond; the client keeps retrying", ()
        return True


class _ExpectedFailures(logging.Filter):
    """Reduces expected failures of attempts to one line; unexpected failures keep their traceback.

    The wrapper of tools has already logged its failures, with the tool and whether there will be another attempt.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if record.msg != _FAILED_MESSAGE or not isinstance(error, ApplicationError):
            return True
        kind = getattr(record, "temporal_activity", {}).get("activity_type")
        if kind not in INTERNAL_ACTIVITIES:
            return False
        record.msg, record.args, record.exc_info = f"{kind} failed", (), None
        record.__dict__.update(code=error.type, is_final=error.non_retryable, reason=error.message)
        return True


class _StderrHandler(logging.Handler):
    """Handler for the current `sys.stderr`. The live progress display replaces `sys.stderr` while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:
            # The outermost handler of logging: an error while writing a line must not end the logging code.
            self.handleError(record)
