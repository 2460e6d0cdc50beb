"""`json_query` and `render_template`: parts out of JSON, and values into text."""

from typing import Annotated, Any

import jsonpath
from pydantic import WithJsonSchema

from dagwright.core.extras import require_extra
from dagwright.core.model import text_formats
from dagwright.tools.spec import tool

TEMPLATE_LIMIT = 100_000
"""Characters of a template."""

QueryText = Annotated[str, WithJsonSchema({"type": "string", text_formats.KEYWORD: "jsonpath"})]


@tool(effects="pure")
def json_query(value: Any, path: QueryText) -> list[Any]:
    """Returns every part of a JSON value that an RFC 9535 JSONPath query selects, in document order.

    Args:
        value: the JSON value to look into
        path: such as `$.items[?@.price < 10].name`
    """
    try:
        return list(text_formats.parse_jsonpath(path).findall(value))
    except (jsonpath.JSONPathError, RecursionError) as error:
        raise ValueError(f"{path[:200]!r} cannot be answered: {type(error).__name__}") from None


@tool(effects="pure")
def render_template(template: str, values: dict[str, Any] | None = None) -> str:
    """Fills values into a text and returns it; a value that is missing is an error.

    The language is Jinja: `${name}` or double braces for a value, `{% for %}` and `{% if %}`, filters. In a
    plan, double braces of a template have a backslash before them, or they would be a reference.

    Args:
        template: the text, such as `Dear ${name}`
        values: name -> value
    """
    if len(template) > TEMPLATE_LIMIT:
        raise ValueError(f"The template has {len(template):,} characters, over the limit of {TEMPLATE_LIMIT:,}")
    require_extra("jinja")
    from dagwright.tools.builtin.jinja_sandbox import render  # noqa: PLC0415 - Jinja is optional

    return render(template, values or {})
