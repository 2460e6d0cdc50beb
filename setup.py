"""Fail the build if a symbolic link to a package is missing in the checkout; other settings are in `pyproject.toml`."""

from pathlib import Path

from setuptools import setup

for link in ("workflows", "activities"):
    if not (Path("dagwright") / link).is_dir():
        raise SystemExit(
            f"dagwright/{link} is a file, not a symbolic link to the folder {link}: "
            "run `git config core.symlinks true`, then `git checkout -- dagwright`"
        )

setup()
