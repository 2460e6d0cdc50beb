"""Contents of sdist and wheel, and the base install next to the project of a user."""

import asyncio
import email
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from email.message import Message
from pathlib import Path, PurePosixPath

import pytest

import dagwright
from tests.support.server import LiveServer

pytestmark = [pytest.mark.slow, pytest.mark.server]

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAX_PACKAGES = 30
"""Maximum number of packages in the base install, including Dagwright."""
MAX_BYTES = 150 * 1024 * 1024
"""Maximum size of the packages on disk, as `du -m` measures, including the bytecode that the installer compiles."""

USER_PROJECT = {
    "workflows/__init__.py": "RATE = 0.19\n",
    "activities.py": "raise AssertionError('nothing imports the activities of the project')\n",
    "worker.py": "raise AssertionError('nothing imports the worker of the project')\n",
    "tools.py": """\
from workflows import RATE

from dagwright.tools import tool


@tool(effects='read')
def tax(net: float) -> float:
    return net * RATE
""",
    "plan.yaml": """\
plan: 1
inputs: {net: {type: number}}
nodes:
  - {id: tax, tool: tax, arguments: {net: '{{PLACEHOLDER_net}}'}}
  - id: gross
    tool: calculator
    when: tax.result > 0
    arguments: {expression: '{{PLACEHOLDER_net}} + {{tax.result}}'}
output: '{{gross.result}}'
""",
    "script.py": """\
import dagwright
from tools import tax

if __name__ == '__main__':
    print(dagwright.run('plan.yaml', inputs={'net': 100}, tools=[tax]).output)
""",
}
CONSOLE_SCRIPT = """
import asyncio, sys
sys.path.append(sys.argv[1])  # FastAPI and dagre come from the environment of the tests, Dagwright from the wheel.
import httpx
from fastapi import FastAPI
import dagwright
from dagwright.interfaces.http.console import add_console

async def main():
    app = FastAPI()
    add_console(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        for path in ("/console/", "/console/js/main.js", "/console/vendor/purify.es.mjs", "/console/layout/dagre.js"):
            assert (await client.get(path)).status_code == 200, path

assert dagwright.__file__.startswith(sys.prefix), dagwright.__file__
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Distributions:
    """An sdist, and the wheel that was built from the sdist."""

    sdist: Path
    wheel: Path

    def wheel_files(self) -> list[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.namelist()

    def wheel_metadata(self) -> Message:
        with zipfile.ZipFile(self.wheel) as archive:
            name = next(each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            return email.message_from_bytes(archive.read(name))


@dataclass(frozen=True, slots=True)
class Installation:
    """A virtual environment with the base install, next to the project of a user."""

    python: Path
    packages_folder: Path
    project_folder: Path

    async def run(self, *arguments: str, server: LiveServer | None = None) -> str:
        """Run Python in the folder of the project and return its standard output."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_"))}
        state_dir = self.project_folder / "state" if server is None else server.settings.state_dir
        environment["DAGWRIGHT_STATE_DIR"] = str(state_dir)
        process = await asyncio.create_subprocess_exec(
            self.python,
            *arguments,
            cwd=self.project_folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
        assert process.returncode == 0, stderr.decode()
        return stdout.decode()


def _run_command(*command: str | Path) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def _copy_sources(folder: Path) -> None:
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "worker.py", "starter.py"):
        shutil.copy(ROOT / name, folder / name)
    for name in ("dagwright", "workflows", "activities"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """The sdist of the sources, and the wheel that was built from the sdist."""
    sources, dist = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("dist")
    _copy_sources(sources)
    _run_command(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, sources)
    return Distributions(*sorted(dist.iterdir(), key=lambda file: file.suffix))


@pytest.fixture(scope="module")
def installation(distributions: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """A virtual environment with the wheel and the locked packages of the base install, and a user's project."""
    folder = tmp_path_factory.mktemp("installed")
    _run_command(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    options = ("install", "--quiet", "--disable-pip-version-check")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, *options]
    _run_command(*pip, "--require-hashes", "--requirement", ROOT / "requirements" / "base.txt")
    # No package index is used, because the locked packages must satisfy the requirements of the wheel.
    _run_command(*pip, "--no-index", distributions.wheel)
    for name, text in USER_PROJECT.items():
        file = folder / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return Installation(python, folder / "venv" / "lib" / version / "site-packages", folder / "project")


def test_wheel_has_only_the_package(distributions: Distributions) -> None:
    files = distributions.wheel_files()
    top_folders = {PurePosixPath(file).parts[0] for file in files}
    assert top_folders == {"dagwright", f"dagwright-{dagwright.__version__}.dist-info"}
    # The sdist has folders in place of the symbolic links of the checkout.
    with tarfile.open(distributions.sdist) as archive:
        assert not [member.name for member in archive if member.issym() or member.islnk()]
    assert {"dagwright/workflows/run_plan.py", "dagwright/activities/call_tool.py", "dagwright/py.typed"} <= {*files}


def test_wheel_contains_every_file_of_the_sources(distributions: Distributions) -> None:
    folders = (ROOT / "dagwright", ROOT / "dagwright/workflows", ROOT / "dagwright/activities")
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    sources = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    assert {file for file in distributions.wheel_files() if file.startswith("dagwright/")} == sources


def test_metadata_has_the_version_the_license_and_the_extras(distributions: Distributions) -> None:
    metadata = distributions.wheel_metadata()
    assert metadata["Version"] == PROJECT["version"] == dagwright.__version__
    assert metadata["License-Expression"] == "MIT"
    assert "LICENSE" in metadata.get_all("License-File", [])
    assert "dagwright/interfaces/console/vendor/licenses/dompurify.txt" in metadata.get_all("License-File", [])
    assert {*metadata.get_all("Provides-Extra", [])} == PROJECT["optional-dependencies"].keys()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert len(metadata.get_all("Project-URL", [])) == len(PROJECT["urls"])


def test_base_install_is_small(installation: Installation) -> None:
    assert len([*installation.packages_folder.glob("*.dist-info")]) <= MAX_PACKAGES
    size_bytes = sum(file.lstat().st_blocks * 512 for file in installation.packages_folder.rglob("*"))
    assert size_bytes <= MAX_BYTES


async def test_command_line_is_installed(installation: Installation) -> None:
    version = f"dagwright {dagwright.__version__}\n"
    assert await installation.run("-m", "dagwright", "--version") == version
    assert await installation.run(str(installation.python.with_name("dagwright")), "-V") == version
    assert "Run a worker until" in await installation.run("-m", "dagwright", "worker", "--help")


async def test_importing_dagwright_loads_no_library(installation: Installation) -> None:
    script = "import sys, dagwright; print(any(name in sys.modules for name in ('temporalio', 'pydantic', 'typer')))"
    assert await installation.run("-c", script) == "False\n"


async def test_project_of_a_user_may_have_modules_named_workflows_and_activities(
    installation: Installation, server: LiveServer
) -> None:
    arguments = ("run", "plan.yaml", "--tools", "tools.py", "--input", "net=100")
    assert (await installation.run("-m", "dagwright", *arguments, server=server)).rstrip().endswith("119")


async def test_script_runs_a_plan(installation: Installation, server: LiveServer) -> None:
    assert await installation.run("script.py", server=server) == "119\n"


async def test_console_is_served_from_the_wheel(installation: Installation) -> None:
    await installation.run("-c", CONSOLE_SCRIPT, sysconfig.get_path("purelib"))
