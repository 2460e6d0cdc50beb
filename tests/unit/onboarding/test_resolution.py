"""Resolution of a lookup to a single party: the sequence of questions, and the effects of the answers."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from dagwright.core.model.answers import BadAnswer, normalize_checked_answer
from dagwright.features.feedback.questions import request_of, validate_question_fields
from dagwright.tools import AskPerson
from dagwright_onboarding.catalogue import PartyKind
from dagwright_onboarding.database import EntityDatabase
from dagwright_onboarding.gateway import EntityGateway
from dagwright_onboarding.models import Party, PartyStatus
from dagwright_onboarding.parties import NaturalKey, add_party
from dagwright_onboarding.party_loading import load_parties
from dagwright_onboarding.resolution import CREATE_NEW, NONE_OF_THESE, LookupRequest, PartyResolver
from tests.support.parties import Load

LoadGateway = Callable[..., EntityGateway]
_PARTIES = Path(__file__).parents[3] / "examples" / "onboarding" / "parties.csv"


@pytest.fixture(scope="module")
def example_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EntityDatabase]:
    """A database with the parties of the example, for tests that do not change the parties."""
    database = EntityDatabase(f"sqlite:///{tmp_path_factory.mktemp('parties') / 'parties.db'}")
    load_parties(database, _PARTIES)
    yield database
    database.dispose()


@pytest.fixture
def gateway(example_database: EntityDatabase) -> EntityGateway:
    return EntityGateway(example_database)


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """SQLite only: a resolution does not depend on the kind of database."""
    return f"sqlite:///{tmp_path / 'state' / 'parties.db'}"


@pytest.fixture
def load_gateway(database: EntityDatabase, load: Load) -> LoadGateway:
    """Return a function that loads rows, of which the first has the names of the columns."""

    def load_rows(*rows: str) -> EntityGateway:
        assert not load("\n".join(rows)).rejected
        return EntityGateway(database)

    return load_rows


class Conversation:
    """A lookup that asks questions. Each answer calls the tool of the lookup again."""

    def __init__(self, gateway: EntityGateway, *request: str) -> None:
        self._resolver = PartyResolver(gateway, LookupRequest(*request), is_interactive=True)
        self._checkpoint: Any = None
        self.result: Any = None
        self.question: Any = self._resolve()

    def answer(self, **answer: Any) -> Any:
        """Answer the last question, and return the next question or the result."""
        self.question = self._resolve(answer)
        return self.question or self.result

    def select(self, option_id: str) -> Any:
        [chosen_option] = [
            option for option in self.question["options"] if option == option_id or option["id"] == option_id
        ]
        return self.answer(selected=[chosen_option])

    def _resolve(self, *answers: Any) -> Any:
        try:
            self.result = self._resolver.resolve(answers, self._checkpoint)
            return None
        except AskPerson as error:
            self._checkpoint = error.checkpoint
            # Each question must be valid for a run.
            validate_question_fields(error.request)
            return error.request


def problem_of(gateway: EntityGateway, *request: str) -> Any:
    """Return the problem of a lookup in a non-interactive run."""
    return PartyResolver(gateway, LookupRequest(*request), is_interactive=False).resolve((), None).get("problem")


def id_of(database: EntityDatabase, name: str) -> str:
    return database.read(lambda session: session.query(Party).filter(Party.name == name).one().id)


def test_single_hit_is_bound_with_its_reason(gateway: EntityGateway, example_database: EntityDatabase) -> None:
    john = {"id": id_of(example_database, "John Smith"), "name": "John Smith", "kind": "person", "jurisdiction": "GB"}
    assert Conversation(gateway, "J. Smith", "person").result == {"entity": john, "reason": "other name"}


def test_partial_name_is_confirmed_by_a_person_or_fails(
    gateway: EntityGateway, example_database: EntityDatabase
) -> None:
    smithson_id = id_of(example_database, "John Smithson")
    conversation = Conversation(gateway, "John Smiths", "person")
    assert (conversation.question["type"], conversation.question["options"][0]["id"]) == ("SELECTION", smithson_id)
    assert conversation.select(smithson_id)["reason"] == "chosen by a person"
    problem = problem_of(gateway, "John Smiths", "person")
    assert problem["code"] == "lookup_ambiguous"
    assert [candidate["id"] for candidate in problem["candidates"]] == [smithson_id]
    assert problem["message"] == (
        f"Only a possible match for person 'John Smiths': John Smithson (person, GB, born 1975-11-02, {smithson_id}): "
        "contains words with these beginnings."
    )


def test_question_names_inactive_parties(load_gateway: LoadGateway, database: EntityDatabase) -> None:
    rows = ["John Smith,GB,1968-03-14,inactive", "John Smithson,GB,1975-11-02,active", "Eve Gone,GB,,inactive"]
    gateway = load_gateway("name,jurisdiction,date_of_birth,status,kind", *(f"{row},person" for row in rows))
    john_id, eve_id = id_of(database, "John Smith"), id_of(database, "Eve Gone")
    message = f"John Smith (person, GB, born 1968-03-14, {john_id}) is inactive. "
    conversation = Conversation(gateway, "John Smith", "person")
    assert conversation.question["prompt"] == f"{message}Which person is meant by 'John Smith'? Or enter another name."
    assert john_id not in [option["id"] for option in conversation.question["options"]]
    # A date of birth distinguishes the new person from the existing person.
    assert conversation.select(CREATE_NEW)["schema"]["required"] == ["date_of_birth"]
    eve_question = Conversation(gateway, "Eve Gone", "person").question
    eve_message = f"Eve Gone (person, GB, {eve_id}) is inactive. "
    assert eve_question["type"] == "CLARIFICATION"
    assert eve_question["prompt"].startswith(f"{eve_message}No other party found for person")
    problems = [problem_of(gateway, name, "person") for name in ("John Smith", "Eve Gone")]
    assert [problem["code"] for problem in problems] == ["lookup_ambiguous", "lookup_not_found"]
    assert problems[1]["message"].startswith(eve_message)
    assert problems[0]["message"].startswith(f"{message}Only a possible match for person 'John Smith': John Smithson")
    assert "with the status `active`" in problems[1]["hint"]


def test_option_has_the_distinguishing_facts_of_a_party(gateway: EntityGateway) -> None:
    question = Conversation(gateway, "Meridian Global", "entity").question
    assert [option["label"] for option in question["options"]] == [
        "Meridian Global Bond (fund, LU, LEI 337600MERIDIANGLOB08)",
        "Meridian Global Equity (fund, LU, LEI 337500MERIDIANGLOB04)",
        NONE_OF_THESE,
        CREATE_NEW,
    ]


@pytest.mark.parametrize("is_text", [False, True])
def test_option_none_of_these_asks_for_a_name(
    gateway: EntityGateway, example_database: EntityDatabase, *, is_text: bool
) -> None:
    conversation = Conversation(gateway, "Maria Garcia", "person")
    next_question = conversation.answer(text="none of these") if is_text else conversation.select(NONE_OF_THESE)
    assert (next_question["type"], next_question["prompt"]) == (
        "CLARIFICATION",
        "Which party is meant by person 'Maria Garcia'? Enter another name, an identifier such as an LEI, the id of "
        "a party, or 'create new'.",
    )
    next_question = conversation.answer(text="7")
    assert (next_question["type"], "Garcia (person" in next_question["prompt"]) == ("CLARIFICATION", False)
    assert conversation.answer(text="Meridian")["type"] == "CLARIFICATION"
    assert conversation.answer(text="Aiko Tanaka")["entity"]["id"] == id_of(example_database, "Aiko Tanaka")


def test_id_of_a_party_of_another_type_leads_to_a_new_question(
    gateway: EntityGateway, example_database: EntityDatabase
) -> None:
    conversation = Conversation(gateway, "Nobody Known", "fund")
    next_question = conversation.answer(text=id_of(example_database, "Sarah Chen"))
    assert next_question["prompt"].startswith("'Sarah Chen' is a person, but the lookup is for a fund. Which party ")
    assert conversation.answer(text="CUSTODY")["prompt"].startswith("No party found for fund 'CUSTODY'")
    assert conversation.answer(text="Apex Fund")["entity"]["id"] == id_of(example_database, "Apex Fund")
    result = Conversation(gateway, "Nobody Known", "entity").answer(text=id_of(example_database, "Sarah Chen"))
    assert result["entity"]["kind"] == "person"


def test_product_is_never_offered_for_creation(gateway: EntityGateway) -> None:
    conversation = Conversation(gateway, "fund accountng", "product")
    assert conversation.question["prompt"] == (
        "No product found for product 'fund accountng'; near: Fund accounting (product, FUND_ACCOUNTING). "
        "Which product is meant by product 'fund accountng'? Enter another name or a code."
    )
    assert conversation.answer(text="create new")["prompt"].startswith("No product found for product 'create new'")
    assert conversation.answer(text="FUND_ACCOUNTING")["entity"]["id"] == "FUND_ACCOUNTING"
    options = Conversation(gateway, "fund", "product").question["options"]
    assert [option["id"] for option in options][-1] == "none of these"


def test_code_is_bound_to_the_kind_that_is_looked_up(gateway: EntityGateway) -> None:
    for kind in ("product", "role"):
        assert Conversation(gateway, "Nothing known", kind).answer(text="DEPOSITARY")["entity"]["kind"] == kind


def test_company_needs_a_jurisdiction_to_be_created(gateway: EntityGateway) -> None:
    conversation = Conversation(gateway, "Zenith", "company")
    next_question = conversation.answer(text="CREATE NEW")
    assert next_question["schema"]["required"] == ["jurisdiction"]
    assert next_question["schema"]["properties"]["name"]["default"] == "Zenith"
    result = conversation.answer(data={"name": "Zenith S.A.", "jurisdiction": "lu"})
    assert result["create"] == {"kind": "company", "name": "Zenith S.A.", "jurisdiction": "LU"}
    assert Conversation(gateway, "Zenith", "company", "LU").answer(text=CREATE_NEW)["create"]["jurisdiction"] == "LU"


def test_person_with_an_unknown_name_is_created_without_a_question(gateway: EntityGateway) -> None:
    result = Conversation(gateway, "Zoltan Zed", "person").answer(text=CREATE_NEW)
    expected = {"create": {"kind": "person", "name": "Zoltan Zed"}, "reason": "created at the request of a person"}
    assert result == expected


def test_invalid_name_is_requested_again(gateway: EntityGateway) -> None:
    conversation = Conversation(gateway, "x" * 10_000, "person")
    next_question = conversation.answer(text=CREATE_NEW)
    assert next_question["schema"]["required"] == ["name"]
    assert len(next_question["prompt"]) < 1_000
    assert conversation.answer(data={"name": "Xaver"})["create"]["name"] == "Xaver"


def test_very_long_answer_leads_to_a_question_of_limited_length(gateway: EntityGateway) -> None:
    for search_text, question_type in (("Maria Garcia", "SELECTION"), ("Sarah Cohen", "CLARIFICATION")):
        question = Conversation(gateway, search_text, "person").answer(text="y" * 200_000)
        assert question["type"] == question_type
        assert len(question["prompt"]) < 2_000


def test_answer_without_a_party_keeps_the_options(gateway: EntityGateway, example_database: EntityDatabase) -> None:
    conversation = Conversation(gateway, "Maria Garcia", "person")
    options, apex_id = conversation.question["options"], id_of(example_database, "Apex Fund")
    for text, reason in (
        ("7", "No party found for person '7'."),
        (apex_id, "'Apex Fund' is a fund, but the lookup is for a person."),
        ("?!", "search_text '?!' has no letter or digit."),
    ):
        next_question = conversation.answer(text=text)
        assert next_question["options"] == options
        assert next_question["prompt"] == f"{reason} Which person is meant by 'Maria Garcia'? Or enter another name."
    next_question = conversation.answer(text="Sarah Cohen")
    assert next_question["options"] == options
    assert "near: Sarah Chen (person, HK" in next_question["prompt"]
    assert conversation.select(id_of(example_database, "Maria García"))["entity"]["name"] == "Maria García"


def test_similar_names_are_reported_again_after_an_answer_without_a_party(gateway: EntityGateway) -> None:
    conversation = Conversation(gateway, "Sarah Cohen", "person")
    near_names = conversation.question["prompt"].partition("near: ")[2].partition(". ")[0]
    for text in ("7", "Nobody Known"):
        prompt = conversation.answer(text=text)["prompt"]
        assert prompt.startswith(f"No party found for person {text!r}. Near 'Sarah Cohen': {near_names}. ")
    assert conversation.answer(text="Sarah Cohen")["prompt"].count(near_names) == 1


def test_only_accepted_kinds_are_found_and_created(gateway: EntityGateway, example_database: EntityDatabase) -> None:
    conversation = Conversation(gateway, "John Smith", "company or fund")
    prompt = conversation.question["prompt"]
    assert prompt.startswith("No party found for company or fund 'John Smith'; near: John Smith (person")
    next_question = conversation.answer(text=id_of(example_database, "John Smith"))
    assert next_question["prompt"].startswith("'John Smith' is a person, but the lookup is for a company or fund. ")
    kind_question = conversation.answer(text=CREATE_NEW)
    assert (kind_question["type"], kind_question["options"]) == ("SELECTION", ["company", "fund"])


def test_options_are_those_of_the_newest_text_with_hits(gateway: EntityGateway) -> None:
    conversation = Conversation(gateway, "Maria Garcia", "entity")
    options = conversation.answer(text="Meridian Global")["options"]
    next_question = conversation.answer(text="7")
    assert next_question["options"] == options
    assert "meant by 'Meridian Global' (lookup: entity 'Maria Garcia')?" in next_question["prompt"]


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("Maria Garcia", "person", "lookup_ambiguous"),
        ("Polaris Partners", "company", "lookup_not_found"),
        ("?!", "fund", "invalid_field"),
        (" ", "fund", "invalid_field"),
    ],
)
def test_lookup_without_interaction_returns_a_problem(gateway: EntityGateway, text: str, kind: str, code: str) -> None:
    problem = problem_of(gateway, text, kind)
    assert problem["code"] == code
    assert [*problem] == ["code", "message", "hint", "candidates"]


def test_text_of_an_answer_is_not_the_default_name_of_a_new_party(gateway: EntityGateway) -> None:
    conversation = Conversation(gateway, "John Quincy", "person")
    conversation.answer(text="213800MERIDIANFUND38")
    next_question = conversation.answer(text="Create new")
    assert next_question["type"] == "INFORMATION"
    assert next_question["schema"]["properties"]["name"]["default"] == "John Quincy"
    assert conversation.answer(data={"name": "John Quincy"})["create"] == {"kind": "person", "name": "John Quincy"}


def test_existing_person_is_not_created_again(gateway: EntityGateway, example_database: EntityDatabase) -> None:
    conversation = Conversation(gateway, "Sarah Chen", "person", "SG")
    next_question = conversation.answer(text="create new")
    assert "A person called 'Sarah Chen' already exists" in next_question["prompt"]
    form_answer = {"data": {"name": "Sarah Chen", "date_of_birth": "1987-05-17"}}
    next_question = conversation.answer(**form_answer)
    sarah_id = id_of(example_database, "Sarah Chen")
    message = "This person already exists. Which person is meant by 'Sarah Chen'? Or enter another name."
    assert next_question["prompt"] == message
    assert [option["id"] for option in next_question["options"]] == [sarah_id, NONE_OF_THESE, CREATE_NEW]
    # Another party with this name can still be created.
    assert conversation.select(CREATE_NEW)["type"] == "INFORMATION"
    assert conversation.answer(**form_answer)["options"] == next_question["options"]
    assert conversation.select(sarah_id)["entity"]["name"] == "Sarah Chen"


def test_inactive_person_is_neither_created_again_nor_offered(
    load_gateway: LoadGateway, database: EntityDatabase
) -> None:
    gateway = load_gateway("name,kind,date_of_birth,status", "Eve Gone,person,1970-01-01,inactive")
    conversation = Conversation(gateway, "Eve Gone", "person")
    conversation.answer(text=CREATE_NEW)
    next_question = conversation.answer(data={"name": "Eve Gone", "date_of_birth": "1970-01-01"})
    message = "This person already exists: Eve Gone (person, jurisdiction unknown, born 1970-01-01, "
    assert next_question["type"] == "CLARIFICATION"
    assert next_question["prompt"].startswith(
        f"{message}{id_of(database, 'Eve Gone')}) is inactive. Which party is meant"
    )


@pytest.mark.parametrize(
    ("invalid_fields", "problem"),
    [
        ({"name": " "}, "' ' is not a name: it has no letter or digit"),
        ({"date_of_birth": "2999-01-01"}, "'2999-01-01' is not a date of birth from 1800-01-01 to 2099-12-31"),
        ({"date_of_birth": "1980-02-30"}, "'1980-02-30' is not a date such as 1970-12-31"),
        ({"jurisdiction": "XX"}, "jurisdiction 'XX' is not an ISO 3166 code"),
    ],
)
def test_invalid_details_do_not_fit_the_form(gateway: EntityGateway, invalid_fields: Any, problem: str) -> None:
    schema = Conversation(gateway, "Maria Garcia", "person").select(CREATE_NEW)["schema"]
    question = {"type": "INFORMATION", "prompt": "…", "schema": schema}
    request = request_of(question, "r", task="r", purpose="raised", at=0)
    valid_fields = {"name": "Maria Garcia", "date_of_birth": "1980-01-31", "jurisdiction": "LU"}
    assert normalize_checked_answer(request, {"data": valid_fields}) == {"data": valid_fields}
    with pytest.raises(BadAnswer, match=re.escape(problem)):
        normalize_checked_answer(request, {"data": {**valid_fields, **invalid_fields}})


def test_chosen_party_that_became_inactive_is_not_bound(database: EntityDatabase) -> None:
    keys = [NaturalKey(PartyKind.PERSON, "Eva Twin", jurisdiction) for jurisdiction in ("GB", "IE")]
    first_id, _ = database.write(lambda session: [add_party(session, key).id for key in keys])
    conversation = Conversation(EntityGateway(database), "Eva Twin", "person")

    def deactivate(session: Session) -> None:
        session.get_one(Party, first_id).status = PartyStatus.INACTIVE

    database.write(deactivate)
    next_question = conversation.answer(selected=[{"id": first_id}])
    assert next_question["prompt"].startswith(f"'Eva Twin' ({first_id}) is inactive. Which person is meant")


def test_hints_in_non_interactive_runs_name_valid_search_texts(load_gateway: LoadGateway) -> None:
    rows = [
        *("Paul Twin,person,GB,1970-01-01,", "Paul Twin,person,GB,1990-01-01,", "Eva Twin,person,GB,,"),
        *("Eva Twin,person,IE,,", "Rook Fund One,fund,LU,,213800MERIDIANFUND38", "Rook Fund Two,fund,LU,,"),
    ]
    gateway = load_gateway("name,kind,jurisdiction,date_of_birth,lei", *rows)

    problems = [
        problem_of(gateway, *request)
        for request in (("Paul Twin", "person"), ("Eva Twin", "person"), ("Rook Fund", "fund"))
    ]
    assert [problem["hint"] for problem in problems] == [
        "Name the party by its id, as search_text of the lookup or in the user's request.",
        "Name the party by its id, as search_text of the lookup or in the user's request, or add its jurisdiction.",
        "Name the party by its id or its whole name or its LEI, as search_text of the lookup or in the user's request.",
    ]
    product_problem = problem_of(gateway, "fund accountng", "product")
    assert product_problem["message"] == (
        "No product found for product 'fund accountng'; near: Fund accounting (product, FUND_ACCOUNTING)."
    )
    assert product_problem["hint"].startswith("Use a name or a code of the catalogue")
    # Each of these search texts identifies exactly one party.
    for candidate in problems[0]["candidates"]:
        assert candidate["id"] in problems[0]["message"]
        assert problem_of(gateway, candidate["id"], "person") is None
    assert problem_of(gateway, "Eva Twin", "person", "IE") is None
    assert [problem_of(gateway, text, "fund") for text in ("Rook Fund Two", "213800MERIDIANFUND38")] == [None, None]


def test_repeated_question_names_inactive_parties(load_gateway: LoadGateway, database: EntityDatabase) -> None:
    rows = ["John Smith,GB,inactive", "John Smithson,GB,active", "Eve Gone,GB,inactive"]
    gateway = load_gateway("name,jurisdiction,status,kind", *(f"{row},person" for row in rows))
    for name in ("John Smith", "Eve Gone"):
        message = f"{name} (person, GB, {id_of(database, name)}) is inactive. "
        conversation = Conversation(gateway, name, "person")
        question_type = conversation.question["type"]
        for text, prompt_start in (("7", f"No party found for person '7'. {message}"), (name, message)):
            next_question = conversation.answer(text=text)
            assert next_question["type"] == question_type
            assert next_question["prompt"].startswith(prompt_start)
            assert next_question["prompt"].count("is inactive") == 1
        next_question = conversation.answer(text=id_of(database, name))
        assert next_question["prompt"].startswith(f"{name!r} ({id_of(database, name)}) is inactive. ")
        assert next_question["prompt"].count("is inactive") == 1
