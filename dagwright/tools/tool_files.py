"""Load the tools of `--tools MODULE_OR_FILE`."""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from dagwright.core.text import one_line
from dagwright.tools.errors import ToolLoadError
from dagwright.tools.registry import ToolRegistry, check_tool_names
from dagwright.tools.spec import ToolSpec, spec_of


def load_tools(references: Sequence[str], base: Path | None = None) -> ToolRegistry:
    """Import each module or file and return the tools in its namespace.

    Args:
        references: module names (`shop.tools`) or paths of `.py` files; duplicates are loaded once.
        base: folder for relative paths and modules; the current folder by default.

    Raises:
        ToolLoadError: there is no such module or file, its import failed, it has no tool, or two tools share a name.
    """
    folder = (base or Path.cwd()).resolve()
    found_tools: dict[str, tuple[ToolSpec, str]] = {}
    module_keys: list[str] = []
    for reference in dict.fromkeys(references):
        module_key, module = _import_reference(reference, folder)
        if module_key in module_keys:
            continue
        module_keys.append(module_key)
        tool_specs = [spec for spec in map(spec_of, vars(module).values()) if spec is not None]
        if not tool_specs:
            raise ToolLoadError(f"{reference} has no tool in it: decorate a function with @tool")
        for spec in tool_specs:
            first_spec, first_reference = found_tools.setdefault(spec.name, (spec, reference))
            if first_spec is not spec:
                raise ToolLoadError(f"Duplicate tool {spec.name!r}: in {first_reference} and in {reference}")
    sources = {name: reference for name, (_, reference) in found_tools.items()}
    specs = {name: spec for name, (spec, _) in found_tools.items()}
    try:
        check_tool_names(specs)
    except ValueError as error:
        raise ToolLoadError(str(error)) from None
    return ToolRegistry(specs, sources)


def load_module(reference: str, base: Path | None = None) -> ModuleType:
    """Import a module by name, or a file by path, as `load_tools` does.

    Raises:
        ToolLoadError: there is no such module or file, or its import failed.
    """
    return _import_reference(reference, (base or Path.cwd()).resolve())[1]


def _import_reference(reference: str, folder: Path) -> tuple[str, ModuleType]:
    if reference.endswith(".py") or "/" in reference or "\\" in reference:
        path = (folder / reference).resolve()
        if not path.is_file():
            raise ToolLoadError(f"The tools file {reference} does not exist")
        _append_to_sys_path(path.parent)
        return str(path), _import_file(reference, path)
    _append_to_sys_path(folder)
    return reference, _import_by_name(reference)


def _append_to_sys_path(folder: Path) -> None:
    # At the end of `sys.path`, so that a file next to the tools does not shadow an installed module.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _import_by_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise ToolLoadError(f"There is no module {name}") from error
        raise ToolLoadError(_import_failure(name, error)) from error
    except (Exception, SystemExit) as error:
        raise ToolLoadError(_import_failure(name, error)) from error


def _import_file(reference: str, path: Path) -> ModuleType:
    # Named after the path, so that two files called tools.py do not collide in sys.modules.
    name = f"dagwright_tools_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise ToolLoadError(f"{reference} is not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ToolLoadError(_import_failure(reference, error, path)) from error
    return module


def _import_failure(reference: str, error: BaseException, path: Path | None = None) -> str:
    """Return one sentence with the failing line, if possible in the user's file."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{reference} cannot be read: {error.msg} ({Path(error.filename).name}, line {error.lineno})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    user_frames = [frame for frame in frames if path is None or frame.filename == str(path)] or frames
    location = f" ({Path(user_frames[-1].filename).name}, line {user_frames[-1].lineno})" if user_frames else ""
    return f"{reference} cannot be imported: {_reason(error)}{location}"


def _reason(error: BaseException) -> str:
    """Return why an import failed, with a fix where there is an obvious one."""
    message = one_line(str(error))[:500]
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        return f"it needs the module {error.name!r}, which is not installed: {sys.executable} -m pip install {package}"
    if isinstance(error, SystemExit):
        return "it exits when imported; put that code under `if __name__ == '__main__':`"
    if isinstance(error, ImportError | NameError | ValueError | TypeError) and message:
        return message
    # The class name is needed where the text alone is not clear, such as `'key'`.
    return f"{type(error).__name__}: {message}" if message else f"it raises {type(error).__name__}"
