"""JSON that is written part by part."""

import json
from collections.abc import AsyncIterator, Sequence
from io import StringIO
from typing import Any

from dagwright.interfaces.cli.json_streaming import Elements, write_object


async def async_values(*values: Any) -> AsyncIterator[Any]:
    for value in values:
        yield value


async def write_parts(*parts: Sequence[Any]) -> str:
    text = StringIO()
    await write_object(async_values(*parts), text.write)
    return text.getvalue()


NESTED_JSON = """{
  "status": "ü\\n",
  "nodes": {
    "a": {"x": [1]},
    "\\"b\\"": null
  },
  "none": {},
  "edges": [
    ["a", "b"],
    2
  ],
  "no edges": [],
  "error": {
    "code": "c"
  }
}"""


async def test_each_nested_part_is_written_on_a_separate_line() -> None:
    parts = {
        "status": "ü\n",
        "nodes": async_values(("a", {"x": [1]}), ('"b"', None)),
        "none": async_values(),
        "edges": Elements(async_values(["a", "b"], 2)),
        "no edges": Elements(async_values()),
        "error": {"code": "c"},
    }
    assert await write_parts(*parts.items()) == NESTED_JSON
    document = {"a": {"b": [1, {"c": []}]}, "d": {}}
    assert await write_parts(*document.items()) == json.dumps(document, indent=2)
    assert await write_parts() == "{}"
