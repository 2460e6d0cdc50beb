"""The libraries that the console serves: exactly those that requirements/console locks, with their licences."""

import json
import subprocess
from pathlib import Path

import pytest

import dagwright

ROOT = Path(dagwright.__file__).parents[1]
VENDOR = ROOT / "dagwright" / "interfaces" / "console" / "vendor"


def test_libraries_are_of_the_locked_versions_and_have_licences() -> None:
    packages = json.loads((ROOT / "requirements/console/package-lock.json").read_text(encoding="utf-8"))["packages"]
    versions = {name.removeprefix("node_modules/"): each.get("version") for name, each in packages.items()}
    first_lines = {path.name: path.read_text(encoding="utf-8")[:200] for path in VENDOR.glob("*.mjs")}
    assert f"markdown-it {versions['markdown-it']} " in first_lines["markdown-it.esm.min.mjs"]
    assert f"DOMPurify {versions['dompurify']} " in first_lines["purify.es.mjs"]
    # argparse is for the command of markdown-it, and trusted-types has types alone: no file of them is served.
    bundled = set(versions) - {"", "argparse", "@types/trusted-types"}
    assert {path.stem for path in (VENDOR / "licenses").iterdir()} == bundled


@pytest.mark.node
def test_libraries_are_the_files_of_the_locked_packages() -> None:
    subprocess.run([ROOT / "scripts" / "vendor-console", "--check"], check=True)
