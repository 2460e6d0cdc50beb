"""The web console: files that are served as they lie in the package, and the library that lays out graphs.

They need no key, for they tell nothing; the page asks for one when the API wants it.
"""

from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

import dagwright

ROOT = "/console"
"""Where the page is."""
_LAYOUT = f"{ROOT}/layout/dagre.js"
_FILES = Path(dagwright.__file__).parent / "interfaces" / "console"
_HEADERS: Mapping[str, str] = {
    # Whatever a run wrote could not run as a script, nor send anything anywhere.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Kept, and asked about each time: a new version is there at once, and an old one costs an empty answer.
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    """Files with the headers of the page."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(_HEADERS)
        return response


def add_console(app: FastAPI) -> None:
    """Serves the page; the address of the gateway alone leads there."""

    async def to_console() -> Response:
        return RedirectResponse(f"{ROOT}/")

    async def layout() -> Response:
        return FileResponse(_layout_library(), media_type="text/javascript", headers=dict(_HEADERS))

    app.add_api_route("/", to_console, include_in_schema=False)
    app.add_api_route(_LAYOUT, layout, include_in_schema=False)
    app.mount(ROOT, _Files(directory=_FILES, html=True))


def _layout_library() -> Path:
    """Returns the file of dagre, which a package brings as it is."""
    return Path(str(distribution("XStatic-Dagre").locate_file("xstatic/pkg/dagre/data/dagre.min.js")))
