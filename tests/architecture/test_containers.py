"""The container files: what can be checked of them without a container engine."""

import re
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.workers import workers_among
from dagwright.interfaces.cli.process_exit import EXIT_TIMEOUT_S
from dagwright.server.local import DYNAMIC_CONFIG
from dagwright.server.namespace import RETENTION
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from dagwright_maritime.settings import MaritimeSettings
from tests.architecture.source_files import ROOT
from tests.support.dockerfile import Step, read_dockerfile

COMPOSED = ROOT / "docker-compose.yml"
_DEV_SERVER_ONLY = {"history.transferProcessorMaxPollRPS"}
"""A dev server has one history shard, and this is its limit for each shard."""

_PINNED = re.compile(r"[a-z./-]+:\d+\.\d+[\w.-]*")


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    composed = yaml.safe_load(COMPOSED.read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = composed["services"]
    return found


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    return read_dockerfile(ROOT / "Dockerfile")


def test_compose_file_follows_the_published_schema() -> None:
    program = str(Path(sys.executable).with_name("check-jsonschema"))
    command = [program, "--builtin-schema", "vendor.compose-spec", str(COMPOSED)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_composition_has_database_server_interface_and_worker(services: dict[str, dict[str, Any]]) -> None:
    assert {"postgres", "temporal", "temporal-ui", "worker"} <= set(services)


def test_every_image_is_pinned(services: dict[str, dict[str, Any]], steps: list[Step]) -> None:
    images = [service["image"] for service in services.values()]
    images += [step.words[0] for step in steps if step.instruction == "FROM"]
    assert [image for image in images if not _PINNED.fullmatch(image)] == []


def test_search_server_has_the_tested_version_and_a_profile(services: dict[str, dict[str, Any]]) -> None:
    named = re.search(
        r"<opensearch.version>(.+)</", (ROOT / "apps/maritime/search-server/pom.xml").read_text(encoding="utf-8")
    )
    assert named is not None
    assert services["search"]["image"] == f"opensearchproject/opensearch:{named[1]}"
    for result in (
        "apps/maritime/docs/search-server.md",
        "docs/decisions/0055-the-search-server-for-tests-is-built-from-jars.md",
    ):
        assert f"OpenSearch {named[1]}" in (ROOT / result).read_text(encoding="utf-8")
    assert services["search"]["profiles"] == ["search"]
    # A container that always starts must not wait for an optional one.
    assert [name for name, service in services.items() if "search" in service.get("depends_on", {})] == []
    [published] = services["search"]["ports"]
    place = services["worker"]["environment"]["DAGWRIGHT_OPENSEARCH_URL"].removeprefix("http://")
    assert place == f"search:{published.rpartition(':')[2]}"
    [data] = services["search"]["volumes"]
    assert data == "search:/usr/share/opensearch/data"


def test_worker_and_gateway_have_the_same_tools(services: dict[str, dict[str, Any]]) -> None:
    # A gateway starts no run with tools that it does not know, and a worker serves none.
    (command,) = {services[name]["command"] for name in ("worker", "gateway")}
    assert command == "${TOOL_OPTIONS:-}"
    result = (ROOT / "apps/maritime/docs/search-server.md").read_text(encoding="utf-8")
    named = re.search(r'TOOL_OPTIONS="--tools (\S+)"\ndocker compose --profile search up', result)
    assert named is not None
    toolset = load_toolset(Settings(), [named[1]])
    assert len(workers_among(toolset.declarations())) == 9


def test_every_service_that_lasts_has_a_health_check(services: dict[str, dict[str, Any]]) -> None:
    lasting = {name for name, service in services.items() if "restart" in service}
    assert lasting == {name for name, service in services.items() if "healthcheck" in service}


def test_every_service_waits_for_what_it_needs(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            ends = "restart" not in services[needed]
            expected = "service_completed_successfully" if ends else "service_healthy"
            assert (name, needed, how["condition"]) == (name, needed, expected)


def test_mounted_files_exist_and_volumes_are_declared(services: dict[str, dict[str, Any]]) -> None:
    declared = yaml.safe_load(COMPOSED.read_text(encoding="utf-8"))["volumes"]
    for service in services.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert (ROOT / source).is_file() if source.startswith("./") else source in declared, mount


def test_services_share_the_payload_volume(services: dict[str, dict[str, Any]], steps: list[Step]) -> None:
    stored = "DAGWRIGHT_PAYLOAD_STORE"
    ours = {name: service for name, service in services.items() if stored in service.get("environment", {})}
    assert set(ours) == {name for name, service in services.items() if service["image"].startswith("dagwright")}
    folder = ours["worker"]["environment"]["DAGWRIGHT_PAYLOAD_STORE"]
    assert {service["environment"]["DAGWRIGHT_PAYLOAD_STORE"] for service in ours.values()} == {folder}
    assert [name for name, service in ours.items() if f"payloads:{folder}" not in service["volumes"]] == []
    # A new volume takes over the owner of the folder it is mounted on: the image must have made it.
    made = [step.words[-1] for step in steps if step.instruction == "RUN" and step.words[:2] == ["install", "-d"]]
    assert folder in made


def test_namespace_keeps_runs_as_long_as_a_server_of_ours() -> None:
    script = (ROOT / "docker/create-namespace.sh").read_text(encoding="utf-8")
    assert f"--retention {RETENTION.days}d" in script


def test_ports_are_open_to_this_machine_only(services: dict[str, dict[str, Any]]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_server_in_the_container_has_the_settings_of_the_dev_server() -> None:
    written = yaml.safe_load((ROOT / "docker/dynamic_config.yaml").read_text(encoding="utf-8"))
    flat = {key: str(values[0]["value"]).lower() for key, values in written.items()}
    assert flat == {key: value for key, value in DYNAMIC_CONFIG.items() if key not in _DEV_SERVER_ONLY}


def test_variables_of_the_worker_are_settings(services: dict[str, dict[str, Any]], steps: list[Step]) -> None:
    names = set(services["worker"]["environment"])
    names |= {word.split("=")[0] for step in steps if step.instruction == "ENV" for word in step.words}
    ours = {name.removeprefix("DAGWRIGHT_").lower() for name in names if name.startswith("DAGWRIGHT_")}
    assert ours
    assert ours <= {*Settings.model_fields, *MaritimeSettings.model_fields}


def test_image_installs_the_locked_requirements_and_is_not_root(steps: list[Step]) -> None:
    installs = [step.text for step in steps if step.instruction == "RUN" and "pip install" in step.text]
    assert len(installs) == 1
    assert "--require-hashes" in installs[0]
    users = [step.words[0] for step in steps if step.instruction == "USER"]
    assert users == ["dagwright"]


def test_image_copies_what_is_there_and_what_the_context_holds(steps: list[Step]) -> None:
    context = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for step in steps:
        if step.instruction != "COPY" or step.words[0].startswith("--from"):
            continue
        for source in step.words[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in context, source


def test_image_checks_liveness_and_compose_readiness(services: dict[str, dict[str, Any]], steps: list[Step]) -> None:
    # Compose does not restart an unhealthy container, but it waits for a ready one; other orchestrators restart it.
    (step,) = [step for step in steps if step.instruction == "HEALTHCHECK"]
    (health_port,) = re.findall(r"DAGWRIGHT_HEALTH_ADDRESS=0\.0\.0\.0:(\d+)", "\n".join(step.text for step in steps))
    probe = ["python", "-I", "-S", "/app/probe.py"]
    assert step.json_after("CMD") == [*probe, health_port, "/livez"]
    assert services["worker"]["healthcheck"]["test"][1:] == [*probe, health_port, "/readyz"]
    gateway = services["gateway"]
    port = gateway["entrypoint"][gateway["entrypoint"].index("--port") + 1]
    assert gateway["healthcheck"]["test"][1:] == [*probe, port, "/readyz"]


def test_composition_waits_longer_than_worker_and_gateway_need_to_end(services: dict[str, dict[str, Any]]) -> None:
    def grace_s(name: str) -> float:
        return float(services[name]["stop_grace_period"].removesuffix("s"))

    drain_s = float(services["worker"]["environment"]["DAGWRIGHT_DRAIN_S"])
    assert drain_s > signature(ToolDeclaration).parameters["timeout_s"].default
    assert grace_s("worker") == drain_s + EXIT_TIMEOUT_S
    assert grace_s("gateway") > EXIT_TIMEOUT_S


def test_only_the_worker_gets_secrets_of_the_user(services: dict[str, dict[str, Any]]) -> None:
    files = {name: [each["path"] for each in services[name]["env_file"]] for name in ("worker", "gateway")}
    assert files == {"worker": [".env", ".worker.env"], "gateway": [".env"]}
    assert not [each for name in files for each in services[name]["env_file"] if each["required"]]
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {".env", ".worker.env"} <= set(ignored)
    settings = {name.upper() for name in Settings.model_fields}
    result = (ROOT / "docs/deploy/containers.md").read_text(encoding="utf-8")
    for name in ("NOTIFY_URL", "NOTIFY_SECRET", "ALLOW_PRIVATE_ADDRESSES", "UI_URL"):
        assert name in settings
        assert f"`DAGWRIGHT_{name}" in result


def _documented_file(name: str) -> str:
    result = (ROOT / "docs/deploy/containers.md").read_text(encoding="utf-8")
    match = re.search(rf"```\w+ title=\"{re.escape(name)}\"\n(.*?)```", result, re.DOTALL)
    assert match is not None, name
    return match[1]


def test_documented_override_fits_the_composition(services: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    override = yaml.safe_load(_documented_file("docker-compose.override.yml"))["services"]
    assert {*override} == {"worker", "gateway"}
    for name, service in override.items():
        mounted = [mount.split(":")[1] for mount in service["volumes"]]
        named = [word for word in service["command"].split() if word.startswith("/")]
        assert named == mounted, name
        # A list of volumes is merged with that of the composition by target.
        assert not {mount.split(":")[1] for mount in services[name]["volumes"]} & {*mounted}


def test_documented_image_with_tools_is_derived_from_ours_and_is_not_root(
    services: dict[str, dict[str, Any]], steps: list[Step], tmp_path: Path
) -> None:
    place = tmp_path / "Dockerfile.tools"
    place.write_text(_documented_file("Dockerfile.tools"), encoding="utf-8")
    derived = read_dockerfile(place)
    assert derived[0].words == [services["worker"]["image"]]
    users = [step.words[0] for step in derived if step.instruction == "USER"]
    assert users == ["root", next(step.words[0] for step in steps if step.instruction == "USER")]
    assert "/app/.venv/bin/pip install" in next(step.text for step in derived if step.instruction == "RUN")


_SQL_TOOL = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in
    *update-schema*) [ -e "$CALLS.setup" ] || {{ echo '{failure}' >&2; exit 1; }} ;;
    *setup-schema*) touch "$CALLS.setup" ;;
esac
"""
_NEW = 'error reading current schema version:ERROR: relation "schema_version" does not exist (SQLSTATE 42P01)'


@pytest.mark.parametrize(("failure", "is_new"), [(_NEW, True), ("dial tcp: connection refused", False)])
def test_only_a_new_database_gets_a_first_schema(failure: str, is_new: bool, tmp_path: Path) -> None:
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text(_SQL_TOOL.format(failure=failure), encoding="utf-8")
    tool.chmod(0o755)
    calls = tmp_path / "calls"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(calls)}
    script = ["sh", str(ROOT / "docker/setup-schema.sh")]
    ended = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    result = calls.read_text(encoding="utf-8")
    assert (ended.returncode, "setup-schema --version" in result) == ((0, True) if is_new else (1, False))
    assert is_new or "connection refused" in ended.stderr
