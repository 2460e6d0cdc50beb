"""When the answer of an agent is a question to a person (`AgentSpec.feedback_policy`).

An agent may ask by a tool, which `contracts.agent_calls` reads, or in the words of its answer, which is read here: by
the marker `[[FEEDBACK type: prompt]]`, with `| option` behind the prompt for a SELECTION, or, where its policy says so,
by an answer that is nothing but a question.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagwright.contracts.agent_spec import REQUEST_TYPES, AgentSpec

_MARKER = re.compile(r"\[\[\s*FEEDBACK\b\s*([A-Za-z]*)\s*:(.*?)\]\]", re.DOTALL)
_SHORT_MARKER = re.compile(r"\[\[\s{0,9}FEEDBACK\b[^\[\]:]{0,40}:[^\[\]]{0,2000}\]\]")
"""What is looked for in answers of any length, in a time that is linear in them."""
_QUESTION_CHARACTERS = 500
"""A longer answer is more than a question."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a model said, read for people.

    Args:
        text: without the markers.
        question: what a person is asked, with the fields of `human`; `None` if nobody is.
    """

    text: str
    question: Mapping[str, Any] | None = None


def marker_in(text: str) -> str | None:
    """Returns the first marker of an answer of any length, as it stands there; `None` if there is none of this form."""
    found = _SHORT_MARKER.search(text)
    return None if found is None else found[0]


def read_said(text: str, spec: AgentSpec) -> Said:
    """Returns what an agent said, and what it asks a person; of several questions the first counts."""
    if not spec.may_ask or spec.output is not None:
        return Said(text)
    if (marker := _MARKER.search(text)) is not None:
        return Said(_MARKER.sub("", text).strip(), _question_of(marker))
    if spec.feedback_policy == "heuristic" and _is_question(text):
        return Said(text, {"type": "CLARIFICATION", "prompt": text.strip()})
    return Said(text)


def _question_of(marker: re.Match[str]) -> Mapping[str, Any]:
    prompt, *options = (part.strip() for part in marker[2].split("|"))
    kind = marker[1].upper()
    options = list(dict.fromkeys(filter(None, options)))
    if kind == "SELECTION" and options:
        return {"type": kind, "prompt": prompt, "options": options}
    known = kind in REQUEST_TYPES and kind != "SELECTION"
    return {"type": kind if known else "CLARIFICATION", "prompt": marker[2].strip() or "The agent asks for help"}


def _is_question(text: str) -> bool:
    said = text.strip()
    is_one = said.endswith("?") and "\n\n" not in said and len(said) <= _QUESTION_CHARACTERS
    # A sentence before it tells something, and may be the answer.
    return is_one and re.search(r"[.!:]\s", said) is None
