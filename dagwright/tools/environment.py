"""What tools get from the settings, and what the tools of a process keep between calls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dagwright.tools.errors import GiveUp
from dagwright.tools.protected_paths import NOTHING_PROTECTED, ProtectedPaths
from dagwright.tools.secret_bindings import BindingOf, unbound

Closing = TypeVar("Closing", bound="Closes")
T = TypeVar("T")


class Closes(Protocol):
    """What can be closed."""

    async def close(self) -> None: ...


class Kept:
    """Things that are made by the first call that wants them, used by all, and closed when the process ends.

    It is of one event loop: a tool that is no `async def` runs in a thread, and may not use it.
    """

    def __init__(self) -> None:
        self._made: dict[Callable[[], Any], Any] = {}

    def get(self, make: Callable[[], Closing]) -> Closing:
        """Returns what `make` has made, by the first call that named it."""
        if make not in self._made:
            self._made[make] = make()
        found: Closing = self._made[make]
        return found

    async def close(self) -> None:
        """Closes everything, the newest first; what is wanted after that is made anew."""
        while self._made:
            await self._made.popitem()[1].close()


def no_secret(name: str) -> str | None:  # noqa: ARG001 - the signature of a source of secrets
    """Knows no secret."""
    return None


@dataclass(frozen=True, slots=True)
class ToolEnvironment:
    """What the tools of a process and the wrapper around every tool may use: `context().environment` of a call.

    Args:
        files_root: the folder that the file tools stay inside of.
        files_root_is_explicit: whether a setting names that folder; runs that belong to an owner of API keys need that.
        protected: what the file tools refuse wherever the folder is.
        allow_private_addresses: whether `http_request` may talk to private addresses.
        serper_api_key: key of the web search; `None` makes `web_search` say what is missing.
        serper_base_url: address of the web search service.
        search_url: address of the travel service; `None` makes `flight_search` say what is missing.
        secret: name -> value of a `{{secret.NAME}}`, `None` if it is not set.
        binding_of: name -> which tools and hosts the settings bind that secret to.
        app_settings: settings of the installed applications, by their class.
        drain_limit_s: how long calls of `write` tools may continue when the process stops; `None` is their own timeout.
        kept: what calls leave to those behind them; whoever serves the tools closes it.
    """

    files_root: Path
    files_root_is_explicit: bool = True
    protected: ProtectedPaths = NOTHING_PROTECTED
    allow_private_addresses: bool = False
    serper_api_key: str | None = field(default=None, repr=False)
    serper_base_url: str = "https://google.serper.dev"
    search_url: str | None = None
    secret: Callable[[str], str | None] = field(default=no_secret, repr=False)
    binding_of: BindingOf = field(default=unbound, repr=False)
    app_settings: Mapping[type, Any] = field(default_factory=dict, repr=False)
    drain_limit_s: float | None = None
    kept: Kept = field(default_factory=Kept, repr=False, compare=False)

    def settings_of(self, kind: type[T]) -> T:
        """Return the settings of an application.

        Raises:
            GiveUp: this process has none; its plugin is not installed.
        """
        found = self.app_settings.get(kind)
        if found is None:
            raise GiveUp(f"this process has no {kind.__name__}: the plugin of {kind.__module__} is not installed")
        assert isinstance(found, kind)
        return found
