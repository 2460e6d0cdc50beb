"""Pages of lists: the query parameters of a page, and the fields that refer to the next page."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query

from dagwright.client.list_cursors import MAX_PAGE_SIZE, ListCursor
from dagwright.interfaces.http.error_codes import ErrorCode
from dagwright.interfaces.http.errors import ApiError


@dataclass(frozen=True, slots=True)
class Page:
    """The requested page of a list.

    Args:
        cursor: cursor of the page; `None` for the first page.
    """

    limit: int
    cursor: ListCursor | None


def _page(
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE)] = 100,
    cursor: Annotated[str | None, Query(description="`next` of the previous page.")] = None,
) -> Page:
    return Page(limit, _parse_cursor(cursor))


PageDep = Annotated[Page, Depends(_page)]


def next_page_fields(next_cursor: ListCursor | None) -> dict[str, Any]:
    """Return the fields of a list that refer to its next page."""
    return {"has_more": next_cursor is not None, "next": None if next_cursor is None else str(next_cursor)}


def _parse_cursor(cursor: str | None) -> ListCursor | None:
    try:
        return ListCursor.parse(cursor) if cursor else None
    except ValueError:
        message = "`cursor` must be a value of `next`; omit it for the first page"
        raise ApiError(ErrorCode.INVALID_VALUE, message, param="cursor") from None
