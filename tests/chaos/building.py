"""Assertions shared by the kill tests."""

from tests.support.runs import Handle, assert_clean, assert_replays


async def assert_whole(handle: Handle) -> None:
    """Check that the history of a run is without a failed workflow task, and replays."""
    history = await handle.fetch_history()
    assert_clean(history)
    await assert_replays(history)
