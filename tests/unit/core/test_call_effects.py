"""Effects of calls, which depend on the arguments and the plan, and verdicts of policies on calls."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.compiled import plan_from_json, plan_to_json, tool_of
from dagwright.core.model.policy import (
    MAX_RULES,
    Policy,
    Rule,
    allow_tools,
    intents_policy,
    model_policy,
    named_files,
    policy_from_json,
)
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.plans.preparation import check_plan
from dagwright.tools import ToolRegistry
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright_onboarding.entity_types import UNDO
from dagwright_onboarding.onboarding import onboarding_tools

TOOLS = builtin_tools(ToolEnvironment(Path())).declarations()
VERBS = ToolRegistry.of(*onboarding_tools("sqlite://")).declarations().values()
URL = "https://example.com/"


def compiled_effects(arguments: dict[str, Any], **fields: Any) -> str:
    first_node = {"id": "a", "tool": "render_template", "arguments": {"template": "POST", "values": {}}}
    node = {"id": "n", "tool": "http_request", "arguments": {"url": URL, **arguments}, **fields}
    plan = compile_plan(check_plan({"plan": 1, "nodes": [first_node, node]}, TOOLS))
    decoded_plan = plan_from_json(plan_to_json(plan))
    actual = tool_of(decoded_plan.nodes[1], decoded_plan.tools).effects.value
    assert actual == tool_of(plan.nodes[1], plan.tools).effects.value
    return actual


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "read"),
        *(({"method": method}, "read") for method in ("GET", "HEAD", "OPTIONS")),
        *(({"method": method}, "write") for method in ("POST", "PUT", "PATCH", "DELETE", "{{a.result}}")),
        ({"url": "{{a.result}}"}, "read"),
    ],
)
def test_method_of_an_http_request_determines_its_effects(arguments: dict[str, Any], expected: str) -> None:
    assert compiled_effects(arguments) == expected


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
def test_plan_may_declare_an_http_request_idempotent(method: str) -> None:
    assert compiled_effects({"method": method}, effects="idempotent") == "idempotent"


def test_declared_effects_do_not_change_a_read_and_are_rejected_for_a_tool_with_fixed_effects() -> None:
    assert compiled_effects({}, effects="idempotent", cache={"ttl": "1h"}) == "read"
    with pytest.raises(PlanInvalid, match="its effects are 'write'"):
        compiled_effects({"method": "POST"}, cache={"ttl": "1h"})
    node = {"id": "n", "tool": "write_file", "arguments": {"path": "a", "content": ""}, "effects": "idempotent"}
    with pytest.raises(PlanInvalid, match="the effects of 'write_file' do not depend on its arguments"):
        check_plan({"plan": 1, "nodes": [node]}, TOOLS)


def verdict(policy: Policy, tool: str, arguments: dict[str, Any]) -> str:
    return policy.verdict(TOOLS[tool], lambda: arguments)


def test_model_needs_approval_for_effects_and_for_reads_of_unnamed_files() -> None:
    policy = model_policy("Summarize notes/plan.md and 'old report' in data/, and tell who wrote it.")
    for tool in ("read_file", "write_file", "search_files"):
        for path in ("notes/plan.md", "old report", "data", "notes/other.md", "notes", "."):
            expected = "ask" if tool == "write_file" or path in ("notes/other.md", "notes", ".") else "run"
            assert verdict(policy, tool, {"path": path, "content": "", "text": "x"}) == expected, (tool, path)
    for path in ("data/a/b.csv", "./data/a.csv"):
        assert verdict(policy, "read_file", {"path": path}) == "run"
    for path in ("data/../secrets.csv", "other/data/a.csv", "data2/a.csv"):
        assert verdict(policy, "read_file", {"path": path}) == "ask"
    assert verdict(policy, "search_files", {"text": "x"}) == "ask"
    assert verdict(policy, "search_files", {"pattern": "*.md"}) == "run"
    assert verdict(policy, "list_files", {}) == "run"
    assert verdict(policy, "http_request", {"url": URL}) == "ask"
    assert asks_before_effects(policy)


@pytest.mark.parametrize(
    ("user_request", "is_named"),
    [
        ("Read data/.", True),
        ("Read (data/), then stop", True),
        ("Read `data/`!", True),
        ("Read \u201cdata/\u201d, and more", True),
        ("Lies \u00abdata/\u00bb und \u201edata/\u201c", True),
        ("Read 'data'/ and all", True),
        ("data/\u3001\u300cx\u300d", True),
        ("Read ./data/", True),
        ("Read mydata/ and 'data'", False),
        ("Read mydata/x.txt and `data`", False),
        ("Read data/a.txt and 'data'", False),
        ("Read old/data/ and 'data'", False),
        ("Read data-2/ and 'data'", False),
        ("Read 'data'/b.txt", False),
        ("Read data and data/ and 'data'", True),
        ("Compare data/old with 'data'.", False),
    ],
)
def test_user_request_names_a_folder_only_by_whole_path_components(user_request: str, is_named: bool) -> None:
    assert verdict(model_policy(user_request), "read_file", {"path": "data/a.csv"}) == ("run" if is_named else "ask")


@pytest.mark.parametrize("folder", ["donne\u0301es", "donn\u00e9es", "रिपोर्ट", "データ"])
def test_names_of_folders_may_be_in_any_language(folder: str) -> None:
    policy = policy_from_json(model_policy(f"Read {folder}/ please").to_json())
    assert [verdict(policy, "read_file", {"path": f"{each}/a"}) for each in (folder, "x" + folder)] == ["run", "ask"]


@pytest.mark.parametrize(
    ("user_request", "url", "expected"),
    [
        ("What is new?", "https://evil.example/?d=1", "ask"),
        ("Read https://news.example/today.", "https://news.example/", "run"),
        ("Read https://news.example.", "https://news.example/x?q=1#y", "run"),
        ("Read (https://news.example:8443/x)", "https://news.example:8443/", "run"),
        ("Read https://news.example:8443/", "https://news.example:9443/", "ask"),
        ("Read https://news.example:8443/", "https://news.example/", "ask"),
        ("Read https://news.example/", "https://news.example:443/", "run"),
        ("Read https://news.example/", "https://news.example:8443/", "ask"),
        ("Read http://127.0.0.1:8080/", "http://127.0.0.1:6379/", "ask"),
        ("Read http://news.example/", "http://news.example:80/", "run"),
        ("Read HTTPS://News.Example/", "https://news.example", "run"),
        ("Read https://NEWS.example/", "HTTPS://NEWS.Example/", "run"),
        ("Read www.news.example, then stop", "https://www.news.example/", "run"),
        ("Read https://news.example/", "http://news.example/", "ask"),
        ("Read http://news.example/", "https://news.example/", "run"),
        ("Read https://news.example/", "https://news.example.evil.example/", "ask"),
        ("Read https://news.example/", "https://news.example@evil.example/", "ask"),
        ("Read https://news.example/", "https://news.example:80@evil.example/", "ask"),
        ("Read https://news.example/", "https://newsXexample/", "ask"),
        ("Read https://news.example/", "https://evil.example/https://news.example/", "ask"),
        ("Read https://ann:pw@news.example/", "https://ann/", "ask"),
        ("Read x.www.news.example", "https://www.news.example/", "ask"),
        ("Summarize notes.md and archive.zip/a", "https://notes.md/?d=1", "ask"),
    ],
)
def test_a_model_may_read_from_hosts_that_the_user_request_names(user_request: str, url: str, expected: str) -> None:
    policy = policy_from_json(model_policy(user_request).to_json())
    request_tool = TOOLS["http_request"]
    read_tool, write_tool = (replace(request_tool, effects=effects) for effects in (Effects.READ, Effects.WRITE))
    assert policy.verdict(read_tool, lambda: {"url": url}) == expected
    assert policy.verdict(write_tool, lambda: {"url": url, "method": "POST"}) == "ask"


def asks_before_effects(policy: Policy) -> bool:
    effect_rules = [rule for rule in policy.rules if rule.effects is not None and rule.tool is None]
    return effect_rules == [Rule("ask", effects=(Effects.IDEMPOTENT.value, Effects.WRITE.value))]


@pytest.mark.parametrize(
    ("user_request", "expected"),
    [
        ("Read ./a/b.txt.", ["a/b.txt", "./a/b.txt"]),
        ("What is in `secret file`?", ["secret file"]),
        ("Read ../x and a/../b", []),
        ("Add 1.5 and 2", ["1.5"]),
        ("Hello.", []),
    ],
)
def test_file_names_are_recognized_by_quotes_dots_and_slashes(user_request: str, expected: list[str]) -> None:
    assert list(dict.fromkeys(named_files(user_request))) == expected


def test_policy_of_a_user_request_with_special_characters_in_paths_survives_serialization() -> None:
    files = " ".join(f"f{number}/a.txt" for number in range(300))
    policy = model_policy(f"Look at a-b~c@d%e=f+g.h/ and at é/ü/ and 'x y'/ and {files}")
    assert policy_from_json(policy.to_json()) == policy
    assert verdict(policy, "read_file", {"path": "a-b~c@d%e=f+g.h/i"}) == "run"
    assert verdict(policy, "read_file", {"path": "a-b~c@d%e=ffgxh/i"}) == "ask"


def test_verbs_that_the_application_compensates_run_without_approval() -> None:
    policy = policy_from_json(intents_policy("Create Apex.", UNDO).to_json())
    user_tools = [
        ToolDeclaration("crm.add", Effects.IDEMPOTENT),
        ToolDeclaration("seat.take", Effects.IDEMPOTENT, undo="seat.free"),
        ToolDeclaration("seat.sell", Effects.WRITE, undo="seat.free"),
        ToolDeclaration("mail.send", Effects.WRITE),
    ]
    assert [policy.verdict(tool, dict) for tool in user_tools] == ["ask"] * len(user_tools)
    verbs = [tool for tool in VERBS if tool.undo is not None]
    assert len(verbs) >= 9
    assert {policy.verdict(tool, dict) for tool in verbs} == {"run"}
    assert policy.verdict(ToolDeclaration("crm.find", Effects.READ), dict) == "run"


def test_rule_matches_the_compensating_tool_of_a_call() -> None:
    policy = policy_from_json({"rules": [{"undo": "*", "then": "run"}, {"effects": ["idempotent"], "then": "ask"}]})
    assert policy_from_json(policy.to_json()) == policy
    tools = [ToolDeclaration("make", Effects.IDEMPOTENT, undo=undo) for undo in ("unmake", None)]
    assert [policy.verdict(tool, dict) for tool in tools] == ["run", "ask"]
    with pytest.raises(ValueError, match=r"rules\[0\]\.undo: expected the name of a tool"):
        policy_from_json({"rules": [{"undo": 7, "then": "run"}]})


_PAY_TOOL = ToolDeclaration("pay", effects=Effects.WRITE)
_MAIL_TOOL = ToolDeclaration("mail", effects=Effects.WRITE)
_RECIPIENT_IS_EVE = {"properties": {"to": {"const": "eve"}}, "required": ["to"]}


def _verdicts(policy: Policy, recipient: str) -> tuple[Any, Any]:
    return policy.verdict(_PAY_TOOL, lambda: {"to": recipient}), policy.verdict(_MAIL_TOOL, lambda: {"to": recipient})


@pytest.mark.parametrize(
    "policy",
    [
        Policy((Rule("deny", arguments=_RECIPIENT_IS_EVE), Rule("ask", effects=("write",)))),
        Policy((Rule("deny", arguments=_RECIPIENT_IS_EVE), Rule("ask", tool="p*"), Rule("ask", tool="m*"))),
        Policy((Rule("deny", arguments=_RECIPIENT_IS_EVE),), otherwise="ask"),
    ],
    ids=["by effects", "by name", "otherwise"],
)
def test_approved_tools_run_and_denied_calls_stay_denied(policy: Policy) -> None:
    extended_policy = allow_tools(policy, ["pay"])
    assert _verdicts(extended_policy, "bob") == ("run", "ask")
    assert _verdicts(extended_policy, "eve") == ("deny", "deny")


def test_approved_tools_are_added_until_the_policy_has_max_rules() -> None:
    policy = Policy((Rule("ask"),))
    assert allow_tools(policy, []) == policy
    extended_policy = allow_tools(policy, [f"tool{number}" for number in range(MAX_RULES)])
    assert len(extended_policy.rules) == MAX_RULES
    verdicts = [extended_policy.verdict(ToolDeclaration(f"tool{number}"), dict) for number in (0, MAX_RULES - 1)]
    assert verdicts == ["run", "ask"]
