"""The policy of a plan that a model extends.

A call needs approval if it changes something, or if it uses a file or host that the request does not name. A request
names files by path and hosts by address; a call to another host could leak results of the run.
The policy is stored with the plan as `policy` of its extender, so that a run keeps the policy that it started with. A
policy given by a person replaces it.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dagwright.core.model.policy import CHANGES_ASK, Policy, Rule, policy_from_json

POLICY = "policy"
"""Key of the plan's policy in an extender."""
NAMED_FILES_LIMIT = 100
NAMED_HOSTS_LIMIT = 100
_FILE_LIMIT = 200
"""Characters of a path in a request."""
_HOST_LIMIT = 253
"""Characters of a host name (RFC 1035, section 2.3.4: 255 bytes as encoded)."""
_QUOTES = "\"'`\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2039\u203a\u00ab\u00bb\u300c\u300d\u300e\u300f"
_QUOTED = re.compile(f"[{_QUOTES}]([^\n]+?)[{_QUOTES}]((?:/(?![\\w.]))?)")
_WORD = re.compile(rf"[^\s{_QUOTES}<>|,;()\[\]{{}}\u3001\u3002\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f]+")
"""A word ends at quotes, brackets, commas and the punctuation of Chinese and Japanese."""
_END_OF_SENTENCE = ".:!?\u2026"
_PATH = re.compile(r"[\w@%+=~-][\w@%+=~ ./-]*")
_SYNTAX = re.compile(r"[\\^$.|?*+()\[\]{}]")
"""Characters that need an escape in a pattern of JSON Schema."""
_ADDRESS = re.compile(r"(?:(https?)://|(?<![\w.@-])(?=www\.))([^\s/?#]+)", re.IGNORECASE)
_WITHOUT_TEXT = {"properties": {"text": {"const": None}}}
_HOST = re.compile(r"([\w-]+(?:\.[\w-]+)*)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def model_policy(request: str) -> Policy:
    """Return the default policy of a plan that a model writes for a request."""
    named = list(dict.fromkeys(named_files(request)))[:NAMED_FILES_LIMIT]
    path_schema: dict[str, Any] = {"enum": list(dict.fromkeys(path.rstrip("/") for path in named))}
    if folders := [_as_pattern(path) for path in named if path.endswith("/")]:
        path_schema = {
            "anyOf": [path_schema, {"pattern": f"^(\\./)?({'|'.join(folders)})", "not": {"pattern": "\\.\\."}}]
        }
    rules = [*_rules_of_hosts(request), Rule("run", tool="search_files", arguments=_WITHOUT_TEXT)]
    for tool in ("read_file", "search_files"):
        if named:
            paths = {"type": "object", "properties": {"path": path_schema}, "required": ["path"]}
            rules.append(Rule("run", tool=tool, arguments=paths))
        rules.append(Rule("ask", tool=tool))
    return Policy((*CHANGES_ASK.rules[:1], *rules, *CHANGES_ASK.rules[1:]))


def _rules_of_hosts(request: str) -> list[Rule]:
    """Return the rules for HTTP requests: approval is needed, except to read from a host that the request names."""
    rules = [Rule("ask", tool="http_request")]
    if hosts := list(dict.fromkeys(named_hosts(request)))[:NAMED_HOSTS_LIMIT]:
        # The pattern requires the end of the host, so that user info before an `@` or a longer name cannot match.
        address = {"type": "string", "pattern": f"^({'|'.join(map(_as_pattern_of_host, hosts))})([/?#]|$)"}
        arguments = {"type": "object", "properties": {"url": address}, "required": ["url"]}
        rules.insert(0, Rule("run", tool="http_request", effects=("read",), arguments=arguments))
    return rules


def _as_pattern_of_host(named: str) -> str:
    scheme, _, address = named.partition("://")
    host, _, port = address.partition(":")
    schemes = ("http", "https") if scheme == "http" else ("https",)
    return "|".join(f"{_any_case(scheme)}://{_any_case(host)}{_as_pattern_of_port(scheme, port)}" for scheme in schemes)


def _as_pattern_of_port(scheme: str, port: str) -> str:
    """Return a pattern of the named port; a default port may be left out."""
    default = _DEFAULT_PORTS[scheme]
    return f"(:{default})?" if port in ("", default) else f":{port}"


def _any_case(text: str) -> str:
    letters = (
        f"[{character}{character.upper()}]" if "a" <= character <= "z" else _as_pattern(character) for character in text
    )
    return "".join(letters)


def intents_policy(request: str, undo: str | None) -> Policy:
    """Return the default policy of intents that a model writes for a request.

    Args:
        undo: compensation tool of the resolver; calls that it compensates need no approval.
    """
    policy = model_policy(request)
    return policy if undo is None else replace(policy, rules=(Rule("run", undo=undo), *policy.rules))


def named_files(request: str) -> Iterator[str]:
    """Yield the possible paths in a request: quoted texts, and words with a dot or a slash.

    A folder ends with a slash, and includes all files in it.
    """
    for quoted, slash in _QUOTED.findall(request):
        yield from _paths_of(quoted.strip() + slash, is_quoted=True)
    for word in _WORD.findall(request):
        yield from _paths_of(word.rstrip(_END_OF_SENTENCE), is_quoted=False)


def _paths_of(word: str, *, is_quoted: bool) -> Iterator[str]:
    path = word.removeprefix("./").rstrip("/")
    is_path = is_quoted or "." in path.strip(".") or "/" in word
    # Combining marks (category M) do not match `\w`.
    letters = "".join(character for character in path if not unicodedata.category(character).startswith("M"))
    if is_path and len(path) <= _FILE_LIMIT and _PATH.fullmatch(letters) and ".." not in path.split("/"):
        ending = "/" if word.endswith("/") else ""
        yield path + ending
        if word.startswith("./"):
            yield f"./{path}{ending}"


def named_hosts(request: str) -> Iterator[str]:
    """Yield the hosts of the addresses in a request, as `https://host` or `https://host:8443`, in lower case.

    A word that only has a dot is not an address.
    """
    for scheme, rest in _ADDRESS.findall(request):
        word = _WORD.match(rest)
        host = word and _HOST.fullmatch(word[0].rstrip(_END_OF_SENTENCE))
        if host and len(host[1]) <= _HOST_LIMIT:
            port = f":{int(host[2])}" if host[2] else ""
            yield f"{(scheme or 'https').lower()}://{host[1].lower()}{port}"


def _as_pattern(text: str) -> str:
    """Return a JSON Schema pattern that matches exactly this text."""
    return _SYNTAX.sub(r"\\\g<0>", text)


def policy_of_extender(extender: Any) -> Policy | None:
    """Return the policy stored in an extender, or `None`.

    Raises:
        ValueError: the stored value is not a policy.
    """
    encoded = extender.get(POLICY) if isinstance(extender, dict) else None
    return None if encoded is None else policy_from_json(encoded)
