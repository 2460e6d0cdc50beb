"""Labels that identify a run in lists: owner, tags, and the summaries of its activities."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dagwright.core.boundary.limits import MAX_SUMMARY_CHARACTERS, summary_of
from dagwright.core.errors import DagwrightError
from dagwright.core.model.states import Task
from dagwright.core.text import cut_bytes, cut_characters, one_line

ALL_OWNERS = "*"
"""Owner of API keys that can see the runs of all owners."""
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


def is_owner_name(text: str) -> bool:
    """Return whether a text is the name of one owner. Such a name is also a valid name of a folder."""
    return _OWNER.fullmatch(text) is not None


MAX_TAGS = 20
"""Maximum number of tags of a run."""
MAX_TAG_KEY_BYTES = 64
"""Maximum size of the key of a tag, in UTF-8."""
MAX_KEYWORD_CHARACTERS = 255
"""Maximum length of a Keyword in the SQL databases of a Temporal server (VARCHAR(255))."""
MAX_ATTRIBUTE_BYTES = 2_000
"""Maximum size of the JSON of a search attribute; a server ends a workflow that writes more than 2,048 bytes."""
_FORBIDDEN_IN_KEYS = frozenset("= \t")


class TagsInvalid(DagwrightError, ValueError):
    """The tags of a run are invalid. The message names the first invalid tag."""


@dataclass(frozen=True, slots=True)
class TagLabels:
    """Words for tags in messages. In requests in OpenAI's form, tags are the entries of `metadata`."""

    singular: str
    with_article: str
    plural: str
    key: str


TAGS = TagLabels("tag", "a tag", "tags", "tag key")
METADATA = TagLabels("entry", "an entry", "entries", "key")


def validate_run_tags(tags: Mapping[str, Any], *, labels: TagLabels = TAGS) -> dict[str, str]:
    """Validate the tags of a run.

    Returns:
        The tags in their order: key -> value.

    Raises:
        TagsInvalid: there are more than `MAX_TAGS`, an entry is not a valid tag, or the tags are too large together.
    """
    if len(tags) > MAX_TAGS:
        raise TagsInvalid(f"a run has at most {MAX_TAGS} {labels.plural}; {len(tags)} were given")
    for key, value in tags.items():
        _check_tag(key, value, labels)
    keywords = [keyword_of_tag(*tag).translate(_REPLACEMENTS) for tag in tags.items()]
    if (size := json_bytes(keywords)) > MAX_ATTRIBUTE_BYTES:
        raise TagsInvalid(
            f"the {labels.plural} have {size:,} bytes as JSON, over the limit of {MAX_ATTRIBUTE_BYTES:,} for all of "
            "them together (a character outside of ASCII takes 6 or 12); shorten them"
        )
    return dict(tags)


def _check_tag(key: str, value: Any, labels: TagLabels) -> None:
    if not key or len(key.encode(errors="replace")) > MAX_TAG_KEY_BYTES or _FORBIDDEN_IN_KEYS & set(key):
        limit = f"1 to {MAX_TAG_KEY_BYTES} bytes of UTF-8 without spaces and '='"
        raise TagsInvalid(f"{labels.key} {key!r:.80} is invalid: a {labels.key} has {limit}")
    if not isinstance(value, str):
        raise TagsInvalid(f"the value of {labels.singular} {key!r} must be a string, not {type(value).__name__}")
    text = keyword_of_tag(key, value)
    if any(character < " " or "\ud800" <= character <= "\udfff" for character in text):
        raise TagsInvalid(f"{labels.singular} {key!r:.80} contains control characters or surrogates")
    if len(text) > MAX_KEYWORD_CHARACTERS:
        limit = f"at most {MAX_KEYWORD_CHARACTERS} characters, its key and '=' included"
        raise TagsInvalid(f"{labels.with_article} has {limit}; {key!r} has {len(text)}")


def keyword_of_tag(key: str, value: str) -> str:
    """Return the element of `SEARCH_TAGS` for one tag."""
    return f"{key}={value}"


