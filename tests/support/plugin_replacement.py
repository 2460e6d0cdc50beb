"""Replace the installed plugins inside a block."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path

import pytest

from dagwright.core import plugins

TOY_APP = Path(__file__).parent / "toy_app"


def entry_points_in(folder: Path) -> list[EntryPoint]:
    """Return the plugins of the distributions whose metadata is in a folder."""
    folder_distributions: list[Distribution] = [*distributions(path=[str(folder)])]
    points = [point for distribution in folder_distributions for point in distribution.entry_points]
    return [point for point in points if point.group == plugins.GROUP]


@contextmanager
def using_plugins(points: Sequence[EntryPoint], *folders: Path) -> Iterator[None]:
    """Use only these plugins inside the block.

    Args:
        folders: folders with the modules of the plugins.
    """
    with pytest.MonkeyPatch.context() as patch:
        for folder in folders:
            patch.syspath_prepend(str(folder))
        patch.setattr(plugins, "entry_points", lambda *, group: [point for point in points if point.group == group])
        _clear_plugin_caches()
        try:
            yield
        finally:
            _clear_plugin_caches()


@contextmanager
def toy_app() -> Iterator[None]:
    """Use only the toy application as a plugin inside the block."""
    with using_plugins(entry_points_in(TOY_APP), TOY_APP):
        try:
            yield
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == "toy_app"]:
                del sys.modules[name]


def _clear_plugin_caches() -> None:
    for function in (plugins.installed_plugins, plugins.text_format_parser):
        function.cache_clear()
