"""JSON that is written part by part."""

import json
from collections.abc import AsyncIterator, Sequence
from io import StringIO
from typing import Any

from dagwright.interfaces.cli.streaming import Elements, write_object


async def each(*values: Any) -> AsyncIterator[Any]:
    for value in values:
        yield value


async def written(*parts: Sequence[Any]) -> str:
    text = StringIO()
    await write_object(each(*parts), text.write)
    return text.getvalue()


async def test_parts_of_parts_stand_on_a_line_each() -> None:
    parts = [
        ("status", "ü\n"),
        ("nodes", each(("a", {"x": [1]}), ('"b"', None))),
        ("none", each()),
        ("edges", Elements(each(["a", "b"], 2))),
        ("no edges", Elements(each())),
        ("error", {"code": "c"}),
    ]
    assert (await written(*parts)).splitlines() == [
        "{",
        '  "status": "ü\\n",',
        '  "nodes": {',
        '    "a": {"x": [1]},',
        '    "\\"b\\"": null',
        "  },",
        '  "none": {},',
        '  "edges": [',
        '    ["a", "b"],',
        "    2",
        "  ],",
        '  "no edges": [],',
        '  "error": {',
        '    "code": "c"',
        "  }",
        "}",
    ]


async def test_small_values_are_written_as_ever_and_no_parts_are_an_empty_object() -> None:
    document = {"a": {"b": [1, {"c": []}]}, "d": {}}
    assert await written(*document.items()) == json.dumps(document, indent=2)
    assert await written() == "{}"
