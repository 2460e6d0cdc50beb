"""The web console: static files of the package, and the graph layout library.

The files need no key, since they contain no data of runs. The page asks for a key when the API requires one.
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
"""Path of the page."""
_LAYOUT = f"{ROOT}/layout/dagre.js"
_FILES = Path(dagwright.__file__).parent / "interfaces" / "console"
_HEADERS: Mapping[str, str] = {
    # Content written by a run cannot execute as a script, and the page cannot send data to other origins.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Browsers revalidate the files on each load. A new version is used at once; an unchanged file costs a 304 response.
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    """Files with the headers of the page."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(_HEADERS)
        return response


def add_console(app: FastAPI) -> None:
    """Serve the page, and redirect the root path to it."""

    async def redirect_to_console() -> Response:
        return RedirectResponse(f"{ROOT}/")

    async def layout() -> Response:
        return FileResponse(_layout_library(), media_type="text/javascript", headers=dict(_HEADERS))

    app.add_api_route("/", redirect_to_console, include_in_schema=False)
    app.add_api_route(_LAYOUT, layout, include_in_schema=False)
    app.mount(ROOT, _Files(directory=_FILES, html=True))


def _layout_library() -> Path:
    """Return the path of dagre in its package."""
    return Path(str(distribution("XStatic-Dagre").locate_file("xstatic/pkg/dagre/data/dagre.min.js")))
