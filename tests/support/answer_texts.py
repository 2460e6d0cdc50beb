"""Readers of streamed answers, and answers whose stream pauses until a test continues it."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

from temporalio.client import Client

from dagwright.history.run_reader import RunReader
from dagwright.history.run_subscriptions import RunSubscriptions
from dagwright.history.text_stream import DeliveredText, TextPart
from dagwright.history.token_streams import TokenStreams
from dagwright.testing import slow, text

CHUNK_CHARACTERS = 8
"""Size of the chunks of a slow answer."""


def token_streams_of(client: Client) -> TokenStreams:
    return TokenStreams(client, RunSubscriptions(lambda run_id: RunReader(client, run_id)))


def held_answer(content: str, gate: asyncio.Event, *, pause_after: int | str) -> Any:
    """Return an answer whose stream pauses until `gate` is set.

    Args:
        pause_after: number of chunks before the pause, or the last part of the text before the pause.
    """
    if isinstance(pause_after, int):
        chunk_count = pause_after
    else:
        chunk_count = -(-(content.index(pause_after) + len(pause_after)) // CHUNK_CHARACTERS)
    return slow(text(content), chunk_characters=CHUNK_CHARACTERS, held_after_chunks=chunk_count, release_event=gate)


def held_model_answer(answer: str, gate: asyncio.Event) -> Any:
    """Return the JSON answer of a model to a request.

    The stream of the answer pauses after 28 characters of `answer`, until `gate` is set: the first five chunks have 40
    characters, and the JSON has 12 characters before the text of `answer`.
    """
    return held_answer(json.dumps({"answer": answer, "missing": []}), gate, pause_after=5)


class AnswerReader:
    """Collect the chunks of a run's streamed answer."""

    def __init__(self, token_streams: TokenStreams, run_id: str) -> None:
        self.delivered_text = DeliveredText()
        self.chunks: list[TextPart] = []
        self._read_task = asyncio.create_task(self._read(token_streams, run_id))

    async def _read(self, token_streams: TokenStreams, run_id: str) -> None:
        async with aclosing(token_streams.parts(run_id, self.delivered_text)) as chunks:
            async for chunk in chunks:
                self.chunks.append(chunk)

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    async def complete_text(self, answer: str) -> str:
        """Wait for the end of the stream, add the missing rest of `answer`, and return the text of all chunks."""
        await self._read_task
        rest = self.delivered_text.rest_of(answer)
        self.chunks += [rest] if rest is not None else []
        return self.text
