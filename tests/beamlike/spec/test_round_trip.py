"""A pipeline is the same when it is read from the file that it writes, with all steps and arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import narwhals as nw
import pytest

import beamlike as bl
from beamlike.api.cogroup import Cogroup
from beamlike.api.grouped import Grouped
from beamlike.api.recorded import declares
from beamlike.expressions.grammar import AGGREGATES, FUNCTIONS
from beamlike.expressions.written import NoText, aggregate_as_text, expression_as_text
from beamlike.spec import kinds
from beamlike.spec.files import read
from examples import session_lengths
from tests.support.round_trip import require_same_from_file

A, B = bl.col("a"), bl.col("b")
EXPRESSIONS: list[tuple[nw.Expr, str]] = [
    (A + 1, "a + 1"),
    (1 - A, "1 - a"),
    (2**A, "2 ** a"),
    ((A > 1) & (B < 2) | ~(A == B), "(a > 1) & (b < 2) | ~(a == b)"),
    ((A + B) * 2 - (B - 1), "(a + b) * 2 - (b - 1)"),
    (-(A + B), "-(a + b)"),
    (A.str.replace_all("x", "y"), 'a.str.replace_all("x", "y")'),
    (A.is_in([1, 2]), "a.is_in([1, 2])"),
    (A.fill_null("x"), 'a.fill_null("x")'),
    (A.cast(nw.Datetime("us", "UTC")), "a.cast(Datetime('us', 'UTC'))"),
    (bl.when(A > 1).then(bl.lit("x")).otherwise(B), 'when(a > 1).then(lit("x")).otherwise(b)'),
    (bl.when(A > 1, B > 1).then(2), "when(a > 1, b > 1).then(2)"),
    (nw.concat_str("a", B, separator="-"), 'concat_str(a, col("b"), separator="-")'),
    (nw.coalesce("a", nw.lit(5, nw.Int64)), "coalesce(a, lit(5, Int64))"),
    (bl.event_time().dt.minute(), "event_time().dt.minute()"),
    (bl.pane_timing() == "late", 'pane_timing() == "late"'),
    (bl.col("a b") + 1, 'col("a b") + 1'),
    (bl.col("class").alias("x y"), 'col("class").alias("x y")'),
    (A.clip(1, B), "a.clip(1, b)"),
    (A.round(2), "a.round(decimals=2)"),
    (A.str.slice(1, 2), "a.str.slice(1, length=2)"),
    (A.struct.field("x"), 'a.struct.field("x")'),
    (bl.regexp_extract(A.str.to_lowercase(), "(.)b", 0), 'regexp_extract(a.str.to_lowercase(), "(.)b", 0)'),
    (timedelta(minutes=5) < A, 'a > duration("5m")'),
    (datetime(2026, 1, 1, tzinfo=UTC) < A, 'a > datetime("2026-01-01T00:00:00+00:00")'),
    (A * Decimal("1.5"), 'a * decimal("1.5")'),
    (bl.col("a", "b") * 2, 'col("a", "b") * 2'),
    (nw.all(), "all()"),
    (bl.lit(None, nw.Int64), "lit(None, Int64)"),
    ((A == 1) == True, "(a == 1) == True"),  # noqa: E712
]
GATHERED: list[tuple[Any, str]] = [
    (bl.count(), "count()"),
    (bl.sum("a", where=A > 3), "sum(a, where=a > 3)"),
    (bl.arg_max(["x", "y"], by="z"), "arg_max([x, y], by=z)"),
    (bl.top("x", 3, by=["p", "q"], ties=True), "top(x, 3, by=[p, q], ties=True)"),
    (bl.quantile("x", 0.5), "quantile(x, 0.5)"),
    (bl.first("a b"), 'first("a b")'),
    (bl.previous("x"), "previous(x)"),
]


@pytest.mark.parametrize(("expression", "text"), EXPRESSIONS, ids=[text for _, text in EXPRESSIONS])
def test_an_expression_is_written_so_that_it_reads_the_same(expression: nw.Expr, text: str) -> None:
    assert expression_as_text(expression) == text  # it is also read, and compared


@pytest.mark.parametrize(("aggregate", "text"), GATHERED)
def test_an_aggregate_is_written_so_that_it_reads_the_same(aggregate: Any, text: str) -> None:
    assert aggregate_as_text(aggregate, str) == text


SYSTEM = [name for name in FUNCTIONS if name.startswith(("event_time", "pane_", "window_"))]


@pytest.mark.parametrize("name", SYSTEM)
def test_a_value_of_a_row_is_written_as_its_function(name: str) -> None:
    assert expression_as_text(FUNCTIONS[name]()) == f"{name}()"


def test_what_the_grammar_lacks_is_refused() -> None:
    with pytest.raises(NoText, match="clip_lower"):
        expression_as_text(A.is_close(2.0))


def rows(p: bl.Pipeline, name: str) -> bl.Collection:
    """Reads rows of users with points, in order of time."""
    given = [{"user": "ada", "points": 3, "at": 0}, {"user": "bob", "points": 5, "at": 70}]
    read = bl.Rows(given, rows_per_batch=1)
    return p.read(name, read, timestamp="at", timestamp_unit="s", watermark=bl.BoundedOutOfOrderness("10s"))


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    """Doubles the points."""
    return {**row, "points": 2 * row["points"]}


def with_side(row: dict[str, Any], ages: Any) -> dict[str, Any]:
    """Adds the age."""
    return {"user": row["user"], "age": ages.get(row["user"], 0)}


class Totals(bl.Process):
    """Adds up points."""

    points = bl.Value(int, default=0)

    def element(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self.points += row["points"]
        yield {"user": self.key.user, "so_far": self.points}


class Longest(bl.CombineFn):
    """Finds the longest text."""

    def create_accumulator(self) -> str:
        return ""

    def add_input(self, accumulator: str, element: str) -> str:
        return max(accumulator, element, key=len)

    def merge_accumulators(self, accumulators: Any) -> str:
        return max(accumulators, key=len)

    def extract_output(self, accumulator: str) -> str:
        return accumulator


def everything() -> bl.Pipeline:
    """Declares a pipeline with every step that a file can have."""
    p = bl.Pipeline("all", on_error="fail")
    plays, ages = rows(p, "plays"), p.read("ages", bl.Rows([{"user": "ada", "age": 36}]))
    minutes = plays.window_into(
        bl.SlidingWindows("1m", "30s"),
        trigger=bl.AfterWatermark(
            early=bl.AfterCount(1), late=bl.AfterAny(bl.AfterCount(2), bl.AfterProcessingTime("5m"))
        ),
        accumulation="retracting",
        allowed_lateness="1h",
        timestamp_combiner="earliest",
    )
    total = minutes.group_by("user", name="grouped").aggregate(
        n=bl.count(),
        longest=bl.combine(Longest(), "user", str),
        best=bl.max("points", where=bl.col("points") > 1),
    )
    total.filter(~bl.pane_retracted()).named("shown").write("out", bl.Parquet("out"), columns=["user", "n"])
    total.promise(0.9, "2m").select("n").write("promised", bl.Memory())
    total.late().write("late", bl.CSV("late"))
    aged = plays.with_columns("user", age=bl.lookup(ages, on="user", default={"age": 0})["age"])
    aged.filter(bl.lookup(ages, on="user").found()).drop("at").cast({"points": float}).write(
        "aged", bl.Console()
    )
    plays.map(doubled).dead_letters().write("dead", bl.JSONLines("dead"))
    known = plays.map(with_side, {"user": str, "age": int}, side={"ages": bl.as_dict(ages, "user", "age")})
    known.rename({"age": "years"}).write("known", bl.Memory())
    both = bl.flatten(plays, plays.filter(bl.col("points") > 1).select("user", "points", "at"))
    both.group_by("user").process(Totals(), {"user": str, "so_far": int}).write("process", bl.Memory())
    plays.group_by("user").running(total=bl.sum("points"), before=bl.previous("at")).write(
        "running", bl.Memory()
    )
    later = rows(p, "later").with_watermark(bl.MonotonousTimestamps(idle_after="1m"), name="late plays")
    plays.join(later, on="user", within=("0s", "1h"), how="left").write("joined", bl.Memory())
    limits = plays.with_columns(span=bl.lit(timedelta(hours=1)))
    limits.join(later, on="user", within=("0s", bl.col("span"))).write("spanned", bl.Memory())
    plays.join_asof(later, on="user", tolerance="5m").write("asof", bl.Memory())
    days = plays.window_into(bl.FixedWindows("1d"))
    best = days.aggregate(best=bl.top(["user", "points"], 2, by="points")).explode("best", number="rank")
    best.unnest("best").write("best", bl.Memory())
    bl.cogroup(few=days, many=days.distinct()).by("user").write("cogroup", bl.Memory())
    plays.dedup("user", within="1h").latest("user").write("latest", bl.Memory())
    days.group_by("user").group_into_batches(size=2, max_wait="1m").write("batches", bl.Memory())
    bl.changes(plays.select("user", op=bl.lit("+I")), before=None, after=None).write("changes", bl.Memory())
    return p


def test_a_pipeline_with_every_step_is_the_same_from_its_file() -> None:
    p = everything()
    assert require_same_from_file(p, p.plan())
    used = {call.name for call in p.calls}
    steps = {*kinds.methods(), *kinds.grouped_methods(), *kinds.heads()} - {"cogroup"}
    # These need a function of frames, an operator of several lines, or are as `map` is.
    assert steps - used == {"apply", "flat_map", "map_batches", "process_batches", "with_timestamps"}


@pytest.mark.parametrize("make", [session_lengths.earliest, session_lengths.end_of_window])
def test_an_example_is_the_same_from_its_file(make: Any) -> None:
    p = make()
    assert require_same_from_file(p, p.plan())


def test_a_run_of_the_file_gives_the_rows_of_the_pipeline() -> None:
    p = bl.Pipeline("p")
    days = rows(p, "plays").window_into(bl.FixedWindows("1d")).group_by("user")
    days.aggregate(points=bl.sum("points")).named("sums")
    again = read(p.to_yaml(), "p.yaml", {})
    (sums,) = [call for call in again.calls if call.name == "named"]
    assert bl.Collection(again, sums.made).collect()["points"].to_list() == [3, 5]


def test_a_step_that_only_python_can_have_is_named() -> None:
    p = bl.Pipeline("p")
    rows(p, "plays").map(lambda row: row, name="same").write("out", bl.Memory())
    with pytest.raises(bl.PlanError, match="step 'same': to_yaml: a lambda is in no module"):
        p.to_yaml()


def test_a_secret_is_not_written() -> None:
    p = bl.Pipeline("p")
    rows(p, "plays").write("out", bl.Table("sqlite://ada:s3cret@host/a.db", "t", mode="append"))
    with pytest.raises(bl.PlanError, match="step 'plays': to_yaml: url= has a secret") as caught:
        p.to_yaml()
    assert "s3cret" not in str(caught.value)


# --- nothing is forgotten ---


def parameters() -> Iterator[tuple[str, inspect.Parameter]]:
    """Yields the parameters of all functions and classes that a file can call."""
    made = {name: getattr(bl, name) for name in kinds.constructors()}
    for name, function in {**kinds.methods(), **kinds.grouped_methods(), **kinds.heads(), **made}.items():
        yield from ((name, one) for one in kinds.settable(function).values())


def test_every_argument_of_every_step_has_a_kind() -> None:
    known = {
        *kinds.PLAIN_WORDS,
        *kinds._BY_WORD,
        "Mapping",
        "Sequence",
        "Iterable",
        "Optional",
        "ForwardRef",
        "typing",
    }
    for name, one in parameters():
        words = {word for word in re.findall(r"[A-Za-z]\w+", str(one.annotation)) if word[0].isupper()}
        words = words if "Literal[" not in str(one.annotation) else {"Literal"}
        strange = words - known - {"Previous", "Awaitable", "DataFrame", "Declared"}
        assert not strange, f"{name}.{one.name}: add {strange} to beamlike/spec/kinds.py"


@pytest.mark.parametrize("kind", [bl.Collection, Grouped, Cogroup])
def test_every_method_that_makes_a_collection_is_recorded(kind: type) -> None:
    others = {"collect", "group_by", "head", "plot", "show"}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and name not in others:
            assert declares(method), f"{kind.__name__}.{name} must be annotated as returning a collection"
            assert hasattr(method, "__wrapped__"), name


def makes_part_of_a_pipeline(thing: Any) -> bool:
    """True for a class, and for a function that returns a collection, an expression or an aggregate."""
    returned = getattr(thing, "__annotations__", {}).get("return")
    return isinstance(thing, type) or returned in ("Collection", "nw.Expr", "Aggregate", "Previous")


def test_every_public_name_is_in_a_file_or_left_out_on_purpose() -> None:
    known = {*kinds.constructors(), *kinds._NO_CONSTRUCTORS, *kinds.heads(), *AGGREGATES, *FUNCTIONS, "sql"}
    exceptions = {name for name in bl.__all__ if name.endswith(("Error", "DeadLetters"))}
    rest = {*bl.__all__} - known - exceptions
    assert {name for name in rest if makes_part_of_a_pipeline(getattr(bl, name))} == set()
