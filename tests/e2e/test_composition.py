"""The programs and commands of the Docker Compose file run as local processes, with its files and variables.

Not tested here: pulling the images, the user and the folders that the Dockerfile creates, the network between
containers.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagwright.server import connection_of
from dagwright.server.binary import get_binary
from dagwright.server.local import dial
from dagwright.server.namespace import SEARCH_ATTRIBUTES
from dagwright.settings import Settings
from tests.support.dockerfile import Stage, read_dockerfile, read_stages
from tests.support.eventually import eventually
from tests.support.listed_runs import check_filters, check_pages
from tests.support.ports import free_port
from tests.support.postgres import PostgresCluster, private_postgres
from tests.support.production import BUILD_TIMEOUT_S, ServerPrograms, server_programs
from tests.support.server import LiveServer

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.server,
    pytest.mark.slow,
    # The first test builds the server if it is not in the cache.
    pytest.mark.timeout(BUILD_TIMEOUT_S + 600),
]

_ROOT = Path(__file__).resolve().parents[2]
_CONTAINER_COMMANDS = ("useradd", "install")
"""Commands of the Dockerfile that create a user and its folders."""


@dataclass(frozen=True, slots=True)
class Composition:
    """The services of the compose file, with the hosts, ports, password and paths of this machine.

    Args:
        services: the compose file's services.
        replacements: text in the compose file -> text for this machine, longest first.
        path: value of `PATH` for the commands.
        overrides: environment variables that replace those of a container.
    """

    services: dict[str, dict[str, Any]]
    replacements: dict[str, str]
    path: str
    overrides: dict[str, str] = field(default_factory=dict)

    def environment(self, service: str) -> dict[str, str]:
        inherited_variables = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "TMPDIR")}
        variables = self.services[service].get("environment", {})
        local_variables = {name: self.replace_for_this_machine(str(value)) for name, value in variables.items()}
        return {**inherited_variables, **local_variables, "PATH": self.path, **self.overrides}

    def replace_for_this_machine(self, text: str) -> str:
        for original, local_text in self.replacements.items():
            text = text.replace(original, local_text)
        return text

    def health_command(self, service: str) -> list[str]:
        kind, *command = self.services[service]["healthcheck"]["test"]
        assert kind == "CMD"
        return [self.replace_for_this_machine(word) for word in command]


def _run(command: Sequence[str], environment: Mapping[str, str], *, folder: Path = _ROOT) -> None:
    result = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=900, check=False
    )
    assert result.returncode == 0, f"{command}: {result.stdout[-1500:]}{result.stderr[-1500:]}"


def _succeeds(command: Sequence[str], environment: Mapping[str, str], *, folder: Path = _ROOT) -> bool:
    result = subprocess.run(command, env=environment, cwd=folder, capture_output=True, timeout=60, check=False)
    return result.returncode == 0


@contextmanager
def _process(
    command: Sequence[str], environment: Mapping[str, str], *, folder: Path, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=sink, stderr=sink)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresCluster]:
    with private_postgres() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def programs() -> ServerPrograms:
    return server_programs(Settings().cache_home)


@pytest.fixture(scope="module")
async def composition(postgres: PostgresCluster, programs: ServerPrograms) -> Composition:
    binary = await get_binary(Settings().cache_home, preferred_version=None)
    frontend_port = free_port()
    password_variable = "${POSTGRES_PASSWORD:-dagwright}"
    return Composition(
        services=yaml.safe_load((_ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"],
        replacements={
            f"{password_variable}@postgres:5432/dagwright": f"{password_variable}@127.0.0.1:{postgres.port}/postgres",
            password_variable: postgres.password,
            "--dbname=dagwright": "--dbname=postgres",
            "/etc/temporal/dagwright.yaml": str(_ROOT / "docker/dynamic_config.yaml"),
            "temporal:7233": f"127.0.0.1:{frontend_port}",
            "7233": str(frontend_port),
            "5432": str(postgres.port),
        },
        path=os.pathsep.join([str(programs.folder), str(binary.path.parent), os.environ["PATH"]]),
    )


@pytest.fixture(scope="module")
def schema(composition: Composition, programs: ServerPrograms) -> None:
    """Run the schema script twice, because every `docker compose up` runs it again."""
    script_variables = {"SQL_HOST": "127.0.0.1", "SCHEMA_DIR": str(programs.schema)}
    environment = {**composition.environment("temporal-schema"), **script_variables}
    for _ in range(2):
        _run(["sh", str(_ROOT / "docker/setup-schema.sh")], environment)


@pytest.fixture(scope="module")
async def frontend_address(
    schema: None, composition: Composition, programs: ServerPrograms, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    """Start the production server with the composition's variables; yield its address."""
    folder = tmp_path_factory.mktemp("temporal")
    (folder / "config").mkdir()
    roles, kinds = ("FRONTEND", "HISTORY", "MATCHING", "WORKER"), ("GRPC", "MEMBERSHIP")
    port_variables = [f"{role}_{kind}_PORT" for role in roles for kind in kinds]
    port_variables = [name for name in port_variables if name != "FRONTEND_GRPC_PORT"] + ["FRONTEND_HTTP_PORT"]
    environment = {
        **composition.environment("temporal"),
        **{name: str(free_port()) for name in port_variables},
        "FRONTEND_GRPC_PORT": composition.replacements["7233"],
        "POSTGRES_SEEDS": "127.0.0.1",
    }
    config = programs.render_config({**environment, "PATH": os.environ["PATH"]})
    (folder / "config/docker.yaml").write_text(config, encoding="utf-8")
    program = shutil.which("temporal-server", path=environment["PATH"])
    assert program is not None
    command = [program, "--root", str(folder), "--env", "docker", "start"]
    with _process(command, environment, folder=folder, log=folder / "log"):
        health_command = composition.health_command("temporal")
        await eventually(lambda: _succeeds(health_command, environment))
        yield composition.replacements["temporal:7233"]


