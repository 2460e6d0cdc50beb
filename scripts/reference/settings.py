"""The table of settings, from the fields of `dagwright.settings.Settings`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from dagwright.settings import Settings
from scripts.reference.markdown import code, field_descriptions, sentence, table

_PATH = "dagwright/settings.py"


def settings_table() -> str:
    """Return a row for each setting: variable, field, default and meaning.

    Raises:
        ValueError: a setting has no description.
    """
    return table(("Environment variable", "Field of `Settings`", "Default", "Meaning"), _rows())


def _rows() -> Iterator[tuple[str, str, str, str]]:
    descriptions = field_descriptions(_PATH, "Settings")
    for name, field in Settings.model_fields.items():
        if name not in descriptions:
            raise ValueError(f"{_PATH}: the setting {name!r} needs a description after its definition")
        variable = field.validation_alias or f"DAGWRIGHT_{name.upper()}"
        note = " A secret, which is never shown." if "SecretStr" in str(field.annotation) else ""
        yield code(variable), code(name), _default(field), sentence(descriptions[name]) + note


def _default(field: Any) -> str:
    if field.default_factory is not None:
        return code(field.default_factory({"state_dir": Path("STATE_DIR")})).replace("STATE_DIR", "{state_dir}")
    value = field.default
    if value is None or value is PydanticUndefined or isinstance(value, SecretStr):
        return ""
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(int(value) if isinstance(value, float) and value.is_integer() else value)
