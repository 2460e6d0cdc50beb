"""Paths that the file tools reject under any root, and the folder of each owner."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dagwright.settings import Settings
from dagwright.tools import GiveUp
from dagwright.tools.builtin.file_search import file_search_tools
from dagwright.tools.builtin.files import file_tools
from dagwright.tools.testing import tool_context
from dagwright.tools.tool_files import load_tools
from dagwright.tools.tool_references import tools_queue_reference
from dagwright.toolset.file_protection import record_protected_paths
from dagwright.toolset.toolset import environment_of, references_of

Tools = dict[str, Callable[..., Any]]


def tools_of(settings: Settings, references: Sequence[str] = ()) -> Tools:
    environment = environment_of(settings, references)
    return {tool.__name__: tool for tool in (*file_tools(environment), *file_search_tools(environment))}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with files of Dagwright. It is the default root of the file tools."""
    project = tmp_path / "project"
    for folder in ("state", ".dagwright", "plans", "keys", "lib", "data", "blobs"):
        (project / folder).mkdir(parents=True)
    for file in ("state/temporal.db", "plans/a.yaml", "keys/keys.json", "my_tools.py", "agents.yaml", "mcp.json"):
        (project / file).write_text("before")
    for file in (".env", "lib/helper.py", "data/a.txt", "parties.db", "prices.yaml"):
        (project / file).write_text("before")
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def settings(project: Path) -> Settings:
    return Settings(
        state_dir=project / "state",
        plans=project / "plans",
        api_keys=project / "keys" / "keys.json",
        database_url=f"sqlite:///{project}/parties.db",
        prices=project / "prices.yaml",
        payload_store=str(project / "blobs"),
    )


@pytest.fixture
def tools(settings: Settings) -> Tools:
    return tools_of(settings, references_of(["my_tools.py", "mcp.json"], ["agents.yaml"]))


def test_programs_of_mcp_servers_are_protected_but_their_data_files_are_not(project: Path, settings: Settings) -> None:
    node_server = {"command": "node", "args": ["-q", "server.js", "a.csv"], "cwd": "data"}
    servers = {"one": node_server, "two": {"command": "./run.sh"}}
    for name in ("data/server.js", "data/a.csv", "run.sh"):
        (project / name).write_text("before")
    (project / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    tools = tools_of(settings, references_of(["servers.json"], []))
    for name in ("data/server.js", "run.sh"):
        with pytest.raises(GiveUp, match="belongs to Dagwright"):
            tools["write_file"](name, "after")
    with tool_context():
        tools["write_file"]("data/a.csv", "after")
    assert (project / "data/a.csv").read_text() == "after"


PROTECTED_PATHS = (
    *("state/temporal.db", "state/new.json", "state/deeper/x", "STATE/temporal.db", "data/../state/temporal.db"),
    *(".dagwright/api-keys.json", "./.dagwright/x", ".env", "data/.hidden", "plans/a.yaml", "plans/new.yaml"),
    *("Plans/new.yaml", "keys/keys.json", "keys/KEYS.json", "my_tools.py", "agents.yaml", "mcp.json", "MCP.JSON"),
    *("parties.db", "parties.db-wal", "prices.yaml", "blobs/ab/cd", "hard.txt", "linked/keys.json"),
)


@pytest.mark.parametrize("path", PROTECTED_PATHS)
def test_protected_paths_are_neither_read_nor_written(tools: Tools, project: Path, path: str) -> None:
    os.link(project / "keys" / "keys.json", project / "hard.txt")
    (project / "linked").symlink_to(project / "keys")
    with tool_context():
        with pytest.raises(GiveUp):
            tools["write_file"](path=path, content="after")
        with pytest.raises(GiveUp):
            tools["read_file"](path=path)
    files = [path for path in project.rglob("*") if path.is_file()]
    assert all(file.read_text() == "before" for file in files)
    assert len(files) == 12


def test_missing_key_file_cannot_be_written(tools: Tools, project: Path) -> None:
    (project / "keys" / "keys.json").unlink()
    with tool_context(), pytest.raises(GiveUp, match=r"'keys/keys\.json' belongs to Dagwright"):
        tools["write_file"](path="keys/keys.json", content="{}")


@pytest.mark.parametrize("path", ["other.py", "lib/helper.py", "lib/x.PY", "x.pth", "data/new.so", "new/deep.pyc"])
def test_files_that_python_could_import_are_not_written(tools: Tools, path: str) -> None:
    with tool_context(), pytest.raises(GiveUp, match="would be importable by Python"):
        tools["write_file"](path=path, content="after")


def test_python_files_are_read_and_written_outside_of_folders_with_code(settings: Settings, tmp_path: Path) -> None:
    tools = tools_of(settings.model_copy(update={"files_root": tmp_path / "files"}))
    with tool_context():
        tools["write_file"](path="a/made.py", content="x = 1")
    assert tools["read_file"](path="a/made.py") == "x = 1"


def test_protected_paths_are_neither_listed_nor_found(tools: Tools) -> None:
    names = [entry["name"] for entry in tools["list_directory"]()["entries"]]
    assert names == ["data", "keys", "lib"]
    with tool_context():
        matches = tools["search_files"](text="before")["matches"]
    assert [match["path"] for match in matches] == ["data/a.txt", "lib/helper.py"]
    for folder in ("state", "plans", ".dagwright"):
        for name, argument in (("list_files", "folder"), ("list_directory", "path"), ("search_files", "path")):
            with tool_context(), pytest.raises(GiveUp):
                tools[name](**{argument: folder})


def test_root_inside_the_state_folder_is_rejected(settings: Settings) -> None:
    inner_settings = settings.model_copy(update={"files_root": settings.state_dir / "files"})
    with tool_context(), pytest.raises(GiveUp, match="The files folder is inside a folder of Dagwright"):
        tools_of(inner_settings)["write_file"](path="a.txt", content="x")


def test_paths_that_another_command_recorded_as_protected_are_rejected(settings: Settings, project: Path) -> None:
    other_settings = settings.model_copy(update={"plans": project / "data"})
    tools = tools_of(settings)
    assert tools["read_file"](path="data/a.txt") == "before"
    other_environment = environment_of(other_settings, references_of(["lib/helper.py"], []))
    record_protected_paths(settings, other_environment.protected_paths)
    for path in ("data/a.txt", "lib/helper.py"):
        with pytest.raises(GiveUp, match="belongs to Dagwright"):
            tools["read_file"](path=path)


def test_tool_modules_that_another_command_recorded_as_protected_are_rejected(
    settings: Settings, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "data" / "wares").mkdir()
    file = project / "data" / "wares" / "tools.py"
    file.write_text("from dagwright.tools import tool\n\n@tool(effects='pure')\ndef sell() -> int:\n    return 1\n")
    monkeypatch.syspath_prepend(str(project / "data"))
    load_tools(["wares.tools"])
    try:
        record_protected_paths(settings, environment_of(settings, references_of(["wares.tools"], [])).protected_paths)
    finally:
        for name in ("wares.tools", "wares"):
            sys.modules.pop(name)
    # This worker cannot import the modules, because their folder is not in its module path.
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(project / "data")])
    monkeypatch.chdir(project / "lib")
    tools = tools_of(settings.model_copy(update={"files_root": project}))
    with tool_context():
        for path in ("data/wares/tools.py", "DATA/wares/tools.py"):
            with pytest.raises(GiveUp):
                tools["read_file"](path=path)
        with pytest.raises(GiveUp, match="would be importable by Python"):
            tools["write_file"](path="data/wares/more.py", content="x")
        assert tools["read_file"](path="data/a.txt") == "before"


