"""The gateway: an HTTP server that speaks OpenAI's protocol in front of durable runs.

A thin layer: what runs, looks and steers is in the modules below it, which the command line uses too. It keeps nothing
that another gateway in front of the same Temporal server would need, so any number of them work as one, and one that
dies loses nothing (docs/decisions/0058). It must not import the command line, workflows or activities.
"""

from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.desk import Desk, open_desk

__all__ = ["Desk", "create_app", "open_desk"]
