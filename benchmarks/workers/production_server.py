"""A Temporal server on PostgreSQL with the settings of `docker-compose.yml`, as local processes."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.processes import children_cpu_s, cpu_s
from dagwright.server.binary import get_binary
from tests.support.ports import free_ports
from tests.support.postgres import PostgresCluster, private_postgres
from tests.support.production import ServerPrograms, server_programs

_ROOT = Path(__file__).resolve().parents[2]
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0
_ROLES = ("FRONTEND", "HISTORY", "MATCHING", "WORKER")


@dataclass(frozen=True, slots=True)
class ProductionServer:
    """A running server and its database.

    Args:
        port: port of the frontend, on all addresses of the machine.
        pid: process ID of the server.
        database_pid: process ID of the database server.
    """

    port: int
    pid: int
    database_pid: int

    def server_cpu_s(self) -> float:
        """Return the CPU time of the server, in seconds."""
        return cpu_s(self.pid)

    def database_cpu_s(self) -> float:
        """Return the CPU time of the database with the processes of its connections, in seconds."""
        return cpu_s(self.database_pid) + children_cpu_s(self.database_pid)


@asynccontextmanager
async def production_server(folder: Path, cache_home: Path) -> AsyncIterator[ProductionServer]:
    """Run PostgreSQL and the server inside the block; commits are flushed to disk, as by default."""
    programs = await asyncio.to_thread(server_programs, cache_home)
    cli = await get_binary(cache_home, preferred_version=None)
    search_path = os.pathsep.join([str(programs.folder), str(cli.path.parent), os.environ["PATH"]])
    with private_postgres(fsync="on") as postgres:
        await asyncio.to_thread(_create_schema, postgres, programs, search_path)
        async with _running_server(folder, postgres, programs, search_path) as (port, pid):
            address = {"TEMPORAL_ADDRESS": f"127.0.0.1:{port}", "TEMPORAL_NAMESPACE": "default"}
            await asyncio.to_thread(_run_script, "create-namespace.sh", {**address, "PATH": search_path})
            yield ProductionServer(port, pid, postgres.pid)


def _create_schema(postgres: PostgresCluster, programs: ServerPrograms, search_path: str) -> None:
    environment = {
        "SQL_PLUGIN": "postgres12_pgx",
        "SQL_HOST": "127.0.0.1",
        "SQL_PORT": str(postgres.port),
        "SQL_USER": postgres.user,
        "SQL_PASSWORD": postgres.password,
        "SCHEMA_DIR": str(programs.schema),
        "PATH": search_path,
    }
    _run_script("setup-schema.sh", environment)


@asynccontextmanager
async def _running_server(
    folder: Path, postgres: PostgresCluster, programs: ServerPrograms, search_path: str
) -> AsyncIterator[tuple[int, int]]:
    environment, port = _environment_of(postgres)
    (folder / "config").mkdir(parents=True)
    config = await asyncio.to_thread(programs.render_config, {**environment, "PATH": os.environ["PATH"]})
    (folder / "config/docker.yaml").write_text(config, encoding="utf-8")
    command = [str(programs.folder / "temporal-server"), "--root", str(folder), "--env", "docker", "start"]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env={**environment, "PATH": search_path}, stdout=log, stderr=log
        )
    try:
        yield port, process.pid
    finally:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def _environment_of(postgres: PostgresCluster) -> tuple[dict[str, str], int]:
    """Return the variables of the server, and the port of its frontend."""
    names = [f"{role}_{kind}_PORT" for role in _ROLES for kind in ("GRPC", "MEMBERSHIP")] + ["FRONTEND_HTTP_PORT"]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    services = yaml.safe_load((_ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    environment = {
        **{name: str(value) for name, value in services["temporal"]["environment"].items()},
        **{name: str(port) for name, port in ports.items()},
        "DB_PORT": str(postgres.port),
        "POSTGRES_SEEDS": "127.0.0.1",
        "POSTGRES_USER": postgres.user,
        "POSTGRES_PWD": postgres.password,
        "DYNAMIC_CONFIG_FILE_PATH": str(_ROOT / "docker/dynamic_config.yaml"),
    }
    return environment, ports["FRONTEND_GRPC_PORT"]


def _run_script(name: str, environment: Mapping[str, str]) -> None:
    program = shutil.which("sh")
    assert program is not None
    command: Sequence[str] = [program, str(_ROOT / "docker" / name)]
    outcome = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=180, check=False
    )
    if outcome.returncode:
        raise RuntimeError(f"{name} failed:\n{outcome.stdout[-1000:]}{outcome.stderr[-1000:]}")