def test_configuration_and_keys_of_the_temporal_connection_are_protected(
    settings: Settings, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = '[profile.default.tls]\nclient_key_path = "data/named.key"\n[profile.other]\ntls = 1\n'
    files = {"temporal.toml": config, **dict.fromkeys(("data/named.key", "a.key", "a.crt", "ca.pem"), "before")}
    for path, content in files.items():
        (project / path).write_text(content)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", "temporal.toml")
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", "a.key")
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", str(project / "a.crt"))
    monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", "ca.pem")
    tools = tools_of(settings)
    for path in files:
        with pytest.raises(GiveUp, match="belongs to Dagwright"):
            tools["read_file"](path=path)


@pytest.mark.parametrize("content", ["profile = 1", "[profile", "profile = [1]", "\0"])
def test_invalid_temporal_configuration_file_is_protected(
    settings: Settings, project: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (project / "temporal.toml").write_text(content)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", "temporal.toml")
    with pytest.raises(GiveUp, match="belongs to Dagwright"):
        tools_of(settings)["read_file"](path="temporal.toml")


def test_queue_references_protect_no_paths(settings: Settings) -> None:
    paths = environment_of(settings, [tools_queue_reference("a/b.py")]).protected_paths
    assert (paths.paths, paths.modules) == (environment_of(settings).protected_paths.paths, ())


def test_pipe_is_not_a_file(tools: Tools, project: Path) -> None:
    os.mkfifo(project / "pipe")
    with pytest.raises(GiveUp, match="'pipe' is not a file"):
        tools["read_file"](path="pipe")


@pytest.mark.parametrize("path", ["x" * 300, "x/" * 900, "\ud800"])
def test_invalid_paths_are_rejected(tools: Tools, path: str) -> None:
    with tool_context(), pytest.raises(GiveUp):
        tools["read_file"](path=path)
    with tool_context(), pytest.raises(GiveUp):
        tools["write_file"](path=path, content="x")


def test_each_owner_has_a_separate_folder(settings: Settings, tmp_path: Path) -> None:
    root = tmp_path / "files"
    tools = tools_of(Settings(state_dir=settings.state_dir, files_root=root))
    for owner in ("ann", "bob"):
        with tool_context(owner=owner):
            tools["write_file"](path="a/mine.txt", content=owner)
            assert tools["list_directory"]()["entries"] == [{"name": "a", "path": "a", "type": "folder"}]
            with pytest.raises(GiveUp, match="outside the files folder"):
                tools["read_file"](path="../ann/a/mine.txt")
    assert (root / "ann" / "a" / "mine.txt").read_text() == "ann"
    with tool_context(owner="*"):
        assert tools["read_file"](path="bob/a/mine.txt") == "bob"
    for owner in ("", "..", "a/b", ".ann"):
        with tool_context(owner=owner), pytest.raises(GiveUp, match="is not a valid folder name"):
            tools["read_file"](path="bob/a/mine.txt")


def test_run_with_an_owner_needs_files_root(tools: Tools) -> None:
    arguments_by_tool: dict[str, dict[str, str]] = {
        "read_file": {"path": "data/a.txt"},
        "write_file": {"path": "x", "content": ""},
        "list_files": {},
        "list_directory": {},
        "search_files": {},
    }
    for name, arguments in arguments_by_tool.items():
        with tool_context(owner="ann"), pytest.raises(GiveUp, match="set DAGWRIGHT_FILES_ROOT on the worker"):
            tools[name](**arguments)
