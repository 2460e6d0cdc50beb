"""Install the search server once into the user's cache: download it from Maven Central and compile its launcher.

The files in `apps/maritime/search-server` of the checkout define the server. The name of the cache folder has the
digest of these files, so each version has its own folder.
"""

import asyncio
import hashlib
import os
import shutil
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dagwright.plugins.servers import holding_lock, print_progress
from dagwright_maritime.search.errors import InstallFailed, NoSearchServer, ProgramMissing

SOURCES = Path(__file__).parents[2] / "search-server"
"""Sources of the server, only in a checkout; an installed package needs an existing server."""

_FILES = ("SearchServer.java", "log4j2.properties", "opensearch.yml", "pom.xml")
_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_INSTALL_TIMEOUT_S = 900.0
"""An installation takes half a minute on an idle machine with an empty Maven repository, mostly for the download."""

_LAST_LINES = 8
_ALTERNATIVE = "or set DAGWRIGHT_OPENSEARCH_URL to a running server"


@dataclass(frozen=True, slots=True)
class SearchProgram:
    """An installed search server.

    Args:
        java: path of the Java program.
        folder: has `jars/`, `classes/` and `config/`.
    """

    java: str
    folder: Path

    @property
    def class_path(self) -> str:
        return f"{self.folder}/classes:{self.folder}/jars/*"

    @property
    def configuration(self) -> Path:
        return self.folder / "config"


async def get_program(cache_home: Path, *, sources: Path = SOURCES) -> SearchProgram:
    """Return the installed server; install it first if it is not in the cache.

    Args:
        cache_home: the user's cache folder.
        sources: the folder with the definition of the server.

    Raises:
        ProgramMissing: Java is missing, or the server is not installed and Maven or the compiler is missing.
        InstallFailed: the installation failed.
        NoSearchServer: the server is not installed, and this is not a checkout.
    """
    try:
        digest = hashlib.sha256(b"\0".join((sources / name).read_bytes() for name in _FILES)).hexdigest()[:12]
    except OSError as error:
        message = f"the search server can only be installed from a checkout ({error.filename}), {_ALTERNATIVE}"
        raise NoSearchServer(message) from error
    java = _find_executable("java", "Java 17 or newer")
    target = cache_home / "dagwright" / f"search-server-{digest}"
    if not target.exists():
        await _install(target, sources)
    return SearchProgram(java, target)


def _find_executable(name: str, product: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ProgramMissing(
            name, f"{name} is not on the path: install {product} to run a search server here, {_ALTERNATIVE}"
        )
    return path


async def _install(target: Path, sources: Path) -> None:
    mvn = _find_executable("mvn", "Maven")
    javac = _find_executable("javac", "a JDK, version 17 or newer,")
    cache_folder = target.parent
    try:
        cache_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InstallFailed(f"the cache folder {cache_folder} is not writable: {error.strerror}") from error
    async with holding_lock(
        cache_folder / "search-server.lock", timeout_s=_INSTALL_TIMEOUT_S, on_wait=_report_other_install
    ):
        if target.exists():
            return
        for leftover in cache_folder.glob(".search-server-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=cache_folder, prefix=".search-server-") as name:
            build_folder = Path(name) / "build"
            (build_folder / "config").mkdir(parents=True)
            for file in ("log4j2.properties", "opensearch.yml"):
                shutil.copy(sources / file, build_folder / "config" / file)
            print_progress("fetching the search server with Maven (once, about 75 MB)")
            fetch_command = [mvn, "-B", "-q", "-f", f"{sources}/pom.xml", _COPY_GOAL]
            await _run([*fetch_command, f"-DoutputDirectory={build_folder}/jars", "-DincludeScope=runtime"])
            compile_command = [javac, "-proc:none", "-cp", f"{build_folder}/jars/*", "-d", f"{build_folder}/classes"]
            await _run([*compile_command, f"{sources}/SearchServer.java"])
            build_folder.rename(target)


async def _run(command: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout=_INSTALL_TIMEOUT_S)
    except BaseException as error:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if isinstance(error, TimeoutError):
            raise InstallFailed(f"{command[0]} did not end within {_INSTALL_TIMEOUT_S:g} s, {_ALTERNATIVE}") from error
        raise
    if process.returncode != 0:
        lines = output.decode("utf-8", "replace").strip().splitlines()[-_LAST_LINES:]
        text = "\n".join(f"  {line}" for line in lines)
        raise InstallFailed(
            f"{command[0]} exited with {process.returncode}: fix the reported error, {_ALTERNATIVE}\n{text}"
        )


def _report_other_install() -> None:
    print_progress("waiting for another command that fetches the search server")
