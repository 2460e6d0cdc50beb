"""The helpdesk articles: each has what its index takes."""

from dagwright_maritime.index_loading import articles
from dagwright_maritime.indices import Indices


def test_articles_have_the_fields_of_their_index_and_ids_of_their_own() -> None:
    found = articles()
    fields = set(Indices("x").bodies()["x-helpdesk"]["mappings"]["properties"])
    assert len(found) == 40
    assert {name for each in found for name in each} == fields
    assert len({each["article_id"] for each in found}) == len({each["title"] for each in found}) == 40
    assert [each["article_id"] for each in found if len(each["body"]) < 100 or not each["tags"]] == []
