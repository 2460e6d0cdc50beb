"""Answers of the scripts here that are made of the call: queries, and names that workers found.

No script holds a figure, a day, or what a name is called in the data, so an error on the way shows in the answer.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from dagwright.testing import ReceivedCall

_KINDS = {"is": "term", "in": "terms"}
_FIGURE_WORDS = {"sum": "total", "avg": "average"}


def query(call: ReceivedCall) -> Mapping[str, Any]:
    """Returns what the model of es_query_gen says: the plainest query of what was looked up.

    Where it is open which date is meant, the query has the first of them, and the answer says so.
    """
    [asked] = json.loads(call.messages[1]["content"])["analysis"]
    filters = [{_KINDS[each["op"]]: {each["field"]: each["value"]}} for each in asked["filters"]]
    ambiguity = None
    if period := asked.get("date_range"):
        date = period.get("field") or asked["fields"][0]
        filters.append({"range": {date: {"gte": period["start"], "lte": period["end"]}}})
        if not period.get("field"):
            ambiguity = {"question": "Which of the dates is meant?", "options": asked["fields"]}
    return {"body": {"query": {"bool": {"filter": filters}}, **_wanted(asked)}, "ambiguity": ambiguity}


def _wanted(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the documents or figures that a query wants; shipments in the order of their numbers."""
    if asked["intent_type"] == "search":
        return {"sort": [{"shipment_id": "asc"}], "size": 50}
    figures = {
        f"{_FIGURE_WORDS[each['op']]}_{each['field']}": {each["op"]: {"field": each["field"]}}
        for each in asked["metrics"]
    }
    [field] = asked["group_by"]
    groups = {"terms": {"field": field, "size": asked.get("top", 10)}, "aggs": figures}
    return {"size": 0, "aggs": {f"by_{field.removesuffix('_name')}": groups}}


def which_company(call: ReceivedCall) -> Mapping[str, Any]:
    """Returns a round of the planner that asks which of the companies is meant that metadata_lookup has found."""
    [names] = re.findall(r"may be one of \d+ \w+: ([^\"]+)\"", call.text)
    options = names.split(", ")
    asks = {
        "id": 2,
        "worker": "clarify_question",
        "description": "Ask which company is meant.",
        "inputs": {},
        "params": {"question": "Which company is meant?", "options": options},
    }
    reasoning = f"{len(options)} companies may be meant, and only the person can say which."
    return {"reasoning": reasoning, "action": "continue", "sub_goals": [asks]}
