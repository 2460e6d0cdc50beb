"""What the scripts here answer with where an answer is made of the call: queries, and figures that workers found.

So no script holds a figure, a day, or what a name is called in the data: whatever went wrong on the way would be in the
answer.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.testing import ReceivedCall

_KINDS = {"is": "term", "in": "terms"}
_FIGURE_WORDS = {"sum": "total", "avg": "average"}
_NO_GROUPS = ("all other groups", "all together")


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


def findings_told(call: ReceivedCall) -> str:
    """Answers with what was found as it stands, such as a question back with its options."""
    return "\n\n".join(_findings(call).values())


def shipments_told(call: ReceivedCall) -> str:
    """Answers with the shipments of a table and how many there are, behind what else was found.

    Where it was open which date is meant, it says which one the query has.
    """
    found = _findings(call)
    told = [found["shipment"]] if "shipment" in found else []
    if unsure := found.get("unsure"):
        taken, *others = json.loads(unsure)["options"]
        told.append(f"{taken} was taken; {' or '.join(others)} may be meant too.")
    shown = [row[0] for row in table_rows(call.text) if row[0].startswith("SH-")]
    count = re.search(r"of ([\d,]+) are shown", call.text)
    first = f", the first {len(shown)}" if count else ""
    told.append(f"{count[1] if count else len(shown)} found{first}: {', '.join(shown)}.")
    return "\n\n".join(told)


def volumes_told(call: ReceivedCall) -> str:
    """Answers with the volume of each carrier, as the tables of their queries have it."""
    rows = list(_groups(call.text, "by_carrier"))
    lines = [
        f"- **{row['by_carrier']}** carried {row['total_teu']} TEU in {row['documents']} shipments" for row in rows
    ]
    most = max(rows, key=lambda row: float(row["total_teu"].replace(",", "")))
    return "\n".join([*lines, "", f"{most['by_carrier']} carried more."])


def times_told(call: ReceivedCall) -> str:
    """Answers with the shippers of a table, their shipments, and their transit times where there are any."""
    return "\n".join(
        f"- {row['by_shipper']}: {row['documents']} shipments, "
        + (f"{row['average_transit_days']} days" if row["average_transit_days"] else "no transit times")
        for row in _groups(call.text, "by_shipper")
    )


def table_rows(text: str) -> Sequence[Sequence[str]]:
    """Returns the rows of all Markdown tables of a text, cell by cell, their heads too."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in map(str.strip, text.splitlines())
        if line.startswith("| ") and not line.startswith("| ---")
    ]


def _findings(call: ReceivedCall) -> Mapping[str, str]:
    """Returns what the last model is told that was found, by its name."""
    told = call.text.partition("\nWhat is not whole:")[0]
    _, *found = re.split(r"^(\w+) \(from sub-goal \d+\):\n", told, flags=re.MULTILINE)
    return dict(zip(found[::2], map(str.strip, found[1::2]), strict=True))


def _groups(text: str, grouping: str) -> Sequence[Mapping[str, str]]:
    """Returns the groups of the tables of a grouping: name of a column -> the cell; others together are left out."""
    found, head = [], None
    for row in table_rows(text):
        if len(row) > 2 and grouping in row:
            head = row
        elif head is not None and len(row) == len(head) and row[head.index(grouping)] not in _NO_GROUPS:
            found.append(dict(zip(head, row, strict=True)))
    return found
