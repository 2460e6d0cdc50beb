"""Refuse to build without the packages that symbolic links of the checkout lead to; `pyproject.toml` has the rest."""

from pathlib import Path

from setuptools import setup

for link in ("workflows", "activities"):
    if not (Path("dagwright") / link).is_dir():
        raise SystemExit(
            f"dagwright/{link} is a file, not a symbolic link to the folder {link}: "
            "run `git config core.symlinks true`, then `git checkout -- dagwright`"
        )

setup()
