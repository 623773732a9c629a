"""Several collections grouped together: for each key, the rows that each of them has."""

from __future__ import annotations

from typing import Any

import attrs

from beamlike.api.collection import Collection
from beamlike.api.flatten import require_collections
from beamlike.logical.joins import cogrouped


@attrs.frozen
class Cogroup:
    """Collections by the names of their sides, waiting for the keys by which they are grouped."""

    sides: dict[str, Collection]

    def by(self, *keys: str, name: str | None = None) -> Collection:
        """One row per key, window and pane: the keys, then for each side a list of its rows, as structs.

        `keys` are names of columns that all collections have, of the same type, at least one. Null is a key like any
        other. `name` is that of the step. All must be in the same windows, with the same choices; sessions are those
        of all rows together. Raises `PlanError` where they differ, with what is different, and for a column that is
        not there.

        Example, with the `plays` of `Collection`:
            >>> days = plays.window_into(bl.FixedWindows("1d"))
            >>> few, many = days.filter(bl.col("points") < 4), days.filter(bl.col("points") > 4)
            >>> both = bl.cogroup(few=few, many=many).by("user").collect()
            >>> [(user, len(few), len(many)) for user, few, many in both[["user", "few", "many"]].rows()]
            [('ada', 1, 0), ('bob', 0, 1)]
        """
        first = next(iter(self.sides.values()))
        pipeline = first.pipeline
        step = pipeline.new_name(name, "cogroup")
        made = cogrouped(
            {side: collection.node for side, collection in self.sides.items()}, keys, step, pipeline.free
        )
        return first._made(made)


def cogroup(**collections: Collection) -> Cogroup:
    """Groups several collections together: call `by` on the result, with the keys.

    Each keyword is the name of a side, and of its column in the result; at least two collections, of one pipeline. A
    collection may be there twice. Raises `PlanError` for others.

    Example, with the `plays` of `Collection`:
        >>> bl.cogroup(ours=plays.select("user"), theirs=plays.select("user")).by("user").schema.names()
        ['user', 'ours', 'theirs']
    """
    given: list[Any] = list(collections.values())
    require_collections(given, "cogroup", "cogroup")
    return Cogroup(collections)
