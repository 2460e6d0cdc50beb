"""Report identifiers that contain words of a list, each with the words to use instead.

It reads the names of modules, functions, classes, parameters, variables and attributes of Python files.

    python -m scripts.check_names [PATH ...]
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.check_prose import ROOT, files_in

_CHECKED_PATHS = (
    "dagwright",
    "workflows",
    "activities",
    "apps",
    "benchmarks",
    "examples",
    "scripts",
    "tests",
    "worker.py",
    "starter.py",
)
_EXCLUDED = ("dagwright/workflows", "dagwright/activities")
_WORDS: dict[str, str] = {
    "tell|tells|told|untold": "report, return, log, send, print",
    "said": "message, text, response",
    "somebody|whoever|whom": "name the user, client, caller, worker or process",
    "anew": "again",
    "begins|begun": "start, started",
    "goes_on|went_on": "continue",
    "by_hand": "manual, override",
    "takes_back|taken_back|take_back|took_back": "compensate",
    "mend|mends": "repair",
    "wanted": "expected, required, requested; projections of a result",
    "stands": "is, remains",
    "lose_above|told_below": "parent, child",
    "farewell|way_out": "interrupt handling, exit watchdog",
    "patience": "timeout",
    "shortfall|hard_work|wording": "name the content, such as error, threads, text",
    "handing_on|takeover|outlook": "transfer, reuse, prediction",
    "undisturbed": "to the end, while idle, without waiting",
    "reuse_book|request_book": "table, registry",
    "are_there": "exist, are defined",
    "not_taken": "rejected, rejection",
    "mostly|lookout": "name the share, the check",
}
"""Words of an identifier in snake case -> the words to use instead."""
_PATTERNS = [(re.compile(rf"(?:^|_)(?:{words})(?=_|$)"), advice) for words, advice in _WORDS.items()]


def main() -> int:
    """Print the findings of the given paths and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("paths", nargs="*", default=_CHECKED_PATHS)
    has_findings = False
    files = files_in(parser.parse_args().paths, excluded=_EXCLUDED)
    for path in (file for file in files if file.suffix == ".py"):
        for line, name, advice in _findings(path):
            has_findings = True
            print(f"{path.relative_to(ROOT)}:{line}: {name}: use: {advice}")
    return int(has_findings)


def _findings(path: Path) -> Iterator[tuple[int, str, str]]:
    reported: set[str] = set()
    for line, name in [(1, path.stem), *_names(ast.parse(path.read_text(encoding="utf-8")))]:
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        for pattern, advice in _PATTERNS:
            if name not in reported and pattern.search(snake):
                reported.add(name)
                yield line, name, advice


def _names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything that is defined."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


if __name__ == "__main__":
    sys.exit(main())
