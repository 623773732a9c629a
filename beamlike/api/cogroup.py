"""Cogrouping: for each key, the rows of each of several collections."""

from __future__ import annotations

from typing import Any

import attrs

from beamlike.api.flatten import require_collections
from beamlike.api.pipeline import Collection
from beamlike.api.recorded import records
from beamlike.logical.joins import cogrouped


@records
@attrs.frozen
class Cogroup:
    """Collections to be grouped together, by side name. `by` declares the grouping."""

    sides: dict[str, Collection]

    def by(self, *keys: str, name: str | None = None) -> Collection:
        """Groups the collections: one row per key, window and pane, with the keys and a list of structs for each side.

        All collections must have the same windowing; sessions are merged over the rows of all sides. Null is a key like
        any other.

        Args:
            *keys: Columns, at least one, that all collections have with the same type.
            name: The name of the step.

        Raises:
            PlanError: The collections differ, with the difference in the message; or a column does not exist.

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
    """Groups several collections together. Call `by` on the result, with the keys.

    Args:
        **collections: At least two collections of one pipeline, by the name of their side, which is also the name of
            its column in the result. A collection may be given twice.

    Raises:
        PlanError: Fewer than two collections, or of different pipelines.

    Example, with the `plays` of `Collection`:
        >>> bl.cogroup(ours=plays.select("user"), theirs=plays.select("user")).by("user").schema.names()
        ['user', 'ours', 'theirs']
    """
    given: list[Any] = list(collections.values())
    require_collections(given, "cogroup", "cogroup")
    return Cogroup(collections)
