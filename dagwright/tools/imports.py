"""Find the modules that a module imports, by parsing its source.

The search also finds namespace packages, modules of which only a constant is imported, and imports inside functions.
"""

import ast
import functools
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


class NotLoaded(Exception):
    """A module imports something that is not loaded yet, so its file is unknown."""


def imported_modules(module: ModuleType, file: str, *, excluded_package: str) -> list[str]:
    """Return the names of the loaded modules that a module imports anywhere in its source, packages before submodules.

    Installed modules that are not loaded are omitted; the standard library counts as installed.

    Args:
        excluded_package: a package to omit.

    Raises:
        NotLoaded: a module is not loaded and not installed.
    """
    modules: dict[str, None] = {}
    for name in _imported_names(Path(file).read_bytes(), module.__package__ or ""):
        parts = name.split(".")
        if parts[0] == excluded_package:
            continue
        for length in range(1, len(parts) + 1):
            prefix = ".".join(parts[:length])
            if prefix in sys.modules:
                modules[prefix] = None
            elif length == 1:
                if not _is_installed_or_missing(prefix):
                    raise NotLoaded(prefix)
                break
            elif not hasattr(sys.modules[".".join(parts[: length - 1])], parts[length - 1]):
                if _is_installed_or_missing(parts[0]):
                    break
                raise NotLoaded(prefix)
    return list(modules)


@functools.lru_cache(maxsize=64)
def _imported_names(source: bytes, package: str) -> tuple[str, ...]:
    return tuple(_names_in_imports(ast.parse(source), package))


def _names_in_imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*parent, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" if alias.name != "*" else base for alias in node.names)


def _is_installed_or_missing(name: str) -> bool:
    """Return whether a top-level module is part of Python, belongs to an installed package, or does not exist."""
    if name in sys.stdlib_module_names:
        return True
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return True
    origin = spec.origin if spec is not None else ""
    return origin is not None and (not origin or is_installed_file(origin))


def is_installed_file(file: str) -> bool:
    """Return whether a file belongs to an installed package."""
    return bool({"site-packages", "dist-packages"} & set(Path(file).parts))
