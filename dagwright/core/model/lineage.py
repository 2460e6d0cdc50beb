"""Lineage of a node, a run or an agent's run: a limited number of files, URLs and calls, in order.

Tools report the files and URLs that they have read. The report returns to the run with the result of the call. A child
run sends its report to the parent run when it ends. This module must not import the scheduler.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_ENTRIES = 50
"""Maximum number of entries of each kind (files, URLs, calls) in one lineage; entries over this limit are only
counted."""
LOCATION_CHARACTERS = 300
"""Longest file path or URL."""
MAX_RUN_ENTRIES = 2_000
"""Maximum number of entries of all nodes in a run, because the entries are part of the state of the run."""
_CALL_FIELDS = ("node_id", "tool", "status")


@dataclass(frozen=True, slots=True)
class LineageEntries:
    """Files, URLs and calls of a node, a run or an agent's run.

    Args:
        files, urls: files and URLs in the order in which they were first reported.
        model_calls: for an agent's run, ids of the nodes that called a model.
        tool_calls: for an agent's run, `{"node_id", "tool", "status"}` of the calls that the model requested.
        omitted: number of entries that exceeded a limit and were dropped.
    """

    files: Sequence[str] = ()
    urls: Sequence[str] = ()
    model_calls: Sequence[str] = ()
    tool_calls: Sequence[Mapping[str, str]] = ()
    omitted: int = 0

    def __bool__(self) -> bool:
        return bool(self.files or self.urls or self.model_calls or self.tool_calls or self.omitted)

    @property
    def count(self) -> int:
        """Number of files, URLs and calls."""
        return len(self.files) + len(self.urls) + len(self.model_calls) + len(self.tool_calls)

    def merged_with(self, other: "LineageEntries") -> "LineageEntries":
        """Return these entries followed by the entries of another lineage, without duplicates."""
        return _limit_lineage(
            [*self.files, *other.files],
            [*self.urls, *other.urls],
            [*self.model_calls, *other.model_calls],
            [*self.tool_calls, *other.tool_calls],
            self.omitted + other.omitted,
        )

    def to_document(self) -> dict[str, Any]:
        """Return the JSON form for documents, without empty parts."""
        parts: dict[str, Any] = {
            "model_calls": list(self.model_calls),
            "tool_calls": [dict(call) for call in self.tool_calls],
            "files": list(self.files),
            "urls": list(self.urls),
            "omitted": self.omitted,
        }
        return {name: part for name, part in parts.items() if part}


NO_LINEAGE = LineageEntries()


def lineage_from_json(encoded: Any) -> LineageEntries:
    """Parse the result of `LineageEntries.to_document`; invalid parts are dropped."""
    if not isinstance(encoded, Mapping):
        return NO_LINEAGE
    files, urls, model_calls = (_texts_from_json(encoded.get(name)) for name in ("files", "urls", "model_calls"))
    tool_calls = encoded.get("tool_calls")
    calls = (
        [_call_from_json(call) for call in tool_calls if isinstance(call, Mapping)]
        if isinstance(tool_calls, list)
        else []
    )
    omitted = encoded.get("omitted", 0)
    return _limit_lineage(
        files, urls, model_calls, calls, omitted if type(omitted) is int and 0 < omitted < 10**9 else 0
    )


def _texts_from_json(encoded: Any) -> list[str]:
    return (
        [text[:LOCATION_CHARACTERS] for text in encoded if isinstance(text, str)] if isinstance(encoded, list) else []
    )


def _call_from_json(encoded: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(encoded.get(name))[:LOCATION_CHARACTERS] for name in _CALL_FIELDS}


def _limit_lineage(
    files: Sequence[str],
    urls: Sequence[str],
    model_calls: Sequence[str],
    tool_calls: Sequence[Mapping[str, str]],
    omitted: int,
) -> LineageEntries:
    files, urls, model_calls = (list(dict.fromkeys(entries)) for entries in (files, urls, model_calls))
    dropped_count = sum(max(0, len(entries) - MAX_ENTRIES) for entries in (files, urls, model_calls, tool_calls))
    return LineageEntries(
        files[:MAX_ENTRIES],
        urls[:MAX_ENTRIES],
        model_calls[:MAX_ENTRIES],
        tool_calls[:MAX_ENTRIES],
        omitted + dropped_count,
    )


@dataclass(slots=True)
class RunLineage:
    """Lineage of the nodes of a run. Nodes that read nothing have no entry.

    Args:
        tasks: id of a node or item -> entries of all its attempts.
        count: number of files, URLs and calls in `tasks`.
        omitted: number of entries that were dropped because of `MAX_RUN_ENTRIES`.
    """

    tasks: dict[str, LineageEntries] = field(default_factory=dict)
    count: int = 0
    omitted: int = 0

    def add(self, task_id: str, lineage: LineageEntries) -> None:
        """Add the lineage of one attempt of a node or item."""
        earlier_lineage = self.tasks.get(task_id, NO_LINEAGE)
        merged_lineage = earlier_lineage.merged_with(lineage)
        if self.count + merged_lineage.count - earlier_lineage.count > MAX_RUN_ENTRIES:
            self.omitted += lineage.count + lineage.omitted
            return
        self.count += merged_lineage.count - earlier_lineage.count
        self.tasks[task_id] = merged_lineage

    def files_and_urls(self) -> LineageEntries:
        """Return the files and URLs of all nodes."""
        lineages = self.tasks.values()
        files = [file for lineage in lineages for file in lineage.files]
        urls = [url for lineage in lineages for url in lineage.urls]
        return _limit_lineage(files, urls, [], [], self.omitted + sum(lineage.omitted for lineage in lineages))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for the state of the run."""
        if not self.tasks and not self.omitted:
            return {}
        return {
            "tasks": {task_id: lineage.to_document() for task_id, lineage in self.tasks.items()},
            "omitted": self.omitted,
        }


def run_lineage_from_json(encoded: Any) -> RunLineage:
    """Parse the result of `RunLineage.to_json`.

    Raises:
        AttributeError, KeyError, ValueError, TypeError: the form is invalid.
    """
    if not encoded:
        return RunLineage()
    tasks = {str(task_id): lineage_from_json(entry) for task_id, entry in encoded["tasks"].items()}
    return RunLineage(tasks, sum(lineage.count for lineage in tasks.values()), int(encoded["omitted"]))
