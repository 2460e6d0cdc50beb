"""Source files of the repository and their syntax trees, for the tests of its structure."""

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE_FOLDERS = ("dagwright", "workflows", "activities", "apps")
ENTRY_POINTS = ("worker.py", "starter.py")
_SKIPPED_FOLDERS = {
    ".git",
    ".venv",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    "build",
    "dist",
    "__pycache__",
}


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def code_files() -> list[Path]:
    return [*python_files(*CODE_FOLDERS), *(ROOT / name for name in ENTRY_POINTS if (ROOT / name).exists())]


def text_files() -> Iterator[Path]:
    """Yield every file of the checkout that people read, without generated and vendored files."""
    folders = [ROOT]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path.name in _SKIPPED_FOLDERS or path.name.endswith(".egg-info") or path.is_symlink():
                continue
            if path.is_dir():
                if not path.name.startswith(".dagwright"):
                    folders.append(path)
            elif path.suffix not in (".png", ".gz"):
                yield path


def files_with(pattern: str, paths: Iterable[Path]) -> list[Path]:
    """Return the files whose text contains a match of the pattern. Parsing only these files saves seconds."""
    return [path for path in paths if re.search(pattern, path.read_text(encoding="utf-8"))]


@functools.cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@functools.cache
def syntax_nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of the parsed file, cached since walking a tree takes as long as parsing."""
    return list(ast.walk(syntax_tree(path)))


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the full name of every module that a file imports, also inside functions."""
    for node in syntax_nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def relative_path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
