"""Report words and sentence patterns that the project no longer uses, each with what to write instead.

It reads docstrings, comments and messages of Python files, and the text of Markdown files outside of code blocks. Files
below a path of `_STRICT` must have no findings; `--all` also lists the findings of other files.

    python scripts/check_prose.py [--all] [--count] [PATH ...]
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_STRICT: tuple[str, ...] = (
    "dagwright/interfaces/cli/",
    "activities/",
    "benchmarks/",
    "scripts/",
    "dagwright/database/",
    "dagwright/interfaces/http/",
    "dagwright/interfaces/mcp/",
    "dagwright/store/",
    "dagwright/testing/",
    "dagwright/tools/",
    "CHANGELOG.md",
    "docs/guides/console.md",
    "docs/guides/gateway.md",
    "docs/guides/mcp-server.md",
    "docs/guides/testing.md",
    "docs/guides/tools.md",
    "dagwright/core/boundary/",
    "dagwright/core/expressions/",
    "dagwright/core/model/",
    "dagwright/core/plugins.py",
    "dagwright/core/compiler",
    "dagwright/core/scheduler",
    "dagwright/core/validation",
    "dagwright/errors/",
    "dagwright/dialects/__init__.py",
    "dagwright/dialects/agents.py",
    "dagwright/dialects/draft.py",
    "dagwright/dialects/intents.py",
    "dagwright/dialects/llmcompiler.py",
    "dagwright/dialects/native.py",
    "dagwright/dialects/nestful.py",
    "dagwright/dialects/reading.py",
    "dagwright/dialects/rewoo.py",
    "dagwright/dialects/steps.py",
    "dagwright/dialects/streaming.py",
    "dagwright/dialects/subgoals.py",
    "dagwright/dialects/tasks.py",
    "dagwright/dialects/written_lines.py",
    "dagwright/server/__init__.py",
    "dagwright/server/binary.py",
    "dagwright/server/connection.py",
    "dagwright/server/daemon.py",
    "dagwright/server/errors.py",
    "dagwright/server/local.py",
    "dagwright/server/locks.py",
    "dagwright/server/namespace.py",
    "dagwright/server/note_workflows.py",
    "dagwright/server/pollers.py",
    "dagwright/server/store_notes.py",
    "dagwright/server/tool_pauses.py",
    "dagwright/logging.py",
    "dagwright/plans/__init__.py",
    "dagwright/plans/call_checks.py",
    "dagwright/plans/checking.py",
    "dagwright/plans/drawing.py",
    "dagwright/plans/drawing_svg.py",
    "dagwright/plans/drawing_text.py",
    "dagwright/plans/expressions.py",
    "dagwright/plans/graph_layout.py",
    "dagwright/plans/handles.py",
    "dagwright/plans/human_requests.py",
    "dagwright/plans/input_types.py",
    "dagwright/plans/node_builder.py",
    "dagwright/plans/node_options.py",
    "dagwright/plans/node_values.py",
    "dagwright/plans/pages.py",
    "dagwright/plans/plan.py",
    "dagwright/plans/posted.py",
    "dagwright/plans/preparation.py",
    "dagwright/plans/yaml_writer.py",
    "dagwright/toolset/__init__.py",
    "dagwright/toolset/file_protection.py",
    "dagwright/toolset/given_tools.py",
    "dagwright/toolset/toolset.py",
    "dagwright/process/",
    "dagwright/events/",
    "dagwright/plugins/",
    "dagwright/__init__.py",
    "dagwright/__main__.py",
    "dagwright/client/__init__.py",
    "dagwright/client/answering.py",
    "dagwright/client/ask_starts.py",
    "dagwright/client/client.py",
    "dagwright/client/client_tools.py",
    "dagwright/client/event_mapping.py",
    "dagwright/client/event_stream.py",
    "dagwright/client/events.py",
    "dagwright/client/feedback.py",
    "dagwright/client/feedback_request.py",
    "dagwright/client/following.py",
    "dagwright/client/fork_runs.py",
    "dagwright/client/forks.py",
    "dagwright/client/graph.py",
    "dagwright/client/graph_folding.py",
    "dagwright/client/options.py",
    "dagwright/client/plan_starts.py",
    "dagwright/client/progress.py",
    "dagwright/client/requests.py",
    "dagwright/client/results.py",
    "dagwright/client/run.py",
    "dagwright/client/run_drawing.py",
    "dagwright/client/run_lists.py",
    "dagwright/client/run_reports.py",
    "dagwright/client/run_script.py",
    "dagwright/client/run_tools.py",
    "dagwright/client/runs.py",
    "dagwright/client/server_errors.py",
    "dagwright/client/services.py",
    "dagwright/client/session.py",
    "dagwright/client/steering.py",
    "dagwright/client/sync_client.py",
    "dagwright/client/tool_pauses.py",
    "dagwright/client/wait_notices.py",
    "dagwright/worker/",
    "workflows/child.py",
    "dagwright/features/budgets",
    "dagwright/features/commands/node_commands.py",
    "dagwright/features/compensation/component.py",
    "dagwright/features/deadline.py",
    "dagwright/features/explain",
    "dagwright/features/feedback",
    "dagwright/features/fork_reuse",
    "dagwright/features/lookups",
    "dagwright/features/node_cancellation.py",
    "dagwright/features/plan_edits",
    "dagwright/features/plan_extension",
    "dagwright/features/region_batches.py",
    "dagwright/features/regions",
    "dagwright/features/run_scheduler.py",
    "dagwright/features/worker_tools.py",
    "dagwright/history",
    "dagwright/protocol",
    "docs/guides/agents.md",
    "docs/concepts/",
    "docs/guides/budgets.md",
    "docs/guides/chat.md",
    "docs/reference/cli.md",
    "docs/guides/dialects.md",
    "docs/guides/explain.md",
    "docs/guides/forks.md",
    "docs/contributing/",
    "CONTRIBUTING.md",
    "docs/index.md",
    "docs/reference/states.md",
    "docs/reference/messages.md",
    "docs/guides/mcp.md",
    "docs/guides/notifications.md",
    "docs/deploy/",
    "docs/guides/people.md",
    "docs/guides/asking.md",
    "docs/reference/planner.md",
    "docs/guides/plugins.md",
    "docs/guides/rounds.md",
    "docs/guides/sessions.md",
    "docs/guides/steering.md",
    "docs/guides/workers.md",
    "docs/guides/writing-plans.md",
)
"""Files and folders, relative to the root, that are already rewritten."""
_READ = (
    "dagwright",
    "workflows",
    "activities",
    "apps",
    "benchmarks",
    "docs",
    "examples",
    "scripts",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)
_LEFT_OUT = (
    "benchmarks/results",
    "docs/decisions",
    "docs/pictures",
    "dagwright/workflows",
    "dagwright/activities",
    "scripts/check_prose.py",
)

_WORDS: dict[str, str] = {
    r"tells?\b|told\b|untold\b": "report, return, log, send, publish",
    r"some(body|one)\b|no(body|one)\b|who(m|so)?ever\b|whom\b": "name the user, client, caller, worker or process",
    r"anew\b": "again",
    r"begun\b|beg[ai]n(s|ning)?\b": "start",
    r"hangs? (on|of)\b|reckon": "depend on, compute",
    r"mend(s|ed|ing)?\b": "repair",
    r"by hand\b": "manual, override",
    r"goes on\b|go on\b|going on\b|went on\b": "continue",
    r"(run|runs) (above|below)\b": "parent run, child run",
    r"take(s|n)? back\b|took back\b": "compensate, undo",
    r"put(s)? back\b": "load, restore",
    r"is none\b|(?<!there )are none\b": "repeat the noun",
    r"as long as it takes\b": "no limit",
    r"comes? of\b|came of\b|becomes? of\b|became of\b": "result, outcome",
    r"lies (in|there|beside)\b|stands (in|there|for)\b": "is in, is",
    r"what (it|they|is|are|was|were|has|have|the|a|an|each|one|runs|reads|makes|needs|holds) ": "name the thing",
    r"all that\b": "everything, name the thing",
    r"which of them\b|that of the other\b": "repeat the noun",
}
_STARTS: dict[str, str] = {
    r"(Returns|Yields|Takes|Tells|Makes|Gives|Reads|Writes|Says) (?!of |during )": "imperative mood: Return ...",
    r"(Looks|Sends|Starts|Ends|Waits|Checks|Keeps) (?!of |during )": "imperative mood: Check ...",
    r"(Returns|Yields|Takes|Tells|Makes|Gives|Says|Looks|Sends|Starts|Ends|Waits|Keeps) ": (
        "imperative mood: Return ..."
    ),
    r"(Checks|Reads|Writes) (?!of |during |whether )": "imperative mood: Check ...",
    r"What [a-z]": "start with a noun or an imperative",
    r"Whether (it|they|there|some) ": "Whether + name the thing",
    r"Of [a-z]+ ": "subject first",
    r"Tells whether\b": "Return whether, Check whether",
}
_PATTERNS = [(re.compile(rf"\b(?:{pattern})", re.IGNORECASE), advice) for pattern, advice in _WORDS.items()]
_FIRST = [(re.compile(pattern), advice) for pattern, advice in _STARTS.items()]


def main() -> int:
    """Print the findings of the given paths and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("paths", nargs="*", default=_READ)
    parser.add_argument("--all", action="store_true", help="also files that are not strict yet")
    parser.add_argument("--count", action="store_true", help="print the number of findings of each folder only")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for path in _files(options.paths):
        name = path.relative_to(ROOT).as_posix()
        if not (options.all or name.startswith(_STRICT)):
            continue
        for line, words, advice in _findings(path):
            counts[name.rpartition("/")[0]] += 1
            if not options.count:
                print(f"{name}:{line}: {words!r}: write: {advice}")
    for folder, count in counts.most_common() if options.count else []:
        print(f"{count:6} {folder}")
    return 1 if counts else 0


