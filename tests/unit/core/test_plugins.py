"""Plugins: contributions of applications, discovery, and messages about unusable plugins."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.resolvers import resolver_of
from dagwright.core.plugins import GROUP, PluginError, installed_plugins, plugin_packages, plugins_by_contribution
from dagwright.interfaces.cli.app import run_command_line
from dagwright.planner.goal_start import goal_from_document
from dagwright.planner.verbs import intent_verbs
from dagwright.plans.preparation import check_plan
from dagwright.settings import Settings
from dagwright.toolset.toolset import environment_of, load_toolset
from tests.support.plugin_replacement import TOY_APP, entry_points_in, toy_app, using_plugins


@pytest.fixture
def toy() -> Iterator[None]:
    with toy_app():
        yield


def write_plugin(folder: Path, name: str, source: str) -> EntryPoint:
    """Write a distribution with a plugin whose module has the text `source`. Return the entry point of the plugin."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {name}_plugin:PLUGIN\n")
    (folder / f"{name}_plugin.py").write_text(source)
    return next(entry_point for entry_point in entry_points_in(folder) if entry_point.name == name)


PLUGIN_TEMPLATE = "from dagwright.core.plugins import Plugin\nPLUGIN = Plugin({})\n"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module_at_all", "importing broken_plugin:PLUGIN: No module named 'no_such_module_at_all'"),
        ("raise SystemExit(3)", "importing broken_plugin:PLUGIN: 3"),
        ("PLUGIN = 3", "cannot be used: broken_plugin:PLUGIN must be a Plugin, not int"),
    ],
)
def test_plugin_that_cannot_be_used_is_named_with_its_distribution(tmp_path: Path, source: str, reason: str) -> None:
    entry_point = write_plugin(tmp_path, "broken", source)
    with using_plugins([entry_point], tmp_path), pytest.raises(PluginError) as error:
        installed_plugins()
    sys.modules.pop("broken_plugin", None)
    assert str(error.value).startswith("the plugin 'broken' of the distribution broken-dist cannot be ")
    assert str(error.value).endswith(reason)


def test_error_for_a_duplicate_command_group_names_both_plugins(tmp_path: Path) -> None:
    source = PLUGIN_TEMPLATE.format("commands={'go': 'x:y'}")
    entry_points = [write_plugin(tmp_path, name, source) for name in ("first", "second")]
    with using_plugins(entry_points, tmp_path), pytest.raises(PluginError) as error:
        plugins_by_contribution("command group", lambda plugin: plugin.commands)
    assert str(error.value) == (
        "two plugins contribute the command group 'go': the plugin 'first' of the distribution first-dist and the "
        "plugin 'second' of the distribution second-dist; remove one"
    )


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("['toy.put']", "two plugins contribute the tool 'toy.put'"),
        ("['read_file']", "contributes the tool 'read_file', which is built in"),
        # Only one resolver is allowed. The message names the first resolver.
        ("['shop.find']", "two plugins contribute the resolver 'toy.find_shelf'"),
    ],
)
def test_duplicate_tool_or_resolver_of_a_plugin_is_rejected(tmp_path: Path, tools: str, message: str) -> None:
    source = (
        "from dagwright.core.model.resolvers import Resolver\nfrom dagwright.tools import spec_of, tool\n"
        + PLUGIN_TEMPLATE.format("tools='shop_plugin:tools'")
        + "def tools(settings):\n"
        f"    decorators = [tool(name=name, resolver=Resolver(name, 'b') if 'find' in name else None) "
        f"for name in {tools}]\n"
        "    return [spec_of(decorate(lambda: None)) for decorate in decorators]\n"
    )
    with toy_app():
        entry_points = [*entry_points_in(TOY_APP), write_plugin(tmp_path, "shop", source)]
        with using_plugins(entry_points, tmp_path), pytest.raises(PluginError, match=message):
            load_toolset(Settings(state_dir=tmp_path))
    sys.modules.pop("shop_plugin", None)


