"""Nothing: names are brought into the search index by 0005, after all that changes its tables."""

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Changes nothing."""
