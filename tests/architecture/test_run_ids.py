"""Runs of one server share their names for good, and the tests of commands share one server."""

import re
from collections import defaultdict
from pathlib import Path

_NAMED = re.compile(r'"--id", "([^"]+)"')


def test_names_of_runs_belong_to_one_file_of_tests() -> None:
    files = defaultdict(set)
    for file in (Path(__file__).parents[1] / "e2e").glob("test_*.py"):
        for name in _NAMED.findall(file.read_text()):
            files[name].add(file.name)
    assert len(files) > 10
    assert {name: sorted(found) for name, found in files.items() if len(found) > 1} == {}
