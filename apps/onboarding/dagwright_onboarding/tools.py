"""The tools of this application that every process has: the verbs, and the tools behind lookups."""

from collections.abc import Sequence

from dagwright.settings import Settings
from dagwright.tools import ToolSpec
from dagwright_onboarding.onboarding import onboarding_tools


def tools(settings: Settings) -> Sequence[ToolSpec]:
    """Return the tools on the database of the settings, which is opened at the first call."""
    return onboarding_tools(settings.database_url)
