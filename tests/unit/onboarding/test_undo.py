"""Undo of verb calls: an undo reverts only the changes of its call, atomically, and once for each key."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import text

from dagwright.tools.testing import tool_context
from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.entity_types import RESOLVER
from dagwright_onboarding.models import Effect
from dagwright_onboarding.onboarding import onboarding_tools
from dagwright_onboarding.overview import read_overview
from dagwright_onboarding.parties import NaturalKey, ensure_party
from dagwright_onboarding.verb_results import CbuRequest, UndoResult
from dagwright_onboarding.verbs import OnboardingVerbs
from tests.support.parties import Load, find

pytestmark = pytest.mark.waits

Ids = Mapping[str, str]


@pytest.fixture
def ids(verbs: OnboardingVerbs) -> Ids:
    """IDs of parties that exist before the undone calls. The fund has a role, a product and a link."""
    manco = verbs.create_limited_company("manco", name="ManCo", jurisdiction="LU").id
    other_id = verbs.create_limited_company("other", name="Other", jurisdiction="LU").id
    fund = verbs.ensure_cbu("fund", CbuRequest("Fund", "LU")).id
    person = verbs.create_person("person", name="Ann Lee").id
    verbs.assign_role("role", cbu_id=fund, entity_id=person, role="DIRECTOR")
    verbs.add_product("product", cbu_id=fund, product="CUSTODY")
    verbs.link("link", cbu_id=fund, entity_id=manco, link="MANAGEMENT_COMPANY")
    return {"manco": manco, "other": other_id, "fund": fund, "person": person}


def role_of_ann(ids: Ids, role: str = "DIRECTOR") -> dict[str, str]:
    return {"cbu_id": ids["fund"], "entity_id": ids["person"], "role": role}


def link_of_fund(ids: Ids, party: str, link: str = "MANAGEMENT_COMPANY") -> dict[str, str]:
    return {"cbu_id": ids["fund"], "entity_id": ids[party], "link": link}


CALLS: dict[str, tuple[Callable[[OnboardingVerbs, str, Ids], Any], list[str]]] = {
    "entity.create-limited-company": (
        lambda verbs, key, ids: verbs.create_limited_company(key, name="New", jurisdiction="LU"),
        ["company 'New' (LU) was removed"],
    ),
    "entity.create-person": (
        lambda verbs, key, ids: verbs.create_person(key, name="Bob", jurisdiction="IE"),
        ["person 'Bob' (IE) was removed"],
    ),
    "cbu.ensure": (
        lambda verbs, key, ids: verbs.ensure_cbu(key, CbuRequest("New", "LU", None, ids["fund"], ids["manco"])),
        [
            "the link of fund 'New' (LU) to company 'ManCo' (LU) (manco) was removed",
            "the link of fund 'New' (LU) to fund 'Fund' (LU) (parent) was removed",
            "fund 'New' (LU) was removed",
        ],
    ),
    "cbu.assign-role": (
        lambda verbs, key, ids: verbs.assign_role(key, **role_of_ann(ids, "CHAIRPERSON")),
        ["the role CHAIRPERSON of person 'Ann Lee' (jurisdiction unknown) at fund 'Fund' (LU) was removed"],
    ),
    "cbu.remove-role": (
        lambda verbs, key, ids: verbs.remove_role(key, **role_of_ann(ids)),
        ["the role DIRECTOR of person 'Ann Lee' (jurisdiction unknown) at fund 'Fund' (LU) was restored"],
    ),
    "cbu.add-product": (
        lambda verbs, key, ids: verbs.add_product(key, cbu_id=ids["fund"], product="DEPOSITARY"),
        ["the product DEPOSITARY of fund 'Fund' (LU) was removed"],
    ),
    "cbu.remove-product": (
        lambda verbs, key, ids: verbs.remove_product(key, cbu_id=ids["fund"], product="CUSTODY"),
        ["the product CUSTODY of fund 'Fund' (LU) was restored"],
    ),
    "cbu.link": (
        lambda verbs, key, ids: verbs.link(key, **link_of_fund(ids, "other", "RELATED")),
        ["the link of fund 'Fund' (LU) to company 'Other' (LU) (related) was removed"],
    ),
    "cbu.unlink": (
        lambda verbs, key, ids: verbs.unlink(key, **link_of_fund(ids, "manco")),
        ["the link of fund 'Fund' (LU) to company 'ManCo' (LU) (manco) was restored"],
    ),
}
"""Verb -> a call that changes rows, and the changes that its undo reports."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb of `CALLS` on a separate database."""

    name: str
    database: EntityDatabase
    verbs: OnboardingVerbs
    ids: Ids

    def call(self, key: str) -> None:
        CALLS[self.name][0](self.verbs, key, self.ids)

    def undo(self, key: str) -> UndoResult:
        return self.verbs.undo(key)

    def overview(self) -> Any:
        return read_overview(self.database)


