"""Swagger UI and ReDoc: pages that show the OpenAPI document.

Their scripts come from the package `fastapi-offline`, so that a browser requests nothing from another host. The pages
need no key: they contain no data of runs.
"""

from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import PurePosixPath

from fastapi import FastAPI
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from starlette.responses import FileResponse, Response

SWAGGER, REDOC = "/docs", "/redoc"
"""Paths of the pages."""
_SWAGGER_SCRIPT, _SWAGGER_STYLE, _REDOC_SCRIPT, _ICON = _FILES = tuple(
    f"{SWAGGER}/{name}" for name in ("swagger-ui-bundle.js", "swagger-ui.css", "redoc.standalone.js", "favicon.png")
)
_HEADERS: Mapping[str, str] = {
    # Inline scripts are allowed, since FastAPI writes one into each page. ReDoc's logo, on another host, is blocked.
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; worker-src blob:; base-uri 'none'; frame-ancestors 'none'"
    ),
}


def add_api_pages(app: FastAPI) -> None:
    """Serve both pages and their files."""
    document_url = str(app.openapi_url)

    async def swagger() -> Response:
        title = f"{app.title} - Swagger UI"
        return _with_headers(
            get_swagger_ui_html(
                openapi_url=document_url,
                title=title,
                swagger_js_url=_SWAGGER_SCRIPT,
                swagger_css_url=_SWAGGER_STYLE,
                swagger_favicon_url=_ICON,
            )
        )

    async def redoc() -> Response:
        title = f"{app.title} - ReDoc"
        return _with_headers(
            get_redoc_html(
                openapi_url=document_url,
                title=title,
                redoc_js_url=_REDOC_SCRIPT,
                redoc_favicon_url=_ICON,
                with_google_fonts=False,
            )
        )

    app.add_api_route(SWAGGER, swagger, include_in_schema=False)
    app.add_api_route(REDOC, redoc, include_in_schema=False)
    for path in _FILES:
        _add_file(app, path)


def _add_file(app: FastAPI, path: str) -> None:
    async def file() -> Response:
        # The package is located at each request: if it is missing, only these pages fail.
        package = distribution("fastapi-offline")
        return FileResponse(str(package.locate_file(f"fastapi_offline/static/{PurePosixPath(path).name}")))

    app.add_api_route(path, file, include_in_schema=False)


def _with_headers(page: Response) -> Response:
    page.headers.update(_HEADERS)
    return page
