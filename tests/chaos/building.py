"""Checks of histories, shared by the kill tests."""

from tests.support.runs import Handle, assert_clean, assert_replays


async def assert_clean_and_replays(handle: Handle) -> None:
    """Check that no workflow task of a run failed, and that its history replays."""
    history = await handle.fetch_history()
    assert_clean(history)
    await assert_replays(history)
