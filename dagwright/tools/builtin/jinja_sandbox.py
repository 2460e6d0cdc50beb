"""The sandbox of `render_template`: Jinja without long loops, growing values or access to Python.

Only this module imports Jinja, which the extra `jinja` installs.
"""

import re
import time
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from dagwright.core.boundary.limits import MAX_BUILT_IN_RESULT_BYTES

MAX_LOOP_DEPTH = 3
"""Maximum depth of nested loops."""
MAX_RANGE_LENGTH = 1_000
"""Maximum length of a `range`."""
MAX_RENDER_S = 5.0

_DOLLAR_REFERENCE = re.compile(r"\$\{([^{}\n]*)\}")
_DICT_METHODS = frozenset({"get", "items", "keys", "values"})
_TEXT_METHODS = frozenset(
    {
        "capitalize",
        "endswith",
        "join",
        "lower",
        "lstrip",
        "rstrip",
        "split",
        "splitlines",
        "startswith",
        "strip",
    }
    | {"title", "upper"}
)
_GROWING_FILTERS = ("batch", "center", "format", "indent", "slice", "wordwrap", "xmlattr", "pprint", "urlize")
"""Filters whose output may be much longer than their input."""
_FORBIDDEN_NODES: Mapping[type[nodes.Node], str] = {
    nodes.Macro: "macro",
    nodes.CallBlock: "call",
    nodes.Import: "import",
    nodes.FromImport: "from",
    nodes.Include: "include",
    nodes.Extends: "extends",
}


def render(template: str, values: Mapping[str, Any]) -> str:
    """Fill values into a template.

    Raises:
        ValueError: the template is invalid or not allowed, a value is missing, the text is too long, or rendering takes
            too long.
    """
    environment = _Sandbox()
    source = _DOLLAR_REFERENCE.sub(r"{{\1}}", template)
    try:
        _check_nodes(environment.parse(source), depth=0)
        return _join(environment.from_string(source).generate(values))
    except TemplateSyntaxError as error:
        raise ValueError(f"Invalid template: {error.message} (line {error.lineno})") from None
    except (TemplateError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
        raise ValueError(f"The template cannot be rendered: {error}") from None


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja without features that could run long, grow or access Python."""

    intercepted_binops = frozenset(["*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
        self.globals = {"range": _limited_range}
        for name in _GROWING_FILTERS:
            del self.filters[name]

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        are_numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if not are_numbers or (operator == "**" and (abs(left) > 10**9 or abs(right) > 64)):
            raise SecurityError(f"{operator} of these values is not allowed")
        return super().call_binop(context, operator, left, right)

    def is_safe_callable(self, obj: Any) -> bool:
        if isinstance(obj, StrictUndefined):
            return True  # Calling it raises an error that names the missing variable.
        return obj is _limited_range or getattr(obj, "__name__", "") in _DICT_METHODS | _TEXT_METHODS

    def getattr(self, obj: Any, attribute: str) -> Any:
        # A value called `items` or `keys` takes precedence over the method of that name.
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


def _limited_range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > MAX_RANGE_LENGTH:
        raise SecurityError(f"range has {len(numbers):,} numbers, over the limit of {MAX_RANGE_LENGTH:,}")
    return numbers


def _check_nodes(node: nodes.Node, *, depth: int) -> None:
    for kind, word in _FORBIDDEN_NODES.items():
        if isinstance(node, kind):
            raise ValueError(f"The template uses {{% {word} %}}, which is not allowed")
    if isinstance(node, nodes.For):
        depth += 1
        if depth > MAX_LOOP_DEPTH or node.recursive:
            raise ValueError(f"The template has more than {MAX_LOOP_DEPTH} nested loops")
    for child in node.iter_child_nodes():
        _check_nodes(child, depth=depth)


def _join(parts: Iterable[str]) -> str:
    deadline = time.monotonic() + MAX_RENDER_S
    # The parts may be single characters, whose list would be many times larger than the text.
    size, text = 0, StringIO()
    for part in parts:
        size += len(part)
        if size > MAX_BUILT_IN_RESULT_BYTES:
            raise ValueError(f"The text is over the limit of {MAX_BUILT_IN_RESULT_BYTES:,} characters for a result")
        if time.monotonic() > deadline:
            raise ValueError(f"Rendering the template takes longer than {MAX_RENDER_S:g} s")
        text.write(part)
    return text.getvalue()
