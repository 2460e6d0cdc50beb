"""Write the generated parts of all pages again, or check that they are up to date."""

import argparse
import re
import sys
from collections.abc import Callable, Mapping

from scripts.format_markdown import format_markdown
from scripts.reference import (
    api_keys,
    cli,
    decisions,
    dialects,
    errors,
    events,
    failures,
    http_api,
    limits,
    plan,
    settings,
    states,
    tools,
    workflows,
)
from scripts.reference.markdown import ROOT

_PART_WRITERS: Mapping[str, Callable[[], str]] = {
    "body limits": api_keys.body_limits_table,
    "commands": cli.command_index,
    "command options": cli.command_sections,
    "decisions": decisions.decisions_index,
    "dialects": dialects.dialects_table,
    "exceptions": errors.exceptions_table,
    "exit codes": errors.exit_codes_table,
    "failures": failures.failures_table,
    "field limits": api_keys.field_limits_table,
    "http codes": errors.http_codes_table,
    "http errors": http_api.error_statuses_table,
    "http events": http_api.event_sections,
    "http operations": http_api.operation_sections,
    "http types": http_api.type_sections,
    "key limits": api_keys.key_limits_table,
    "limits": limits.limits_tables,
    "model failures": failures.model_failures_table,
    "node ids": dialects.node_ids_table,
    "node states": states.node_states_table,
    "plan": plan.plan_sections,
    "problems": errors.problems_table,
    "rejections": errors.rejections_table,
    "rounds sizes": limits.rounds_sizes_table,
    "run events": events.run_events_table,
    "run messages": workflows.run_messages_table,
    "run states": states.run_states_table,
    "scopes": api_keys.scopes_table,
    "session messages": workflows.session_messages_table,
    "settings": settings.settings_table,
    "start fields": workflows.start_fields_table,
    "start options": workflows.start_options_table,
    "tools": tools.tool_sections,
}
"""Name in the comment `generated: NAME` -> function that returns the part as Markdown."""
_GENERATED_PART = re.compile(r"<!-- generated: (?P<name>[^>]+) -->\n.*?<!-- end of generated -->", re.DOTALL)


def main() -> int:
    """Write the pages; with `--check`, report pages that are out of date and return exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    is_checking = parser.parse_args().check
    is_stale = False
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new_text := with_generated_parts(text)) == text:
            continue
        is_stale = True
        if is_checking:
            sys.stderr.write(f"{path.relative_to(ROOT)} is out of date; run: make docs-reference\n")
        else:
            path.write_text(new_text, encoding="utf-8")
    return 1 if is_stale and is_checking else 0


def with_generated_parts(page: str) -> str:
    """Return a page with its generated parts written again.

    Raises:
        KeyError: a comment `generated: NAME` has an unknown name.
    """
    if _GENERATED_PART.search(page) is None:
        return page
    return format_markdown(_GENERATED_PART.sub(_write_part, page))


def _write_part(match: re.Match[str]) -> str:
    return (
        f"<!-- generated: {match['name']} -->\n\n{_PART_WRITERS[match['name']]().strip()}\n\n<!-- end of generated -->"
    )


if __name__ == "__main__":
    sys.exit(main())
