"""LiteLLM's real proxy as a separate process, in front of a scripted server at a fixed port."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from dagwright.testing import ModelServer
from tests.support.eventually import eventually
from tests.support.ports import free_ports

PROXY_KEY = "sk-proxy-key"
UPSTREAM_KEY = "sk-upstream-key"
_CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted-model, api_base: "http://127.0.0.1:{port}/v1", api_key: {key}}}
litellm_settings: {{num_retries: 0, telemetry: false}}
router_settings: {{disable_cooldowns: true}}
general_settings: {{master_key: {proxy_key}}}
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy, and the port at which it expects the scripted server."""

    base_url: str
    upstream_port: int

    def upstream(self, *steps: Any) -> ModelServer:
        return ModelServer(*steps, port=self.upstream_port)


@asynccontextmanager
async def litellm_proxy(folder: Path) -> AsyncIterator[Proxy]:
    """Run the proxy during the block. The program `litellm` must be in a folder of `PATH`."""
    program = shutil.which("litellm")
    assert program is not None, "LiteLLM's proxy is not installed: run scripts/test-needs"
    port, upstream_port = free_ports(2)
    config_path = folder / "litellm.yaml"
    config_path.write_text(_CONFIG.format(port=upstream_port, key=UPSTREAM_KEY, proxy_key=PROXY_KEY), encoding="utf-8")
    log_path = folder / "litellm.log"
    with log_path.open("wb") as log_file:
        process = await asyncio.create_subprocess_exec(
            program,
            *("--config", str(config_path), "--host", "127.0.0.1", "--port", str(port)),
            # Use the prices in the package: by default, the proxy downloads newer prices.
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
        )
    try:
        base_url = f"http://127.0.0.1:{port}"
        await eventually(lambda: _serves(process, base_url, log_path), timeout_s=300)
        yield Proxy(f"{base_url}/v1", upstream_port)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _serves(process: asyncio.subprocess.Process, base_url: str, log_path: Path) -> bool:
    assert process.returncode is None, log_path.read_text(encoding="utf-8", errors="replace")
    try:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"{base_url}/health/liveliness")).is_success
    except httpx.HTTPError:
        return False
