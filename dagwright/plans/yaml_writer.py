"""Write JSON values as readable YAML that `dagwright.dialects.yaml_reader` reads back unchanged."""

import re
from typing import Any

import yaml
from pydantic import JsonValue

_PLAIN_TEXT = re.compile(r"[A-Za-z_/$][\w/$-]*(?:[ .][\w/$-]+)*|[0-9]+(?:ms|s|m|h|d)")
"""Texts that are safe without quotes; all others are quoted, even if YAML does not require it."""
_RESERVED_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_MAX_PLAIN_CHARACTERS = 200
_BLOCK_TEXT = re.compile(r"[^\s\x00-\x1f\x7f-\x9f][^\x00-\x09\x0b-\x1f\x7f-\xa0\u2028\u2029\ufeff\ud800-\udfff]*\n")
_SINGLE_QUOTED_TEXT = re.compile(r"[\x20-\x7e]*")
_WIDTH = 1_000_000_000
"""Maximum line width; so large that long lines are not folded."""


class _Dumper(yaml.CSafeDumper):
    """Dumper that quotes every string a YAML reader could parse as another type."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - signature of the library
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    is_plain = (
        len(text) <= _MAX_PLAIN_CHARACTERS
        and text.isascii()
        and text.lower() not in _RESERVED_WORDS
        and _PLAIN_TEXT.fullmatch(text) is not None
    )
    if is_plain:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text)
    is_block = "\n" in text and _BLOCK_TEXT.fullmatch(text) is not None and " \n" not in text and "\n\n\n" not in text
    style = "'" if '"' in text and _SINGLE_QUOTED_TEXT.fullmatch(text) is not None else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if is_block else style)


_Dumper.add_representer(str, _represent_text)


def write_yaml(value: JsonValue) -> str:
    """Return a JSON value as YAML, with the keys in their order."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text
