"""Declarations of joins by time: `join(within=)`, `join(keep_forever=True)` and `join_asof`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import attrs
import narwhals as nw
import polars as pl

from beamlike.errors import PlanError, UnknownName, WrongType, nearest
from beamlike.expressions.row_expression import ExpressionOfRows
from beamlike.expressions.tree import expression_text
from beamlike.logical.event_time import require_event_time
from beamlike.logical.flatten import flattened
from beamlike.logical.grouping import require_keys
from beamlike.logical.joins import (
    Free,
    keys_of,
    require_fresh,
    require_same_types,
    require_some,
    right_columns,
    tagged,
)
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply
from beamlike.rows.dtypes import type_name
from beamlike.steps.infer import Shape, row_value
from beamlike.steps.joins import Paired
from stages.joins.asof import AsOfJoin
from stages.joins.asof import How as HowAsOf
from stages.joins.asof_of_changes import AsOfJoinOfChanges
from stages.joins.base import LEFT, RIGHT, TimeJoin
from stages.joins.interval import How as HowWithin
from stages.joins.interval import IntervalJoin, TimeOf
from stages.joins.interval_of_changes import IntervalJoinOfChanges
from stages.joins.lasting import LastingJoin
from stages.joins.lasting_of_changes import LastingJoinOfChanges
from windowing.columns import EVENT_TIME, PANE_RETRACTED
from windowing.time import Duration, format_duration, microseconds

Within = tuple[Duration, Duration | nw.Expr]


@attrs.frozen
class Sides:
    """The two sides of a join, their keys, and the columns of the right side by their names in the result."""

    left: Node
    right: Node
    own: tuple[str, ...]
    theirs: tuple[str, ...]
    columns: dict[str, str]

    @classmethod
    def of(
        cls,
        left: Node,
        right: Node,
        on: Any,
        left_on: Any,
        right_on: Any,
        suffix: str,
        step: str,
        versions: bool = False,
    ) -> Sides:
        """Creates the sides after checking their keys and event times.

        `versions`: of right rows only the newest are joined, so they may repeat each other.
        """
        own, theirs = keys_of(on, left_on, right_on, step)
        require_some(own, step)
        for side, node, keys in ((LEFT, left, own), (RIGHT, right, theirs)):
            require_keys(node.schema, keys, step)
            require_event_time(node, step)
            require_fresh(node, side, step, repeats=versions and side == RIGHT)
        for key in own:
            if key in (LEFT, RIGHT):
                raise PlanError(
                    f"a key of a join must not be named {key!r}, as its sides are; rename it", step=step
                )
        columns = right_columns(left.schema, right.schema, theirs, suffix, step)
        names = {LEFT: {key: key for key in own}, RIGHT: dict(zip(own, theirs, strict=True))}
        require_same_types({LEFT: left, RIGHT: right}, names, step)
        return cls(left, right, own, theirs, columns)

    def flattened(self, step: str, free: Free) -> Node:
        """Declares the union of both sides, with each row as a struct."""
        keys = {LEFT: {key: key for key in self.own}, RIGHT: dict(zip(self.own, self.theirs, strict=True))}
        schemas = {LEFT: self.left.schema, RIGHT: self.right.schema}
        nodes = {LEFT: self.left, RIGHT: self.right}
        parts = [
            tagged(node, side, keys[side], schemas, free(f"{step}.{side}")).outside_windows()
            for side, node in nodes.items()
        ]
        return flattened(parts, free(f"{step}.flatten"))

    @property
    def corrected(self) -> tuple[str, ...]:
        """The sides whose rows may retract earlier ones."""
        return tuple(side for side, node in ((LEFT, self.left), (RIGHT, self.right)) if node.retracting)

    def rows(self, before: Node, operator: TimeJoin, stage: str, step: str) -> Node:
        """Declares the rows of the join, made from the pairs of structs that its operator emits."""
        system = (EVENT_TIME, PANE_RETRACTED) if operator.gives_changes else (EVENT_TIME,)
        shape = Shape(pl.Schema({name: operator.given[name] for name in (*self.own, LEFT, RIGHT)}), system)
        # The operator emits both rows of a pair as structs. The following step, `Paired`, makes columns of
        # them.
        pairs = Node(
            stage,
            Apply(operator),
            (before,),
            shape,
            before.windowing,
            base=stage,
            bounded=before.bounded,
            retracting=operator.gives_changes,
        )
        made = Paired(step, self.own, tuple(self.left.schema), self.columns, system)
        user = {**self.left.schema, **{name: self.right.schema[of] for name, of in self.columns.items()}}
        after: Node = attrs.evolve(
            pairs,
            name=step,
            base=step,
            origin=made,
            inputs=(pairs,),
            shape=Shape(pl.Schema(user), system),
        )
        return after


def within(sides: Sides, bounds: Within, how: str, time_of: str, step: str, free: Free) -> Node:
    """Declares `join(within=)`: a join of rows whose event times differ by at most `bounds`, the lower and upper
    bound.
    """
    low, high = _bounds(bounds, sides.left, step)
    _require_how(how, get_args(HowWithin), "within=", step)
    if time_of not in get_args(TimeOf):
        known = ", ".join(map(repr, get_args(TimeOf)))
        hint = nearest(time_of, get_args(TimeOf))
        raise UnknownName(f"event_time must be one of {known}, not {time_of!r}{hint}", step=step)
    before = sides.flattened(step, free)
    lateness, corrected = before.windowing.allowed_lateness, sides.corrected
    choices: dict[str, Any] = {"how": how, "time_of": time_of, "allowed_lateness": lateness}
    operator = (
        IntervalJoinOfChanges(
            sides.own, before.schema, low, high, **choices, changes=True, corrected=corrected
        )
        if corrected
        else IntervalJoin(sides.own, before.schema, low, high, **choices)
    )
    return sides.rows(before, operator, free(f"{step}.pairs"), step)


def lasting(sides: Sides, how: str, step: str, free: Free) -> Node:
    """Declares `join(keep_forever=True)`: a join of rows with equal keys, at any distance in time."""
    if how != "inner":
        raise PlanError(
            f"how must be 'inner' with keep_forever=True, not {how!r}: that a row matches nothing is never certain, as "
            "a match may always come; within=(low, high) says until when",
            step=step,
        )
    before = sides.flattened(step, free)
    operator = (
        LastingJoinOfChanges(sides.own, before.schema, changes=True)
        if sides.corrected
        else LastingJoin(sides.own, before.schema)
    )
    return sides.rows(before, operator, free(f"{step}.pairs"), step)


def as_of(sides: Sides, tolerance: Duration | None, how: str, step: str, free: Free) -> Node:
    """Declares `join_asof`: each left row with the newest right row of its key that is not after it, and at most
    `tolerance` old.
    """
    _require_how(how, get_args(HowAsOf), "join_asof", step)
    us = None if tolerance is None else _duration("tolerance", tolerance, step)
    if us is not None and us < 0:
        raise PlanError(f"tolerance must not be negative: {format_duration(us)}", step=step)
    before = sides.flattened(step, free)
    lateness = before.windowing.allowed_lateness
    operator = (AsOfJoinOfChanges if before.retracting and lateness else AsOfJoin)(
        sides.own,
        before.schema,
        how,  # type: ignore[arg-type]
        us,
        allowed_lateness=lateness,
        changes=before.retracting,
    )
    return sides.rows(before, operator, free(f"{step}.pairs"), step)


def _bounds(bounds: object, left: Node, step: str) -> tuple[int, int | ExpressionOfRows]:
    if not (isinstance(bounds, Sequence) and not isinstance(bounds, str) and len(bounds) == 2):
        raise WrongType(f"within must be two durations such as ('0s', '30m'), not {bounds!r}", step=step)
    low = _duration("within", bounds[0], step)
    if isinstance(bounds[1], nw.Expr):
        return low, _length(bounds[1], left, step)
    high = _duration("within", bounds[1], step)
    if low > high:
        raise PlanError(
            f"within=({format_duration(low)!r}, {format_duration(high)!r}) has its lower bound after the upper one; a "
            "right row matches where left time + lower <= right time <= left time + upper",
            step=step,
        )
    return low, high


def _length(given: nw.Expr, left: Node, step: str) -> ExpressionOfRows:
    """Returns the expression for an upper bound that is computed from each left row."""
    columns = Shape(left.schema, ())
    expression, (dtype, *_) = row_value(columns, given, step=step)
    if not isinstance(dtype, pl.Duration):
        raise WrongType(
            f"the upper bound {expression_text(expression)} of within= is {type_name(dtype)}, and must be a duration, "
            "such as the difference of two times",
            step=step,
        )
    return ExpressionOfRows(expression)


def _duration(name: str, given: Any, step: str) -> int:
    try:
        return int(microseconds(given))
    except TypeError as error:
        raise WrongType(f"{name}: {error}", step=step) from None
    except ValueError as error:
        raise PlanError(f"{name}: {error}", step=step) from None


def _require_how(how: object, known: Sequence[str], where: str, step: str) -> None:
    if how not in known:
        hint = nearest(how, known)
        raise UnknownName(f"how must be one of {', '.join(known)} with {where}, not {how!r}{hint}", step=step)
