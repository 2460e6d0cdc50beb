"""How a run takes what is sent to it: acts of people, reports of its sub-plans, and signals that nobody knows.

The workflow and the feed each have one of these, so that both do the same and note the same. What nobody expected is
caught here: one message never ends a run, nor any look at it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dagwright.core.boundary import wire
from dagwright.core.model.requests import Through
from dagwright.features.feedback.answer_reading import EARLY_ANSWERS
from dagwright.features.run_scheduler import RunScheduler
from dagwright.protocol.command_messages import TAKE_ANYTHING
from dagwright.protocol.commands import PLAIN_CANCEL, Act, Taken, is_act, read_act, refusal_of_act, take_act
from dagwright.protocol.messages import MessageInvalid, SubPlanEnd, sub_plan_end_from_json
from dagwright.protocol.notes import Notes
from dagwright.protocol.outcomes import sub_plan_task

Read = Callable[[], Any]
"""Returns the JSON value of a message, or raises `MessageInvalid`."""

_EARLY = "kept until the run has read its plan"
_ENDED = "the run has ended"


def defect(error: Exception) -> str:
    """Returns why a message was refused that met a defect: the run goes on, as every look at it does."""
    return f"{wire.ERROR_BUG}: {type(error).__name__}: {error}"


def is_signal(name: str) -> bool:
    """Tells whether a signal of that name is an act."""
    return is_act(name) and name != wire.UPDATE_SUBMIT_FEEDBACK


def act_of(name: str, read: Read, *, through: Through) -> Act:
    """Returns what a message asks for.

    Raises:
        MessageInvalid: it is not what docs/internals/messages.md says.
    """
    try:
        message = read()
    except MessageInvalid:
        if name not in TAKE_ANYTHING:
            raise
        message = None
    return read_act(name, message, through=through)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message that was accepted.

    Args:
        read: returns its JSON value.
    """

    name: str
    read: Read
    through: Through

    def is_sent_again(self, name: str, read: Read, *, through: Through) -> bool:
        """Return whether another message is this one, sent by the other way.

        A client whose update is not answered in time sends the same message as a signal; the server may deliver both.
        """
        if name != self.name or through == self.through:
            return False
        try:
            return bool(read() == self.read())
        # The process edge: what cannot be read is refused with its reason when it is applied.
        except Exception:
            return False


