"""What `up` refuses beside a gateway that runs already."""

from pathlib import Path

import pytest

from dagwright.interfaces.cli.background import refuse_other_gateway
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.settings import Settings


@pytest.mark.parametrize(
    ("plans", "port", "refused"),
    [
        ("a", 8000, None),
        (None, None, None),
        ("b", None, "--plans"),
        ("a", 9000, "--port 9000"),
    ],
)
def test_other_plans_or_port_of_a_running_gateway_are_refused(
    tmp_path: Path, *, plans: str | None, port: int | None, refused: str | None
) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "gateway.plans").write_text(str(tmp_path / "a"))
    settings = Settings(state_dir=tmp_path, plans=None if plans is None else tmp_path / plans)
    if refused is None:
        refuse_other_gateway(settings, "http://127.0.0.1:8000", port=port)
        return
    with pytest.raises(CommandRefused, match=refused) as error:
        refuse_other_gateway(settings, "http://127.0.0.1:8000", port=port)
    assert error.value.code is ExitCode.REFUSED
