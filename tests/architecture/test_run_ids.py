"""A server keeps the ids of its runs, and all tests of commands share one server."""

import re
from collections import defaultdict
from pathlib import Path

_RUN_ID = re.compile(r'"--id", "([^"]+)"')


def test_each_run_id_is_used_by_one_test_file() -> None:
    files = defaultdict(set)
    for file in (Path(__file__).parents[1] / "e2e").glob("test_*.py"):
        for name in _RUN_ID.findall(file.read_text()):
            files[name].add(file.name)
    assert len(files) > 10
    assert {name: sorted(file_names) for name, file_names in files.items() if len(file_names) > 1} == {}
