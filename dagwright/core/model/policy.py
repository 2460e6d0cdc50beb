"""Who has to be asked before a tool is called: a list of rules, of which the first that fits decides.

A policy is plain JSON, so that it can be written to a file, travel with a run and be changed while the run goes on:
`{"rules": [{"tool": "mail.*", "effects": ["write"], "arguments": {JSON Schema}, "then": "ask"}], "otherwise": "run"}`.
With `"approves_changes": true` beside them a plan that changes anything is approved as a whole before it runs. Calls of
`pure` tools change nothing and are never asked about. It must not import the scheduler.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from dagwright.core.expressions.references import suggestion
from dagwright.core.expressions.stored_values import is_whole
from dagwright.core.model.argument_checks import validator_of
from dagwright.core.model.tools import Effects, ToolDeclaration

Verdict = Literal["run", "ask", "refuse"]
VERDICTS: Sequence[Verdict] = get_args(Verdict)
Author = Literal["person", "model"]

MAX_RULES = 200
_RULE_KEYS = ("tool", "effects", "undo", "arguments", "then")
_NAME_CHARACTERS = 200
_EFFECTS = tuple(effects.value for effects in Effects if effects is not Effects.PURE)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; what it does not name fits every call.

    Args:
        tool: glob over the names of tools, such as `mail.*`.
        effects: of the tool, one of these.
        undo: glob over the tool that compensates for the call; fits no tool that declares none.
        arguments: JSON Schema that the arguments of the call satisfy.
    """

    then: Verdict
    tool: str | None = None
    effects: Sequence[str] | None = None
    arguments: Mapping[str, Any] | None = None
    undo: str | None = None

    def is_about(self, tool: ToolDeclaration) -> bool:
        """Tells whether the rule can fit a call of a tool."""
        is_named = self.tool is None or fnmatchcase(tool.name, self.tool)
        is_undone = self.undo is None or (tool.undo is not None and fnmatchcase(tool.undo, self.undo))
        return is_named and is_undone and (self.effects is None or tool.effects.value in self.effects)

    def fits(self, tool: ToolDeclaration, arguments: Callable[[], Any]) -> bool:
        """Tells whether the rule is about a call.

        Arguments that are not all here cannot be judged: then a rule that lets run does not fit, and any other does.
        """
        if not self.is_about(tool):
            return False
        if self.arguments is None:
            return True
        given = arguments()
        return bool(validator_of(self.arguments).is_valid(given)) if is_whole(given) else self.then != "run"

    def to_json(self) -> dict[str, Any]:
        """Returns the rule as it is written."""
        effects = self.effects and [*self.effects]
        parts = {"tool": self.tool, "effects": effects, "undo": self.undo, "arguments": self.arguments}
        return {name: part for name, part in parts.items() if part is not None} | {"then": self.then}


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one run, in order, and what holds where none fits.

    Args:
        approves_changes: whether somebody has to approve a plan before it runs that changes anything.
    """

    rules: Sequence[Rule] = ()
    otherwise: Verdict = "run"
    approves_changes: bool = False

    @property
    def lets_all_run(self) -> bool:
        """Tells whether no call can ever be asked about or refused."""
        return self.otherwise == "run" and all(rule.then == "run" for rule in self.rules)

    def can_hold(self, tool: ToolDeclaration) -> bool:
        """Tells whether some call of a tool may be asked about or refused."""
        if tool.effects is Effects.PURE:
            return False
        return self.otherwise != "run" or any(rule.then != "run" and rule.is_about(tool) for rule in self.rules)

    def verdict(self, tool: ToolDeclaration, arguments: Callable[[], Any]) -> Verdict:
        """Returns what to do about a call.

        Args:
            arguments: returns them; asked only where a rule is about them.
        """
        if tool.effects is Effects.PURE:
            return "run"
        for rule in self.rules:
            if rule.fits(tool, arguments):
                return rule.then
        return self.otherwise

    def verdict_on_inline(self, tools: Sequence[str]) -> Verdict:
        """Returns what to do about an agent that stands in a plan itself.

        Args:
            tools: names of what it may call; each call is judged by itself.
        """
        return self.verdict(INLINE_AGENT, lambda: {"tools": list(tools)})

    def to_json(self) -> dict[str, Any]:
        """Returns the policy as it is written."""
        encoded = {"rules": [rule.to_json() for rule in self.rules], "otherwise": self.otherwise}
        return {**encoded, "approves_changes": True} if self.approves_changes else encoded


def letting_run(policy: Policy, tools: Collection[str]) -> Policy:
    """Returns a policy that lets those calls of some tools run that it asked about; what is refused stays refused.

    Those that are too many for one policy are asked about as before.
    """
    if not tools:
        return policy
    named = [(tool, re.sub(r"([*?[])", r"[\1]", tool)) for tool in tools]
    asked = [*policy.rules, *([Rule("ask")] if policy.otherwise == "ask" else [])]
    room = max(0, MAX_RULES - len(asked))
    rules: list[Rule] = []
    for rule in asked:
        if rule.then == "ask":
            fitting = [glob for tool, glob in named if rule.tool is None or fnmatchcase(tool, rule.tool)][:room]
            rules += [replace(rule, then="run", tool=glob) for glob in fitting]
            room -= len(fitting)
        rules.append(rule)
    return replace(policy, rules=tuple(rules))


INLINE_AGENT = ToolDeclaration("agent.inline", Effects.READ)
"""What rules call agents that stand in a plan itself; the arguments are the names of their `tools`."""
REFUSED_INLINE = "the policy of the run takes no agent that stands in the plan itself"
LETTING_INLINE = (
    "name an agent that there is, or let it run with a rule in the policy of the run (--policy): "
    f'{{"tool": "{INLINE_AGENT.name}", "then": "run"}}, or "ask" to be asked'
)
ALL_RUN = Policy()
"""The policy of a plan that a person submitted."""
WRITES_ASK = Policy((Rule("refuse", tool=INLINE_AGENT.name), Rule("ask", effects=("write",))))
"""The policy of plans of models that carry none: runs that were started before `CHANGES_ASK`."""
CHANGES_ASK = Policy((Rule("refuse", tool=INLINE_AGENT.name), Rule("ask", effects=("idempotent", "write"))))
"""The policy of a plan that a model wrote: each call that changes something asks, and no agent stands in the plan."""


def default_policy(author: Author) -> Policy:
    """Returns the policy of a run that names none."""
    return CHANGES_ASK if author == "model" else ALL_RUN


def policy_from_json(encoded: Any) -> Policy:
    """Returns the policy that is written.

    Raises:
        ValueError: it is none; the message says where and what was expected.
    """
    if not isinstance(encoded, Mapping):
        raise ValueError('a policy is an object, such as {"rules": [{"effects": ["write"], "then": "ask"}]}')
    _refuse_unknown(encoded, ("rules", "otherwise", "approves_changes"), "")
    rules = encoded.get("rules", [])
    if not isinstance(rules, list) or len(rules) > MAX_RULES:
        raise ValueError(f"rules: expected a list of at most {MAX_RULES} rules")
    approves_changes = encoded.get("approves_changes", False)
    if not isinstance(approves_changes, bool):
        raise ValueError(f"approves_changes: expected true or false, not {approves_changes!r:.60}")
    return Policy(
        tuple(_rule_from_json(rule, f"rules[{place}]") for place, rule in enumerate(rules)),
        _verdict_of(encoded.get("otherwise", "run"), "otherwise"),
        approves_changes,
    )


def _rule_from_json(encoded: Any, place: str) -> Rule:
    if not isinstance(encoded, Mapping):
        raise ValueError(f"{place}: expected an object with {', '.join(_RULE_KEYS)}")
    _refuse_unknown(encoded, _RULE_KEYS, f"{place}: ")
    effects, arguments = encoded.get("effects"), encoded.get("arguments")
    tool, undo = _pattern_of(encoded, "tool", place), _pattern_of(encoded, "undo", place)
    is_list = isinstance(effects, list) and bool(effects)
    if effects is not None and not (is_list and all(each in _EFFECTS for each in effects)):
        why = "; calls of pure tools change nothing and are never asked about"
        raise ValueError(f"{place}.effects: expected a list of {', '.join(_EFFECTS)}{why}")
    if arguments is not None:
        if not isinstance(arguments, Mapping):
            raise ValueError(f"{place}.arguments: expected a JSON Schema")
        try:
            validator_of(arguments)
        except ValueError as error:
            raise ValueError(f"{place}.arguments: {error}") from None
    if "then" not in encoded:
        raise ValueError(f"{place}: 'then' is missing: run, ask or refuse")
    then = _verdict_of(encoded["then"], f"{place}.then")
    return Rule(then, tool, None if effects is None else tuple(effects), arguments, undo)


def _pattern_of(encoded: Mapping[str, Any], key: str, place: str) -> str | None:
    pattern = encoded.get(key)
    if pattern is None or (isinstance(pattern, str) and 0 < len(pattern) <= _NAME_CHARACTERS):
        return pattern
    raise ValueError(f"{place}.{key}: expected the name of a tool, or a pattern such as 'mail.*'")


def _verdict_of(value: Any, place: str) -> Verdict:
    for verdict in VERDICTS:
        if value == verdict:
            return verdict
    raise ValueError(f"{place}: expected run, ask or refuse, not {value!r:.60}")


def _refuse_unknown(encoded: Mapping[Any, Any], known: Sequence[str], place: str) -> None:
    for name in encoded:
        if name not in known:
            near = suggestion(str(name), known)
            raise ValueError(f"{place}unknown key {name!r:.80}" + (f"; {near}" if near else ""))
