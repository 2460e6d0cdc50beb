"""The tools of this application for every process: the verbs, and the tools of lookups."""

from collections.abc import Sequence

from dagwright.settings import Settings
from dagwright.tools import ToolSpec
from dagwright_onboarding.onboarding import onboarding_tools


def tools(settings: Settings) -> Sequence[ToolSpec]:
    """Return the tools for the database of the settings, which is opened at the first call."""
    return onboarding_tools(settings.database_url)