@pytest.fixture(scope="module")
def address_with_namespace(frontend_address: str, composition: Composition) -> str:
    """Run the namespace script twice; return the address of the server."""
    for _ in range(2):
        _run(["sh", str(_ROOT / "docker/create-namespace.sh")], composition.environment("temporal-namespace"))
    return frontend_address


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new folder in which the steps of the last stage were run, except the steps that need a container."""
    *stages, last_stage = read_stages(_ROOT / "Dockerfile")
    root = tmp_path_factory.mktemp("image")
    _run_steps(last_stage, root, stage_folders={stage.name: _build_stage(stage) for stage in stages})
    return root


def _build_stage(stage: Stage) -> Path:
    """Run the steps of a stage in a folder of the user's cache, or return the cached folder of the same inputs.

    The cache works like Docker's: a change of the Dockerfile, of a copied file or of Python creates a new folder.
    """
    input_hash = hashlib.sha256(f"{sys.version}{Path(sys.base_prefix).resolve()}".encode())
    for step in stage.steps:
        input_hash.update(f"{step.instruction} {step.text}".encode())
        if step.instruction == "COPY":
            for source in step.words[:-1]:
                input_hash.update(_content(_ROOT / source))
    cached_folder = Settings().cache_home / "dagwright" / f"image-{input_hash.hexdigest()[:16]}"
    if not cached_folder.exists():
        cached_folder.parent.mkdir(parents=True, exist_ok=True)
        new_folder = Path(tempfile.mkdtemp(dir=cached_folder.parent, prefix=".image-"))
        try:
            _run_steps(stage, new_folder, stage_folders={})
            new_folder.rename(cached_folder)
        finally:
            shutil.rmtree(new_folder, ignore_errors=True)
    return cached_folder


def _content(source: Path) -> bytes:
    """Return the bytes that `_copy` copies: the content of a file, or the names and contents of a folder's files."""
    if source.is_file():
        return source.read_bytes()
    files = sorted(file for file in source.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return b"".join(str(file.relative_to(source)).encode() + b"\0" + file.read_bytes() for file in files)


def _run_steps(stage: Stage, root: Path, *, stage_folders: Mapping[str, Path]) -> None:
    working_folder = root / "app"
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    for step in stage.steps:
        if step.instruction == "WORKDIR":
            working_folder = root / step.text.removeprefix("/")
            working_folder.mkdir(parents=True, exist_ok=True)
        elif step.instruction == "COPY":
            *sources, target = step.words
            origin = _ROOT
            if sources[0].startswith("--from="):
                origin = stage_folders[sources.pop(0).removeprefix("--from=")]
            for source in sources:
                # A file that is copied into a folder does not keep the path of its source folder.
                name = target + Path(source).name if target.endswith("/") else target
                _copy(origin / source.removeprefix("/"), working_folder / name)
        elif step.instruction == "RUN" and step.words[0] not in _CONTAINER_COMMANDS:
            _run(["sh", "-c", step.text], environment, folder=working_folder)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        # The image has the bytecode of installed packages, but not the bytecode of this checkout.
        ignore_pattern = shutil.ignore_patterns("__pycache__") if source.is_relative_to(_ROOT) else None
        shutil.copytree(source, target, ignore=ignore_pattern, symlinks=True)
    else:
        shutil.copy(source, target)


def test_database_is_healthy(composition: Composition) -> None:
    environment = {**composition.environment("postgres"), "PGPORT": composition.replacements["5432"]}
    _run(composition.health_command("postgres"), environment)


async def test_web_interface_is_healthy(composition: Composition, server: LiveServer) -> None:
    ui_url = server.server.ui_url
    assert ui_url is not None
    words = composition.health_command("temporal-ui")
    health_command = [word.replace("http://127.0.0.1:8080", ui_url) for word in words]
    _run(health_command, composition.environment("temporal-ui"))


def test_namespace_keeps_closed_runs_and_has_the_search_attributes(
    address_with_namespace: str, composition: Composition
) -> None:
    environment = {**composition.environment("temporal-namespace"), "TEMPORAL_ADDRESS": address_with_namespace}
    describe_command = ["temporal", "operator", "namespace", "describe", "--namespace", "default", "--output", "json"]
    namespace_result = subprocess.run(describe_command, env=environment, capture_output=True, text=True, check=True)
    assert '"workflowExecutionRetentionTtl": "7776000s"' in namespace_result.stdout
    list_command = ["temporal", "operator", "search-attribute", "list", "--namespace", "default"]
    attributes_result = subprocess.run(list_command, env=environment, capture_output=True, text=True, check=True)
    for name in SEARCH_ATTRIBUTES:
        assert name in attributes_result.stdout


async def test_run_filters_and_pages_are_correct_on_postgresql(address_with_namespace: str) -> None:
    connection = await connection_of(await dial(address_with_namespace))
    await check_filters(connection)
    await check_pages(connection)


async def test_worker_of_the_image_is_healthy_only_while_it_runs(
    image: Path, address_with_namespace: str, composition: Composition
) -> None:
    steps = read_dockerfile(_ROOT / "Dockerfile")
    image_words = [word for step in steps if step.instruction == "ENV" for word in step.words]
    image_variables = dict(word.split("=", 1) for word in image_words)
    environment = {
        **composition.environment("worker"),
        **{
            name: value.replace("/app", f"{image}/app").replace("/var/", f"{image}/var/")
            for name, value in image_variables.items()
        },
        "PATH": os.pathsep.join([f"{image}/app/.venv/bin", composition.path]),
        "TEMPORAL_ADDRESS": address_with_namespace,
    }
    (entrypoint,) = [step.json_after() for step in steps if step.instruction == "ENTRYPOINT"]
    python = shutil.which(entrypoint[0], path=environment["PATH"])
    assert python == f"{image}/app/.venv/bin/python"
    words = composition.health_command("worker")[1:]
    health_command = [python, *(word.replace("/app/", f"{image}/app/") for word in words)]

    assert not _succeeds(health_command, environment, folder=image / "app")
    with _process([python, *entrypoint[1:]], environment, folder=image / "app", log=image / "log"):
        await eventually(lambda: _succeeds(health_command, environment, folder=image / "app"))
    assert not _succeeds(health_command, environment, folder=image / "app")
