"""The plugin of this application. Every command imports this module, so it must import nothing but `Plugin`."""

from dagwright.plugins import Plugin

PLUGIN = Plugin(
    tools="dagwright_onboarding.onboarding:tools",
    text_formats={
        "name": "dagwright_onboarding.text_formats:check_name",
        "date_of_birth": "dagwright_onboarding.text_formats:check_date_of_birth",
        "jurisdiction": "dagwright_onboarding.text_formats:parse_jurisdiction",
    },
    commands={"entities": "dagwright_onboarding.commands:entities"},
)
