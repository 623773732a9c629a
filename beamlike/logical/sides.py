"""Declarations of side inputs: the windows of a side, how its rows reach the step, and the checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import attrs
import polars as pl

from beamlike.errors import PlanError, UnboundedGrouping, WrongType
from beamlike.expressions.aggregates import collect
from beamlike.expressions.describe import describe
from beamlike.logical.event_time import require_event_time, require_windows_alike
from beamlike.logical.grouping import grouped
from beamlike.logical.joins import Free
from beamlike.logical.node import Node
from beamlike.logical.origins import Apply, SideLookup
from beamlike.logical.registry import Registry
from beamlike.logical.sources import is_read_again
from beamlike.logical.windowing import emits_meanwhile
from beamlike.steps.infer import Shape
from beamlike.steps.python import PythonStep
from beamlike.steps.sides import CONTENT, ROW, AsContent, CallWithSides, InPanes, View
from stages.sides.declarations import IS_ROW, LIMIT, Feed, Side
from stages.sides.lookup import LookedUp
from stages.sides.operator import SideInputs, Use
from windowing.columns import EVENT_TIME, PANE_INDEX, WINDOW_COLUMNS, WINDOW_START
from windowing.custom import CustomWindows
from windowing.panes import Accumulation
from windowing.windows import GlobalWindows


@attrs.frozen
class NodeWithParts:
    """A node, and the helper nodes that were created only for it."""

    node: Node
    others: tuple[Node, ...]


@attrs.frozen
class SideUse:
    """A collection that a step reads as a side.

    Attributes:
        node: The node of the collection.
        limit: The greatest size that a shard may store, in bytes.
        growing: True if its rows are read as they arrive.
        keys: The key columns if only the newest row of each key is read.
    """

    node: Node
    limit: int
    growing: bool = False
    keys: tuple[str, ...] = ()


@attrs.frozen
class SideArgument:
    """A side input of a function.

    `view` is called with the name of the side, and returns the form in which the function reads it.
    """

    use: SideUse
    view: Callable[[str], View]

    @property
    def node(self) -> Node:
        """The node of the collection."""
        return self.use.node


def called(
    before: Node, step: PythonStep, sides: Mapping[str, SideArgument], base: str, free: Free
) -> NodeWithParts:
    """Declares a step that calls a function with each row, and with its side inputs as keyword arguments."""
    fed = SideFeeds.of(before, [one.use for one in sides.values()], step.name, free)
    use = CallWithSides(step, {keyword: one.view(fed.names[one.node]) for keyword, one in sides.items()})
    return fed.made(use, step.schema, step.name, base)


@attrs.frozen
class SideFeeds:
    """The sides of a step, by node, and the nodes that deliver their rows. `others` are helper nodes that were
    created for the sides.
    """

    before: Node
    sides: Mapping[Node, Side]
    nodes: tuple[Node, ...]
    others: tuple[Node, ...]

    @property
    def names(self) -> dict[Node, str]:
        """The name of each side, by node."""
        return {node: side.name for node, side in self.sides.items()}

    @classmethod
    def of(cls, before: Node, looked: Iterable[SideUse], step: str, free: Free) -> SideFeeds:
        """Declares the sides that the rows of `before` read. A node given twice is one side."""
        require_event_time(before, step)
        uses: dict[Node, SideUse] = {}
        for one in looked:
            uses[one.node] = _together(uses.get(one.node, one), one, step)
        bases = Counter(node.base for node in uses)
        # A short name must be unique; otherwise the full name of the node is used.
        names = {node: node.base if bases[node.base] == 1 else node.name for node in uses}
        fed = {node: _side(before, one, names[node], step, free) for node, one in uses.items()}
        others = tuple(other for _, _, made in fed.values() for other in made)
        sides = {node: side for node, (side, _, _) in fed.items()}
        return cls(before, sides, tuple(feed for _, feed, _ in fed.values()), others)

    def looking_up(self, use: LookedUp, name: str, base: str) -> NodeWithParts:
        """Declares a stage called `name` that only adds looked-up columns."""
        return self.made(use, use.schema, name, base, SideLookup(use, tuple(self.sides.values())))

    def made(
        self, use: Use, user: pl.Schema, name: str, base: str, lookup: SideLookup | None = None
    ) -> NodeWithParts:
        """Declares a stage called `name` that computes `use` from rows and sides, and emits the columns `user`."""
        before = self.before
        operator = _kind(before)(
            before.shape.kept().everything(),
            tuple(self.sides.values()),
            use,
            before.windowing.allowed_lateness,
            title=before.base,
        )
        shape = Shape(user, before.shape.kept().system)
        inputs = (before, *self.nodes)
        origin = Apply(operator, lookup)
        node: Node = attrs.evolve(before, name=name, base=base, origin=origin, inputs=inputs, shape=shape)
        return NodeWithParts(node, self.others)


def _kind(before: Node) -> type[SideInputs]:
    """Returns the class of the operator for these rows."""
    if not before.retracting:
        return SideInputs
    from stages.sides.of_changes import SideInputsOfChanges  # few pipelines need it

    return SideInputsOfChanges


def require_owner(side: Node, owner: Registry, pipeline: Registry, step: str) -> None:
    """Raises `PlanError` if the side belongs to another pipeline."""
    if owner is not pipeline:
        raise PlanError(
            f"side {side.name!r} is of pipeline {owner.name!r}, and the rows that read it are of {pipeline.name!r}",
            step=step,
        )


def require_limit(limit: object, what: str) -> int:
    """Returns the limit of a side in bytes; None means the default."""
    if limit is None:
        return LIMIT
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise WrongType(f"{what}: max_bytes must be a whole number of bytes, not {limit!r}")
    return limit


def _together(one: SideUse, other: SideUse, step: str) -> SideUse:
    """Returns two uses of a collection as one. The greater limit applies."""
    if one.growing != other.growing:
        raise PlanError(
            f"side {one.node.name!r} is read with growing=True and without; give it to both or to none",
            step=step,
        )
    keys = one.keys if one.keys == other.keys else ()
    return SideUse(one.node, max(one.limit, other.limit), one.growing, keys)


def _side(
    before: Node, use: SideUse, name: str, step: str, free: Free
) -> tuple[Side, Node, tuple[Node, ...]]:
    """Returns the side, the node that delivers its rows, and the helper nodes created for that."""
    node, original = use.node, use.node
    _require_windows(before, node, step)
    if use.growing:
        _require_growing(use, step)
    changes = _newest_panes(use, name, step, free)
    if changes:
        node = changes[-1]
    feed: Feed = "growing" if use.growing else _feed(node, step)
    several = feed != "whole" and not (feed == "panes" and node.windowing.has_one_pane())
    side = Side(
        name,
        node.schema,
        node.windowing.windows,
        feed,
        EVENT_TIME in node.shape.system,
        use.limit,
        name != original.base,
        several,
        use.keys if use.growing else (),
    )
    if feed != "panes":
        return side, node, changes
    made = *changes, *_in_panes(node, name, step, free)
    return side, made[-1], made


def _require_windows(before: Node, node: Node, step: str) -> None:
    """Raises `PlanError` unless each window of the rows corresponds to exactly one window of the side."""
    windows = node.windowing.windows
    if windows.merging or isinstance(windows, CustomWindows):
        kind = "merge, each key having its own" if windows.merging else "are a user's own"
        raise PlanError(
            f"the windows of side {node.name!r}, {describe(windows)}, {kind}, so none of them is that of another row; "
            "give it fixed, sliding, calendar or global windows with window_into(...)",
            step=step,
        )
    # A row in any window corresponds to the only window of such a side.
    if isinstance(windows, GlobalWindows) and not node.unlike:
        return
    for one in (before, node):
        require_windows_alike(one, step)
    if WINDOW_START not in before.shape.system or isinstance(before.windowing.windows, GlobalWindows):
        raise PlanError(
            f"side {node.name!r} is in {describe(windows)}, and rows of {before.name!r} are in the global window, "
            "for which no window of the side is ever complete; call window_into(...) on the rows, too",
            step=step,
        )


def _newest_panes(use: SideUse, name: str, step: str, free: Free) -> tuple[Node, ...]:
    """Declares the newest panes of a side whose panes have all elements so far, as changes. The result is empty for
    other sides, and if the newest row of each key is read anyway. Raises `PlanError` if they cannot be found.
    """
    node = use.node
    if use.growing or not node.repeats or node.retracting or node.windowing.allow_repeats:
        return ()
    from beamlike.logical.newest_panes import newest_panes  # few pipelines need it

    changes = newest_panes(node, f"{step}.{name}.newest", free)
    if not changes and not use.keys:
        raise PlanError(
            f"side {node.name!r} has panes with all elements so far (accumulation accumulating), and the newest of a "
            "key is not known: between the grouping and the side, collections are combined or a step has state, or the "
            "windows are sessions; give the grouping accumulation=bl.RETRACTING, read the side by a key with "
            "as_dict(...), or accept all panes with window_into(allow_repeats=True)",
            step=step,
        )
    return changes


def _require_growing(use: SideUse, step: str) -> None:
    """Raises `PlanError` unless rows of a side can only be added to those that are there."""
    node, why, remedy = use.node, "", ""
    if not isinstance(node.windowing.windows, GlobalWindows):
        why, remedy = (
            f"it is in {describe(node.windowing.windows)}",
            "each window is read when it is complete",
        )
    elif node.retracting:
        why = "its rows may be retracted"
        remedy = 'a trigger such as bl.Repeatedly(bl.AfterCount(1)) with accumulation="accumulating" reads what is left'
    elif node.repeats and not use.keys and not node.windowing.allow_repeats:
        why, remedy = "its panes have all elements so far", "a later pane of a key replaces the one before"
    elif is_read_again(node):
        why, remedy = "it is read again and again", "each reading replaces the one before"
    if why:
        raise PlanError(
            f"growing=True adds rows to side {node.name!r} for as long as it lasts, and {why}; leave growing= out: "
            f"{remedy}",
            step=step,
        )


def _feed(node: Node, step: str) -> Feed:
    windowing = node.windowing
    everlasting = isinstance(windowing.windows, GlobalWindows)
    if everlasting and not node.retracting:  # what is retracted is left out of panes
        if node.bounded and windowing.has_one_pane():
            return "whole"
        if is_read_again(node):
            return "readings"
    require_event_time(node, step)
    if everlasting and not node.bounded and not emits_meanwhile(windowing.trigger):
        raise UnboundedGrouping(
            f"side {node.name!r} has no end and is in the global window, so with {describe(windowing.trigger)} rows "
            "would wait for it for ever; read its rows as they arrive with growing=True, give it windows with "
            "window_into(...), or a trigger such as bl.Repeatedly(bl.AfterCount(100)), or join it with join_asof(...)",
            step=step,
        )
    return "panes"


def _in_panes(node: Node, side: str, step: str, free: Free) -> tuple[Node, ...]:
    """Declares a grouping that collects the side's rows in a list per window and pane, and a step that unpacks the
    lists.
    """
    columns, system = tuple(node.schema), node.shape.kept().system
    row = pl.Schema({ROW: pl.Struct({**node.schema, EVENT_TIME: pl.Int64()})})
    # Repeated rows do no harm, because each pane replaces the one before.
    windowing = attrs.evolve(node.windowing, allow_repeats=True)
    if node.retracting:
        # A pane of a window in which no row is left says so, whichever accumulation is chosen.
        windowing = attrs.evolve(windowing, accumulation=Accumulation.ACCUMULATING)
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
    # Each pane replaces the one before, so retractions are left out.
    flat: Node = attrs.evolve(
        panes, name=name, base=name, origin=origin, inputs=(panes,), shape=shape, retracting=False
    )
    return one, panes, flat
