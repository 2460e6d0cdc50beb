"""The settings of the toy application."""

from dagwright.settings import Settings


class ToySettings(Settings):
    """The settings of the engine, and the name of the warehouse."""

    toy_warehouse: str = "north"


async def stop(settings: Settings) -> list[str]:
    """Return the name of a fake server. The toy application has no servers to stop."""
    return [f"toy of {settings.state_dir.name}"]
