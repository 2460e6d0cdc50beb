"""What of a request is really said to a model: messages cut to their length, and those of a user in one piece."""

import json
from collections.abc import Sequence
from typing import Any

from dagwright.core.boundary.text import cut_with_count
from dagwright.planning.model_calls.calls import Message, ModelRequest


def sendable_messages(request: ModelRequest) -> list[Message]:
    """Returns the messages of a request as they are said: each cut with a mark, where the request says so.

    Messages of a user that follow one another are said as one, since many services take no others.
    """
    messages = [*request.call.messages]
    for place, characters in request.cuts.items():
        if 0 <= place < len(messages) and (content := messages[place].content) is not None:
            messages[place] = messages[place].model_copy(update={"content": cut_with_count(content, characters)})
    return joined(messages)


def joined(messages: Sequence[Message]) -> list[Message]:
    """Returns messages of which no two of a user follow one another."""
    found: list[Message] = []
    for message in messages:
        if found and message.role == "user" == found[-1].role:
            content = f"{found[-1].content or ''}\n\n{message.content or ''}"
            found[-1] = message.model_copy(update={"content": content})
        else:
            found.append(message)
    return found


def json_line(value: Any) -> str:
    """Returns a value as JSON on one line, whoever reads it and by whichever signs."""
    # Line ends of Unicode's own would split a line for whoever reads by them.
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    for sign in ("\x85", "\u2028", "\u2029"):
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text.encode("utf-8", errors="replace").decode()
