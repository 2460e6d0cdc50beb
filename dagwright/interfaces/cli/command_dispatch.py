"""Call the module that implements a command.

`call_command` imports the module only when the command is called: `check` must not import Temporal, and `run` must
start its first node within 1.5 s.
"""

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_origin, get_type_hints

from dagwright.core.extras import require_extra
from dagwright.interfaces.cli.command_arguments import reject_lone_surrogates
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.shared_options import Json, NoColor

_OUTPUT_OPTIONS = {"json": Json, "no_color": NoColor}


def call_command(module: str, function: str, arguments: object, output: Output, *, extra: str | None = None) -> int:
    """Import the module of a command and call its function, which returns the exit code.

    Args:
        module: name of a module in this package, or the full name of a module of an application.
        extra: the extra with the libraries that the module imports.

    Raises:
        CommandError: a text in the arguments is not valid UTF-8.
        MissingExtra: the extra is not installed.
    """
    if extra is not None:
        require_extra(extra)
    reject_lone_surrogates(arguments)
    # Tools are loaded and run in this process, and may print.
    with output.reserve_stdout():
        command_function = getattr(
            importlib.import_module(module if "." in module else f"dagwright.interfaces.cli.{module}"), function
        )
        code: int = command_function(arguments, output)
    return code


def command(
    arguments_type: type[Any],
    module: str,
    function: str,
    *,
    summary: str,
    extra: str | None = None,
    output_options: dict[str, Any] = _OUTPUT_OPTIONS,
) -> Callable[..., int]:
    """Return a typer function. Its arguments and options are the fields of a dataclass.

    Args:
        arguments_type: dataclass whose annotations contain the typer arguments and options. The type of a repeatable
            option is `Sequence`.
        module, function, extra: as in `call_command`.
        summary: help of the command.
        output_options: `json`, `no_color` or both, each with its typer annotation.
    """
    hints = get_type_hints(arguments_type, include_extras=True)
    parameters = [_parameter(field.name, hints[field.name], field.default) for field in fields(arguments_type)]
    parameters += [_parameter(name, hint, False) for name, hint in output_options.items()]

    def run(*, json: bool = False, no_color: bool = False, **values: Any) -> int:
        arguments = arguments_type(**{name: value for name, value in values.items() if value is not None})
        return call_command(module, function, arguments, Output(is_json=json, has_color=not no_color), extra=extra)

    run.__doc__ = summary
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # functions may have a signature
    return run


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    """Return the parameter for a field. Typer passes the values of a repeatable option as a list, or `None`."""
    is_required = default is MISSING
    if get_origin(hint.__origin__) is Sequence:
        (option,) = hint.__metadata__
        hint = Annotated[list[str] if is_required else list[str] | None, option]
        default = None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=hint,
        default=inspect.Parameter.empty if is_required else default,
    )
