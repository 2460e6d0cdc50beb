"""What the environment says of the search server: the settings of the engine, and these."""

import re

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from dagwright.settings import HIDDEN_VALUE, SHOWN_VALUE, WEB_ADDRESS, Settings

INDEX_PREFIX = re.compile(r"[a-z][a-z0-9_-]{0,99}")
"""What names of indices may begin with: nothing that the search server reads as a pattern or a list."""


class MaritimeSettings(Settings):
    """The settings of a process whose tools search shipments."""

    opensearch_url: str | None = None
    """Address of the search server, with its name and password if it has one; None is that of the state folder."""
    opensearch_prefix: str = "maritime"
    """What the names of the indices of shipments begin with."""
    opensearch_max_rows: int = Field(default=1_000, ge=1, le=10_000)
    """Documents that one query may bring."""
    opensearch_timeout_s: float = Field(default=20.0, gt=0, le=60)
    """Seconds that the search server may take for one query."""

    @field_validator("opensearch_url")
    @classmethod
    def _search_address(cls, url: str | None) -> str | None:
        if url is None or WEB_ADDRESS.fullmatch(url):
            return url and url.rstrip("/")
        # It may hold a password.
        raise PydanticCustomError(HIDDEN_VALUE, "it is no address such as http://127.0.0.1:9200")

    @field_validator("opensearch_prefix")
    @classmethod
    def _index_prefix(cls, prefix: str) -> str:
        if INDEX_PREFIX.fullmatch(prefix):
            return prefix
        raise PydanticCustomError(SHOWN_VALUE, "it must be a small letter, then small letters, digits, - and _")
