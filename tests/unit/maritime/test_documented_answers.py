"""The documented answers of models have the format that the code requests."""

import json
import re
from typing import Any

import jsonschema_rs

from dagwright.agents.class_agents import MODEL_CALL_PURPOSE as AGENT_PURPOSE
from dagwright.interfaces.http.routing import PURPOSE as ROUTING_PURPOSE
from dagwright.planning.plan_and_execute.goal_spec import PLAN, REPLAN
from dagwright.planning.rounds.rounds_spec import ANSWER, INTENTION, PLANNER, REPAIR
from dagwright.tools.builtin.summaries import PURPOSE as SUMMARY_PURPOSE
from dagwright.tools.builtin.word_problems import PURPOSE as CALCULATION_PURPOSE
from dagwright.tools.context import DEFAULT_PURPOSE as TOOL_PURPOSE
from dagwright_maritime import (
    clarification,
    helpdesk,
    metadata_explanation,
    model_answers,
    query_prompt,
    result_analysis,
)
from dagwright_maritime.fields import read_fields
from dagwright_maritime.metadata_prompt import answer_schema
from tests.support.docs import ROOT
from tests.unit.maritime.test_fields import INDEX, FakeSearchClient

PAGES_TEXT = "\n".join(
    (ROOT / page).read_text(encoding="utf-8")
    for page in ("docs/reference/model-calls.md", "apps/maritime/docs/model-answers.md")
)
DOCUMENTED_ANSWERS = re.findall(
    r"^<!-- answer: (\w+) -->\n\n?```text\n(.*?)^```$", PAGES_TEXT, re.MULTILINE | re.DOTALL
)


async def test_documented_answers_fit_the_schemas_of_the_requests() -> None:
    planner_schema = json.loads(
        (ROOT / "docs" / "reference" / "schemas" / "planner" / "rounds.schema.json").read_text(encoding="utf-8")
    )
    fields = await read_fields(FakeSearchClient().as_search(), INDEX)
    schemas: dict[str, Any] = {
        **{"planner": planner_schema, "metadata_lookup": answer_schema(fields), "es_query_gen": query_prompt.ANSWER},
        **{"common_helpdesk": helpdesk.ANSWER, "clarify_question": clarification.ANSWER},
        **{"explain_metadata": metadata_explanation.ANSWER, "analyze_results": result_analysis.ANSWER},
    }
    assert list(dict.fromkeys(name for name, _ in DOCUMENTED_ANSWERS)) == list(schemas)
    for name, text in DOCUMENTED_ANSWERS:
        jsonschema_rs.validate(schemas[name], json.loads(text))


def test_each_action_of_the_planner_is_documented() -> None:
    actions = [json.loads(text)["action"] for name, text in DOCUMENTED_ANSWERS if name == "planner"]
    assert actions == ["continue", "done", "failed"]


def test_table_lists_every_purpose_of_a_model_call() -> None:
    table = PAGES_TEXT.partition("| `purpose` |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    purposes_in_code = {
        PLAN,
        REPAIR,
        REPLAN,
        ANSWER,
        INTENTION,
        PLANNER,
        AGENT_PURPOSE,
        ROUTING_PURPOSE,
        model_answers.PURPOSE,
        TOOL_PURPOSE,
        SUMMARY_PURPOSE,
        CALCULATION_PURPOSE,
    }
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == purposes_in_code
