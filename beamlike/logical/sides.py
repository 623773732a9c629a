"""Side inputs, as they are declared: which window of a side rows see, how it comes, and what must hold for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import attrs
import polars as pl

from beamlike.errors import PlanError, UnboundedGrouping, WrongType
from beamlike.expressions.aggregates import collect
from beamlike.expressions.describe import describe
from beamlike.logical.event_time import require_event_time
from beamlike.logical.grouping import grouped
from beamlike.logical.joins import Free
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply, SideLookup
from beamlike.logical.registry import Registry
from beamlike.logical.sources import is_read_again
from beamlike.logical.windowing import emits_meanwhile, has_one_pane
from beamlike.steps.infer import Shape
from beamlike.steps.python import PythonStep
from beamlike.steps.sides import CONTENT, ROW, AsContent, CallWithSides, InPanes, View
from stages.sides.declarations import IS_ROW, LIMIT, Feed, Side
from stages.sides.lookup import LookedUp
from stages.sides.operator import SideInputs, Use
from windowing.columns import EVENT_TIME, PANE_INDEX, WINDOW_COLUMNS, WINDOW_START
from windowing.custom import CustomWindows
from windowing.windows import GlobalWindows


@attrs.frozen
class Made:
    """A node, and those that were made for it alone, by whose names others must not be called."""

    node: Node
    others: tuple[Node, ...]


@attrs.frozen
class Looked:
    """What a function looks at: a side by its node, how much of it may be kept in a shard (bytes), and as what.

    `view` is told the name of the side.
    """

    node: Node
    limit: int
    view: Callable[[str], View]


def called(before: Node, step: PythonStep, sides: Mapping[str, Looked], base: str, free: Free) -> Made:
    """What a step makes of rows whose function is called with sides, too, by keyword."""
    fed = Fed.of(before, [(one.node, one.limit) for one in sides.values()], step.name, free)
    use = CallWithSides(step, {keyword: one.view(fed.names[one.node]) for keyword, one in sides.items()})
    return fed.made(use, step.schema, step.name, base)


@attrs.frozen
class Fed:
    """The sides of a step, by the nodes that they are, and the nodes that feed them. `others` were made for that."""

    before: Node
    sides: Mapping[Node, Side]
    nodes: tuple[Node, ...]
    others: tuple[Node, ...]

    @property
    def names(self) -> dict[Node, str]:
        """What they are called."""
        return {node: side.name for node, side in self.sides.items()}

    @classmethod
    def of(cls, before: Node, looked: Iterable[tuple[Node, int]], step: str, free: Free) -> Fed:
        """Of rows that look at these nodes, with how many bytes of each may be kept. Each counts once."""
        require_event_time(before, step)
        if before.retracting:
            raise PlanError(
                "its rows may take back earlier ones (accumulation retracting), which may have seen something else; "
                "look at the side before the grouping, or give that another accumulation",
                step=step,
            )
        limits: dict[Node, int] = {}
        for node, limit in looked:
            limits[node] = max(limit, limits.get(node, 0))
        bases = Counter(node.base for node in limits)
        names = {node: node.base if bases[node.base] == 1 else node.name for node in limits}
        fed = {node: _side(before, node, names[node], limit, step, free) for node, limit in limits.items()}
        others = tuple(other for _, _, made in fed.values() for other in made)
        sides = {node: side for node, (side, _, _) in fed.items()}
        return cls(before, sides, tuple(feed for _, feed, _ in fed.values()), others)

    def looking_up(self, use: LookedUp, name: str, base: str) -> Made:
        """Makes the stage of this name, which does nothing but lookups."""
        return self.made(use, use.schema, name, base, SideLookup(use, tuple(self.sides.values())))

    def made(self, use: Use, user: pl.Schema, name: str, base: str, lookup: SideLookup | None = None) -> Made:
        """Makes the stage of this name, which emits these columns."""
        before = self.before
        operator = SideInputs(
            before.shape.everything(),
            tuple(self.sides.values()),
            use,
            before.windowing.allowed_lateness,
            title=before.base,
        )
        shape = Shape(user, before.shape.system)
        inputs = (before, *self.nodes)
        origin = Apply(operator, lookup)
        node: Node = attrs.evolve(before, name=name, base=base, origin=origin, inputs=inputs, shape=shape)
        return Made(node, self.others)


def require_owner(side: Node, owner: Registry, pipeline: Registry, step: str) -> None:
    """A side is of the same pipeline."""
    if owner is not pipeline:
        raise PlanError(
            f"side {side.name!r} is of pipeline {owner.name!r}, and the rows that look at it are of {pipeline.name!r}",
            step=step,
        )


def require_limit(limit: object, what: str) -> int:
    """How many bytes; None is what is usual."""
    if limit is None:
        return LIMIT
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise WrongType(f"{what}: max_bytes must be a whole number of bytes, not {limit!r}")
    return limit


def _side(
    before: Node, node: Node, name: str, limit: int, step: str, free: Free
) -> tuple[Side, Node, tuple[Node, ...]]:
    """The side, the node that feeds it, and the nodes that are made for that."""
    _require_windows(before, node, step)
    if node.retracting:
        raise PlanError(
            f"rows of side {node.name!r} may take back earlier ones (accumulation retracting); give the grouping "
            "before it another accumulation",
            step=step,
        )
    feed, timed = _feed(node, step), EVENT_TIME in node.shape.system
    side = Side(name, node.schema, node.windowing.windows, feed, timed, limit, name != node.base)
    if feed != "panes":
        return side, node, ()
    made = _in_panes(node, name, step, free)
    return side, made[-1], made


def _require_windows(before: Node, node: Node, step: str) -> None:
    """There is one window of the side for each window of rows."""
    windows = node.windowing.windows
    if windows.merging or isinstance(windows, CustomWindows):
        kind = "merge, each key having its own" if windows.merging else "are a user's own"
        raise PlanError(
            f"the windows of side {node.name!r}, {describe(windows)}, {kind}, so none of them is that of another row; "
            "give it fixed, sliding, calendar or global windows with window_into(...)",
            step=step,
        )
    if isinstance(windows, GlobalWindows):
        return
    if WINDOW_START not in before.shape.system or isinstance(before.windowing.windows, GlobalWindows):
        raise PlanError(
            f"side {node.name!r} is in {describe(windows)}, and rows of {before.name!r} are in the global window, "
            "whose last instant lies in none of them that is ever over; call window_into(...) on the rows, too",
            step=step,
        )


def _feed(node: Node, step: str) -> Feed:
    windowing = node.windowing
    everlasting = isinstance(windowing.windows, GlobalWindows)
    if everlasting and node.bounded and has_one_pane(windowing):
        return "whole"
    if everlasting and is_read_again(node):
        return "readings"
    require_event_time(node, step)
    if everlasting and not node.bounded and not emits_meanwhile(windowing.trigger):
        raise UnboundedGrouping(
            f"side {node.name!r} has no end and is in the global window, so with {describe(windowing.trigger)} rows "
            "would wait for it for ever; give it windows with window_into(...), or a trigger such as "
            "bl.Repeatedly(bl.AfterCount(100)), or join it with join_asof(...)",
            step=step,
        )
    return "panes"


def _in_panes(node: Node, side: str, step: str, free: Free) -> tuple[Node, ...]:
    """Its rows as a list for each window and pane, and these as rows again."""
    columns, system = tuple(node.schema), node.shape.system
    row = pl.Schema({ROW: pl.Struct({**node.schema, EVENT_TIME: pl.Int64()})})
    # That a row comes again is no matter: a pane takes the place of the one before.
    windowing = attrs.evolve(node.windowing, allow_repeats=True)
    name = free(f"{step}.{side}.row")
    one: Node = attrs.evolve(
        node,
        name=name,
        base=name,
        origin=AsContent(name, columns, system),
        inputs=(node,),
        shape=Shape(row, system),
        windowing=windowing,
    )
    panes = grouped(one, (), (), {CONTENT: collect(ROW)}, free(f"{step}.{side}"))
    name = free(f"{step}.{side}.panes")
    user = pl.Schema({**node.schema, IS_ROW: pl.Boolean()})
    shape = Shape(user, (EVENT_TIME, *WINDOW_COLUMNS, PANE_INDEX))
    origin = InPanes(name, columns, panes.retracting)
    flat: Node = attrs.evolve(panes, name=name, base=name, origin=origin, inputs=(panes,), shape=shape)
    return one, panes, flat
