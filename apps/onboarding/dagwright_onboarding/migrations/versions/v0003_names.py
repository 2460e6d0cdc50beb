"""Empty: revision 0005 indexes the names, after all changes of the search tables."""

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Change nothing."""
