"""The names of `dagwright`: complete, documented, and imported only when they are used."""

import inspect
import json
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest

import dagwright
from dagwright import errors, events, settings, tools, types

NAMES = [name for name in dagwright.__all__ if name != "__version__"]


def test_all_lists_the_lazy_names_in_order() -> None:
    assert dagwright.__all__ == [*sorted([*NAMES, "__version__"])]
    assert sorted(dagwright._MODULES) == sorted(NAMES)
    assert set(dagwright.__all__) <= set(dir(dagwright))
    assert len(NAMES) < 28, "errors, events and types of results belong to dagwright.errors, .events and .types"


def _returned_types(found: Any) -> Iterator[type]:
    """Yield the classes in the return annotations of the public methods of a class, or of a function."""
    if inspect.isclass(found):
        for name, member in inspect.getmembers(found):
            if not name.startswith("_"):
                yield from _returned_types(member.fget if isinstance(member, property) else member)
    elif callable(found):
        # Synchronous methods keep the annotations of the methods that they wrap.
        yield from _classes_in(typing.get_type_hints(inspect.unwrap(found)).get("return"))


def _classes_in(annotation: Any) -> Iterator[type]:
    if inspect.isclass(origin := typing.get_origin(annotation) or annotation):
        yield origin
    for argument in typing.get_args(annotation):
        yield from _classes_in(argument)


@pytest.mark.parametrize("name", [*NAMES, *types.__all__])
def test_each_type_that_a_method_returns_can_be_imported(name: str) -> None:
    modules = (dagwright, errors, events, settings, tools, types)
    public = {getattr(module, each) for module in modules for each in getattr(module, "__all__", ["Settings"])}
    found = getattr(dagwright, name, None) or getattr(types, name)
    returned = {each for each in _returned_types(found) if each.__module__.startswith("dagwright.")}
    assert returned <= public


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_documented(name: str) -> None:
    found = getattr(dagwright, name)
    assert found.__doc__
    assert found.__module__.startswith("dagwright.")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"^module 'dagwright' has no attribute 'Klient'$"):
        dagwright.Klient  # type: ignore[attr-defined]  # noqa: B018


def test_importing_dagwright_loads_nothing_else() -> None:
    """No other module of Dagwright either: only the names that are used are imported."""
    code = "import sys; before = {*sys.modules}; import dagwright, json; print(json.dumps([*{*sys.modules} - before]))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    roots = {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    assert roots == {"dagwright"}


def test_importing_the_client_loads_no_library_that_it_may_not_need() -> None:
    """Workers, HTTP tools, queries and models are imported when a program uses them."""
    libraries = ["temporalio.worker", "temporalio.testing", "jsonpath", "httpx", "openai", "mcp", "fastapi", "cel"]
    code = f"import sys; from dagwright import Client; print([each for each in {libraries} if each in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded == "[]\n"


@pytest.mark.parametrize(
    "name", ["PlanInvalid", "RunFailed", "RunIdInUse", "RunNotFound", "FeedbackRejected", "GiveUp"]
)
def test_errors_have_one_base(name: str) -> None:
    assert issubclass(getattr(errors, name), dagwright.DagwrightError)
