"""The settings of the toy application."""

from dagwright.settings import Settings


class ToySettings(Settings):
    """The settings of the engine, and the name of the warehouse."""

    toy_warehouse: str = "north"


async def stop(settings: Settings) -> list[str]:
    """End the servers of the state folder: there are none."""
    return [f"toy of {settings.state_dir.name}"]
