"""Every tool a process knows: the built-in ones, the onboarding verbs and those of `--tools`.

It exists so that a worker, `run` and `check` see the same tools on the same queues. It must not import workflows
or activities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dagwright.entities.onboarding import onboarding_tools
from dagwright.plan.tools import ToolDeclaration
from dagwright.settings import Settings
from dagwright.store import PayloadStore, open_store
from dagwright.tools import ToolRegistry, load_tools, queue_name
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment


@dataclass(frozen=True, slots=True)
class Toolset:
    """Holds the tools of a process.

    Args:
        built_in: served on the task queue of the workflows.
        own: the tools of `--tools`, served on `own_queue`; a name that both have means the own one.
        references: the values of `--tools`, absolute, so that another command can load the same.
        database_url: the database behind the onboarding verbs; nothing is opened before a verb is called.
        store: where large values are kept; nothing is opened before its first use.
    """

    built_in: ToolRegistry
    own: ToolRegistry
    own_queue: str | None
    references: tuple[str, ...]
    environment: ToolEnvironment
    database_url: str
    store: PayloadStore

    def declarations(self) -> Mapping[str, ToolDeclaration]:
        """Returns what a plan can call: tool name -> declaration."""
        return self.built_in.merged(self.own).declarations()


def load_toolset(settings: Settings, references: Sequence[str] = ()) -> Toolset:
    """Returns the tools of a process.

    Args:
        settings: where files, database and keys are.
        references: values of `--tools`.

    Raises:
        ToolsUnreadable: one of the references cannot be loaded.
    """
    environment = ToolEnvironment(
        files_root=settings.files_root,
        allow_private_addresses=settings.allow_private_addresses,
        serper_api_key=settings.serper_api_key.get_secret_value() if settings.serper_api_key else None,
        serper_base_url=settings.serper_base_url,
        secret=settings.secret,
    )
    built_in = builtin_tools(environment).merged(ToolRegistry.of(*onboarding_tools(settings.database_url)))
    own = load_tools(references) if references else ToolRegistry()
    queue = queue_name(own) if own.python_tools() else None
    return Toolset(
        built_in=built_in,
        own=own.on_queue(queue) if queue else own,
        own_queue=queue,
        references=tuple(_absolute(reference) for reference in references),
        environment=environment,
        database_url=settings.database_url,
        store=open_store(settings.payload_store),
    )


def _absolute(reference: str) -> str:
    """Returns a path of a file that holds from every folder; a module name stays as it is."""
    return str(Path(reference).resolve()) if reference.endswith(".py") else reference
