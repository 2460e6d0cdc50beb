"""The tables of scopes of API keys, and of the limits of requests."""

from collections.abc import Iterator

from dagwright.core.boundary.limits import INPUTS_LIMIT_BYTES
from dagwright.core.model.answers import ANSWER_BYTES
from dagwright.dialects.json_reader import MAX_DEPTH
from dagwright.features.commands.steering import MAX_COMMAND_BYTES
from dagwright.interfaces.http.callers import READ_ONLY_SCOPE, KeyScope
from dagwright.interfaces.http.context import key_limits
from dagwright.interfaces.http.json_route import MAX_FIELDS
from dagwright.interfaces.http.key_limits import DEFAULT_BODY_LIMIT, INVALID_KEYS_PER_MINUTE, BodyLimit
from dagwright.interfaces.http.plan_checks import MAX_WAITING_REQUESTS
from dagwright.protocol.command_messages import MAX_ACTOR_NAME_CHARACTERS, MAX_REASON_CHARACTERS
from dagwright.settings import Settings
from scripts.reference.http_api import openapi_document
from scripts.reference.limits import with_unit
from scripts.reference.markdown import code, constant_descriptions, field_descriptions, sentence, table

_HTTP_FOLDER = "dagwright/interfaces/http"
_KEY_LIMIT_SETTINGS = ("api_requests", "api_streams", "api_runs")
_SIZE_SETTINGS = ("api_body_bytes", "api_plan_bytes")
_DEFAULTS = Settings.model_construct()


def scopes_table() -> str:
    """Return a row for each scope: name and permissions."""
    descriptions = field_descriptions(f"{_HTTP_FOLDER}/callers.py", "KeyScope")
    rows = [(code(scope), sentence(descriptions[scope.name])) for scope in KeyScope]
    return table(("Scope", "Permits"), [(code(READ_ONLY_SCOPE), "Reading only."), *rows])


def key_limits_table() -> str:
    """Return a row for each limit of a key: meaning, default and setting."""
    descriptions = field_descriptions("dagwright/settings.py", "Settings")
    rows = [
        (sentence(descriptions[setting]), f"{getattr(_DEFAULTS, setting):,}", code(_variable(setting)))
        for setting in _KEY_LIMIT_SETTINGS
    ]
    invalid_keys = constant_descriptions(f"{_HTTP_FOLDER}/key_limits.py")["INVALID_KEYS_PER_MINUTE"]
    waiting_requests = constant_descriptions(f"{_HTTP_FOLDER}/plan_checks.py")["MAX_WAITING_REQUESTS"]
    rows += [(sentence(invalid_keys), f"{INVALID_KEYS_PER_MINUTE}", "")]
    rows += [(sentence(waiting_requests), f"{MAX_WAITING_REQUESTS}", "")]
    return table(("Limit", "Value", "Setting"), rows)


def body_limits_table() -> str:
    """Return a row for each limit of bodies: operations, bytes and JSON values."""
    operations_by_limit: dict[BodyLimit, list[str]] = {}
    for operation, limit in _operations():
        operations_by_limit.setdefault(limit, []).append(code(operation))
    del operations_by_limit[DEFAULT_BODY_LIMIT]
    rows = [(", ".join(operations), *_size_cells(limit)) for limit, operations in operations_by_limit.items()]
    return table(("Request", "Bytes", "JSON values"), [*rows, ("all others", *_size_cells(DEFAULT_BODY_LIMIT))])


def field_limits_table() -> str:
    """Return a row for each limit of fields of a body."""
    rows = (
        ("an answer", f"{with_unit('_BYTES', ANSWER_BYTES)} as JSON"),
        ("a result, arguments, nodes, a policy", f"{with_unit('_BYTES', MAX_COMMAND_BYTES)} as JSON"),
        ("the inputs of a plan", f"{with_unit('_BYTES', INPUTS_LIMIT_BYTES)} as JSON"),
        ("`reason`, `note`", f"{MAX_REASON_CHARACTERS:,} characters"),
        ("`by`", f"{MAX_ACTOR_NAME_CHARACTERS} characters"),
        ("a body", f"{MAX_FIELDS} fields, nested {MAX_DEPTH} deep"),
    )
    return table(("Field", "Limit"), rows)


def _operations() -> Iterator[tuple[str, BodyLimit]]:
    """Yield the operations with a body, each with its limit."""
    limits = key_limits(_DEFAULTS)
    for path, methods in openapi_document()["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                yield f"{method.upper()} {path}", limits.body_limit(method.upper(), path)


def _size_cells(limit: BodyLimit) -> tuple[str, str]:
    settings = [setting for setting in _SIZE_SETTINGS if getattr(_DEFAULTS, setting) == limit.max_bytes]
    variables = "".join(f" ({code(_variable(setting))})" for setting in settings)
    return f"{with_unit('_BYTES', limit.max_bytes)}{variables}", f"{limit.max_values:,}"


def _variable(setting: str) -> str:
    return f"DAGWRIGHT_{setting.upper()}"
