"""Progress and answer text of a run, merged in the order in which they arrive."""

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing

from dagwright.client.following import RequestKey, RunMoment, interleave
from dagwright.history.run_subscriptions import Told
from dagwright.history.text_stream import NOTHING_TOLD, Mark, Piece, ToldText
from dagwright.interfaces.http.desk import Desk
from dagwright.interfaces.http.following import Outcome, moments
from dagwright.planning.agent_loop.spec import is_turn

BEGINS_AGAIN = "\n\n(The answer starts again.)\n\n"
"""Separates an abandoned part of an answer, which the client has received, from the part that replaces it."""
NEXT_TURN = "\n\n"
"""Separates the text of an agent's turns."""


class AnswerTold:
    """How much of an answer a client has received.

    Args:
        before: position in the answer at the end of the previous connection.
        total: characters received by then.
    """

    def __init__(self, before: Mark = NOTHING_TOLD, *, total: int = 0) -> None:
        self.told = ToldText(before)
        self.total = total
        """Characters received."""
        self._node = before.node
        self._elsewhere = before
        """Position of the previous connection, until the client receives more text."""

    async def look_back(self, desk: Desk, run: str) -> None:
        """Check whether the text that the client received before this connection is still part of the answer.

        Raises:
            RPCError: the server does not respond.
        """
        if await desk.runs.texts.was_given_up(run, self._elsewhere):
            # The text after it does not start another turn then.
            self._node, self._elsewhere = "", NOTHING_TOLD

    def words_of(self, piece: Piece) -> str:
        """Return the text to send for a piece, with a separator if it does not continue the text before it."""
        before, self._node, self._elsewhere = self._node, piece.node, NOTHING_TOLD
        # Text before an agent's tool calls is a turn of its own, not an abandoned answer.
        is_next = is_turn(before.rpartition("/")[2]) and _name(before) != _name(piece.node)
        between = (NEXT_TURN if is_next else BEGINS_AGAIN) if piece.begins_again else ""
        self.total += len(between) + len(piece.text)
        return between + piece.text

    def rest_of(self, outcome: Outcome) -> str:
        """Return the text that is still to be sent at the end: the rest of the answer, or the questions."""
        if outcome.requests:
            words = NEXT_TURN + outcome.text if outcome.text and self.told.mark.length else outcome.text
            self.total += len(words)
            return words
        rest = self.told.rest_of(outcome.text)
        return "" if rest is None else self.words_of(rest)


def _name(node: str) -> str:
    """Return a node ID without the number of a retry."""
    return node.partition("#")[0]


async def moments_and_pieces(
    desk: Desk,
    run: str,
    told: AnswerTold,
    *,
    answered: Collection[RequestKey] = (),
    after: Told | None = None,
) -> AsyncGenerator[RunMoment | Piece, None]:
    """Yield the moments of a run and the pieces of its answer, up to the last moment; raises as `moments`.

    Args:
        told: position of the client in the answer; updated here.
        answered, after: as in `moments`.
    """
    happening = moments(desk, run, answered=answered, after=after)
    async with aclosing(interleave(happening, desk.runs.texts.pieces(run, told.told))) as coming:
        async for each in coming:
            yield each
