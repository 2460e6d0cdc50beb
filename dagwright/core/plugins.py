"""Plugins: contributions of applications to Dagwright, found through entry points of the group `dagwright.plugins`.

An application is a separate distribution, which the engine never imports by name. Its entry point is a `Plugin`. Every
command that uses tools imports the module that contains the `Plugin`, so this module should import only `core.plugins`.
The `Plugin` references all other objects as `module:attribute`; they are imported on demand. The module `core.plugins`
must not import the engine.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any

from dagwright.core.errors import DagwrightError
from dagwright.core.text import one_line

GROUP = "dagwright.plugins"


class PluginError(DagwrightError):
    """A plugin cannot be used. The message is one sentence that names the plugin and its distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """Contributions of an application. Each string value is a reference `module:attribute`, except in `worker_tools`.

    Args:
        tools: a function that takes the settings and returns a list of `ToolSpec`. Every process has these tools of the
            application in addition to Dagwright's built-in tools. Tools that find entities for lookups
            (`ToolDeclaration.resolver`) belong in this list too.
        worker_tools: modules of the application with worker tools, which users load with `--tools`. `dagwright new
            worker` rejects a name that a worker tool in these modules has.
        settings: a subclass of `dagwright.settings.Settings` with additional fields. Tools get it from
            `context().environment.settings_of(...)`.
        text_formats: name of a format in the schemas of tools (`x-dagwright-text`) -> a function that returns the
            normal form of a text, or raises ValueError.
        commands: name of a command group -> a `typer.Typer`.
        stop: an async function that takes the settings, stops the application's servers for a state folder, and returns
            the names of the stopped servers; `dagwright down` calls the function.
    """

    tools: str | None = None
    worker_tools: tuple[str, ...] = ()
    settings: str | None = None
    text_formats: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A plugin with its origin.

    Args:
        name: name of the entry point.
        distribution: the installed distribution that declares it.
    """

    name: str
    distribution: str
    plugin: Plugin

    def __str__(self) -> str:
        return f"plugin {self.name!r} of the distribution {self.distribution}"

    def load(self, reference: str) -> Any:
        """Import the object of a reference.

        Raises:
            PluginError: the import fails.
        """
        return _load(f"the {self}", reference, lambda: resolve_name(reference))


@cache
def installed_plugins() -> tuple[InstalledPlugin, ...]:
    """Return the plugins of all installed distributions, sorted by name.

    Raises:
        PluginError: a plugin cannot be loaded, or two plugins have the same name.
    """
    plugins: dict[str, InstalledPlugin] = {}
    # A distribution that is installed in editable mode may be found twice, with its metadata in two folders.
    for entry_point in dict.fromkeys(sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))):
        plugin = _plugin_of(entry_point)
        reject_duplicate("plugin name", entry_point.name, plugin, plugins.get(entry_point.name))
        plugins[entry_point.name] = plugin
    return tuple(plugins.values())


def plugins_by_contribution(kind: str, names_of: Callable[[Plugin], Iterable[str]]) -> dict[str, InstalledPlugin]:
    """Return name of a contribution -> the plugin that contributes it, for contributions of one kind.

    Args:
        kind: the kind, for messages.
        names_of: returns the names of the contributions of this kind.

    Raises:
        PluginError: two plugins contribute the same name.
    """
    owners: dict[str, InstalledPlugin] = {}
    for plugin in installed_plugins():
        for name in names_of(plugin.plugin):
            reject_duplicate(kind, name, plugin, owners.get(name))
            owners[name] = plugin
    return owners


def reject_duplicate(kind: str, name: str, plugin: InstalledPlugin, first_plugin: InstalledPlugin | None) -> None:
    """Reject a name that another plugin contributes.

    Raises:
        PluginError: another plugin contributes the name.
    """
    if first_plugin is not None:
        raise PluginError(
            f"two plugins contribute the {kind} {name!r}: the {first_plugin} and the {plugin}; remove one"
        )


@cache
def text_format_parser(name: str) -> Callable[[str], Any] | None:
    """Return the function of a text format; `None` if no plugin contributes it."""
    owner = plugins_by_contribution("text format", lambda plugin: plugin.text_formats).get(name)
    parse: Callable[[str], Any] | None = None if owner is None else owner.load(owner.plugin.text_formats[name])
    return parse


def text_format_names() -> tuple[str, ...]:
    """Return the names of the text formats of all plugins."""
    return tuple(plugins_by_contribution("text format", lambda plugin: plugin.text_formats))


def plugin_packages() -> tuple[str, ...]:
    """Return the top-level packages of all plugins; the workflow sandbox passes them through, like the engine's
    packages.
    """
    references = (reference for plugin in installed_plugins() for reference in _references(plugin.plugin))
    return tuple(dict.fromkeys(reference.partition(":")[0].partition(".")[0] for reference in references))


def _references(plugin: Plugin) -> Iterable[str]:
    single_references = (plugin.tools, plugin.settings, plugin.stop)
    return (
        *filter(None, single_references),
        *plugin.worker_tools,
        *plugin.text_formats.values(),
        *plugin.commands.values(),
    )


def _plugin_of(entry_point: EntryPoint) -> InstalledPlugin:
    distribution = entry_point.dist.name if entry_point.dist is not None else "unknown"
    subject = f"the plugin {entry_point.name!r} of the distribution {distribution}"
    plugin = _load(subject, entry_point.value, entry_point.load)
    if not isinstance(plugin, Plugin):
        raise PluginError(
            f"{subject} cannot be used: {entry_point.value} must be a Plugin, not {type(plugin).__name__}"
        )
    return InstalledPlugin(entry_point.name, distribution, plugin)


def _load(subject: str, reference: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except (Exception, SystemExit) as error:
        reason = one_line(str(error))[:500] or type(error).__name__
        raise PluginError(f"{subject} cannot be loaded: importing {reference}: {reason}") from error
