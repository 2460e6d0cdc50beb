"""Log lines: structlog on stderr, for people or as JSON, with `run_id`, `node_id` and `attempt`.

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

CONFIGURED_LOGGERS = (
    "dagwright",
    "temporalio.workflow",
    "temporalio.activity",
)
"""Loggers that follow `log_level`. Other loggers log at `warning` and higher, because HTTP clients log each request."""

_CORE_LOGGER = "temporalio.core"
_ACTIVITY_LOGGER = "temporalio.activity"
_FAILED_MESSAGE = "Completing activity as failed"
"""Message that the SDK logs with a traceback for each failed attempt; see `temporalio/worker/_activity.py`."""
_LOST_SERVER_MESSAGE = re.compile(r"tonic::transport::Error|[Cc]ode: Unavailable")
"""Messages of the SDK's core, several per second, while the Temporal server is unavailable."""
_LOST_SERVER_LOG_INTERVAL_S = 30.0


def configure_logging(settings: Settings) -> None:
    """Write all log lines of this process to stderr in the configured format; call this function once."""
    pre_chain: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        add_activity_fields,
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
    logging.getLogger(_CORE_LOGGER).filters = [_LostServerFilter()]
    logging.getLogger(_ACTIVITY_LOGGER).filters = [_ExpectedFailureFilter()]
    for name in CONFIGURED_LOGGERS:
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
    """Configure logging unless the program has already configured it.

    Without a configuration, the SDK writes a traceback for each failure.

    Args:
        level: lowest level that is logged, unless the settings set `log_level`.
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


def add_activity_fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the run, the node or activity, and the attempt to a line that is logged in an activity."""
    if activity.in_activity():
        info = activity.info()
        _set_activity_fields(
            event,
            info.workflow_id,
            activity_type=info.activity_type,
            activity_id=info.activity_id,
            attempt=info.attempt,
        )
    return event


def _set_activity_fields(event: EventDict, run_id: Any, *, activity_type: Any, activity_id: Any, attempt: Any) -> None:
    event.setdefault("run_id", run_id)
    if activity_type in INTERNAL_ACTIVITIES:
        # The activity ID is a number or a marker, not a node ID.
        event.setdefault("activity", activity_type)
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
        activity_type, activity_id = activity_fields.get("activity_type"), activity_fields.get("activity_id")
        attempt = activity_fields.get("attempt")
        _set_activity_fields(
            event,
            activity_fields.get("workflow_id"),
            activity_type=activity_type,
            activity_id=activity_id,
            attempt=attempt,
        )
    return event


class _LostServerFilter(logging.Filter):
    """Replaces the core's messages about an unavailable server with one line per `_LOST_SERVER_LOG_INTERVAL_S`."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at = -_LOST_SERVER_LOG_INTERVAL_S

    def filter(self, record: logging.LogRecord) -> bool:
        if _LOST_SERVER_MESSAGE.search(record.getMessage()) is None:
            return True
        now = time.monotonic()
        if now - self._logged_at < _LOST_SERVER_LOG_INTERVAL_S:
            return False
        self._logged_at = now
        record.msg, record.args = "the Temporal server does not respond; the client keeps retrying", ()
        return True


class _ExpectedFailureFilter(logging.Filter):
    """Reduces expected failures of attempts to one line; unexpected failures keep their traceback.

    Lines about failed tools are dropped, because the wrapper of tools has already logged these failures.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if record.msg != _FAILED_MESSAGE or not isinstance(error, ApplicationError):
            return True
        activity_type = getattr(record, "temporal_activity", {}).get("activity_type")
        if activity_type not in INTERNAL_ACTIVITIES:
            return False
        record.msg, record.args, record.exc_info = f"{activity_type} failed", (), None
        record.__dict__.update(code=error.type, is_final=error.non_retryable, reason=error.message)
        return True


class _StderrHandler(logging.Handler):
    """Handler for the current `sys.stderr`. The live progress display replaces `sys.stderr` while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:
            # An error while writing a line must not reach the code that logs the line.
            self.handleError(record)