@pytest.fixture(params=CALLS)
def verb(request: pytest.FixtureRequest, database: EntityDatabase, verbs: OnboardingVerbs, ids: Ids) -> Verb:
    return Verb(request.param, database, verbs, ids)


def test_every_verb_that_can_be_undone_names_its_undo() -> None:
    declarations = {spec.name: spec.declaration for spec in onboarding_tools("sqlite:///never-opened.db")}
    undo_by_verb = {name: tool.undo for name, tool in declarations.items() if tool.undo is not None}
    assert undo_by_verb == dict.fromkeys(undo_by_verb, "onboarding.undo")
    verbs = set(declarations) - set(RESOLVER.tools())
    assert set(undo_by_verb) - {RESOLVER.bind} == set(CALLS) == verbs - {"cbu.get", "onboarding.undo"}


def test_undone_call_is_reverted_and_cannot_run_again(verb: Verb) -> None:
    overview_before = verb.overview()
    verb.call("k")
    assert verb.overview() != overview_before
    undo_result = verb.undo("k")
    assert undo_result == UndoResult("k", verb.name, CALLS[verb.name][1])
    assert verb.overview() == overview_before
    assert verb.undo("k") == undo_result
    with pytest.raises(ValueError, match=rf"this {verb.name} was undone at 20.*cannot run again"):
        verb.call("k")
    assert verb.overview() == overview_before
    verb.call("k2")
    assert verb.overview() != overview_before


def test_undo_before_its_call_prevents_the_call(verb: Verb) -> None:
    overview_before = verb.overview()
    assert verb.undo("k") == UndoResult("k", None, [])
    assert verb.undo("k") == UndoResult("k", None, [])
    with pytest.raises(ValueError, match=rf"this {verb.name} was undone"):
        verb.call("k")
    assert verb.overview() == overview_before


def test_undo_of_a_call_without_changes_does_nothing(verb: Verb) -> None:
    verb.call("k1")
    overview_after = verb.overview()
    verb.call("k2")
    assert verb.undo("k2") == UndoResult("k2", verb.name, [])
    assert verb.overview() == overview_after


@pytest.mark.parametrize(
    "verb", [name for name in CALLS if "remove" not in name and "unlink" not in name], indirect=True
)
def test_call_is_not_undone_before_later_calls_that_use_its_rows(verb: Verb) -> None:
    overview_before = verb.overview()
    verb.call("k1")
    overview_after = verb.overview()
    verb.call("k2")
    with pytest.raises(ValueError, match=rf"cannot be undone: used later by {verb.name}"):
        verb.undo("k1")
    assert verb.overview() == overview_after
    verb.call("k1")
    verb.undo("k2")
    verb.undo("k1")
    assert verb.overview() == overview_before


LATER_VERBS_OF_FUND = "used later by cbu.assign-role, cbu.remove-role, cbu.add-product"


def test_calls_are_undone_in_reverse_order(database: EntityDatabase, verbs: OnboardingVerbs) -> None:
    overview_before = read_overview(database)
    manco = verbs.create_limited_company("k1", name="Apex ManCo", jurisdiction="LU")
    fund = verbs.ensure_cbu("k2", CbuRequest("Apex", "LU", manco_id=manco.id))
    person = verbs.create_person("k3", name="John Smith")
    verbs.assign_role("k4", cbu_id=fund.id, entity_id=person.id, role="DIRECTOR")
    verbs.remove_role("k5", cbu_id=fund.id, entity_id=person.id, role="DIRECTOR")
    verbs.add_product("k6", cbu_id=fund.id, product="CUSTODY")
    with pytest.raises(ValueError, match=f"cannot be undone: {re.escape(LATER_VERBS_OF_FUND)}$"):
        verbs.undo("k2")
    for key in ("k6", "k5", "k4", "k3", "k2", "k1"):
        verbs.undo(key)
    assert read_overview(database) == overview_before
    findings = find(database, "Apex")
    assert (findings.hits, findings.near_matches) == ((), ())
    assert verbs.ensure_cbu("k7", CbuRequest("Apex", "LU")).created


def test_creation_of_a_party_is_not_undone_after_a_change_of_the_party(verbs: OnboardingVerbs, load: Load) -> None:
    verbs.create_limited_company("k1", name="Apex", jurisdiction="LU")
    assert load("name,kind,jurisdiction,aliases,lei\nApex,company,LU,Apx,529900T8BM49AURSDO55\n").updated == 1
    with pytest.raises(ValueError, match=r"cannot be undone: it now has another name and an identifier"):
        verbs.undo("k1")


