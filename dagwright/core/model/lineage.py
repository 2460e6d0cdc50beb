"""What a node, or the run of an agent, has looked at and called, as its lineage tells it: bounded and in order.

Tools say which files and addresses they have read; whoever calls them tells the run with the result. A run below tells
the run above it with its end. It must not import the scheduler.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagwright.core.boundary.text import cut_characters

MOST_READ = 50
"""Files, addresses and calls, each, that stand in one lineage; what is beyond is counted."""
PLACE_CHARACTERS = 300
"""Of one file or address."""
MOST_OF_RUN = 2_000
"""Files, addresses and calls that one run keeps of all its nodes: they stand in its state."""
_CALL_FIELDS = ("node", "tool", "status")


@dataclass(frozen=True, slots=True)
class Seen:
    """What something has looked at and called.

    Args:
        files, urls: in the order in which they were first told.
        model_calls: of the run of an agent, ids of the nodes that asked a model.
        tool_calls: of the same, `{"node", "tool", "status"}` of what the model had called.
        left_out: how many of all of these are not told, because there are too many.
    """

    files: Sequence[str] = ()
    urls: Sequence[str] = ()
    model_calls: Sequence[str] = ()
    tool_calls: Sequence[Mapping[str, str]] = ()
    left_out: int = 0

    def __bool__(self) -> bool:
        return bool(self.files or self.urls or self.model_calls or self.tool_calls or self.left_out)

    @property
    def count(self) -> int:
        """How many files, addresses and calls are told."""
        return len(self.files) + len(self.urls) + len(self.model_calls) + len(self.tool_calls)

    def with_more(self, other: "Seen") -> "Seen":
        """Returns this with what something else has seen behind it, each thing once."""
        return _bounded(
            [*self.files, *other.files],
            [*self.urls, *other.urls],
            [*self.model_calls, *other.model_calls],
            [*self.tool_calls, *other.tool_calls],
            self.left_out + other.left_out,
        )

    def told(self) -> dict[str, Any]:
        """Returns it as documents have it, without what is empty."""
        parts: dict[str, Any] = {
            "model_calls": list(self.model_calls),
            "tool_calls": [dict(call) for call in self.tool_calls],
            "files": list(self.files),
            "urls": list(self.urls),
            "left_out": self.left_out,
        }
        return {name: part for name, part in parts.items() if part}


NOTHING = Seen()


def seen_of_places(places: Iterable[str]) -> Seen:
    """Returns what a tool has read: paths of files, and addresses, which have `://` in them."""
    told = [cut_characters(place, PLACE_CHARACTERS) for place in places]
    return _bounded([each for each in told if "://" not in each], [each for each in told if "://" in each], [], [], 0)


def seen_from_json(encoded: Any) -> Seen:
    """Returns what `Seen.told` told; nothing of what is none of this."""
    if not isinstance(encoded, Mapping):
        return NOTHING
    files, urls, asked = (_texts(encoded.get(name)) for name in ("files", "urls", "model_calls"))
    listed = encoded.get("tool_calls")
    calls = [_call(each) for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    left_out = encoded.get("left_out", 0)
    return _bounded(files, urls, asked, calls, left_out if type(left_out) is int and 0 < left_out < 10**9 else 0)


def _texts(encoded: Any) -> list[str]:
    return [each[:PLACE_CHARACTERS] for each in encoded if isinstance(each, str)] if isinstance(encoded, list) else []


def _call(encoded: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(encoded.get(name))[:PLACE_CHARACTERS] for name in _CALL_FIELDS}


def _bounded(
    files: Sequence[str],
    urls: Sequence[str],
    model_calls: Sequence[str],
    tool_calls: Sequence[Mapping[str, str]],
    left_out: int,
) -> Seen:
    files, urls, model_calls = (list(dict.fromkeys(each)) for each in (files, urls, model_calls))
    over = sum(max(0, len(each) - MOST_READ) for each in (files, urls, model_calls, tool_calls))
    return Seen(files[:MOST_READ], urls[:MOST_READ], model_calls[:MOST_READ], tool_calls[:MOST_READ], left_out + over)


@dataclass(slots=True)
class SeenBook:
    """What the nodes of a run have looked at: most look at nothing that is told, and stand nowhere in it.

    Args:
        tasks: id of a node or item -> what all its tries have seen.
        count: files, addresses and calls in it.
        left_out: those of nodes that are not in it, because there are too many.
    """

    tasks: dict[str, Seen] = field(default_factory=dict)
    count: int = 0
    left_out: int = 0

    def add(self, task_id: str, seen: Seen) -> None:
        """Takes what a try of a node or item has seen."""
        before = self.tasks.get(task_id, NOTHING)
        after = before.with_more(seen)
        if self.count + after.count - before.count > MOST_OF_RUN:
            self.left_out += seen.count + seen.left_out
            return
        self.count += after.count - before.count
        self.tasks[task_id] = after

    def total(self) -> Seen:
        """Returns the files and addresses of all nodes."""
        of_all = self.tasks.values()
        files, urls = [each for seen in of_all for each in seen.files], [each for seen in of_all for each in seen.urls]
        return _bounded(files, urls, [], [], self.left_out + sum(seen.left_out for seen in of_all))

    def to_json(self) -> dict[str, Any]:
        """Returns the book as it is carried on."""
        if not self.tasks and not self.left_out:
            return {}
        return {"tasks": {task_id: seen.told() for task_id, seen in self.tasks.items()}, "left_out": self.left_out}


def seen_book_from_json(encoded: Any) -> SeenBook:
    """Returns the book that `SeenBook.to_json` told.

    Raises:
        AttributeError, KeyError, ValueError, TypeError: it is none.
    """
    if not encoded:
        return SeenBook()
    tasks = {str(task_id): seen_from_json(told) for task_id, told in encoded["tasks"].items()}
    return SeenBook(tasks, sum(seen.count for seen in tasks.values()), int(encoded["left_out"]))
