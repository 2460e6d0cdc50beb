"""Functions that compute the answers of scripted models from the results of worker tools.

The scripts contain no numbers, dates or names from the index, so an error of a worker tool is visible in the answer.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from dagwright.testing import ReceivedCall

_QUERY_TYPES = {"is": "term", "in": "terms"}
_AGGREGATION_PREFIXES = {"sum": "total", "avg": "average"}


def write_query(call: ReceivedCall) -> Mapping[str, Any]:
    """Return the model's answer to `es_query_gen`: the simplest query for the analysis.

    If the date is ambiguous, the query uses the first candidate, and the answer reports the ambiguity.
    """
    [analysis] = json.loads(call.messages[1]["content"])["analysis"]
    filters = [
        {_QUERY_TYPES[condition["op"]]: {condition["field"]: condition["value"]}} for condition in analysis["filters"]
    ]
    ambiguity = None
    if period := analysis.get("date_range"):
        date_field = period.get("field") or analysis["fields"][0]
        filters.append({"range": {date_field: {"gte": period["start"], "lte": period["end"]}}})
        if not period.get("field"):
            ambiguity = {"question": "Which of the dates is meant?", "options": analysis["fields"]}
    return {"body": {"query": {"bool": {"filter": filters}}, **_sort_or_groups(analysis)}, "ambiguity": ambiguity}


def _sort_or_groups(analysis: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sort order or the aggregations of a query; shipments are sorted by id."""
    if analysis["intent_type"] == "search":
        return {"sort": [{"shipment_id": "asc"}], "size": 50}
    aggregations = {
        f"{_AGGREGATION_PREFIXES[metric['op']]}_{metric['field']}": {metric["op"]: {"field": metric["field"]}}
        for metric in analysis["metrics"]
    }
    [field] = analysis["group_by"]
    groups = {"terms": {"field": field, "size": analysis.get("top", 10)}, "aggs": aggregations}
    return {"size": 0, "aggs": {f"by_{field.removesuffix('_name')}": groups}}


def ask_which_company(call: ReceivedCall) -> Mapping[str, Any]:
    """Return the planner's answer for a round: ask the user which of the companies from `metadata_lookup` is meant."""
    [company_names] = re.findall(r"may be one of \d+ \w+: ([^\"]+)\"", call.text)
    options = company_names.split(", ")
    sub_goal = {
        "id": 2,
        "worker": "clarify_question",
        "description": "Ask which company is meant.",
        "inputs": {},
        "params": {"question": "Which company is meant?", "options": options},
    }
    reasoning = f"{len(options)} companies match, and only the user can choose."
    return {"reasoning": reasoning, "action": "continue", "sub_goals": [sub_goal]}
