"""The travel service of examples/travel, served by threads of this process."""

import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.http_servers import serve_handler

EXAMPLE = Path(__file__).parents[2] / "examples" / "travel"


@contextmanager
def travel_service() -> Iterator[str]:
    with serve_handler(runpy.run_path(str(EXAMPLE / "server.py"))["Handler"]) as address:
        yield address