def test_client_type_is_restored_unless_a_later_call_uses_it(database: EntityDatabase, verbs: OnboardingVerbs) -> None:
    fund_key = NaturalKey(PartyKind.FUND, "Apex", "LU")
    database.write(lambda session: ensure_party(session, fund_key)[1])
    overview_before = read_overview(database)
    verbs.ensure_cbu("k1", CbuRequest("Apex", "LU", "pension-fund"))
    verbs.ensure_cbu("k2", CbuRequest("Apex", "LU", "pension-fund"))
    with pytest.raises(ValueError, match=r"the client_type of fund .* cannot be undone: used later by cbu\.ensure"):
        verbs.undo("k1")
    verbs.undo("k2")
    verbs.ensure_cbu("k3", CbuRequest("Apex", "LU"))
    assert verbs.undo("k1").reverted == ["fund 'Apex' (LU) was reset"]
    assert read_overview(database) == overview_before


def test_restored_row_is_the_same_row(verbs: OnboardingVerbs, database: EntityDatabase, ids: Ids) -> None:
    overview_before = read_overview(database)
    removed_role = verbs.remove_role("k1", **role_of_ann(ids))
    verbs.undo("k1")
    assert read_overview(database) == overview_before
    restored_role = verbs.assign_role("k2", **role_of_ann(ids))
    assert (restored_role.id, restored_role.created) == (removed_role.id, False)


def test_undo_of_a_removal_keeps_a_row_that_was_created_again(
    verbs: OnboardingVerbs, database: EntityDatabase, ids: Ids
) -> None:
    verbs.remove_role("k1", **role_of_ann(ids))
    verbs.assign_role("k2", **role_of_ann(ids))
    overview_after = read_overview(database)
    assert verbs.undo("k1").reverted == []
    assert read_overview(database) == overview_after


def test_link_is_not_restored_if_another_link_has_replaced_it(
    verbs: OnboardingVerbs, database: EntityDatabase, ids: Ids
) -> None:
    verbs.unlink("k1", **link_of_fund(ids, "manco"))
    verbs.link("k2", **link_of_fund(ids, "other"))
    overview_after = read_overview(database)
    with pytest.raises(ValueError, match=r"fund 'Fund' \(LU\) is already managed by company 'Other' \(LU\)"):
        verbs.undo("k1")
    assert read_overview(database) == overview_after


def test_removed_role_is_not_restored_if_its_assignment_was_undone(
    verbs: OnboardingVerbs, database: EntityDatabase, ids: Ids
) -> None:
    overview_before = read_overview(database)
    verbs.assign_role("k1", **role_of_ann(ids, "CHAIRPERSON"))
    verbs.remove_role("k2", **role_of_ann(ids, "CHAIRPERSON"))
    assert [verbs.undo(key).reverted for key in ("k1", "k2")] == [[], []]
    assert read_overview(database) == overview_before


def test_call_without_recorded_changes_is_not_undone(verbs: OnboardingVerbs, database: EntityDatabase) -> None:
    verbs.create_limited_company("k1", name="Apex", jurisdiction="LU")
    database.write(lambda session: session.execute(text("UPDATE effect SET changes = NULL")))
    with pytest.raises(ValueError, match="cannot be undone: its changes were not recorded"):
        verbs.undo("k1")


@pytest.mark.parametrize("key", ["", "k" * 129, "a\0b"])
def test_invalid_key_is_rejected(verbs: OnboardingVerbs, key: str) -> None:
    with pytest.raises(ValueError, match="an idempotency key must have 1 to 128 characters"):
        verbs.undo(key)


def test_undo_tool_accepts_the_arguments_of_a_compensation(database: EntityDatabase) -> None:
    tools = {spec.name: spec for spec in onboarding_tools(database)}

    def call_tool(name: str, key: str, arguments: dict[str, Any]) -> Any:
        function = tools[name].function
        assert function is not None
        with tool_context(idempotency_key=key):
            return function(**tools[name].bind(arguments))

    arguments = {"name": "Apex", "jurisdiction": "LU"}
    result = call_tool("cbu.ensure", "k1", arguments)
    compensation = {"key": "k1", "arguments": arguments, "result": {"id": result.id}}
    undo_result = call_tool("onboarding.undo", "k2", compensation)
    assert undo_result == UndoResult("k1", "cbu.ensure", ["fund 'Apex' (LU) was removed"])
    assert call_tool("onboarding.undo", "k2", compensation) == undo_result
    assert call_tool("onboarding.undo", "k3", {"key": "k4", "arguments": {}, "result": None}).verb is None
    assert database.read(lambda session: session.get(Effect, "k2")) is None
