"""What happens in a run and what it writes, in the order in which both come."""

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing

from dagwright.client.following import RequestKey, RunMoment, interleave
from dagwright.history.run_subscriptions import Told
from dagwright.history.text_stream import NOTHING_TOLD, Mark, Piece, ToldText
from dagwright.interfaces.http.desk import Desk
from dagwright.interfaces.http.following import Outcome, moments
from dagwright.planning.agent_loop.spec import is_turn

BEGINS_AGAIN = "\n\n(The answer begins again.)\n\n"
"""Stands in an answer whose beginning was told and is no part of it: nobody can take back what a client has."""
NEXT_TURN = "\n\n"
"""Stands between what an agent says in one turn and in the next one."""


class AnswerTold:
    """What a client has been told of an answer.

    Args:
        before: what it was told of it before this connection.
        total: how many characters it was told in all then.
    """

    def __init__(self, before: Mark = NOTHING_TOLD, *, total: int = 0) -> None:
        self.told = ToldText(before)
        self.total = total
        """Characters that the client has."""
        self._node = before.node
        self._elsewhere = before
        """What the client was told before, as long as it was told nothing since."""

    async def look_back(self, desk: Desk, run: str) -> None:
        """Looks whether what the client was told before this connection is a part of what was said since.

        Raises:
            RPCError: the server does not answer.
        """
        if await desk.runs.texts.was_given_up(run, self._elsewhere):
            # What comes behind it is no next turn then.
            self._node, self._elsewhere = "", NOTHING_TOLD

    def words_of(self, piece: Piece) -> str:
        """Returns what a client is told of a piece, which may come behind what is no part of the answer."""
        before, self._node, self._elsewhere = self._node, piece.node, NOTHING_TOLD
        # What an agent has said before it called tools is no answer that was given up.
        is_next = is_turn(before.rpartition("/")[2]) and _name(before) != _name(piece.node)
        between = (NEXT_TURN if is_next else BEGINS_AGAIN) if piece.begins_again else ""
        self.total += len(between) + len(piece.text)
        return between + piece.text

    def rest_of(self, outcome: Outcome) -> str:
        """Returns what a client is still to be told at the end, of the answer or of what is asked instead."""
        if outcome.requests:
            words = NEXT_TURN + outcome.text if outcome.text and self.told.mark.length else outcome.text
            self.total += len(words)
            return words
        rest = self.told.rest_of(outcome.text)
        return "" if rest is None else self.words_of(rest)


def _name(node: str) -> str:
    """Returns the id of a node without the number of its later tries."""
    return node.partition("#")[0]


async def moments_and_pieces(
    desk: Desk,
    run: str,
    told: AnswerTold,
    *,
    answered: Collection[RequestKey] = (),
    after: Told | None = None,
) -> AsyncGenerator[RunMoment | Piece, None]:
    """Yields a run at its moments and its answer in pieces, up to its last moment; raises as `moments`.

    Args:
        told: what the client has been told of the answer; kept up here.
        answered, after: as `moments` takes them.
    """
    happening = moments(desk, run, answered=answered, after=after)
    async with aclosing(interleave(happening, desk.runs.texts.pieces(run, told.told))) as coming:
        async for each in coming:
            yield each
