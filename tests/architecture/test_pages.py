"""Pages agree with the code: tables of packages, kinds of explanations, tool options, and the state diagrams."""

import inspect
import json
import re
import tomllib
from typing import get_args

from dagwright.core.boundary import wire
from dagwright.core.model.states import NodeStatus, RunStatus
from dagwright.features.explain.reasons import ReasonKind
from dagwright.settings import Settings
from dagwright.tools import tool
from scripts.reference.http_api import openapi_document
from tests.architecture.source_files import ROOT

_CONCEPTS = ROOT / "docs" / "concepts"
_ROW = re.compile(r"^\| ?(\d?) \| (`dagwright\.[^|]*) \|", re.MULTILINE)
_DIAGRAM = re.compile(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_table_of_packages_has_each_package_in_its_layer() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = {contract["id"]: contract for contract in project["tool"]["importlinter"]["contracts"]}
    layers = [{name.strip() for name in layer.split(":")} for layer in contracts["layers"]["layers"]]
    assert _documented_layers() == dict(zip(range(len(layers), 0, -1), layers, strict=True))


def _documented_layers() -> dict[int, set[str]]:
    layers: dict[int, set[str]] = {}
    number = 0
    for layer, packages in _ROW.findall((_CONCEPTS / "architecture.md").read_text(encoding="utf-8")):
        # An empty cell continues the layer of the previous row.
        number = int(layer or number)
        layers.setdefault(number, set()).update(re.findall(r"dagwright\.(\w+)", packages))
    return layers


def test_state_diagrams_have_each_state() -> None:
    page = (ROOT / "docs" / "reference" / "states.md").read_text(encoding="utf-8")
    arrows = [re.findall(r"(\S+) --> ([^\s:]+)", text) for text in _DIAGRAM.findall(page)]
    states = [{name for arrow in diagram for name in arrow} - {"[*]"} for diagram in arrows]
    assert states == [{*map(str, NodeStatus)}, {*map(str, RunStatus)}]


def test_sources_in_the_table_of_documents_exist_and_return_the_document() -> None:
    page = (ROOT / "docs" / "reference" / "documents.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| \[(\w+)\]\([^)]+\) \| (.+) \|$", page.partition("\n## ")[0], re.MULTILINE)
    commands = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    for kind, sources in rows:
        for method, path in re.findall(r"`(GET|POST) ([^`]+)`", sources):
            assert kind in _types_of_response(method.lower(), path), path
        for command in re.findall(r"`([a-z]+)(?: --full)? --json`", sources):
            assert f"\n## `dagwright {command}`\n" in commands
        queries = (wire.QUERY_STATUS, wire.QUERY_NODE, wire.QUERY_GRAPH, wire.QUERY_PENDING)
        assert {*re.findall(r"query `(\w+)`", sources)} <= {*queries}
    assert len(rows) == 8


def _types_of_response(method: str, path: str) -> set[str]:
    """Return the types of the successful responses of an operation, and of the entries if a response is a list."""
    schemas = openapi_document()["components"]["schemas"]
    responses = openapi_document()["paths"][path][method]["responses"].items()
    texts = [json.dumps(response) for status, response in responses if status.startswith("2")]
    names = {name for text in texts for name in re.findall(r"schemas/(\w+)", text)}
    entries = {json.dumps(schemas[name].get("properties", {}).get("data", {})) for name in names}
    return names | {name for text in entries for name in re.findall(r"schemas/(\w+)", text)}


def test_table_of_explanations_has_each_kind() -> None:
    page = (ROOT / "docs" / "reference" / "documents.md").read_text(encoding="utf-8")
    section = page.partition("## Explanations")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", "".join(cells))) == sorted(get_args(ReasonKind))


def test_table_of_options_of_tools_has_each_option() -> None:
    page = (ROOT / "docs" / "guides" / "tools.md").read_text(encoding="utf-8")
    section = page.partition("| option of `@tool` |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    parameters = inspect.signature(tool).parameters.values()
    options = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    assert sorted(re.findall(r"`(\w+)`", "".join(cells))) == sorted(options)


def test_table_of_slots_has_the_defaults_and_ranges_of_the_settings() -> None:
    page = (ROOT / "docs" / "deploy" / "workers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `DAGWRIGHT_(\w+)` \| (\d+) \| ([\d,]+) to ([\d,]+) \|", page, re.MULTILINE)
    fields = Settings.model_json_schema(mode="serialization")["properties"]
    documented_values = {name: [int(number.replace(",", "")) for number in numbers] for name, *numbers in rows}
    keywords = ("default", "minimum", "maximum")
    setting_values = {name: [fields[name.lower()][keyword] for keyword in keywords] for name in documented_values}
    assert documented_values == setting_values
    assert len(documented_values) > 3
