"""Requests that models answer with intents, for tests: responses of models, and plans of the requests."""

import json
from typing import Any

from dagwright.core.model.compiled import CompiledPlan
from dagwright.planner import PlanningOptions, prepare_goal
from dagwright_onboarding.entity_types import RESOLVER
from tests.support import onboarding
from tests.support.onboarding import intent
from tests.support.runs import Document, Runs


def fund(name: str, **more: Any) -> dict[str, Any]:
    return intent("cbu.ensure", name=name, jurisdiction="LU", client_type="fund", **more)


def product(name: str, client_ref: str) -> dict[str, Any]:
    return intent("cbu.add-product", product=name, refs={"cbu-id": client_ref})


def answer(*intents: Any, **more: Any) -> dict[str, Any]:
    return {"intents": list(intents), "explanation": "Does it.", "confidence": 0.9, **more}


def intents_answer(*intents: Any, **more: Any) -> str:
    return json.dumps(answer(*intents, **more))


def seed(name: str) -> Any:
    return onboarding.seed(name)["intents"]


def intents_goal(runs: Runs, words: str = "Do it.", **options: Any) -> CompiledPlan:
    """Return the plan of a request that may use the onboarding verbs."""
    verbs = {
        name: tool
        for name, tool in runs.tools.items()
        if name.startswith(("cbu.", "entity.", "onboarding.", *RESOLVER.tools()))
    }
    return prepare_goal(words, verbs, PlanningOptions(profile="intents", **options))[0]


def intent_statuses(document: Document) -> dict[str, str]:
    return {name: node["status"] for name, node in document["nodes"].items() if name.startswith("@")}
