"""Report words and sentence patterns of a list, each with the words to use instead.

The check reads docstrings, comments and messages of Python files, comments and strings of JavaScript files, comments of
the Makefile, and the text of Markdown files outside of code blocks. In tests, the check reads comments and docstrings
only, since other strings are data or quote the product.

    python scripts/check_prose.py [--count] [PATH ...]
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_CHECKED_PATHS = (
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
    "Makefile",
    "starter.py",
    "tests",
    "worker.py",
)
"""Files and folders, relative to the root, that must have no findings."""
_EXCLUDED = (
    "benchmarks/results",
    "docs/pictures",
    "dagwright/workflows",
    "dagwright/activities",
    "scripts/check_prose.py",
)

_NOUN = r"((the|a|an|its|their|one|all|each|this|these|every|any) )?[\w`'-]+( [\w`'-]+){0,2}"
"""A noun with its article and up to two adjectives or compound parts."""

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
    r"left out\b|leav(e|es|ing)( \S+){0,3} out\b": "omit, omitted",
    rf"of {_NOUN} of {_NOUN} of ": "possessives or compound nouns: the call's node name",
    r"refus(e|es|ed|ing) (a|an|the|any|all) (command|message|request|row|signal|update)s?\b": "reject",
}
"""Pattern anywhere in a text -> the words to use instead."""
_FIRST_WORDS: dict[str, str] = {
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
"""Pattern at the start of a docstring or comment -> the words to use instead."""
_PATTERNS = [(re.compile(rf"\b(?:{pattern})", re.IGNORECASE), advice) for pattern, advice in _WORDS.items()]
_JAVASCRIPT_TEXT = re.compile(
    r"""(?P<prose>/\*.*?\*/|(?<![:'"`])//[^\n]*)|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`""", re.DOTALL
)
_FIRST_PATTERNS = [(re.compile(pattern), advice) for pattern, advice in _FIRST_WORDS.items()]


def main() -> int:
    """Print the findings of the given paths and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("paths", nargs="*", default=_CHECKED_PATHS, help="files and folders to read")
    parser.add_argument("--count", action="store_true", help="print only the number of findings in each folder")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for path in _files(options.paths):
        name = path.relative_to(ROOT).as_posix()
        for line, words, advice in findings(path):
            counts[name.rpartition("/")[0]] += 1
            if not options.count:
                print(f"{name}:{line}: {words!r}: write: {advice}")
    for folder, count in counts.most_common() if options.count else []:
        print(f"{count:6} {folder}")
    return 1 if counts else 0


def _files(paths: list[str]) -> Iterator[Path]:
    for file in files_in(paths, excluded=_EXCLUDED):
        if file.suffix in _READERS or file.name in _READERS:
            yield file


def files_in(paths: Iterable[str], *, excluded: tuple[str, ...]) -> Iterator[Path]:
    """Yield the given files, and all files in the given folders, in order.

    Args:
        paths: files and folders, relative to the root.
        excluded: prefixes of paths to omit.
    """
    for path_text in paths:
        path = (ROOT / path_text).resolve()
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if not file.relative_to(ROOT).as_posix().startswith(excluded):
                yield file


def findings(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line number, found words and advice for each finding in a file."""
    text = path.read_text(encoding="utf-8")
    reader = _READERS.get(path.suffix) or _READERS[path.name]
    if reader is _prose_of_python and path.is_relative_to(ROOT / "tests"):
        reader = _prose_of_tests
    for line, prose, is_first in reader(text):
        visible_text = re.sub(r"`[^`]*`|\{[^}]*\}|\]\([^)]*\)", "``", prose)
        for pattern, advice in _PATTERNS:
            for match in pattern.finditer(visible_text):
                # Words in capitals are not prose, such as SQL.
                if not match.group().isupper():
                    yield line, match.group().strip(), advice
        for pattern, advice in _FIRST_PATTERNS if is_first else []:
            if first_match := pattern.match(visible_text):
                yield line, first_match.group().strip(), advice


def _prose_of_python(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line number, text, and whether the text starts a docstring or comment."""
    yield from _comments(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant):
            yield from _lines_of(node)


def _prose_of_tests(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the comments and docstrings."""
    yield from _comments(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield from _lines_of(node.value)


def _comments(text: str) -> Iterator[tuple[int, str, bool]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            yield token.start[0], token.string.lstrip("# "), True


def _lines_of(constant: ast.Constant) -> Iterator[tuple[int, str, bool]]:
    if isinstance(constant.value, str) and " " in constant.value:
        for number, line in enumerate(constant.value.splitlines()):
            yield constant.lineno + number, line.strip(), number == 0


def _prose_of_javascript(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the comments and the strings with a space in them, line by line."""
    for match in _JAVASCRIPT_TEXT.finditer(text):
        first_line = text.count("\n", 0, match.start()) + 1
        for number, line in enumerate(match[0].splitlines() if match["prose"] or " " in match[0] else ()):
            yield first_line + number, line.strip("/*'\" "), number == 0 and match["prose"] is not None


def _prose_of_makefile(text: str) -> Iterator[tuple[int, str, bool]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if comment := re.search(r"#+ (.*)", line):
            yield number, comment[1], True


def _prose_of_markdown(text: str) -> Iterator[tuple[int, str, bool]]:
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, line, False


_READERS: dict[str, Callable[[str], Iterator[tuple[int, str, bool]]]] = {
    ".py": _prose_of_python,
    ".js": _prose_of_javascript,
    ".md": _prose_of_markdown,
    "Makefile": _prose_of_makefile,
}
"""Suffix or name of a file -> function that yields line number, text, and whether the text starts a docstring
or comment."""


if __name__ == "__main__":
    sys.exit(main())
