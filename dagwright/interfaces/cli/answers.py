"""From the options of `feedback` to the answer that they stand for (docs/people.md). Pure."""

from collections.abc import Mapping
from typing import Any

from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.json_texts import json_of
from dagwright.interfaces.cli.requests import AnswerRequest

_OPTION_OF: Mapping[str, str] = {
    "APPROVAL": "--approve or --reject",
    "SELECTION": "--select OPTION",
    "GUIDANCE": "--text TEXT",
    "CLARIFICATION": "--text TEXT",
    "INFORMATION": "--data JSON",
}


def options_for(kind: str) -> str:
    """Returns the options of `feedback` that answer a request of a type."""
    return _OPTION_OF.get(kind, "--data JSON")


def answer_of(request: AnswerRequest) -> dict[str, Any] | None:
    """Returns the answer that the options of the command give, without its nodes; `None` if they give none.

    Raises:
        CommandRefused: the options do not go together, or one is no JSON.
    """
    given = {
        "--approve": request.is_approved,
        "--reject": request.is_rejected,
        "--select": bool(request.selected),
        "--text" if request.nodes is None else "--nodes": request.text is not None or request.nodes is not None,
        "--data": request.data is not None and not request.selected,
    }
    kinds = [name for name, is_given in given.items() if is_given]
    if len(kinds) > 1:
        raise CommandRefused(f"{' and '.join(kinds)} do not go together: one answer is of one kind")
    kind = kinds[0] if kinds else None
    _refuse_beside(kind, request)
    changed = {} if request.arguments is None else {"arguments": _object(request.arguments, option="--arguments")}
    reason = {} if request.reason is None else {"reason": request.reason}
    match kind:
        case "--approve":
            return {"approved": True, **reason, **changed, **({"remember": True} if request.is_remembered else {})}
        case "--reject":
            return {"approved": False, **reason}
        case "--select":
            value = {} if request.data is None else {"value": json_of(request.data, option="--data")}
            return {"selected": [*request.selected], **value, **changed}
        case "--text" | "--nodes":
            return {"text": request.text or ""}
        case "--data":
            return {"data": json_of(request.data or "", option="--data")}
    return None


def _refuse_beside(kind: str | None, request: AnswerRequest) -> None:
    """Refuses what says more about an answer of another kind."""
    if request.arguments is not None and kind not in ("--approve", "--select"):
        raise CommandRefused("--arguments goes with --approve, or with --select retry")
    if request.is_remembered and kind != "--approve":
        raise CommandRefused("--remember goes with --approve")
    if request.reason is not None and kind not in ("--approve", "--reject"):
        raise CommandRefused("--reason goes with --approve or --reject; --note goes with any answer")


def _object(text: str, *, option: str) -> dict[str, Any]:
    value = json_of(text, option=option)
    if not isinstance(value, dict):
        raise CommandRefused(f"{option} takes a JSON object, not {text!r:.80}")
    return value
