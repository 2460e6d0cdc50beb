"""Imports: the longest chain of modules, and the modules that the scheduler loads. Lower the limits when you can."""

import functools
import subprocess
import sys
from collections.abc import Mapping

import grimp

_MAX_CHAIN_MODULES = 19
"""Maximum number of modules in a chain of imports; a package with code in its `__init__` counts as a module."""
_MAX_SCHEDULER_MODULES = 24
"""Maximum number of modules and packages of Dagwright that are loaded by importing the scheduler."""

_PRINT_MODULES = """
import sys
import dagwright.core.scheduler.scheduler
print(*(name for name in sys.modules if name.split(".")[0] == "dagwright"), sep="\\n")
"""


def _imports() -> Mapping[str, set[str]]:
    """Return module -> the modules that it imports at run time, without the lazy public names of `dagwright`."""
    graph = grimp.build_graph("dagwright", exclude_type_checking_imports=True)
    names = graph.modules - {"dagwright"}
    return {name: graph.find_modules_directly_imported_by(name) - {"dagwright"} for name in sorted(names)}


def test_longest_chain_of_imports_does_not_grow() -> None:
    imports = _imports()

    @functools.cache
    def chain_from(name: str) -> tuple[str, ...]:
        return name, *max(map(chain_from, sorted(imports[name])), key=len, default=())

    longest_chain = max(map(chain_from, imports), key=len)
    assert len(longest_chain) <= _MAX_CHAIN_MODULES, "\n".join(longest_chain)


def test_scheduler_loads_few_modules() -> None:
    command = [sys.executable, "-c", _PRINT_MODULES]
    loaded_modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert len(loaded_modules) <= _MAX_SCHEDULER_MODULES, "\n".join(sorted(loaded_modules))
