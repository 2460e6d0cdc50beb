"""Virtual environments of LangGraph and DBOS in the user's cache, installed from hash-locked requirements."""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent


def python_of(name: str, cache_home: Path) -> str:
    """Return the Python of an engine's environment, which is created once for each version of its lock file."""
    lock = (_FOLDER / f"{name}.txt").read_bytes()
    digest = hashlib.sha256(lock + sys.version.encode()).hexdigest()[:12]
    folder = cache_home / "dagwright" / f"peer-{name}-{digest}"
    python = folder / "bin" / "python"
    completion_marker = folder / "complete"
    if not completion_marker.exists():
        sys.stderr.write(f"installing {name} into its own environment\n")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        # The lock file lists all packages, so pip must not resolve dependencies.
        options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps"]
        subprocess.run([str(python), "-m", "pip", "install", *options, "-r", str(_FOLDER / f"{name}.txt")], check=True)
        completion_marker.touch()
    return str(python)


def locked_version(name: str, package: str) -> str:
    """Return the version of a package in the lock file of an engine."""
    lock = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    match = re.search(rf"^{re.escape(package)}==(\S+)", lock, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"{name}.txt does not lock {package!r}")
    return match[1]
