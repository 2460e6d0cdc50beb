"""What tools keep from call to call."""

from dagwright.tools.environment import Kept

CLOSED: list[str] = []


class First:
    async def close(self) -> None:
        CLOSED.append(type(self).__name__)


class Second(First):
    """Another one."""


async def test_each_is_made_once_and_the_newest_is_closed_first() -> None:
    kept = Kept()
    first, second = kept.get(First), kept.get(Second)
    assert (kept.get(First) is first, kept.get(Second) is second) == (True, True)
    await kept.close()
    assert CLOSED == ["Second", "First"]
    assert kept.get(First) is not first
