"""The index of decisions, from the first lines of each decision."""

import re

from scripts.reference.markdown import ROOT, table

_DECISION = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\nArea: (?P<area>\w+)\.\sStatus: (?P<status>.+)\.\n\n(?P<summary>.+)\n"
)
"""First lines of a decision."""


def decisions_index() -> str:
    """Return a table with a row for each decision.

    Raises:
        ValueError: a decision does not start with its title, area, status and summary.
    """
    rows = []
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        match = _DECISION.match(path.read_text(encoding="utf-8"))
        if match is None:
            raise ValueError(
                f"{path.relative_to(ROOT)}: expected `# N. Title`, `Area: AREA. Status: STATUS.` and one sentence, "
                "with an empty line after each"
            )
        link = f"[{match['title']}]({path.name})"
        rows.append((match["number"], link, match["area"], match["status"], match["summary"]))
    return table(("Number", "Decision", "Area", "Status", "In one sentence"), rows)
