"""Tags of a run: `key=value` pairs that its user chooses, and by which runs are filtered.

They are stored in the memo of the run and, where the namespace has it, in the search attribute `SEARCH_TAGS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_TAGS = 20
TAG_KEY_BYTES = 64
KEYWORD_CHARACTERS = 255
"""Length of a Keyword in the SQL databases of a Temporal server (VARCHAR(255))."""
_FORBIDDEN_IN_KEYS = frozenset("= \t")


class TagsInvalid(ValueError):
    """The tags of a run are invalid; the message names the first invalid tag."""


@dataclass(frozen=True, slots=True)
class TagWords:
    """What the messages call a tag: the API accepts tags as the entries of `metadata`."""

    one: str
    article: str
    many: str
    key: str


TAGS = TagWords("tag", "a tag", "tags", "tag key")
METADATA = TagWords("entry", "an entry", "entries", "key")


def checked_tags(tags: Mapping[str, Any], *, words: TagWords = TAGS) -> dict[str, str]:
    """Validate the tags of a run.

    Returns:
        The tags, key -> value, in the given order.

    Raises:
        TagsInvalid: there are more than `MOST_TAGS`, or one of them cannot be a tag.
    """
    if len(tags) > MOST_TAGS:
        raise TagsInvalid(f"a run has at most {MOST_TAGS} {words.many}; {len(tags)} were given")
    for key, value in tags.items():
        _check_tag(key, value, words)
    return dict(tags)


def _check_tag(key: str, value: Any, words: TagWords) -> None:
    if not key or len(key.encode(errors="replace")) > TAG_KEY_BYTES or _FORBIDDEN_IN_KEYS & set(key):
        limit = f"1 to {TAG_KEY_BYTES} bytes of UTF-8 without spaces and '='"
        raise TagsInvalid(f"{words.key} {key!r:.80} is invalid: a {words.key} has {limit}")
    if not isinstance(value, str):
        raise TagsInvalid(f"the value of {words.one} {key!r} must be a string, not {type(value).__name__}")
    text = keyword_of_tag(key, value)
    if any(character < " " or "\ud800" <= character <= "\udfff" for character in text):
        raise TagsInvalid(f"{words.one} {key!r:.80} contains control characters or surrogates")
    if len(text) > KEYWORD_CHARACTERS:
        found = f"{key!r} has {len(text)}"
        raise TagsInvalid(
            f"{words.article} has at most {KEYWORD_CHARACTERS} characters, its key and '=' included; {found}"
        )


def keyword_of_tag(key: str, value: str) -> str:
    """Return the element of `SEARCH_TAGS` for one tag."""
    return f"{key}={value}"


def tags_in(memo: Mapping[str, Any], *, key: str) -> dict[str, str]:
    """Return the tags that a memo holds; without any, an empty dictionary.

    Args:
        key: name of the memo field.
    """
    found = memo.get(key)
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, Mapping) else {}


def keyword(text: str) -> str:
    """Return a text cut to what a Keyword search attribute can hold."""
    # A lone surrogate cannot be encoded, and would make the request fail.
    return text.encode(errors="replace").decode()[:KEYWORD_CHARACTERS]
