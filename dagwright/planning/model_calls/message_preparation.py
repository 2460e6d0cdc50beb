"""Prepare the messages of a model request: truncate long messages and join consecutive user messages."""

import json
from collections.abc import Sequence
from typing import Any

from dagwright.core.text import cut_with_count
from dagwright.planning.model_calls.model_requests import Message, ModelRequest


def sendable_messages(request: ModelRequest) -> list[Message]:
    """Return the messages of a model request as they are sent. Messages over their limit are truncated, with a mark.

    Consecutive user messages are joined, because many servers reject them.
    """
    messages = [*request.call.messages]
    for index, characters in request.cuts.items():
        if 0 <= index < len(messages) and (content := messages[index].content) is not None:
            messages[index] = messages[index].model_copy(update={"content": cut_with_count(content, characters)})
    return join_user_messages(messages)


def join_user_messages(messages: Sequence[Message]) -> list[Message]:
    """Join consecutive user messages."""
    merged_messages: list[Message] = []
    for message in messages:
        if merged_messages and message.role == "user" == merged_messages[-1].role:
            content = f"{merged_messages[-1].content or ''}\n\n{message.content or ''}"
            merged_messages[-1] = message.model_copy(update={"content": content})
        else:
            merged_messages.append(message)
    return merged_messages


def json_line(value: Any) -> str:
    """Serialize a value as JSON without any character that a reader takes for a line break."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    # Some readers also split lines at these Unicode line separators.
    for separator in ("\x85", "\u2028", "\u2029"):
        text = text.replace(separator, f"\\u{ord(separator):04x}")
    return text.encode("utf-8", errors="replace").decode()
