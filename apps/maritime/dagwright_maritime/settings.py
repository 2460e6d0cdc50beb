"""Settings of the search server, added to the settings of Dagwright."""

import re

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from dagwright.settings import HIDDEN_VALUE, SHOWN_VALUE, WEB_ADDRESS, Settings

INDEX_PREFIX = re.compile(r"[a-z][a-z0-9_-]{0,99}")
"""Form of a prefix of index names, without wildcards and separators of the search server."""


class MaritimeSettings(Settings):
    """The settings of a process whose tools search shipments."""

    opensearch_url: str | None = None
    """URL of the search server, with credentials if it needs them; `None` for the server of the state folder."""
    opensearch_prefix: str = "maritime"
    """Prefix of the names of the indices."""
    opensearch_max_rows: int = Field(default=1_000, ge=1, le=10_000)
    """Maximum number of documents of one query."""
    opensearch_timeout_s: float = Field(default=20.0, gt=0, le=60)
    """Maximum number of seconds of one query on the search server."""

    @field_validator("opensearch_url")
    @classmethod
    def _search_address(cls, url: str | None) -> str | None:
        if url is None or WEB_ADDRESS.fullmatch(url):
            return url and url.rstrip("/")
        # The value may contain a password.
        raise PydanticCustomError(HIDDEN_VALUE, "expected an address such as http://127.0.0.1:9200")

    @field_validator("opensearch_prefix")
    @classmethod
    def _index_prefix(cls, prefix: str) -> str:
        if INDEX_PREFIX.fullmatch(prefix):
            return prefix
        raise PydanticCustomError(SHOWN_VALUE, "expected a lower-case letter, then lower-case letters, digits, - and _")
