"""Who answers a request."""

import pytest

from dagwright.interfaces.http.bodies import RoutingMode
from dagwright.interfaces.http.conversation import Conversation, GivenAnswer
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.routing import decided
from dagwright.interfaces.http.targets import Kind, Target

DIRECT, RUN, AUTO = RoutingMode.DIRECT, RoutingMode.ORCHESTRATION, RoutingMode.AUTO


@pytest.mark.parametrize(
    ("mode", "kind", "has_functions", "answer"),
    [
        (None, "model", False, DIRECT),
        (DIRECT, "model", False, DIRECT),
        (RUN, "model", False, RUN),
        (RUN, "model", True, RUN),
        (AUTO, "model", False, AUTO),
        (AUTO, "model", True, DIRECT),
        (None, "plan", False, RUN),
        (AUTO, "plan", False, RUN),
        (RUN, "agent", False, RUN),
        (AUTO, "profile", True, RUN),
    ],
)
def test_mode_model_and_functions_say_who_answers(
    mode: RoutingMode | None, kind: Kind, has_functions: bool, answer: RoutingMode
) -> None:
    assert decided(mode, Target(kind, "x"), Conversation("Go."), has_functions=has_functions) is answer


@pytest.mark.parametrize("mode", [None, DIRECT, RUN, AUTO])
def test_answer_to_a_run_goes_to_that_run(mode: RoutingMode | None) -> None:
    said = Conversation("", answers=[GivenAnswer("call_1", "run-1", "yes")])
    assert decided(mode, Target("model", "small"), said, has_functions=True) is RUN


def test_results_of_other_functions_go_to_the_model() -> None:
    said = Conversation("", other_tools=True)
    assert decided(AUTO, Target("model", "small"), said, has_functions=False) is DIRECT
    assert decided(None, Target("model", "small"), said, has_functions=False) is DIRECT


@pytest.mark.parametrize(
    ("mode", "kind", "said"),
    [
        (DIRECT, "plan", Conversation("Go.")),
        (RUN, "model", Conversation("", other_tools=True)),
        (None, "plan", Conversation("", other_tools=True)),
        (AUTO, "profile", Conversation("", other_tools=True)),
        (None, "model", Conversation("", answers=[GivenAnswer("call_1", "run-1", "yes")], other_tools=True)),
    ],
)
def test_mode_that_does_not_go_with_the_rest_is_refused(
    mode: RoutingMode | None, kind: Kind, said: Conversation
) -> None:
    with pytest.raises(ApiError) as refused:
        decided(mode, Target(kind, "x"), said, has_functions=False)
    assert refused.value.status == 400
