"""The API for applications, which are separate distributions.

Every command imports this module through the entry points of the plugins, so the module must be cheap to import. The
other modules of the package are `commands` (the command line), `databases`, `entities` (lookups and their tools),
`models` and `servers` (background processes). Applications import these modules, `dagwright`, `dagwright.tools`,
`dagwright.settings`, `dagwright.llm` and `dagwright.testing`, and no other module. The engine finds plugins with
`dagwright.core.plugins`; it does not import this package.
"""

from dagwright.core.plugins import Plugin, PluginError

__all__ = ["Plugin", "PluginError"]
