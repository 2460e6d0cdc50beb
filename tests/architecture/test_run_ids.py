"""All tests of commands share one server, which keeps the IDs of its runs. Two test files must not use the same ID."""

import re
from collections import defaultdict
from pathlib import Path

_RUN_ID = re.compile(r'"--id", "([^"]+)"')


def test_each_run_id_is_used_by_one_test_file() -> None:
    files_by_run_id = defaultdict(set)
    for file in (Path(__file__).parents[1] / "e2e").glob("test_*.py"):
        for run_id in _RUN_ID.findall(file.read_text()):
            files_by_run_id[run_id].add(file.name)
    assert len(files_by_run_id) > 10
    assert {run_id: sorted(names) for run_id, names in files_by_run_id.items() if len(names) > 1} == {}
