"""What `why` tells of a node: who chose the parties that it was given."""

from dagwright.cli.explaining import lines_of
from dagwright.explaining import Explanation
from dagwright.plan.reasons import Reason
from dagwright.plan.states import NodeStatus
from dagwright.plan.why import Chain
from tests.unit.cli.views import node, view_of

_ANSWER = {"how": "answered", "by": "ann", "at": "2026-03-04T17:02:11Z", "through": "update", "note": None}


def test_party_is_told_with_its_text_and_who_chose_it() -> None:
    john = {"id": "person_1", "name": "John Smith", "kind": "person", "jurisdiction": "GB"}
    apex = {"id": "fund_1", "name": "Apex", "kind": "fund", "jurisdiction": None}
    asked = {"request": "lookup:person:J", "what": "selected", **_ANSWER}
    bound = [
        {"argument": "entity-id", "search_text": "J", "entity_type": "person", "party": john, "reason": "chosen by a "
        "person", "answers": [asked]},
        {"argument": "cbu-id", "search_text": "fund_1", "entity_type": "fund", "party": apex,
        "reason": "@cbu", "answers": []},
    ]  # fmt: skip
    reason = Reason("a", NodeStatus.COMPLETED, "completed", "completed", facts={"lookups": bound})
    lines = [*lines_of(Explanation(view_of(node("a")), "a", Chain([reason])))]
    assert [line.partition(" at ")[0] for line in lines[1:]] == [
        "  entity-id: 'J' (person) is John Smith (person, GB, person_1): chosen by a person",
        "    lookup:person:J: selected by ann",
        "  cbu-id: @cbu is Apex (fund, fund_1)",
    ]
