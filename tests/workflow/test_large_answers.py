"""Many large answers in one run: what is too much is refused with a reason, and the run goes on to its end."""

import pytest
from temporalio.client import WorkflowUpdateFailedError

from dagwright.features.feedback.answer_reading import RUN_ANSWERS_BYTES
from tests.support.people import answer, asks, human, view_of
from tests.support.runs import Runs, document_of

pytestmark = pytest.mark.server

_COUNT = 100
_TEXT = "x" * 200_000


async def test_answers_beyond_what_a_run_can_hold_are_refused_and_short_ones_end_it(runs: Runs) -> None:
    names = [f"q{number}" for number in range(_COUNT)]
    handle = await runs.start({"nodes": [human(name, "GUIDANCE") for name in names], "output": "{{q0.result.text}}"})
    await asks(runs, handle, *names)
    refusals = []
    for name in names:
        try:
            await answer(handle, name, {"text": _TEXT})
        except WorkflowUpdateFailedError as refused:
            refusals.append(str(refused.cause))
            await answer(handle, name, {"text": f"see {name}.txt"})
    document = await document_of(handle)
    assert len(refusals) == _COUNT - RUN_ANSWERS_BYTES // len(f'{{"text":"{_TEXT}"}}')
    assert "all that people send to a run may have 8,388,608 bytes" in refusals[0]
    assert (document["status"], document["output"]["bytes"]) == ("completed", 200_002)
    results = [node["result"] for node in (await view_of(runs, handle)).document()["nodes"].values()]
    taken = _COUNT - len(refusals)
    assert results[:taken] == [{"text": _TEXT}] * taken
    assert results[taken:] == [{"text": f"see {name}.txt"} for name in names[taken:]]
