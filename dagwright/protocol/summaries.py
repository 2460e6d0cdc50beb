"""Summaries of activities and child workflows, as the Temporal UI lists them."""

from dagwright.core.boundary.limits import SUMMARY_CHARACTERS, cut_text, summary_of
from dagwright.core.model.tasks import Task

_KEY_BYTES = 120
"""Part of a summary that the key of an item may take, so that the title stays readable."""


def task_summary(task: Task) -> str:
    """Return the summary of a task: the title of its node, for an item with its key; without a title the task ID.

    The key stays readable if the title has to be cut: it is what distinguishes the items of a map.
    """
    title = task.node.title
    if not title:
        return summary_of(task.id)
    if task.chunk is not None and task.chunk.count:
        return _with_key(title, f"items {task.chunk.first + 1} to {task.chunk.first + task.chunk.count}")
    kind, key = task.path[-1] if task.path else ("node", "")
    return _with_key(title, key) if task.item is not None and kind == "item" else summary_of(title)


def _with_key(title: str, key: str) -> str:
    shown_key = cut_text(" ".join(str(key).split()), max_bytes=_KEY_BYTES)
    # Four bytes per character at most, and 400 bytes for the whole summary.
    shown = summary_of(title)
    room = SUMMARY_CHARACTERS - len(shown_key) - len(" []")
    if len(shown) > room:
        shown = f"{shown[: room - 1]}…"
    return f"{cut_text(shown, max_bytes=400 - _KEY_BYTES - len(' []'))} [{shown_key}]"
