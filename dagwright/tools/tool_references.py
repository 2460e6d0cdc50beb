"""References to the tools and agents of a run: from `--tools`, `--agents` and `--tools-queue`.

A reference is valid in every folder and process, so that another command can load the same tools. This module
imports nothing heavy: the command line needs it for its help.
"""

import os
from collections.abc import Sequence
from pathlib import Path

SERVERS_SUFFIX = ".json"
"""Suffix of a `--tools` value that is a file of MCP servers."""

_AGENTS_PREFIX = "agents:"
"""Prefix of a reference to an agents file."""
_QUEUE_PREFIX = "queue:"
"""Prefix of a reference to a queue of `--tools-queue`."""


def absolute_path(file: str) -> Path:
    """Return the absolute path of a file, without resolving symbolic links.

    The queue of the tools is named after the path, so `current/tools.py` in a folder of releases keeps its queue when
    the link `current` moves to the next release.
    """
    return Path(os.path.abspath(file))  # noqa: PTH100 - `resolve` follows links


def is_path(reference: str) -> bool:
    """Return whether a value of `--tools` is a file rather than a module."""
    return reference.endswith((".py", SERVERS_SUFFIX)) or "/" in reference or "\\" in reference


def agents_reference(file: str) -> str:
    """Return the reference for a value of `--agents`."""
    return f"{_AGENTS_PREFIX}{absolute_path(file)}"


def agents_file_of_reference(reference: str) -> str | None:
    """Return the file of a reference that came from `--agents`; `None` for any other reference."""
    return reference.removeprefix(_AGENTS_PREFIX) if reference.startswith(_AGENTS_PREFIX) else None


def tools_queue_reference(name: str) -> str:
    """Return the reference for a value of `--tools-queue`."""
    return f"{_QUEUE_PREFIX}{name}"


def tools_queue_of_reference(reference: str) -> str | None:
    """Return the queue of a reference that came from `--tools-queue`; `None` for any other reference."""
    return reference.removeprefix(_QUEUE_PREFIX) if reference.startswith(_QUEUE_PREFIX) else None


def last_tools_queue_of(references: Sequence[str]) -> str | None:
    """Return the queue of the last reference that came from `--tools-queue`; `None` without such a reference."""
    return next(filter(None, map(tools_queue_of_reference, reversed(references))), None)


def options_of_references(references: Sequence[str]) -> list[str]:
    """Return the command-line options that load the same tools and agents on the same queues."""
    options: list[str] = []
    for reference in references:
        agents_file, queue = agents_file_of_reference(reference), tools_queue_of_reference(reference)
        if queue is not None:
            options += ["--tools-queue", queue]
        elif agents_file is not None:
            options += ["--agents", agents_file]
        else:
            options += ["--tools", reference]
    return options
