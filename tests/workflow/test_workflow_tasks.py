"""How many workflow tasks a worker does at once: so many that each of them ends in its time."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from temporalio.client import Client

from dagwright.protocol.messages import run_input_from_json
from dagwright.settings import Settings
from tests.support.runs import document_of, serving_runs
from tests.support.tools import Bench
from worker import WORKFLOW_TASKS
from workflows import run_plan

pytestmark = pytest.mark.server

_RUNS = 3 * WORKFLOW_TASKS
_TASK_S = 0.2
"""How long each holds its thread: long enough that all could be taken meanwhile."""


async def test_runs_that_all_want_their_turn_at_once_have_it_a_few_at_a_time(
    client: Client, bench: Bench, tmp_path: Path
) -> None:
    busy = _Busy()

    with patch.object(run_plan, "run_input_from_json", busy.read):
        async with serving_runs(
            client, bench.registry(), settings=Settings(state_dir=tmp_path), deadlock_detection=True
        ) as runs:
            plan = {"nodes": [{"id": "a", "tool": "echo", "arguments": {"text": "hello"}}]}
            handles = await asyncio.gather(*(runs.start(plan) for _ in range(_RUNS)))
            documents = [await document_of(handle) for handle in handles]

    assert [document["status"] for document in documents] == ["completed"] * _RUNS
    assert 1 < busy.most <= WORKFLOW_TASKS


class _Busy:
    """Stands for workflow code that takes its time, and counts how many do so at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self.most = 0
        self._read = run_input_from_json

    def read(self, *arguments: Any) -> Any:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(_TASK_S)
        with self._lock:
            self._now -= 1
        return self._read(*arguments)
