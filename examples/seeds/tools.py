"""Stubs of the services that the example plans call: fixed answers, no network, no side effects.

`--tools examples/seeds/tools.py` adds these stubs to a run. A tool with the name of an agent or of a worker tool
replaces that agent or worker tool.
The onboarding verbs and `calculator` are Dagwright's own.
"""

from typing import Any

from dagwright.tools import GiveUp, tool

PEOPLE = [
    {"name": "John Smith", "email": "john.smith@example.com"},
    {"name": "Sarah Lindqvist", "email": "sarah@example.com"},
]
AGES = {"Emperor Wu of Han": "69", "Julius Caesar": "55"}
VOLUMES = {"MAERSK": 4120, "EVERGREEN": 3380}


@tool(effects="read")
def serper_web_search(query: str) -> list[dict[str, str]]:
    """Answer two questions about history in the format of the built-in search: the first result is the answer box."""
    for person, age in AGES.items():
        if person in query:
            return [{"title": f"{person}: age at death", "link": "https://example.com", "snippet": age}]
    return []


@tool(effects="read")
def fetch_entity(input: dict[str, Any]) -> dict[str, Any]:
    """Find people whose name contains the text of the filter."""
    search_text = str(input.get("filters", {}).get("name", "")).casefold()
    return {"data": [person for person in PEOPLE if search_text in person["name"].casefold()]}


@tool(effects="read")
def fetch_contacts(**_arguments: Any) -> dict[str, Any]:
    """Return all people."""
    return {"data": PEOPLE}


@tool(effects="read")
def fetch_emails(**_arguments: Any) -> dict[str, Any]:
    """Return one message, regardless of the arguments."""
    sender = PEOPLE[1]
    message = {
        "id": "thread_abc123",
        "from": sender,
        "subject": "Q1 Report",
        "body": 'Numbers are in. They say "flat", with {{braces}} and $100.',
        "date": "2024-01-15T10:30:00Z",
    }
    return {"data": [message]}


@tool(effects="read")
def broken_mailbox(**_arguments: Any) -> dict[str, Any]:
    """Fail permanently, like a closed mailbox."""
    raise GiveUp("the mailbox is closed")


@tool(effects="pure")
def summarize(input: dict[str, Any]) -> dict[str, str]:
    """Return the first sentence of a text."""
    return {"summary": str(input["text"]).split(". ")[0]}


@tool(effects="idempotent")
def send_email(input: dict[str, Any]) -> dict[str, Any]:
    """Pretend to send a message."""
    return {"sent": True, "to": input["to"]}


@tool(effects="idempotent")
def reply_email(input: dict[str, Any]) -> dict[str, Any]:
    """Pretend to answer a message."""
    return {"sent": True, "thread": input["threadId"], "subject": input["subject"]}


@tool(effects="idempotent")
def create_calendar_event(input: dict[str, Any]) -> dict[str, Any]:
    """Pretend to create a meeting."""
    return {"event": "evt_1", "title": input["title"], "attendees": input["attendees"]}


@tool(effects="read")
def web_researcher(objective: str) -> str:
    """Stub of an agent that searches the web."""
    return f"Found three options: {objective}"


@tool(effects="read")
def travel_planner(objective: str, context: dict[str, Any]) -> dict[str, Any]:
    """Stub of an agent that plans a journey from the results of other agents."""
    return {"plan": objective, "based_on": list(context)}


@tool(effects="read")
def metadata_lookup(terms: list[str]) -> dict[str, Any]:
    """Stub of a worker tool that resolves the fields and values of a question."""
    return {
        "status": "success",
        "outputs": {
            "metadata_results": {"carrier": "shipper_name", "port": "destination_port"},
            "value_results": [term.upper() for term in terms],
            "analysis_result": {"intent_type": "search", "carrier": terms[0].upper()},
        },
    }


@tool(effects="pure")
def es_query_gen(metadata_results: dict[str, str], analysis_result: dict[str, str]) -> dict[str, Any]:
    """Stub of a worker tool that writes a query."""
    query = {"term": {metadata_results["carrier"]: analysis_result["carrier"]}}
    return {"status": "success", "outputs": {"es_query": query, "ambiguity": None}}


@tool(effects="read")
def es_query_exec(es_query: dict[str, Any]) -> dict[str, Any]:
    """Stub of a worker tool that runs a query."""
    (carrier,) = es_query["term"].values()
    results = [{"carrier": carrier, "port": "LOS ANGELES", "teu": VOLUMES[carrier]}]
    return {"status": "success", "outputs": {"es_results": results, "hit_count": len(results)}}


@tool(effects="pure")
def show_results(es_results: list[dict[str, Any]]) -> dict[str, Any]:
    """Stub of a worker tool that writes a table."""
    lines = [f"| {row['carrier']} | {row['port']} | {row['teu']} |" for row in es_results]
    return {"status": "success", "outputs": {"formatted_results": "\n".join(lines)}}


@tool(effects="pure")
def analyze_results(es_results: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Stub of a worker tool that compares the results of two queries."""
    first, second = (rows[0] for rows in es_results)
    comparison = f"{first['carrier']} moved {first['teu'] / second['teu']:.2f} times as much as {second['carrier']}"
    return {"status": "success", "outputs": {"analysis": comparison}}
