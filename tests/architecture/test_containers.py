"""The container files: what can be checked of them without a container engine."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagwright.plan.workers import workers_among
from dagwright.server.local import DYNAMIC_CONFIG
from dagwright.server.namespace import RETENTION
from dagwright.settings import Settings
from dagwright.toolset import load_toolset
from tests.architecture.source_files import ROOT
from tests.support.dockerfile import Step, read_dockerfile

_DEV_SERVER_ONLY = {"history.transferProcessorMaxPollRPS"}
"""A dev server has one history shard, and this is its limit for each shard."""

_PINNED = re.compile(r"[a-z./-]+:\d+\.\d+[\w.-]*")


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    found: dict[str, dict[str, Any]] = composed["services"]
    return found


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    return read_dockerfile(ROOT / "Dockerfile")


def test_compose_file_follows_the_published_schema() -> None:
    checked = subprocess.run(
        [
            Path(sys.executable).with_name("check-jsonschema"),
            "--builtin-schema",
            "vendor.compose-spec",
            ROOT / "docker-compose.yml",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_composition_has_database_server_interface_and_worker(services: dict[str, dict[str, Any]]) -> None:
    assert {"postgres", "temporal", "temporal-ui", "worker"} <= set(services)


def test_every_image_is_pinned(services: dict[str, dict[str, Any]], steps: list[Step]) -> None:
    images = [service["image"] for service in services.values()]
    images += [step.words[0] for step in steps if step.instruction == "FROM"]
    assert [image for image in images if not _PINNED.fullmatch(image)] == []


def test_search_server_is_of_the_version_that_tests_run_and_is_started_only_if_it_is_named(
    services: dict[str, dict[str, Any]],
) -> None:
    named = re.search(r"<opensearch.version>(.+)</", (ROOT / "search-server/pom.xml").read_text(encoding="utf-8"))
    assert named is not None
    assert services["search"]["image"] == f"opensearchproject/opensearch:{named[1]}"
    for told in ("docs/search-server.md", "docs/decisions/0055-a-search-server-from-jars.md"):
        assert f"OpenSearch {named[1]}" in (ROOT / told).read_text(encoding="utf-8")
    assert services["search"]["profiles"] == ["search"]
    # Nothing that is always started may wait for what is not.
    assert [name for name, service in services.items() if "search" in service.get("depends_on", {})] == []
    [published] = services["search"]["ports"]
    place = services["worker"]["environment"]["DAGWRIGHT_OPENSEARCH_URL"].removeprefix("http://")
    assert place == f"search:{published.rpartition(':')[2]}"
    [data] = services["search"]["volumes"]
    assert data == "search:/usr/share/opensearch/data"


def test_worker_and_gateway_have_the_same_tools_and_docs_name_those_for_the_search_server(
    services: dict[str, dict[str, Any]],
) -> None:
    # A gateway starts no run with tools that it does not know, and a worker serves none.
    (command,) = {services[name]["command"] for name in ("worker", "gateway")}
    assert command == "${TOOL_OPTIONS:-}"
    told = (ROOT / "docs/search-server.md").read_text(encoding="utf-8")
    named = re.search(r'TOOL_OPTIONS="--tools (\S+)"\ndocker compose --profile search up', told)
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
    declared = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["volumes"]
    for service in services.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert (ROOT / source).is_file() if source.startswith("./") else source in declared, mount


def test_large_values_are_in_one_volume_wherever_runs_are_worked_on_or_looked_at(
    services: dict[str, dict[str, Any]], steps: list[Step]
) -> None:
    ours = {
        name: service
        for name, service in services.items()
        if "DAGWRIGHT_PAYLOAD_STORE" in service.get("environment", {})
    }
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
    assert ours <= set(Settings.model_fields)


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


def test_health_check_of_the_image_is_that_of_the_composition(
    services: dict[str, dict[str, Any]], steps: list[Step]
) -> None:
    (step,) = [step for step in steps if step.instruction == "HEALTHCHECK"]
    assert step.json_after("CMD") == services["worker"]["healthcheck"]["test"][1:]
