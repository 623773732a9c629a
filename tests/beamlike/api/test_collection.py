"""Collections as handles: their text and their representation."""

from __future__ import annotations

import beamlike as bl
from tests.support.pipelines import plays


def test_a_collection_is_shown_by_its_name_and_columns() -> None:
    collection = plays().select("user", "score")
    assert repr(collection) == "<Collection 'plays.select': user String, score Int64>"
    assert type(collection) is type(collection.window_into(bl.FixedWindows("1m"))) is bl.Collection
