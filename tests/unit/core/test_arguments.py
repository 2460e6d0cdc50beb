"""Checks of arguments against annotations."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast

import pytest

from dagwright.core.boundary.arguments import checks_arguments, checks_methods, json_argument
from dagwright.core.model.tools import Effects


class Options(TypedDict, total=False):
    tags: Mapping[str, str]
    mode: Literal["fast", "slow"]


@checks_methods
class Subject:
    def __init__(self, name: str) -> None:
        self.name = name

    def work(self, tools: Sequence[Callable[..., Any] | str | Path] = (), **options: Unpack[Options]) -> str:
        return "done"

    async def wait(self, until: date | timedelta | None = None, *, count: int = 1, share: float = 0.5) -> str:
        return "waited"

    async def each(self, names: Sequence[str]) -> AsyncGenerator[str, None]:
        for name in names:
            yield name


@checks_arguments
def plain(effects: Effects | Literal["none"], is_new: bool = False, extra: Any = None) -> str:
    return "plain"


async def test_valid_arguments_are_accepted() -> None:
    subject = Subject("a")
    assert subject.work([print, "shop", Path("shop.py")], tags={"a": "b"}, mode="fast") == "done"
    assert subject.work(tags=None, mode=None) == "done"  # type: ignore[arg-type]
    assert await subject.wait(datetime(2026, 1, 1), count=2, share=1) == "waited"
    assert [name async for name in subject.each(["a", "b"])] == ["a", "b"]
    assert plain(Effects.READ) == plain("none", extra=object()) == "plain"


_TOOLS_MESSAGE = "tools must be a list, each a function, a string or a path"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda subject: type(subject)(3), "Subject(): name must be a string, not 3"),
        (lambda subject: subject.work("shop"), f"work(): {_TOOLS_MESSAGE}, not 'shop'"),
        (lambda subject: subject.work(print), "not the builtin_function_or_method 'print'"),
        (lambda subject: subject.work([3]), "not [3]"),
        (lambda subject: subject.work(tags=["a"]), "tags must be a mapping with string keys and values, not ['a']"),
        (lambda subject: subject.work(tags={"a": 1}), "keys and values, not {'a': 1}"),
        (lambda subject: subject.work(mode="quick"), "mode must be one of 'fast', 'slow', not 'quick'"),
        (lambda subject: subject.each("names"), "each(): names must be a list of strings, not 'names'"),
        (lambda subject: subject.work(tagz={}), "work() got an unexpected argument 'tagz'; did you mean 'tags'?"),
        (lambda subject: subject.work(tool=[]), "work() got an unexpected argument 'tool'; did you mean 'tools'?"),
        (lambda subject: subject.each(name="a"), "each() got an unexpected argument 'name'; did you mean 'names'?"),
        (lambda subject: subject.work(options={}), "work() got an unexpected argument 'options'"),
        (lambda _: cast("Any", plain)("all"), "plain(): effects must be a member of Effects or 'none', not 'all'"),
        (lambda _: cast("Any", plain)("none", 1), "is_new must be True or False, not 1"),
    ],
)
def test_unknown_argument_and_argument_of_a_wrong_type_are_named(call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(TypeError) as error:
        call(Subject("a"))
    assert message in str(error.value)


async def test_async_functions_check_their_arguments() -> None:
    with pytest.raises(TypeError, match=r"^wait\(\): until must be a date or a timedelta, not 'now'$"):
        await Subject("a").wait("now")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^wait\(\): count must be an integer, not True$"):
        await Subject("a").wait(count=True)


def test_argument_becomes_json_or_is_rejected() -> None:
    assert json_argument({"on": date(2026, 1, 2)}, "result", function="set_result") == {"on": "2026-01-02"}
    with pytest.raises(TypeError, match=r"^set_result\(\): result has no JSON form: "):
        json_argument(object(), "result", function="set_result")
