"""A test program has its own folder on `sys.path`, so no file of this folder may hide a package of the project."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_helper_of_the_tests_is_named_like_a_package() -> None:
    packages = {entry.stem for entry in ROOT.iterdir() if (entry / "__init__.py").exists() or entry.suffix == ".py"}
    helpers = {entry.stem for entry in (ROOT / "tests" / "support").iterdir()}
    assert {"activities", "dagwright", "worker", "workflows"} <= packages
    assert packages & helpers == set()
