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
        after: cursor of the previous page; `None` for the first page.
    """

    limit: int
    after: ListCursor | None


def _page(
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE)] = 100,
    after: Annotated[str | None, Query(description="`cursor` of the previous page.")] = None,
) -> Page:
    return Page(limit, _parse_cursor(after))


PageDep = Annotated[Page, Depends(_page)]


def next_page_fields(cursor: ListCursor | None) -> dict[str, Any]:
    """Return the fields of a list that refer to its next page."""
    return {"has_more": cursor is not None, "cursor": None if cursor is None else str(cursor)}


def _parse_cursor(after: str | None) -> ListCursor | None:
    try:
        return ListCursor.parse(after) if after else None
    except ValueError:
        message = "`after` must be the `cursor` of a page; omit it for the first page"
        raise ApiError(ErrorCode.INVALID_VALUE, message, param="after") from None
