"""Checks of the container files. The checks need no container engine."""

import re
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.worker_tools import worker_tools_among
from dagwright.interfaces.cli.process_exit import EXIT_TIMEOUT_S
from dagwright.server.local import DYNAMIC_CONFIG
from dagwright.server.namespace import RETENTION
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from dagwright_maritime.settings import MaritimeSettings
from tests.architecture.source_files import ROOT
from tests.support.dockerfile import Step, read_dockerfile

Services = dict[str, dict[str, Any]]
_DEV_SERVER_SETTINGS = {"history.transferProcessorMaxPollRPS"}
"""Settings of the dev server only. The setting limits each history shard, and the dev server has only one shard."""

_PINNED_IMAGE = re.compile(r"[a-z./-]+:\d+\.\d+[\w.-]*")


def _text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def services() -> Services:
    services: Services = yaml.safe_load(_text_of("docker-compose.yml"))["services"]
    return services


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    return read_dockerfile(ROOT / "Dockerfile")


def test_compose_file_follows_the_published_schema() -> None:
    program = str(Path(sys.executable).with_name("check-jsonschema"))
    command = [program, "--builtin-schema", "vendor.compose-spec", str(ROOT / "docker-compose.yml")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_compose_file_has_a_database_a_temporal_server_a_ui_and_a_worker(services: Services) -> None:
    assert {"postgres", "temporal", "temporal-ui", "worker"} <= set(services)


def test_every_image_is_pinned(services: Services, steps: list[Step]) -> None:
    images = [service["image"] for service in services.values()]
    images += [step.words[0] for step in steps if step.instruction == "FROM"]
    assert [image for image in images if not _PINNED_IMAGE.fullmatch(image)] == []


def test_search_server_has_the_tested_version_and_starts_only_with_its_profile(services: Services) -> None:
    version = re.search(r"<opensearch.version>(.+)</", _text_of("apps/maritime/search-server/pom.xml"))
    assert version is not None
    assert services["search"]["image"] == f"opensearchproject/opensearch:{version[1]}"
    decision = "docs/decisions/0055-the-search-server-for-tests-is-built-from-jars.md"
    for page in ("apps/maritime/docs/search-server.md", decision):
        assert f"OpenSearch {version[1]}" in _text_of(page)
    assert services["search"]["profiles"] == ["search"]
    # A container that always starts must not wait for an optional container.
    assert [name for name, service in services.items() if "search" in service.get("depends_on", {})] == []
    [port_mapping] = services["search"]["ports"]
    address = services["worker"]["environment"]["DAGWRIGHT_OPENSEARCH_URL"].removeprefix("http://")
    assert address == f"search:{port_mapping.rpartition(':')[2]}"
    [volume] = services["search"]["volumes"]
    assert volume == "search:/usr/share/opensearch/data"


def test_worker_and_gateway_have_the_same_tools(services: Services) -> None:
    # A gateway does not start runs with unknown tools, and a worker does not execute such runs.
    (command,) = {services[name]["command"] for name in ("worker", "gateway")}
    assert command == "${TOOL_OPTIONS:-}"
    page = _text_of("apps/maritime/docs/search-server.md")
    option = re.search(r'TOOL_OPTIONS="--tools (\S+)"\ndocker compose --profile search up', page)
    assert option is not None
    toolset = load_toolset(Settings(), [option[1]])
    assert len(worker_tools_among(toolset.declarations())) == 9


def test_services_with_a_restart_policy_and_no_others_have_a_health_check(services: Services) -> None:
    services_with_restart_policy = {name for name, service in services.items() if "restart" in service}
    assert services_with_restart_policy == {name for name, service in services.items() if "healthcheck" in service}


def test_services_wait_until_dependencies_are_healthy_or_completed(services: Services) -> None:
    for name, service in services.items():
        for dependency, options in service.get("depends_on", {}).items():
            runs_once = "restart" not in services[dependency]
            expected = "service_completed_successfully" if runs_once else "service_healthy"
            assert (name, dependency, options["condition"]) == (name, dependency, expected)


def test_mounted_files_exist_and_volumes_are_declared(services: Services) -> None:
    declared_volumes = yaml.safe_load(_text_of("docker-compose.yml"))["volumes"]
    for service in services.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert (ROOT / source).is_file() if source.startswith("./") else source in declared_volumes, mount


def test_services_with_a_dagwright_image_share_the_payload_volume(services: Services, steps: list[Step]) -> None:
    folder = services["worker"]["environment"]["DAGWRIGHT_PAYLOAD_STORE"]
    for name, service in services.items():
        expected = folder if service["image"].startswith("dagwright") else None
        assert service.get("environment", {}).get("DAGWRIGHT_PAYLOAD_STORE") == expected, name
        assert expected is None or f"payloads:{folder}" in service["volumes"], name
    # A new volume gets the owner of the folder at its mount point, so the image must create this folder.
    commands = [step.words for step in steps if step.instruction == "RUN"]
    assert folder in [words[-1] for words in commands if words[:2] == ["install", "-d"]]


def test_namespace_script_sets_the_retention_of_local_servers() -> None:
    assert f"--retention {RETENTION.days}d" in _text_of("docker/create-namespace.sh")


def test_ports_are_open_to_this_machine_only(services: Services) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_server_in_the_container_has_the_settings_of_the_dev_server() -> None:
    document = yaml.safe_load(_text_of("docker/dynamic_config.yaml"))
    dynamic_config = {key: str(values[0]["value"]).lower() for key, values in document.items()}
    assert dynamic_config == {key: value for key, value in DYNAMIC_CONFIG.items() if key not in _DEV_SERVER_SETTINGS}


def test_variables_of_the_worker_are_settings(services: Services, steps: list[Step]) -> None:
    names = set(services["worker"]["environment"])
    names |= {word.split("=")[0] for step in steps if step.instruction == "ENV" for word in step.words}
    setting_names = {name.removeprefix("DAGWRIGHT_").lower() for name in names if name.startswith("DAGWRIGHT_")}
    assert setting_names
    assert setting_names <= {*Settings.model_fields, *MaritimeSettings.model_fields}


def test_image_installs_the_locked_requirements_and_is_not_root(steps: list[Step]) -> None:
    installs = [step.text for step in steps if step.instruction == "RUN" and "pip install" in step.text]
    assert len(installs) == 1
    assert "--require-hashes" in installs[0]
    assert [step.words[0] for step in steps if step.instruction == "USER"] == ["dagwright"]


def test_copied_files_exist_and_are_in_the_build_context(steps: list[Step]) -> None:
    ignore_patterns = _text_of(".dockerignore").splitlines()
    for step in steps:
        if step.instruction != "COPY" or step.words[0].startswith("--from"):
            continue
        for source in step.words[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignore_patterns, source


def test_image_checks_liveness_and_compose_file_checks_readiness(services: Services, steps: list[Step]) -> None:
    # Compose waits until a container is healthy and never restarts an unhealthy container, so the Compose file checks
    # readiness. Other orchestrators restart an unhealthy container, so the image checks liveness.
    (step,) = [step for step in steps if step.instruction == "HEALTHCHECK"]
    (health_port,) = re.findall(r"DAGWRIGHT_HEALTH_ADDRESS=0\.0\.0\.0:(\d+)", "\n".join(step.text for step in steps))
    probe = ["python", "-I", "-S", "/app/probe.py"]
    assert step.json_after("CMD") == [*probe, health_port, "/livez"]
    assert services["worker"]["healthcheck"]["test"][1:] == [*probe, health_port, "/readyz"]
    gateway = services["gateway"]
    port = gateway["entrypoint"][gateway["entrypoint"].index("--port") + 1]
    assert gateway["healthcheck"]["test"][1:] == [*probe, port, "/readyz"]


def test_stop_grace_periods_cover_the_shutdown(services: Services) -> None:
    def grace_s(name: str) -> float:
        return float(services[name]["stop_grace_period"].removesuffix("s"))

    drain_s = float(services["worker"]["environment"]["DAGWRIGHT_DRAIN_S"])
    assert drain_s > signature(ToolDeclaration).parameters["timeout_s"].default
    assert grace_s("worker") == drain_s + EXIT_TIMEOUT_S
    assert grace_s("gateway") > EXIT_TIMEOUT_S


def test_only_the_worker_gets_secrets_of_the_user(services: Services) -> None:
    files = {name: [entry["path"] for entry in services[name]["env_file"]] for name in ("worker", "gateway")}
    assert files == {"worker": [".env", ".worker.env"], "gateway": [".env"]}
    assert not [entry for name in files for entry in services[name]["env_file"] if entry["required"]]
    assert {".env", ".worker.env"} <= set(_text_of(".gitignore").splitlines())
    settings = {name.upper() for name in Settings.model_fields}
    page = _text_of("docs/deploy/containers.md")
    for name in ("NOTIFY_URL", "NOTIFY_SECRET", "ALLOW_PRIVATE_ADDRESSES", "UI_URL"):
        assert name in settings
        assert f"`DAGWRIGHT_{name}" in page


def _documented_file(name: str) -> str:
    page = _text_of("docs/deploy/containers.md")
    match = re.search(rf"```\w+ title=\"{re.escape(name)}\"\n(.*?)```", page, re.DOTALL)
    assert match is not None, name
    return match[1]


def test_documented_override_fits_the_compose_file(services: Services) -> None:
    override = yaml.safe_load(_documented_file("docker-compose.override.yml"))["services"]
    assert {*override} == {"worker", "gateway"}
    for name, service in override.items():
        mount_paths = [mount.split(":")[1] for mount in service["volumes"]]
        option_paths = [word for word in service["command"].split() if word.startswith("/")]
        assert option_paths == mount_paths, name
        # Compose merges the volumes of the two files by target.
        assert not {mount.split(":")[1] for mount in services[name]["volumes"]} & {*mount_paths}


def test_documented_image_with_tools_extends_the_worker_image_and_is_not_root(
    services: Services, steps: list[Step], tmp_path: Path
) -> None:
    dockerfile = tmp_path / "Dockerfile.tools"
    dockerfile.write_text(_documented_file("Dockerfile.tools"), encoding="utf-8")
    documented_steps = read_dockerfile(dockerfile)
    assert documented_steps[0].words == [services["worker"]["image"]]
    users = [step.words[0] for step in documented_steps if step.instruction == "USER"]
    assert users == ["root", next(step.words[0] for step in steps if step.instruction == "USER")]
    assert "/app/.venv/bin/pip install" in next(step.text for step in documented_steps if step.instruction == "RUN")


_FAKE_SQL_TOOL = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in
    *update-schema*) [ -e "$CALLS.setup" ] || {{ echo '{failure}' >&2; exit 1; }} ;;
    *setup-schema*) touch "$CALLS.setup" ;;
esac
"""
_MISSING_TABLE = 'error reading current schema version:ERROR: relation "schema_version" does not exist (SQLSTATE 42P01)'


@pytest.mark.parametrize(("failure", "is_new"), [(_MISSING_TABLE, True), ("dial tcp: connection refused", False)])
def test_only_a_new_database_gets_a_first_schema(failure: str, is_new: bool, tmp_path: Path) -> None:
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text(_FAKE_SQL_TOOL.format(failure=failure), encoding="utf-8")
    tool.chmod(0o755)
    calls = tmp_path / "calls"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(calls)}
    script = ["sh", str(ROOT / "docker/setup-schema.sh")]
    script_result = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    log = calls.read_text(encoding="utf-8")
    assert (script_result.returncode, "setup-schema --version" in log) == ((0, True) if is_new else (1, False))
    assert is_new or "connection refused" in script_result.stderr
