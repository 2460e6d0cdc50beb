"""Report identifiers that contain words of a list, and functions whose name is only a participle.

The check reads the names of modules, functions, classes, parameters, variables and attributes of Python files. Each
finding has advice: the words to use instead, or the form of the name.

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
    "worker.py",
    "starter.py",
    "tests",
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
    "wanted": "expected, required, requested; for parts of a result: projections",
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
    "mostly": "name the share",
    "lookout": "name the check",
}
"""Words of an identifier in snake case -> the words to use instead."""
_PARTICIPLE = re.compile(
    r"(?!(?:embed|exceed|feed|need|proceed|seed|shed|shred|succeed)$)[a-z]+ed|born|bought|bound|broken|brought|built|caught"
    r"|chosen|done|drawn|driven|forgotten|found|frozen|given|gone|grown|held|hidden|kept|known|laid|left|lost|made|met"
    r"|overridden|paid|rebuilt|seen|sent|shown|sold|sought|spent|stuck|taken|thrown|understood|won|worn|written"
)
_PARTICIPLE_ADVICE = "a verb phrase, such as parse_rows for parsed"
_PATTERNS = [(re.compile(rf"(?:^|_)(?:{words})(?=_|$)"), advice) for words, advice in _WORDS.items()]


def main() -> int:
    """Print the findings of the given paths and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("paths", nargs="*", default=_CHECKED_PATHS)
    has_findings = False
    files = files_in(parser.parse_args().paths, excluded=_EXCLUDED)
    for path in (file for file in files if file.suffix == ".py"):
        for line, name, advice in [*_word_findings(path), *_participle_findings(path)]:
            has_findings = True
            print(f"{path.relative_to(ROOT)}:{line}: {name}: use: {advice}")
    return int(has_findings)


def _word_findings(path: Path) -> Iterator[tuple[int, str, str]]:
    reported_names: set[str] = set()
    for line, name in [(1, path.stem), *_names(ast.parse(path.read_text(encoding="utf-8")))]:
        snake_name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        for pattern, advice in _PATTERNS:
            if name not in reported_names and pattern.search(snake_name):
                reported_names.add(name)
                yield line, name, advice


def _participle_findings(path: Path) -> Iterator[tuple[int, str, str]]:
    for line, name in functions_named_by_participle(ast.parse(path.read_text(encoding="utf-8"))):
        yield line, name, _PARTICIPLE_ADVICE


def functions_named_by_participle(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line number and name of each function that is named by a single participle, except properties."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or any(map(_is_property, node.decorator_list)):
            continue
        if _PARTICIPLE.fullmatch(node.name.strip("_")):
            yield node.lineno, node.name


def _is_property(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id in ("property", "cached_property")


def _names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line number and name of each definition."""
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