class ActTaker:
    """Takes what people ask of one run: at once, or as soon as the run has its plan.

    Args:
        notes: of the run; acts become some, and so does a signal that was refused, for nobody waits for its answer.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._early = EarlyActs()
        self._accepted: _Message | None = None
        """The newest message that was accepted."""
        self._has_ended = False

    def end(self) -> None:
        """Takes nothing from now on: the run has ended, and is only telling it.

        To be called in the workflow task in which the run ended, behind all that came in it.
        """
        self._has_ended = True

    def refusal_of(self, name: str, read: Read, *, scheduler: RunScheduler | None, at: float) -> str | None:
        """Returns why an update would be refused, and changes nothing.

        Args:
            scheduler: of the run; `None` while it has no plan.
        """
        if self._has_ended:
            return _ENDED
        try:
            act = act_of(name, read, through="update")
            return self._early.refusal_of(name) if scheduler is None else refusal_of_act(act, scheduler, at=at)
        except MessageInvalid as error:
            return str(error)
        # The process edge: an exception in a validator would be tried again for ever.
        except Exception as error:
            return defect(error)

    def take(self, name: str, read: Read, *, through: Through, scheduler: RunScheduler | None, at: float) -> Taken:
        """Does what a message asks for, or keeps it; notes what there is to note.

        Args:
            scheduler: of the run; `None` while it has no plan.
        """
        is_repeated = self._accepted is not None and self._accepted.is_sent_again(name, read, through=through)
        if is_repeated and scheduler is None:
            return Taken(said=_EARLY)
        try:
            act = self._act_of(name, read, through=through)
            if self._has_ended:
                taken = Taken(_ENDED)
            elif scheduler is None:
                taken = Taken(self._early.keep(name, act), said=_EARLY)
            else:
                taken = take_act(act, scheduler, at=at)
        except MessageInvalid as error:
            taken = Taken(str(error))
        # The process edge: an exception in a handler would be tried again for ever, and end every look at the run.
        except Exception as error:
            taken = Taken(defect(error), error=error)
        self._note(taken)
        if taken.refusal is None:
            self._accepted = _Message(name, read, through)
        elif through == "signal" and not is_repeated:
            # The sender of an update gets the refusal as its answer.
            self._notes.refuse(name, taken.refusal)
        return taken

    def begin(self, scheduler: RunScheduler, *, at: float) -> Sequence[Taken]:
        """Does all that came before the run had its plan, in order; their senders hear no more of it."""
        found = []
        for name, act in self._early.take_all():
            try:
                taken = take_act(act, scheduler, at=at)
            # The process edge, as above.
            except Exception as error:
                taken = Taken(defect(error), error=error)
            self._note(taken)
            self._notes.refuse(name, taken.refusal)
            found.append(taken)
        return found

    def _act_of(self, name: str, read: Read, *, through: Through) -> Act:
        try:
            return act_of(name, read, through=through)
        except MessageInvalid:
            raise
        # The process edge: whatever a cancel says, it cancels.
        except Exception as error:
            if name != wire.CANCEL:
                raise
            self._notes.refuse(name, defect(error))
            return PLAIN_CANCEL

    def _note(self, taken: Taken) -> None:
        if taken.note is not None:
            self._notes.add(*taken.note)


class EarlyActs:
    """What people asked for before the run had its plan: kept until it has.

    Nobody knows until then which of several answers to one request fits, so all of them are kept.
    """

    def __init__(self) -> None:
        self._acts: list[tuple[str, Act]] = []

    def refusal_of(self, name: str) -> str | None:
        """Returns why an act is not kept, or `None` if it would be.

        Args:
            name: of the message.
        """
        # A flood of others must not keep a run from being cancelled.
        if len(self._acts) >= (2 * EARLY_ANSWERS if name in TAKE_ANYTHING else EARLY_ANSWERS):
            return f"the run has not read its plan, and keeps no more than {EARLY_ANSWERS:,} messages until then"
        return None

    def keep(self, name: str, act: Act) -> str | None:
        """Keeps an act; returns why it does not.

        Args:
            name: of the message.
        """
        refusal = self.refusal_of(name)
        if refusal is None:
            self._acts.append((name, act))
        return refusal

    def take_all(self) -> list[tuple[str, Act]]:
        """Returns all of them with the names of their messages, in order, and keeps none."""
        kept, self._acts = self._acts, []
        return kept


# Signals that are no acts.


def report_of(read: Read, notes: Notes) -> SubPlanEnd | None:
    """Returns the report of a sub-plan; what is none becomes a note."""
    try:
        return sub_plan_end_from_json(read())
    except MessageInvalid as error:
        notes.refuse(wire.SIGNAL_SUB_PLAN_ENDED, str(error))
    # The process edge, as above.
    except Exception as error:
        notes.refuse(wire.SIGNAL_SUB_PLAN_ENDED, defect(error))
    return None


def is_awaited(end: SubPlanEnd, scheduler: RunScheduler, notes: Notes) -> bool:
    """Tells whether a report is one of a sub-plan of this run; that of another one becomes a note."""
    if sub_plan_task(scheduler, end.task) is not None:
        return True
    notes.refuse(wire.SIGNAL_SUB_PLAN_ENDED, f"{end.task[:200]!r} is no sub-plan of this run")
    return False


def refuse_unknown(name: str, notes: Notes) -> None:
    """Notes a signal that no run takes."""
    notes.add("refused", f"{name[:200]!r} is no signal of a run")
