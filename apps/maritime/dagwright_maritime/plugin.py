"""The plugin of this application. Every command imports this module, so it must import nothing but `Plugin`."""

from dagwright.plugins import Plugin

PLUGIN = Plugin(
    worker_tools=("dagwright_maritime",),
    settings="dagwright_maritime.settings:MaritimeSettings",
    stop="dagwright_maritime.search.server:stop_search",
)
