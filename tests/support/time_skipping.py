"""Temporal's time-skipping test server, a Java program: a month of waiting passes in a second.

Maven downloads the server once from Maven Central into the user's cache. The server lists no workflows and has no
custom search attributes, so tests must use queries.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from dagwright.protocol.conversion import data_converter
from dagwright.settings import Settings
from tests.support.ports import free_port
from tests.support.tool_servers import listening_process

VERSION = "1.32.0"
_FETCH_TIMEOUT_S = 600
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dagwright</groupId><artifactId>test-server</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>io.temporal</groupId><artifactId>temporal-test-server</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""
_SCRIPT = """\
#!/bin/sh
exec {java} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx256m \\
    "${{JAVA_ARCHIVE:--XX:SharedArchiveFile={folder}/{archive}}}" -cp '{folder}/*' \\
    io.temporal.testserver.TestServer "$@"
"""
_ARCHIVE = "classes.jsa"
"""Archive of loaded classes, which halves the CPU time of a start. The SDK waits only 5 s for a start."""


@asynccontextmanager
async def time_skipping() -> AsyncIterator[WorkflowEnvironment]:
    """Run a server whose clock skips ahead whenever all workflows wait for timers."""
    script = _fetch_script()
    await _archive_classes(script)
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(script), data_converter=data_converter
    ) as environment:
        yield environment


async def _archive_classes(script: Path) -> None:
    archive = script.with_name(_ARCHIVE)
    if archive.exists():
        return
    with tempfile.TemporaryDirectory(dir=script.parent) as folder:
        port, new_archive = free_port(), Path(folder) / _ARCHIVE
        archive_option = f"-XX:ArchiveClassesAtExit={new_archive}"
        async with listening_process(str(script), str(port), port=port, JAVA_ARCHIVE=archive_option) as server:
            server.terminate()
            await server.wait()
        new_archive.rename(archive)


def _fetch_script() -> Path:
    folder = Settings().cache_home / "dagwright" / f"test-server-{VERSION}-archived"
    script = folder / "test-server"
    if not script.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary_folder:
            _fetch(Path(temporary_folder))
            jars = Path(temporary_folder) / "jars"
            (jars / script.name).write_text(
                _SCRIPT.format(java=_program("java"), folder=folder, archive=_ARCHIVE), encoding="utf-8"
            )
            (jars / script.name).chmod(0o755)
            try:
                jars.rename(folder)
            except OSError:
                # Another process was faster.
                if not script.exists():
                    raise
    return script


def _fetch(folder: Path) -> None:
    (folder / "pom.xml").write_text(_POM, encoding="utf-8")
    command = [_program("mvn"), "-q", "-B", "-f", f"{folder}/pom.xml", "dependency:copy-dependencies"]
    result = subprocess.run(
        [*command, f"-DoutputDirectory={folder}/jars"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_FETCH_TIMEOUT_S,
        env={**os.environ, "MAVEN_OPTS": os.environ.get("MAVEN_OPTS", "-Xmx256m")},
    )
    if result.returncode != 0:
        raise RuntimeError(f"the test server cannot be fetched from Maven Central:\n{result.stdout}{result.stderr}")


def _program(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise RuntimeError(f"{name} is not on the path; install Java and Maven to run the tests marked java")
    return program
