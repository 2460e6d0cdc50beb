"""Readers of streamed answers, and answers that are streamed as slowly as a test requires."""

import asyncio
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


def texts_of(client: Client) -> TokenStreams:
    return TokenStreams(client, RunSubscriptions(lambda workflow_id: RunReader(client, workflow_id)))


def held_answer(content: str, gate: asyncio.Event, *, after: int | str) -> Any:
    """Return an answer that pauses after some chunks, or after a part of its text, until the gate is opened."""
    chunks = after if isinstance(after, int) else -(-(content.index(after) + len(after)) // CHUNK_CHARACTERS)
    return slow(text(content), characters=CHUNK_CHARACTERS, held_after=chunks, released=gate)


class Reader:
    """Reader of a run's answer that collects the chunks."""

    def __init__(self, texts: TokenStreams, run: str) -> None:
        self.streamed_texts = DeliveredText()
        self.chunks: list[TextPart] = []
        self._reading = asyncio.create_task(self._read(texts, run))

    async def _read(self, texts: TokenStreams, run: str) -> None:
        async with aclosing(texts.parts(run, self.streamed_texts)) as chunks:
            async for chunk in chunks:
                self.chunks.append(chunk)

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    async def end(self, answer: str) -> str:
        """Wait for the end of the run; return the complete text of the stream."""
        await self._reading
        rest = self.streamed_texts.rest_of(answer)
        self.chunks += [rest] if rest is not None else []
        return self.text
