"""The API for applications, which are separate distributions.

This module is cheap to import, because every command imports the module of a plugin's entry point. The other modules
are `commands` (the command line), `databases`, `entities` (lookups and their tools), `models` and `servers` (background
processes). Applications import these modules, `dagwright`, `dagwright.tools`, `dagwright.settings`, `dagwright.llm` and
`dagwright.testing`, and no other module. The engine finds plugins with `dagwright.core.plugins`; it does not import
this package.
"""

from dagwright.core.plugins import Plugin, PluginError

__all__ = ["Plugin", "PluginError"]
