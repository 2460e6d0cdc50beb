"""`json_query` and `render_template`: select parts of JSON, and fill values into text."""

from typing import Annotated, Any

import jsonpath
from pydantic import WithJsonSchema

from dagwright.core.extras import require_extra
from dagwright.core.model.json_schemas import TEXT_FORMAT, parse_jsonpath
from dagwright.tools.spec import tool

MAX_TEMPLATE_CHARACTERS = 100_000
"""Maximum length of a template in characters."""

QueryText = Annotated[str, WithJsonSchema({"type": "string", TEXT_FORMAT: "jsonpath"})]


@tool(effects="pure")
def json_query(value: Any, path: QueryText) -> list[Any]:
    """Return every part of a JSON value that an RFC 9535 JSONPath query selects, in document order.

    Args:
        value: the JSON value to search
        path: JSONPath, such as `$.items[?@.price < 10].name`
    """
    try:
        return list(parse_jsonpath(path).findall(value))
    except (jsonpath.JSONPathError, RecursionError) as error:
        raise ValueError(f"{path[:200]!r} cannot be evaluated: {type(error).__name__}") from None


@tool(effects="pure")
def render_template(template: str, values: dict[str, Any] | None = None) -> str:
    """Fill values into a text template and return the text; a missing value is an error.

    The language is Jinja: `${name}` or double braces for a value, `{% for %}` and `{% if %}`, filters. In a
    plan, write a backslash before the double braces of a template, because otherwise they are a reference.

    Args:
        template: the template, such as `Dear ${name}`
        values: name -> value
    """
    if len(template) > MAX_TEMPLATE_CHARACTERS:
        raise ValueError(
            f"The template has {len(template):,} characters, over the limit of {MAX_TEMPLATE_CHARACTERS:,}"
        )
    require_extra("jinja")
    from dagwright.tools.builtin.jinja_sandbox import render  # noqa: PLC0415 - Jinja is optional

    return render(template, values or {})
