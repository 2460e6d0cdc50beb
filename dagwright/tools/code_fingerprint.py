"""Fingerprint the code of a tool, so that cached results are not reused after the code changes.

The fingerprint covers more than the source of the function, because the function may call other functions and modules.
It includes every file of the user's code that the module of the function refers to or imports. For installed
code (the standard library, packages), only the version counts. Values from the environment or from files are not
covered: a tool that depends on them is not `pure`.
"""

import dataclasses
import hashlib
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath
from types import FunctionType, ModuleType
from typing import Any

from dagwright.tools.imports import NotLoaded, imported_modules, is_installed_file

_PLAIN_TYPES = (str, bytes, int, float, complex, bool, type(None), PurePath, Decimal, date, timedelta, Enum)
_DAGWRIGHT = __name__.partition(".")[0]
"""The modules of this package are not read: reading so many modules would slow each start of a worker, and the loaded
modules of this package differ between processes."""
_STANDARD_LIBRARY_FOLDERS = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))


class CodeFingerprinter:
    """Fingerprint the code of tools. Each file is read once, so the files must not change after their import.

    No method raises: a tool whose code cannot be read or compared has no fingerprint.
    """

    def __init__(self) -> None:
        self._digest_by_file: dict[str, str] = {}
        self._needed_modules_by_name: dict[str, list[ModuleType]] = {}
        self._fingerprints_by_module: dict[str, list[str]] = {}

    def fingerprint(self, function: Callable[..., Any] | None) -> str | None:
        """Return a fingerprint that is equal for equal code, also in another process.

        Returns:
            64 hex digits; `None` if the function has no file, or if its closure contains anything but plain values,
            such as an open connection or a counter.
        """
        if not isinstance(function, FunctionType):
            return None
        module = sys.modules.get(function.__module__)
        try:
            if module is None or not _file_of(module):
                return None
            values = list(_closure_values(function))
            parts = [sys.version, function.__qualname__, *values, *self._module_fingerprints(module)]
        except (_NoFingerprint, NotLoaded, OSError, SyntaxError, RecursionError):
            return None
        return hashlib.sha256("\0".join(parts).encode(errors="backslashreplace")).hexdigest()

    def _module_fingerprints(self, tool_module: ModuleType) -> list[str]:
        """Return the sorted fingerprints of a tool's module and the modules that it needs."""
        if tool_module.__name__ not in self._fingerprints_by_module:
            self._fingerprints_by_module[tool_module.__name__] = self._collect_fingerprints(tool_module)
        return self._fingerprints_by_module[tool_module.__name__]

    def _collect_fingerprints(self, tool_module: ModuleType) -> list[str]:
        modules = {tool_module.__name__: tool_module}
        unvisited = [tool_module]
        while unvisited:
            module = unvisited.pop()
            for needed_module in self._needed_modules(module) if module is tool_module or _is_user_code(module) else ():
                if needed_module.__name__ not in modules:
                    modules[needed_module.__name__] = needed_module
                    unvisited.append(needed_module)
        # Not sorted by module name, because the module name of a `--tools` file depends on the path of the file.
        return sorted(
            self._fingerprint_of_module(module, is_tool_module=module is tool_module) for module in modules.values()
        )

    def _fingerprint_of_module(self, module: ModuleType, *, is_tool_module: bool) -> str:
        file = _file_of(module)
        if is_tool_module or _is_user_code(module):
            if file not in self._digest_by_file:
                self._digest_by_file[file] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
            return self._digest_by_file[file]
        package = module.__name__.partition(".")[0]
        return f"{package} {getattr(sys.modules.get(package), '__version__', '')}"

    def _needed_modules(self, module: ModuleType) -> list[ModuleType]:
        if module.__name__ not in self._needed_modules_by_name:
            # A package also has attributes for submodules that other modules imported; these do not count.
            values = [value for name, value in list(vars(module).items()) if not _is_submodule(value, name, module)]
            names = set(map(_defining_module_name, values))
            if _is_user_code(module) and not _is_dagwright(module.__name__):
                names.update(imported_modules(module, _file_of(module), excluded_package=_DAGWRIGHT))
            modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
            self._needed_modules_by_name[module.__name__] = [
                needed_module for needed_module in modules if _file_of(needed_module)
            ]
        return self._needed_modules_by_name[module.__name__]


class _NoFingerprint(Exception):
    """A function refers to a value that has no fingerprint."""


def _closure_values(function: FunctionType) -> Iterator[str]:
    """Yield the values in the closure of a function."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            # An empty cell: a name that is defined later.
            raise _NoFingerprint(name) from None
        if value is not function:
            yield f"{name}={_serialize(value)}"


def _serialize(value: Any) -> str:
    if isinstance(value, _PLAIN_TYPES):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_serialize, value))}]"
    if isinstance(value, set | frozenset):
        return f"{{{','.join(sorted(map(_serialize, value)))}}}"
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{_serialize(name)}:{_serialize(item)}' for name, item in value.items()))}}}"
    if isinstance(value, FunctionType):
        return f"{value.__module__}.{value.__qualname__}({','.join(_closure_values(value))})"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, ModuleType):
        return value.__name__
    if dataclasses.is_dataclass(value):
        # Fields without repr are secrets or connections, which do not affect the result.
        field_names = [field.name for field in dataclasses.fields(value) if field.repr]
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        return f"{kind}({','.join(f'{name}={_serialize(getattr(value, name))}' for name in field_names)})"
    raise _NoFingerprint(type(value).__name__)


def _is_submodule(value: Any, name: str, package: ModuleType) -> bool:
    return isinstance(value, ModuleType) and value.__name__ == f"{package.__name__}.{name}"


def _defining_module_name(value: Any) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    # Converted, because `__module__` of an object may be any value.
    return str(value.__module__ if isinstance(value, FunctionType | type) else type(value).__module__)


def _file_of(module: ModuleType) -> str:
    # An entry of `sys.modules` need not be a module.
    file = getattr(module, "__dict__", {}).get("__file__")
    return file if isinstance(file, str) and file.endswith(".py") else ""


def _is_dagwright(name: str) -> bool:
    return name.partition(".")[0] == _DAGWRIGHT


def _is_user_code(module: ModuleType) -> bool:
    """Return whether a module is neither installed nor part of Python."""
    file = _file_of(module)
    return bool(file) and not is_installed_file(file) and not file.startswith(_STANDARD_LIBRARY_FOLDERS)
