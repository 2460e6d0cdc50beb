"""The programs of Temporal's container images and the files of their source module.

The programs are built once, with Go, into the cache of the user.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dagwright.server.binary import SERVER_VERSION

_MODULE = f"go.temporal.io/server@v{SERVER_VERSION}"
BUILD_TIMEOUT_S = 1200


@dataclass(frozen=True, slots=True)
class ServerPrograms:
    """Folder of `temporal-server` and `temporal-sql-tool`, and the source module with schema and configuration."""

    folder: Path
    module: Path

    @property
    def schema(self) -> Path:
        return self.module / "schema"

    def render_config(self, environment: Mapping[str, str]) -> str:
        """Return the server's config as the image's start script builds it from the environment."""
        script = Path(__file__).with_name("render_template.go")
        return _output(["go", "run", str(script), str(self.module / "docker/config_template.yaml")], environment)


def server_programs(cache_home: Path) -> ServerPrograms:
    """Return the programs of the server. Building missing programs takes about 3 minutes."""
    folder = cache_home / "dagwright" / f"server-{SERVER_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    for package, name in (("cmd/server", "temporal-server"), ("cmd/tools/sql", "temporal-sql-tool")):
        if not (folder / name).exists():
            path, _, version = _MODULE.partition("@")
            _output(["go", "install", f"{path}/{package}@{version}"], {"GOBIN": str(folder)})
            (folder / Path(package).name).rename(folder / name)
    module_description = json.loads(_output(["go", "mod", "download", "-json", _MODULE], {}))
    return ServerPrograms(folder, Path(module_description["Dir"]))


def _output(command: list[str], environment: Mapping[str, str]) -> str:
    variables = {**os.environ, **environment}
    result = subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr[-2000:]}"
    return result.stdout
