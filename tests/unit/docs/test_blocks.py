"""Tests read the fenced blocks of a page with their languages, file names and instructions."""

from pathlib import Path

import pytest

from tests.support import docs
from tests.support.docs import Block

PAGE = """# A page

```yaml title="plans/price.yaml"
plan: 1
```

<!-- invalid -->

```json title="wrong.json"
{}
```

```python
# tools.py
```

```bash title="In a second terminal"
true
```

```text
not a file
```
"""


@pytest.fixture
def blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    return docs.blocks(page)


def test_blocks_have_the_name_of_their_title_or_first_line(blocks: list[Block]) -> None:
    assert [(block.line, block.language, block.name) for block in blocks] == [
        (3, "yaml", "plans/price.yaml"),
        (9, "json", "wrong.json"),
        (13, "python", "tools.py"),
        (17, "bash", None),
        (21, "text", None),
    ]
    assert [block.title for block in blocks] == ["plans/price.yaml", "wrong.json", None, "In a second terminal", None]
    assert "invalid" in blocks[1].notes


def test_blocks_have_their_own_text_only(blocks: list[Block]) -> None:
    assert [block.text for block in blocks] == ["plan: 1\n", "{}\n", "# tools.py\n", "true\n", "not a file\n"]
