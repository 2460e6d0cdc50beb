"""Contributions of the toy application."""

from dagwright.plugins import Plugin

PLUGIN = Plugin(
    tools="toy_app.tools:tools",
    settings="toy_app.settings:ToySettings",
    text_formats={"aisle": "toy_app.tools:aisle"},
    commands={"toy": "toy_app.commands:toy"},
    stop="toy_app.settings:stop",
)
