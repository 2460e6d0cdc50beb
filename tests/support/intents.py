"""Intents for tests, model responses with intents, and plans of runs with the profile `intents`."""

import json
from typing import Any

from dagwright.core.model.compiled import CompiledPlan
from dagwright.planner import PlanningOptions, prepare_goal
from dagwright_onboarding.entity_types import RESOLVER
from tests.support import onboarding
from tests.support.onboarding import intent
from tests.support.runs import Document, Runs


def fund_intent(name: str, **params: Any) -> dict[str, Any]:
    return intent("cbu.ensure", name=name, jurisdiction="LU", client_type="fund", **params)


def product_intent(name: str, client_ref: str) -> dict[str, Any]:
    return intent("cbu.add-product", product=name, refs={"cbu-id": client_ref})


def intents_response(*intents: Any, **fields: Any) -> dict[str, Any]:
    return {"intents": list(intents), "explanation": "Does it.", "confidence": 0.9, **fields}


def intents_response_text(*intents: Any, **fields: Any) -> str:
    return json.dumps(intents_response(*intents, **fields))


def seed_intents(name: str) -> Any:
    return onboarding.seed(name)["intents"]


def intents_plan(runs: Runs, text: str = "Do it.", **options: Any) -> CompiledPlan:
    """Return the plan of a request that may use the onboarding verbs."""
    prefixes = ("cbu.", "entity.", "onboarding.", *RESOLVER.tools())
    verbs = {name: tool for name, tool in runs.tools.items() if name.startswith(prefixes)}
    return prepare_goal(text, verbs, PlanningOptions(profile="intents", **options))[0]


def intent_statuses(document: Document) -> dict[str, str]:
    return {name: node["status"] for name, node in document["nodes"].items() if name.startswith("@")}
