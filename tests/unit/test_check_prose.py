"""Patterns of the prose check, each with a reported sentence and an accepted sentence."""

from pathlib import Path

import pytest

from scripts import check_prose


@pytest.mark.parametrize(
    ("reported_sentence", "accepted_sentence"),
    [
        ("Invalid entries are left out.", "Invalid entries are omitted."),
        ("The list leaves all ended runs out.", "The list omits all ended runs."),
        ("Return the id of the node of the call of a tool.", "Return the call's node id."),
        ("Return the size of a list of the items of a map.", "Return the size of a map's item list."),
        ("Refuse the message.", "Reject the message."),
        ("The session refused an update.", "The model refused, which its response reports as `refusal`."),
    ],
)
def test_pattern_is_reported_and_its_replacement_is_not(
    reported_sentence: str, accepted_sentence: str, tmp_path: Path
) -> None:
    assert _count_findings(reported_sentence, tmp_path) == 1
    assert _count_findings(accepted_sentence, tmp_path) == 0


def _count_findings(sentence: str, folder: Path) -> int:
    page = folder / "page.md"
    page.write_text(f"{sentence}\n")
    return len(list(check_prose.findings(page)))