def tags_in(memo: Mapping[str, Any], *, key: str) -> dict[str, str]:
    """Return the tags in a memo; an empty dictionary if there are none.

    Args:
        key: name of the memo field.
    """
    tags = memo.get(key)
    return {str(name): str(value) for name, value in tags.items()} if isinstance(tags, Mapping) else {}


_LOOK_ALIKES = {'"': "\uff02", "\\": "\uff3c", "'": "\u2019", "?": "\uff1f", "\u2661": "\u2665"}
_REPLACEMENTS = str.maketrans({**_LOOK_ALIKES, **{chr(code): " " for code in range(32)}})
"""Characters that a visibility query cannot contain -> similar characters.

A server removes outer single quotes from the values of a query, PostgreSQL gets each question mark as a parameter, and
SQLite separates the elements of lists by U+2661:
https://github.com/temporalio/temporal/blob/v1.29.1/common/sqlquery/query.go
https://github.com/temporalio/temporal/blob/v1.29.1/common/persistence/sql/sqlplugin/postgresql/visibility.go
https://github.com/temporalio/temporal/blob/v1.29.1/common/persistence/sql/sqlplugin/sqlite/visibility.go
"""
_UNQUERYABLE_CHARACTERS = re.compile(r'["\\?\x00-\x1f\ud800-\udfff]')


def keyword(text: str) -> str:
    """Return a text as a Keyword search attribute: not too long, and with characters that a query can contain."""
    # A lone surrogate cannot be encoded, and would make the request fail.
    shortened_text = text.encode(errors="replace").decode().translate(_REPLACEMENTS)[:MAX_KEYWORD_CHARACTERS]
    while json_bytes(shortened_text) > MAX_ATTRIBUTE_BYTES:
        shortened_text = shortened_text[:-1]
    return shortened_text


def is_queryable(text: str) -> bool:
    """Return whether a visibility query can contain a text unchanged, in quotes."""
    return "'" not in text and _UNQUERYABLE_CHARACTERS.search(text) is None


def queryable_prefix(text: str) -> str:
    """Return the longest prefix of an ID that a visibility query can contain unchanged."""
    prefix = _UNQUERYABLE_CHARACTERS.split(text, maxsplit=1)[0]
    return "" if prefix.startswith("'") else prefix.rstrip("'")


def fitting_keywords(keywords: Iterable[str], *, max_bytes: int = MAX_ATTRIBUTE_BYTES) -> list[str]:
    """Return the first keywords whose JSON together has at most `max_bytes`."""
    selected_keywords: list[str] = []
    remaining_bytes = max_bytes - len("[]")
    for keyword_text in keywords:
        remaining_bytes -= json_bytes(keyword_text) + len(",")
        if remaining_bytes < 0:
            break
        selected_keywords.append(keyword_text)
    return selected_keywords


def json_bytes(value: str | list[str]) -> int:
    """Return the size of a search attribute as the SDK encodes it: JSON in ASCII."""
    return len(json.dumps(value, separators=(",", ":")))


_MAX_KEY_BYTES = 120
"""Maximum size of the key of an item in a summary, so that the title stays readable."""


def task_summary(task: Task) -> str:
    """Return the summary of a task: the title of its node and the key of its item; without a title, the task ID.

    The key stays readable if the title has to be cut, because the key distinguishes the items of a map.
    """
    title = task.node.title
    if not title:
        return summary_of(task.id)
    if task.map_batch is not None and task.map_batch.count:
        return _with_key(title, f"items {task.map_batch.first + 1} to {task.map_batch.first + task.map_batch.count}")
    kind, key = task.path[-1] if task.path else ("node", "")
    return _with_key(title, key) if task.ref.item is not None and kind == "item" else summary_of(title)


def _with_key(title: str, key: str) -> str:
    shown_key = cut_bytes(one_line(str(key)), max_bytes=_MAX_KEY_BYTES)
    # A character has at most four bytes, and a summary at most 400 bytes.
    shown_title = cut_characters(summary_of(title), MAX_SUMMARY_CHARACTERS - len(shown_key) - len(" []"))
    return f"{cut_bytes(shown_title, max_bytes=400 - _MAX_KEY_BYTES - len(' []'))} [{shown_key}]"
