"""Messages survive a round trip: every deadline that a plan or a command can have."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagwright.core.model.times import parse_duration
from dagwright.protocol.messages import RunInput, run_input_from_json, run_input_to_json

_PARTS = st.sampled_from(["", ".5", ".05", ".001", ".999", ".123"])


@st.composite
def _durations(draw: st.DrawFn) -> str:
    unit, most = draw(
        st.sampled_from([("ms", 999_999_999), ("s", 315_359_999), ("m", 5_255_999), ("h", 87_599), ("d", 3_649)])
    )
    return f"{draw(st.integers(1, most))}{draw(_PARTS)}{unit}"


@settings(deadline=None)
@given(_durations())
@example("30d")
@example("3650d")
@example("0.001ms")
@example("999999999.999ms")
def test_every_deadline_comes_back_the_same(duration: str) -> None:
    sent = RunInput(plan={}, deadline_s=parse_duration(duration).total_seconds())

    assert run_input_from_json(run_input_to_json(sent)) == sent
