"""What a client is told of a run that has answered."""

from types import SimpleNamespace
from typing import Any, cast

from dagwright.feed import RunView
from dagwright.gateway.following import Moment, outcome_of

VIEW = RunView("run-1", "first", "completed_with_failures", None, None, {}, None, None, is_closed=True)


async def _about(error: Any) -> Any:
    async def document(_: RunView) -> Any:
        return {"output": "Six.", "error": error}

    desk: Any = SimpleNamespace(runs=SimpleNamespace(document=document), caller=None)
    return (await outcome_of(cast(Any, desk), Moment(VIEW, (), []), session=None, words="")).about


async def test_answer_says_why_its_run_is_not_completed() -> None:
    about: dict[str, Any] = {"run_id": "run-1", "session_id": None, "status": "completed_with_failures", "nodes": {}}
    error = {"code": "max_rounds", "message": "all 2 rounds are used", "node": None}
    assert await _about(error) == {**about, "error": {"code": "max_rounds", "message": "all 2 rounds are used"}}
    assert await _about(None) == about
