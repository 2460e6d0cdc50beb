"""What tools get from the settings, without reading the environment themselves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dagwright.tools.kept import Kept


def no_secret(name: str) -> str | None:  # noqa: ARG001 - the signature of a source of secrets
    """Knows no secret."""
    return None


@dataclass(frozen=True, slots=True)
class SearchPlace:
    """The search server of the settings, and what may be asked of it.

    Args:
        address: says where it is now; raises if it is not to be found.
        prefix: what the names of its indices begin with.
        max_rows: documents that one query may bring.
        timeout_s: seconds that it may take for one query.
    """

    address: Callable[[], str]
    prefix: str
    max_rows: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ToolEnvironment:
    """What the tools of a process and the wrapper around every tool may use: `context().environment` of a call.

    Args:
        files_root: the folder that the file tools stay inside of.
        allow_private_addresses: whether `http_request` may talk to private addresses.
        serper_api_key: key of the web search; `None` makes `web_search` say what is missing.
        serper_base_url: address of the web search service.
        search_url: address of the travel service; `None` makes `flight_search` say what is missing.
        secret: name -> value of a `{{secret.NAME}}`, `None` if it is not set.
        search: the server with the indices that workers search.
        kept: what calls leave to those behind them; whoever serves the tools closes it.
    """

    files_root: Path
    allow_private_addresses: bool = False
    serper_api_key: str | None = field(default=None, repr=False)
    serper_base_url: str = "https://google.serper.dev"
    search_url: str | None = None
    secret: Callable[[str], str | None] = field(default=no_secret, repr=False)
    search: SearchPlace | None = None
    kept: Kept = field(default_factory=Kept, repr=False, compare=False)
