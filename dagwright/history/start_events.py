"""What a run begins with, as the events before its first node tell it: input, plan, items, and state."""

from collections.abc import Mapping, Sequence
from typing import Any

from temporalio.api.common.v1 import Payload

from dagwright.core.boundary import wire
from dagwright.core.expressions.value_refs import unfilled_from_json
from dagwright.core.model.compiled import CompiledPlan, plan_from_json
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.history.call_events import read_argument
from dagwright.history.paged_plan import PagedPlan
from dagwright.protocol.map_batch_inputs import ChunkInput
from dagwright.protocol.map_batch_runs import with_items
from dagwright.protocol.messages import RunInput, pages_of, read_message, run_input_from_json
from dagwright.protocol.run_snapshot import RunCarry
from dagwright.protocol.run_start import scheduler_of

COMPILE_PLAN, LOAD_PLAN = (
    f"{wire.OWN_ID_MARK}{name}" for name in (wire.ACTIVITY_COMPILE_PLAN, wire.ACTIVITY_LOAD_PLAN)
)
PREPARING = {name.removeprefix(wire.OWN_ID_MARK): name for name in (COMPILE_PLAN, LOAD_PLAN)}
"""What a run does before its first node: type of the activity -> what no node can be called."""


class Beginning:
    """What has come so far of what one execution of a run begins with.

    Args:
        run_input: `None` as long as it has not been read.
        plan: `None` as long as it is not there as a whole.
        chunk: of a large map that the run does.
        state: what the execution before handed on; `None` if none did, or not all of it is there.
    """

    def __init__(self) -> None:
        self.run_input: RunInput | None = None
        self.plan: CompiledPlan | None = None
        self.chunk: ChunkInput | None = None
        self.state: str | None = None
        self._pages = PagedPlan()
        self._pieces: dict[str, str] = {}
        """Of the state, under the ids of the activities that fetch them."""

    @property
    def carry(self) -> RunCarry | None:
        """Returns what the execution before this one handed on."""
        return self.run_input.carry if self.run_input is not None else None

    @property
    def has_plan(self) -> bool:
        """Tells whether the whole plan is there."""
        return self.plan is not None

    @property
    def is_whole(self) -> bool:
        """Tells whether a run that goes on from no other execution has all to begin."""
        return self.carry is None and self.has_plan and (self.chunk is None or self.chunk.source is None)

    def new_scheduler(self, *, began_at: float) -> Scheduler:
        """Returns the scheduler of the run, with nothing done yet.

        Args:
            began_at: in seconds since the epoch.
        """
        assert self.plan is not None
        assert self.run_input is not None
        given = self.run_input.inputs
        inputs = given if self.chunk is None else with_items(given, self.chunk.items)
        return scheduler_of(self.plan, self.run_input, began_at=began_at, inputs=inputs)

    # Events.

    def read_input(self, payloads: Sequence[Payload]) -> None:
        """Reads the input of the run.

        Raises:
            MessageInvalid: it is none.
        """
        self.run_input = run_input_from_json(read_argument(payloads))
        self._pages.count = len(self.run_input.pages)
        self.chunk, self.plan = self.run_input.chunk, self.run_input.compiled
        if (carry := self.carry) is not None:
            self.state = carry.state or None

    def expect_page(self, event_id: int) -> None:
        """Takes note that the next page of a large plan was asked for."""
        self._pages.expect(event_id)

    def take(self, name: str, event_id: int, payload: Payload) -> bool:
        """Takes the result of an activity; tells whether it was one of those before the first node.

        Args:
            name: id of the activity, or one of `PREPARING`.
            event_id: of the event that scheduled it.
        """
        if name == COMPILE_PLAN:
            self._take_compiled(read_message(payload)["compiled"])
        elif name == LOAD_PLAN:
            if (plan := self._pages.take(event_id, read_message(payload))) is not None:
                self.plan = plan
        elif name == wire.ID_LOAD_ITEMS:
            self._take_items(read_message(payload))
        elif name.startswith(wire.ID_GET_STATE):
            self._take_piece(name, str(read_message(payload)["text"]))
        else:
            return False
        return True

    def _take_compiled(self, compiled: Any) -> None:
        """Takes what the activity made of a plan as it was written."""
        self._pages.count = len(pages_of(compiled))
        if not self._pages.count:
            self.plan = plan_from_json(compiled)

    def _take_items(self, loaded: Mapping[str, Any]) -> None:
        """Takes the items of a chunk that were too large for its input."""
        if self.chunk is not None:
            self.chunk = ChunkInput(self.chunk.given, unfilled_from_json(loaded["value"], loaded.get("stored")))

    def _take_piece(self, name: str, piece: str) -> None:
        """Takes a piece of the state that was too large for the input.

        Args:
            name: id of the activity that has fetched it.
        """
        self._pieces[name] = piece
        carry = self.carry
        if carry is not None and len(self._pieces) == len(carry.refs):
            names = [f"{wire.ID_GET_STATE} {number}" for number in range(1, len(carry.refs) + 1)]
            self.state, self._pieces = "".join(self._pieces[name] for name in names), {}
