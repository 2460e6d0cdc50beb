"""Policy: which calls of tools need approval or are denied. It is a list of rules; the first matching rule decides.

A policy is plain JSON, so that it can be stored in a file, travel with a run and be changed while the run is active:
`{"rules": [{"tool": "mail.*", "effects": ["write"], "arguments": {JSON Schema}, "then": "ask"}], "otherwise": "run"}`.
With `"changes_need_plan_approval": true`, a person must approve a plan that changes something, as a whole, before it
runs. Calls of `pure` tools change nothing and never need approval. This module must not import the scheduler.

A plan that a model extends has a default policy. A call needs approval if it changes something, or if it uses a file or
host that the user's request does not name. A request names files by path and hosts by address; a call to another host
could leak results of the run. The default policy is stored with the plan as `policy` of its extender, so that a run
keeps its initial policy. If a person sets a policy, it replaces the default policy.
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from dagwright.core.expressions.stored_values import is_inline_value
from dagwright.core.model.json_schemas import validator_of
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.name_hints import suggestion

Verdict = Literal["run", "ask", "deny"]
VERDICTS: Sequence[Verdict] = get_args(Verdict)
Author = Literal["person", "model"]

MAX_RULES = 200
_RULE_KEYS = ("tool", "effects", "undo", "arguments", "then")
_NAME_CHARACTERS = 200
_EFFECTS = tuple(effects.value for effects in Effects if effects is not Effects.PURE)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. An omitted condition matches every call.

    Args:
        tool: glob over the names of tools, such as `mail.*`.
        effects: effects, one of which the tool must have.
        undo: glob over the tool that compensates for the call; does not match a tool without compensation.
        arguments: JSON Schema that the arguments of the call satisfy.
    """

    then: Verdict
    tool: str | None = None
    effects: Sequence[str] | None = None
    arguments: Mapping[str, Any] | None = None
    undo: str | None = None

    def may_match(self, tool: ToolDeclaration) -> bool:
        """Return whether the rule can match a call of a tool."""
        matches_name = self.tool is None or fnmatchcase(tool.name, self.tool)
        matches_undo = self.undo is None or (tool.undo is not None and fnmatchcase(tool.undo, self.undo))
        return matches_name and matches_undo and (self.effects is None or tool.effects.value in self.effects)

    def matches(self, tool: ToolDeclaration, get_arguments: Callable[[], Any]) -> bool:
        """Return whether the rule matches a call.

        Arguments in the payload store cannot be checked: in that case a rule with `run` does not match, and any other
        rule matches.
        """
        if not self.may_match(tool):
            return False
        if self.arguments is None:
            return True
        values = get_arguments()
        return bool(validator_of(self.arguments).is_valid(values)) if is_inline_value(values) else self.then != "run"

    def to_json(self) -> dict[str, Any]:
        """Return the rule as JSON."""
        effects = self.effects and [*self.effects]
        parts = {"tool": self.tool, "effects": effects, "undo": self.undo, "arguments": self.arguments}
        return {name: part for name, part in parts.items() if part is not None} | {"then": self.then}


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one run, in order, and the verdict if no rule matches.

    Args:
        changes_need_plan_approval: whether a person must approve a plan with changing calls before it runs.
    """

    rules: Sequence[Rule] = ()
    otherwise: Verdict = "run"
    changes_need_plan_approval: bool = False

    @property
    def allows_all_calls(self) -> bool:
        """Return whether every call runs without approval."""
        return self.otherwise == "run" and all(rule.then == "run" for rule in self.rules)

    def may_stop_call(self, tool: ToolDeclaration) -> bool:
        """Return whether a call of a tool may need approval or be denied."""
        if tool.effects is Effects.PURE:
            return False
        return self.otherwise != "run" or any(rule.then != "run" and rule.may_match(tool) for rule in self.rules)

    def verdict(self, tool: ToolDeclaration, get_arguments: Callable[[], Any]) -> Verdict:
        """Return the verdict for a call.

        Args:
            get_arguments: returns the arguments of the call; only called if a rule has a condition on the arguments.
        """
        if tool.effects is Effects.PURE:
            return "run"
        for rule in self.rules:
            if rule.matches(tool, get_arguments):
                return rule.then
        return self.otherwise

    def verdict_on_inline_agent(self, tools: Sequence[str]) -> Verdict:
        """Return the verdict for an inline agent.

        Args:
            tools: names of the agent's tools; each call of such a tool gets a separate verdict.
        """
        return self.verdict(INLINE_AGENT, lambda: {"tools": list(tools)})

    def to_json(self) -> dict[str, Any]:
        """Return the policy as JSON."""
        encoded = {"rules": [rule.to_json() for rule in self.rules], "otherwise": self.otherwise}
        return {**encoded, "changes_need_plan_approval": True} if self.changes_need_plan_approval else encoded


def allow_tools(policy: Policy, tools: Collection[str]) -> Policy:
    """Return a policy that runs calls of these tools without approval; denied calls stay denied.

    If the new rules would exceed `MAX_RULES`, the remaining tools still need approval.
    """
    if not tools:
        return policy
    patterns = [(tool, re.sub(r"([*?[])", r"[\1]", tool)) for tool in tools]
    old_rules = [*policy.rules, *([Rule("ask")] if policy.otherwise == "ask" else [])]
    max_new_rules = max(0, MAX_RULES - len(old_rules))
    rules: list[Rule] = []
    for rule in old_rules:
        if rule.then == "ask":
            matching_patterns = [
                pattern for tool, pattern in patterns if rule.tool is None or fnmatchcase(tool, rule.tool)
            ]
            run_rules = [replace(rule, then="run", tool=pattern) for pattern in matching_patterns[:max_new_rules]]
            rules += run_rules
            max_new_rules -= len(run_rules)
        rules.append(rule)
    return replace(policy, rules=tuple(rules))


INLINE_AGENT = ToolDeclaration("agent.inline", Effects.READ)
"""Stand-in for a tool, so that rules can match inline agents. Its argument `tools` has the names of the agent's
tools."""
INLINE_AGENT_NOT_ALLOWED = "the policy of the run allows no inline agents"
INLINE_AGENT_HINT = (
    "use the name of an existing agent, or allow inline agents with a rule in the policy of the run: "
    f'{{"tool": "{INLINE_AGENT.name}", "then": "run"}}, or "ask" to approve each'
)
ALLOW_ALL = Policy()
"""The policy of a plan that a person submitted."""
ASK_FOR_WRITES = Policy((Rule("deny", tool=INLINE_AGENT.name), Rule("ask", effects=("write",))))
"""Default policy for plans written by models in runs that were started before `ASK_FOR_CHANGES` existed."""
ASK_FOR_CHANGES = Policy((Rule("deny", tool=INLINE_AGENT.name), Rule("ask", effects=("idempotent", "write"))))
"""Default policy for a plan that a model wrote: changing calls need approval, and inline agents are denied."""


def default_policy(author: Author) -> Policy:
    """Return the policy of a run that was started without a policy."""
    return ASK_FOR_CHANGES if author == "model" else ALLOW_ALL


def policy_from_json(encoded: Any) -> Policy:
    """Parse a policy.

    Raises:
        ValueError: the policy is invalid; the message has the location and the expected value.
    """
    if not isinstance(encoded, Mapping):
        raise ValueError('expected an object, such as {"rules": [{"effects": ["write"], "then": "ask"}]}')
    _reject_unknown_keys(encoded, ("rules", "otherwise", "changes_need_plan_approval"), "")
    rules = encoded.get("rules", [])
    if not isinstance(rules, list) or len(rules) > MAX_RULES:
        raise ValueError(f"rules: expected a list of at most {MAX_RULES} rules")
    changes_need_plan_approval = encoded.get("changes_need_plan_approval", False)
    if not isinstance(changes_need_plan_approval, bool):
        raise ValueError(f"changes_need_plan_approval: expected true or false, not {changes_need_plan_approval!r:.60}")
    return Policy(
        tuple(_rule_from_json(rule, f"rules[{index}]") for index, rule in enumerate(rules)),
        _verdict_of(encoded.get("otherwise", "run"), "otherwise"),
        changes_need_plan_approval,
    )


def _rule_from_json(encoded: Any, path: str) -> Rule:
    if not isinstance(encoded, Mapping):
        raise ValueError(f"{path}: expected an object with {', '.join(_RULE_KEYS)}")
    _reject_unknown_keys(encoded, _RULE_KEYS, f"{path}: ")
    effects, arguments = encoded.get("effects"), encoded.get("arguments")
    tool, undo = _tool_pattern_of(encoded, "tool", path), _tool_pattern_of(encoded, "undo", path)
    is_list = isinstance(effects, list) and bool(effects)
    if effects is not None and not (is_list and all(effect in _EFFECTS for effect in effects)):
        reason = "; calls of pure tools change nothing and never need approval"
        raise ValueError(f"{path}.effects: expected a list of {', '.join(_EFFECTS)}{reason}")
    if arguments is not None:
        if not isinstance(arguments, Mapping):
            raise ValueError(f"{path}.arguments: expected a JSON Schema")
        try:
            validator_of(arguments)
        except ValueError as error:
            raise ValueError(f"{path}.arguments: {error}") from None
    if "then" not in encoded:
        raise ValueError(f"{path}: 'then' is missing; expected run, ask or deny")
    then = _verdict_of(encoded["then"], f"{path}.then")
    return Rule(then, tool, None if effects is None else tuple(effects), arguments, undo)


def _tool_pattern_of(encoded: Mapping[str, Any], key: str, path: str) -> str | None:
    pattern = encoded.get(key)
    if pattern is None or (isinstance(pattern, str) and 0 < len(pattern) <= _NAME_CHARACTERS):
        return pattern
    raise ValueError(f"{path}.{key}: expected the name of a tool, or a pattern such as 'mail.*'")


def _verdict_of(value: Any, path: str) -> Verdict:
    for verdict in VERDICTS:
        if value == verdict:
            return verdict
    raise ValueError(f"{path}: expected run, ask or deny, not {value!r:.60}")


def _reject_unknown_keys(encoded: Mapping[Any, Any], known_keys: Sequence[str], path: str) -> None:
    for name in encoded:
        if name not in known_keys:
            hint = suggestion(str(name), known_keys)
            raise ValueError(f"{path}unknown key {name!r:.80}" + (f"; {hint}" if hint else ""))


POLICY = "policy"
"""Key of the plan's policy in an extender."""
NAMED_FILES_LIMIT = 100
NAMED_HOSTS_LIMIT = 100
_PATH_CHARACTERS = 200
"""Maximum length of a path that is found in a request; longer paths are ignored."""
_HOST_CHARACTERS = 253
"""Longest host name (RFC 1035, section 2.3.4: 255 bytes as encoded)."""
_QUOTES = "\"'`\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2039\u203a\u00ab\u00bb\u300c\u300d\u300e\u300f"
_QUOTED = re.compile(f"[{_QUOTES}]([^\n]+?)[{_QUOTES}]((?:/(?![\\w.]))?)")
_WORD = re.compile(rf"[^\s{_QUOTES}<>|,;()\[\]{{}}\u3001\u3002\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f]+")
"""A word ends at quotes, brackets, commas and the punctuation of Chinese and Japanese."""
_END_OF_SENTENCE = ".:!?\u2026"
_PATH = re.compile(r"[\w@%+=~-][\w@%+=~ ./-]*")
_PATTERN_SYNTAX = re.compile(r"[\\^$.|?*+()\[\]{}]")
"""Characters that need an escape in a pattern of JSON Schema."""
_ADDRESS = re.compile(r"(?:(https?)://|(?<![\w.@-])(?=www\.))([^\s/?#]+)", re.IGNORECASE)
_ARGUMENTS_WITHOUT_TEXT = {"properties": {"text": {"const": None}}}
"""Arguments of `search_files` that find files by name and read no file."""
_HOST = re.compile(r"([\w-]+(?:\.[\w-]+)*)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def model_policy(request: str) -> Policy:
    """Return the default policy of a plan that a model writes for a request."""
    paths = list(dict.fromkeys(named_files(request)))[:NAMED_FILES_LIMIT]
    path_schema: dict[str, Any] = {"enum": list(dict.fromkeys(path.rstrip("/") for path in paths))}
    if folders := [_escape_pattern(path) for path in paths if path.endswith("/")]:
        path_schema = {
            "anyOf": [path_schema, {"pattern": f"^(\\./)?({'|'.join(folders)})", "not": {"pattern": "\\.\\."}}]
        }
    rules = [*_rules_of_hosts(request), Rule("run", tool="search_files", arguments=_ARGUMENTS_WITHOUT_TEXT)]
    for tool in ("read_file", "search_files"):
        if paths:
            arguments = {"type": "object", "properties": {"path": path_schema}, "required": ["path"]}
            rules.append(Rule("run", tool=tool, arguments=arguments))
        rules.append(Rule("ask", tool=tool))
    return Policy((*ASK_FOR_CHANGES.rules[:1], *rules, *ASK_FOR_CHANGES.rules[1:]))


def _rules_of_hosts(request: str) -> list[Rule]:
    """Return the rules for `http_request`: calls need approval, except to read from a host in the user's request."""
    rules = [Rule("ask", tool="http_request")]
    if hosts := list(dict.fromkeys(named_hosts(request)))[:NAMED_HOSTS_LIMIT]:
        # The pattern requires the end of the host, so that user info before an `@` or a longer name cannot match.
        url_schema = {"type": "string", "pattern": f"^({'|'.join(map(_pattern_of_host, hosts))})([/?#]|$)"}
        arguments = {"type": "object", "properties": {"url": url_schema}, "required": ["url"]}
        rules.insert(0, Rule("run", tool="http_request", effects=("read",), arguments=arguments))
    return rules


def _pattern_of_host(address: str) -> str:
    scheme, _, host_and_port = address.partition("://")
    host, _, port = host_and_port.partition(":")
    schemes = ("http", "https") if scheme == "http" else ("https",)
    return "|".join(
        f"{_pattern_in_any_case(scheme)}://{_pattern_in_any_case(host)}{_pattern_of_port(scheme, port)}"
        for scheme in schemes
    )


def _pattern_of_port(scheme: str, port: str) -> str:
    """Return a pattern for the port of an address; the default port may be omitted."""
    default = _DEFAULT_PORTS[scheme]
    return f"(:{default})?" if port in ("", default) else f":{port}"


def _pattern_in_any_case(text: str) -> str:
    letters = (
        f"[{character}{character.upper()}]" if "a" <= character <= "z" else _escape_pattern(character)
        for character in text
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

    A path that ends with a slash is a folder, and names all files in the folder.
    """
    for quotation, slash in _QUOTED.findall(request):
        yield from _paths_of(quotation.strip() + slash, is_quoted=True)
    for word in _WORD.findall(request):
        yield from _paths_of(word.rstrip(_END_OF_SENTENCE), is_quoted=False)


def _paths_of(word: str, *, is_quoted: bool) -> Iterator[str]:
    path = word.removeprefix("./").rstrip("/")
    is_path = is_quoted or "." in path.strip(".") or "/" in word
    # Combining marks (category M) do not match `\w`.
    letters = "".join(character for character in path if not unicodedata.category(character).startswith("M"))
    if is_path and len(path) <= _PATH_CHARACTERS and _PATH.fullmatch(letters) and ".." not in path.split("/"):
        ending = "/" if word.endswith("/") else ""
        yield path + ending
        if word.startswith("./"):
            yield f"./{path}{ending}"


def named_hosts(request: str) -> Iterator[str]:
    """Yield the hosts of the addresses in a request, as `https://host` or `https://host:8443`, in lower case.

    An address starts with `http://`, `https://` or `www.`.
    """
    for scheme, host_text in _ADDRESS.findall(request):
        word = _WORD.match(host_text)
        host = word and _HOST.fullmatch(word[0].rstrip(_END_OF_SENTENCE))
        if host and len(host[1]) <= _HOST_CHARACTERS:
            port = f":{int(host[2])}" if host[2] else ""
            yield f"{(scheme or 'https').lower()}://{host[1].lower()}{port}"


def _escape_pattern(text: str) -> str:
    """Return a JSON Schema pattern that matches exactly this text."""
    return _PATTERN_SYNTAX.sub(r"\\\g<0>", text)


def policy_of_extender(extender: Any) -> Policy | None:
    """Return the policy stored in an extender; `None` if it has no policy.

    Raises:
        ValueError: the stored value is not a policy.
    """
    encoded = extender.get(POLICY) if isinstance(extender, dict) else None
    return None if encoded is None else policy_from_json(encoded)
