"""Built-in tools, served on the task queue of the workflows. The package imports `tools` and lower packages."""

from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.registry import ToolRegistry


def builtin_tools(environment: ToolEnvironment) -> ToolRegistry:
    """Return all built-in tools for an environment."""
    # The modules and their HTTP library take long to import, and clients that only read runs need none of them.
    from dagwright.tools.builtin.calculator import calculator  # noqa: PLC0415
    from dagwright.tools.builtin.file_search import file_search_tools  # noqa: PLC0415
    from dagwright.tools.builtin.files import file_tools  # noqa: PLC0415
    from dagwright.tools.builtin.http import http_tools  # noqa: PLC0415
    from dagwright.tools.builtin.summaries import summarize  # noqa: PLC0415
    from dagwright.tools.builtin.texts import json_query, render_template  # noqa: PLC0415
    from dagwright.tools.builtin.travel import travel_tools  # noqa: PLC0415
    from dagwright.tools.builtin.waiting import wait  # noqa: PLC0415
    from dagwright.tools.builtin.web_search import web_search_tools  # noqa: PLC0415

    return ToolRegistry.of(
        calculator,
        *http_tools(environment),
        *web_search_tools(environment),
        *file_tools(environment),
        *file_search_tools(environment),
        json_query,
        render_template,
        wait,
        summarize,
        *travel_tools(environment),
    )