def _files(paths: list[str]) -> Iterator[Path]:
    for each in paths:
        path = (ROOT / each).resolve()
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in found:
            name = file.relative_to(ROOT).as_posix()
            if file.suffix in (".py", ".md") and not name.startswith(_LEFT_OUT):
                yield file


def _findings(path: Path) -> Iterator[tuple[int, str, str]]:
    text = path.read_text(encoding="utf-8")
    pieces = _prose_of_python(text) if path.suffix == ".py" else _prose_of_markdown(text)
    for line, prose, is_first in pieces:
        visible = re.sub(r"`[^`]*`|\{[^}]*\}|\]\([^)]*\)", "``", prose)
        for pattern, advice in _PATTERNS:
            for match in pattern.finditer(visible):
                # Words in capitals are not prose, such as SQL.
                if not match.group().isupper():
                    yield line, match.group().strip(), advice
        for pattern, advice in _FIRST if is_first else []:
            if match := pattern.match(visible):
                yield line, match.group().strip(), advice


def _prose_of_python(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text, and whether the text starts a docstring or comment."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            yield token.start[0], token.string.lstrip("# "), True
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for number, line in enumerate(node.value.splitlines()):
                yield node.lineno + number, line.strip(), number == 0


def _prose_of_markdown(text: str) -> Iterator[tuple[int, str, bool]]:
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line, False


if __name__ == "__main__":
    sys.exit(main())