@pytest.mark.usefixtures("toy")
def test_toy_application_adds_tools_settings_verbs_and_a_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGWRIGHT_TOY_WAREHOUSE", "south")
    settings = Settings()
    declarations = load_toolset(settings).declarations()
    expected = ["toy.put", "toy.take", "toy.find_shelf", "toy.bind_shelves"]
    assert [name for name in declarations if name.startswith("toy.")] == expected
    assert resolver_of(declarations).kinds == ("shelf",)
    assert [name for name in intent_verbs(declarations) if name.startswith("toy.")] == ["toy.put"]
    [toy_settings] = environment_of(settings).app_settings.values()
    assert getattr(toy_settings, "toy_warehouse", None) == "south"
    assert plugin_packages() == ("toy_app",)
    goal = {"goal": "Put the lamp on the long shelf.", "profile": "intents"}
    # The plan extender calls a model, which answers with intents. Its field `schema` is the schema of this answer.
    extender = goal_from_document(goal, declarations).extender
    assert extender is not None
    lookup = extender["schema"]["$defs"]["Lookup"]["properties"]
    assert lookup["entity_type"]["description"] == "One of place, shelf, rack."
    assert [*lookup] == ["search_text", "entity_type", "aisle"]


def plan_with_lookup(**fields: str) -> dict[str, object]:
    lookup = {"search_text": "Long shelf", "entity_type": "shelf", **fields}
    return {"intents": [{"verb": "toy.put", "params": {"item": "lamp"}, "lookups": {"shelf-id": lookup}}]}


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"entity_type": "shelve"}, "Unknown entity type 'shelve'. Known types: place, shelf, rack"),
        ({"aisle": "AB"}, "'AB' is not an aisle; expected one letter"),
        ({"jurisdiction": "LU"}, "unknown key 'jurisdiction'"),
    ],
)
def test_lookups_are_checked_by_the_resolver_of_the_application(fields: dict[str, str], message: str) -> None:
    declarations = load_toolset(Settings()).declarations()
    [lookup] = check_plan(plan_with_lookup(aisle="b"), declarations).lookups
    assert lookup.filters == (("aisle", "B"),)
    with pytest.raises(PlanInvalid, match=message):
        check_plan(plan_with_lookup(**fields), declarations)


def test_lookup_without_an_installed_resolver_is_rejected(tmp_path: Path) -> None:
    plan = {"intents": [{"verb": "http_request", "lookups": {"url": {"search_text": "a", "entity_type": "b"}}}]}
    with using_plugins([]):
        declarations = load_toolset(Settings(state_dir=tmp_path)).declarations()
        assert [name for name in declarations if "." in name] == []
        with pytest.raises(PlanInvalid, match="no resolver is installed"):
            check_plan(plan, declarations)


@pytest.mark.usefixtures("toy")
def test_command_group_of_a_plugin_is_listed_and_run(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["toy", "shelves"]) == 0
    assert capfd.readouterr().out.split() == ["s1", "s2", "s3"]
    assert run_command_line(["--help"]) == 0
    assert "toy The shelves of the toy warehouse." in " ".join(capfd.readouterr().out.split())


def test_command_group_with_the_name_of_a_command_is_rejected(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with using_plugins([write_plugin(tmp_path, "loud", PLUGIN_TEMPLATE.format("commands={'run': 'x:y'}"))], tmp_path):
        assert run_command_line(["--help"]) == 2
    message = "the plugin 'loud' of the distribution loud-dist contributes the command 'run', but Dagwright has"
    assert message in " ".join(capfd.readouterr().err.split())


@pytest.mark.usefixtures("toy")
def test_down_reports_the_servers_that_plugins_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path / "my_state"))
    assert run_command_line(["down", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["ended"] == ["toy of my_state"]


def test_commands_that_need_no_tools_import_no_application() -> None:
    program = (
        "import sys\nfrom dagwright.interfaces.cli.app import run_command_line\nrun_command_line(['store', '--help'])\n"
        "print([name for name in sys.modules if name.startswith(('dagwright_maritime', 'dagwright_onboarding'))])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
