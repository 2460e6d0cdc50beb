"""Checks of the arguments that Python programs pass: names and types must match the annotations of the function."""

import functools
import inspect
from collections import abc
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import EnumMeta
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, Unpack, get_args, get_origin, get_type_hints, is_typeddict

import pydantic_core

from dagwright.core.name_hints import suggestion

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)
_MAX_CHECKED_ITEMS = 1_000
"""Maximum number of items of a list or mapping whose types are checked."""
_DESCRIPTIONS: Mapping[str, str] = {
    "NoneType": "None",
    "bool": "True or False",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "Path": "a path",
}
"""Type name -> description of its values; other types are described by an article and their name."""
_LIST_TYPES = (Sequence, Iterable, Collection, AbstractSet)


def reject_unknown(names: Iterable[str], known_names: Collection[str], *, function: str) -> None:
    """Reject keyword arguments that a function does not have.

    Args:
        function: name of the function, for the message.

    Raises:
        TypeError: a name is unknown; the message has the nearest name.
    """
    for name in names:
        if name not in known_names:
            hint = _suggestion(name, known_names)
            raise TypeError(f"{function}() got an unexpected argument {name!r}" + (f"; {hint}" if hint else ""))


def _suggestion(name: str, known_names: Collection[str]) -> str | None:
    """Return a hint with the nearest known names, such as `run_id` for `id`; `None` if no name is near."""
    longer_names = [known_name for known_name in known_names if known_name.endswith(f"_{name}")]
    return f"did you mean {' or '.join(map(repr, longer_names))}?" if longer_names else suggestion(name, known_names)


def checks_arguments(function: Function) -> Function:
    """Decorate a function to check its arguments: unknown names and wrong types raise `TypeError`.

    The message names the argument. The items of a list are checked too. A string is not accepted as a list. A value is
    accepted if the annotation of its parameter cannot be checked.
    """
    parameters = [*inspect.signature(function).parameters.values()]
    display_name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    positional_names = [
        parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    # The first call resolves the annotations: at import, they may name types of a module that is not imported yet.
    resolve_annotations = functools.cache(lambda: _annotations_of(function, parameters))

    def check(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        annotations, known_names = resolve_annotations()
        if known_names is not None:
            reject_unknown(kwargs, known_names, function=display_name)
        for name, value in [*zip(positional_names, args, strict=False), *kwargs.items()]:
            if name in annotations and not _matches(value, annotations[name]):
                value_text = (
                    f"{value!r:.60}" if not callable(value) else f"the {type(value).__name__} {_name_of(value)}"
                )
                raise TypeError(
                    f"{display_name}(): {name} must be {_description_of(annotations[name])}, not {value_text}"
                )

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            return await function(*args, **kwargs)

        return call  # type: ignore[return-value] # `call` has the parameters of the function

    @functools.wraps(function)
    def call_sync(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return function(*args, **kwargs)

    return call_sync  # type: ignore[return-value] # `call_sync` has the parameters of the function


def checks_methods(public_class: Class) -> Class:
    """Make the public methods of a class check their arguments as `checks_arguments` does."""
    for name, method in [*vars(public_class).items()]:
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(public_class, name, checks_arguments(method))
    return public_class


def json_argument(value: object, name: str, *, function: str) -> Any:
    """Return an argument as JSON. Dataclasses, models and dates are converted.

    Raises:
        TypeError: the value has no JSON form.
    """
    try:
        return pydantic_core.to_jsonable_python(value)
    except ValueError as error:
        raise TypeError(f"{function}(): {name} has no JSON form: {error}") from None


def _annotations_of(
    function: Callable[..., Any], parameters: Sequence[inspect.Parameter]
) -> tuple[dict[str, Any], list[str] | None]:
    """Return the types of the arguments, and the accepted keyword names (`None` if every name is accepted).

    A parameter `**options: Unpack[SomeTypedDict]` counts as one argument for each key of the TypedDict.
    """
    annotations = {name: annotation for name, annotation in get_type_hints(function).items() if name != "return"}
    keyword_names: list[str] | None = [
        parameter.name for parameter in parameters if parameter.name not in ("self", "cls")
    ]
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            options_annotation = annotations.pop(parameter.name, None)
            options = get_args(options_annotation)[0] if get_origin(options_annotation) is Unpack else None
            if options is None or not is_typeddict(options):
                keyword_names = None
            elif keyword_names is not None:
                # The value `None` means that the option is not given.
                types = {name: Union[annotation, None] for name, annotation in get_type_hints(options).items()}  # noqa: UP007
                annotations |= types
                keyword_names = [*(name for name in keyword_names if name != parameter.name), *types]
    return {name: annotation for name, annotation in annotations.items() if annotation is not Any}, keyword_names


def _matches(value: object, annotation: Any) -> bool:
    if annotation is None or annotation is NoneType:
        return value is None
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return any(_matches(value, argument) for argument in arguments)
    if origin is Literal:
        return value in arguments
    if origin in (Mapping, dict):
        return isinstance(value, Mapping) and all(
            _matches(key, arguments[0]) and _matches(item, arguments[1]) for key, item in _first_items(value.items())
        )
    if origin in _LIST_TYPES or origin is list:
        is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        is_accepted_iterable = is_list and (origin is Iterable or isinstance(value, Collection))
        return is_accepted_iterable and (
            not isinstance(value, Collection) or all(_matches(element, arguments[0]) for element in _first_items(value))
        )
    if origin is not None and not isinstance(origin, type):
        return True
    return _is_instance(value, origin or annotation)


def _is_instance(value: object, annotation: Any) -> bool:
    if annotation is bool:
        return isinstance(value, bool)
    if isinstance(value, bool) and annotation in (int, float):
        return False
    if annotation is float:
        return isinstance(value, int | float)
    try:
        return not isinstance(annotation, type) or isinstance(value, annotation)
    except TypeError:
        # `isinstance` does not support every type, such as some protocols.
        return True


def _first_items(items: Iterable[Any]) -> Iterable[Any]:
    return (item for item, _ in zip(items, range(_MAX_CHECKED_ITEMS), strict=False))


def _description_of(annotation: Any) -> str:
    """Describe the accepted values of a type, such as `a string or a list of strings`."""
    if annotation is None or isinstance(annotation, type):
        if isinstance(annotation, EnumMeta):
            return f"a member of {annotation.__name__}"
        return _DESCRIPTIONS.get((annotation or NoneType).__name__) or _with_article(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        *other_descriptions, last_description = dict.fromkeys(
            _description_of(argument) for argument in arguments if argument is not NoneType
        )
        return f"{', '.join(other_descriptions)} or {last_description}" if other_descriptions else last_description
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}" if len(arguments) > 1 else repr(arguments[0])
    if origin in (Mapping, dict):
        return (
            "a mapping"
            + (" with string keys" if arguments[0] is str else "")
            + (" and values" if arguments[1] is str else "")
        )
    if origin in _LIST_TYPES or origin is list:
        return "a list" + (" of strings" if arguments[0] is str else f", each {_description_of(arguments[0])}")
    return "a function" if origin is abc.Callable else _with_article(origin or annotation)


def _with_article(annotation: Any) -> str:
    name = str(getattr(annotation, "__name__", annotation))
    return f"an {name}" if name[0] in "AEIOU" else f"a {name}"


def _name_of(value: object) -> str:
    return repr(getattr(value, "__name__", "")) if hasattr(value, "__name__") else f"{value!r:.60}"
