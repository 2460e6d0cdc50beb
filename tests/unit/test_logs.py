"""Log lines: the same format for structlog, the standard library and the loggers of Temporal."""

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog
from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from dagwright.logging import CONFIGURED_LOGGERS, configure_logging
from dagwright.settings import Settings


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root, structlog_config = logging.getLogger(), structlog.get_config()
    root_state = (root.handlers, root.level, {name: logging.getLogger(name).level for name in CONFIGURED_LOGGERS})
    configure_logging(Settings(log_format="json"))
    yield
    root.handlers, level, levels = root_state
    root.setLevel(level)
    for name, logger_level in levels.items():
        logging.getLogger(name).setLevel(logger_level)
    structlog.configure(**structlog_config)
    workflow.logger.workflow_info_on_message = True
    activity.logger.activity_info_on_message = True


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    out, err = capsys.readouterr()
    assert out == ""
    lines = [json.loads(line) for line in err.splitlines()]
    for line in lines:
        assert line.pop("timestamp").endswith("Z")
    return lines


def _activity_environment(activity_type: str, *, activity_id: str) -> ActivityEnvironment:
    environment = ActivityEnvironment()
    fields: Any = {"activity_type": activity_type, "activity_id": activity_id, "attempt": 2}
    environment.info = replace(environment.info, workflow_id="run-1", **fields)
    return environment


async def test_each_log_line_of_an_attempt_has_the_ids_of_the_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    async def call() -> None:
        structlog.stdlib.get_logger("dagwright.tools").info("called", status=200)
        await asyncio.to_thread(
            logging.getLogger("dagwright.activities").warning, "in a %s", "thread", extra={"size": 3}
        )

    await _activity_environment("fetch_emails", activity_id="fetch").run(call)
    structlog.stdlib.get_logger("dagwright.tools").info("after")
    _activity_environment("compile_plan", activity_id="1").run(
        structlog.stdlib.get_logger("dagwright.activities").info, "read"
    )
    node_ids = {"run_id": "run-1", "node_id": "fetch", "attempt": 2}
    activity_ids = {"run_id": "run-1", "activity": "compile_plan", "attempt": 2}
    assert _lines(capsys) == [
        {"event": "called", "level": "info", "logger": "dagwright.tools", "status": 200, **node_ids},
        {"event": "in a thread", "level": "warning", "logger": "dagwright.activities", "size": 3, **node_ids},
        {"event": "after", "level": "info", "logger": "dagwright.tools"},
        {"event": "read", "level": "info", "logger": "dagwright.activities", **activity_ids},
    ]


def test_log_lines_of_temporal_have_the_run_id_and_node_id(capsys: pytest.CaptureFixture[str]) -> None:
    workflow_fields = {"workflow_id": "run-1", "run_id": "r", "attempt": 1, "task_queue": "dagwright"}
    activity_fields = {"workflow_id": "run-1", "activity_id": "fetch", "attempt": 3, "activity_type": "fetch_emails"}
    workflow_extra = {"temporal_workflow": workflow_fields, "node_id": "fetch"}
    logging.getLogger("temporalio.workflow").info("dispatched", extra=workflow_extra)
    logging.getLogger("temporalio.activity").info("started", extra={"temporal_activity": activity_fields})
    ids = {"run_id": "run-1", "node_id": "fetch"}
    assert _lines(capsys) == [
        {"event": "dispatched", "level": "info", "logger": "temporalio.workflow", "attempt": 1, **ids},
        {"event": "started", "level": "info", "logger": "temporalio.activity", "attempt": 3, **ids},
    ]


def _log_failure(error: Exception, *, activity_type: str, activity_id: str) -> None:
    activity_fields = {"workflow_id": "run-1", "activity_id": activity_id, "activity_type": activity_type, "attempt": 2}
    try:
        raise error
    except Exception:
        logging.getLogger("temporalio.activity").warning(
            "Completing activity as failed",
            exc_info=True,
            extra={"temporal_activity": activity_fields, "__temporal_error_identifier": "ActivityFailure"},
        )


def test_ordinary_failure_is_logged_in_one_line_and_a_defect_with_its_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _log_failure(ApplicationError("too hot", type="tool_failed"), activity_type="bake", activity_id="cake")
    error = ApplicationError("there is no tool 'x'", [], type="invalid", non_retryable=True)
    _log_failure(error, activity_type="compile_plan", activity_id="1")
    _log_failure(KeyError("oops"), activity_type="compile_plan", activity_id="1")
    # The tool failure has no line here, because the wrapper of the tool logs it.
    failure_line, defect_line = _lines(capsys)
    ids = {"run_id": "run-1", "attempt": 2, "activity": "compile_plan"}
    fields = {"level": "warning", "logger": "temporalio.activity", **ids}
    reason = {"code": "invalid", "is_final": True, "reason": "there is no tool 'x'"}
    assert failure_line == {"event": "compile_plan failed", **reason, **fields}
    assert str(defect_line.pop("exception")).endswith("KeyError: 'oops'")
    assert defect_line == {"event": "Completing activity as failed", **fields}


def test_log_level_applies_to_dagwright_loggers_while_other_loggers_log_only_warnings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(Settings(log_format="json", log_level="debug"))
    for name in ("dagwright.server", "httpx"):
        for level in (logging.DEBUG, logging.WARNING):
            logging.getLogger(name).log(level, "message")
    dagwright_lines = [("dagwright.server", "debug"), ("dagwright.server", "warning")]
    assert [(line["logger"], line["level"]) for line in _lines(capsys)] == [*dagwright_lines, ("httpx", "warning")]


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_traceback_shows_no_local_variables(capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    configure_logging(Settings.model_validate({"log_format": log_format}))
    token = "-".join(["very", "secret"])
    try:
        raise KeyError(len(token))
    except KeyError:
        structlog.stdlib.get_logger("dagwright.tools").exception("failed")
    text = capsys.readouterr().err
    assert "KeyError: 11" in text
    assert "very-secret" not in text


def test_console_log_is_plain_text_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(Settings())
    structlog.stdlib.get_logger("dagwright.tools").info("called", node_id="fetch")
    line = capsys.readouterr().err
    assert line.split(maxsplit=1)[1].split() == ["[info", "]", "called", "[dagwright.tools]", "node_id=fetch"]


def test_lost_connection_to_the_server_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    core_logger = logging.getLogger("temporalio.core")
    for attempt in range(5, 8):
        core_logger.warning("gRPC call retried %s times: Status { code: Unavailable, message: tcp }", attempt)
    core_logger.warning("something else")
    message = "the Temporal server does not respond; the client keeps retrying"
    fields = {"level": "warning", "logger": "temporalio.core"}
    assert _lines(capsys) == [{"event": message, **fields}, {"event": "something else", **fields}]
