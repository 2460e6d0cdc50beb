"""The tables of dialects, from the attributes of `Dialect`."""

from dagwright.core.model.dialect import TEXT_DIALECTS, Dialect
from scripts.reference.markdown import code, table

_PAGE = "../reference/dialects.md"


def dialects_table() -> str:
    """Return a row for each dialect: name with a link to its rules, shape of a document, call of a step."""
    rows = [(f"[{code(each)}]({_link_to_rules(each)})", each.shape, each.call) for each in Dialect]
    return table(("Dialect", "Recognized by", "A step calls"), rows)


def node_ids_table() -> str:
    """Return a row for each dialect: name and IDs of its nodes."""
    return table(("Dialect", "Node IDs"), [(code(each), each.node_ids) for each in Dialect])


def _link_to_rules(dialect: Dialect) -> str:
    if dialect is Dialect.PLAN:
        return "../reference/plan.md"
    return f"{_PAGE}#{'-and-'.join(TEXT_DIALECTS) if dialect in TEXT_DIALECTS else dialect}"
