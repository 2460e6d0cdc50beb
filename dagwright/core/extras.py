"""Optional dependencies: which extra of the distribution installs which library.

`pip install dagwright` installs the libraries that every plan needs. A feature that needs another library calls
`require_extra` immediately before its lazy import, so that the command line, a worker and Python code report a missing
library with the same sentence. This module must not import the engine.
"""

from collections.abc import Mapping
from importlib.util import find_spec

from dagwright.core.errors import DagwrightError

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "openai": ("openai",),
    "mcp": ("mcp",),
    "gateway": ("fastapi", "uvicorn"),
    "s3": ("boto3",),
    "database": ("sqlalchemy", "alembic"),
    "postgres": ("sqlalchemy", "alembic", "psycopg"),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "jinja": ("jinja2",),
}
"""Extra in `pyproject.toml` -> modules that its features import."""


class MissingExtra(DagwrightError, ImportError):
    """A feature needs an extra that is not installed: install the extra that the message names.

    Args:
        extra: name of the extra.
    """

    def __init__(self, extra: str) -> None:
        super().__init__(f'this needs the extra "{extra}": pip install "dagwright[{extra}]"')
        self.extra = extra


def has_extra(extra: str) -> bool:
    """Return whether the libraries of an extra are installed, without importing them."""
    return all(map(_is_installed, EXTRAS[extra]))


def require_extra(extra: str) -> None:
    """Check that the libraries of an extra are installed, before a lazy import of one of them.

    Raises:
        MissingExtra: a library is not installed.
    """
    if not has_extra(extra):
        raise MissingExtra(extra)


def database_extra(database_url: str) -> str:
    """Return the extra that is required to open the database at a URL."""
    return "database" if database_url.startswith("sqlite") else "postgres"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # A parent package is not installed.
        return False
