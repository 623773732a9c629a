"""The aggregate that only `running` has."""

from __future__ import annotations

from stages.process.cumulative import Previous


def previous(column: str) -> Previous:
    """The value of a column in the previous row of the same key and window; null in the first. Only for `running(...)`.

    Example, with the `plays` of `bl.Collection`:
        >>> so_far = plays.group_by("user").running(before=bl.previous("points"))
        >>> so_far.collect().filter(user="ada")["before"].to_list()
        [None, 3]
    """
    return Previous(column)
