"""Settings for tools, and resources that the tools of a process share between calls."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dagwright.tools.errors import GiveUp
from dagwright.tools.protected_paths import NOTHING_PROTECTED, ProtectedPaths
from dagwright.tools.secret_bindings import BindingOf, no_binding

Resource = TypeVar("Resource", bound="Closeable")
T = TypeVar("T")


class Closeable(Protocol):
    """A resource that can be closed."""

    async def close(self) -> None: ...


class SharedResources:
    """Resources that are created on first use, shared by all calls, and closed when the process ends.

    They belong to one event loop: a plain `def` tool runs in a thread and must not use them.
    """

    def __init__(self) -> None:
        self._resources: dict[Callable[[], Any], Any] = {}

    def get(self, create: Callable[[], Resource]) -> Resource:
        """Return the resource that `create` creates, creating it on first use."""
        if create not in self._resources:
            self._resources[create] = create()
        resource: Resource = self._resources[create]
        return resource

    async def close(self) -> None:
        """Close all resources, the newest first. A later `get` creates new resources."""
        while self._resources:
            await self._resources.popitem()[1].close()


def no_secret(name: str) -> str | None:  # noqa: ARG001 - the signature of a secret lookup
    """Look up a secret in a process without secrets."""
    return None


@dataclass(frozen=True, slots=True)
class ToolEnvironment:
    """Settings of a process for its tools and the code that calls them. A tool reads `context().environment`.

    Args:
        files_root: root folder of the file tools.
        files_root_is_explicit: whether a setting names the root. If not, the file tools reject the calls of runs that
            were started with an API key.
        protected_paths: paths that the file tools never access.
        allow_private_addresses: whether `http_request` may connect to private addresses.
        serper_api_key: key of the web search; if `None`, `web_search` fails with a message that names the setting.
        serper_base_url: URL of the web search service.
        travel_url: URL of the travel service; if `None`, `flight_search` fails with a message that names the setting.
        find_secret: name -> value of a `{{secret.NAME}}`, `None` if it is not set.
        binding_of: name -> the tools and hosts that the settings bind the secret to.
        app_settings: class of the settings -> settings, for each installed application.
        drain_limit_s: how long calls of `write` tools may continue when the process stops; with `None`,
            only the timeout of the tool limits them.
        resources: resources shared between calls; the process that serves the tools closes them.
    """

    files_root: Path
    files_root_is_explicit: bool = True
    protected_paths: ProtectedPaths = NOTHING_PROTECTED
    allow_private_addresses: bool = False
    serper_api_key: str | None = field(default=None, repr=False)
    serper_base_url: str = "https://google.serper.dev"
    travel_url: str | None = None
    find_secret: Callable[[str], str | None] = field(default=no_secret, repr=False)
    binding_of: BindingOf = field(default=no_binding, repr=False)
    app_settings: Mapping[type, Any] = field(default_factory=dict, repr=False)
    drain_limit_s: float | None = None
    resources: SharedResources = field(default_factory=SharedResources, repr=False, compare=False)

    def settings_of(self, settings_type: type[T]) -> T:
        """Return the settings of an application.

        Raises:
            GiveUp: this process has no such settings, because the plugin is not installed.
        """
        settings = self.app_settings.get(settings_type)
        if settings is None:
            name, module = settings_type.__name__, settings_type.__module__
            raise GiveUp(f"this process has no {name}: the plugin of {module} is not installed")
        assert isinstance(settings, settings_type)
        return settings
