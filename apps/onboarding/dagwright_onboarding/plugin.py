"""What this application contributes to Dagwright. Every command imports this module, so it imports nothing else."""

from dagwright.plugins import Plugin

PLUGIN = Plugin(
    tools="dagwright_onboarding.tools:tools",
    text_formats={
        "name": "dagwright_onboarding.text_formats:check_name",
        "date_of_birth": "dagwright_onboarding.text_formats:check_date_of_birth",
        "jurisdiction": "dagwright_onboarding.jurisdictions:jurisdiction_of",
    },
    commands={"entities": "dagwright_onboarding.commands:entities"},
)
