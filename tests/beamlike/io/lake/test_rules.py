"""The rules of tables that other programs made: partitions, constraints and non-null columns are kept."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimestamptzType

import beamlike as bl
from beamlike.io import Part
from beamlike.io.sinks import SinkInput

LONG = "é" * 130
"""Text of 260 bytes, which cannot name a folder."""

AWKWARD = ["a", "../x", "a/b", "ü é", "%25", "=", ":\x01\n", LONG, None, " ", "..", "null"]
DAY = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


def write(sink: Any, frame: pl.DataFrame, runner: Any = None) -> None:
    p = bl.Pipeline("p")
    p.read("rows", bl.Rows(frame)).write("table", sink)
    p.run(runner)


def table_of(path: Path, frame: pl.DataFrame, **choices: Any) -> DeltaTable:
    return DeltaTable.create(str(path), Schema.from_arrow(frame.to_arrow().schema), **choices)


def by_query(path: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    """Returns the rows as deltalake's engine reads them."""
    found = QueryBuilder().register("t", DeltaTable(str(path))).execute(f"select {columns} from t").read_all()
    return sorted(pl.DataFrame(found).rows(), key=repr)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (AWKWARD, pl.String),
        ([date(2026, 1, 2), date(1, 1, 1), None], pl.Date),
        ([DAY, None], pl.Datetime("us", "UTC")),
        ([True, False, None], pl.Boolean),
        ([0.1, 1e300, float("inf"), None], pl.Float64),
    ],
)
def test_partitions_of_a_delta_table_are_read_back_by_all(
    tmp_path: Path, values: list[Any], dtype: Any
) -> None:
    frame = pl.DataFrame({"k": values, "n": range(len(values))}, schema={"k": dtype, "n": pl.Int64})
    path = tmp_path / "table"
    table = table_of(path, frame, partition_by=["k"])
    write(bl.Delta(str(path)), frame)
    wanted = sorted(frame.rows(), key=repr)
    table.update_incremental()
    assert by_query(path, "k, n") == wanted
    assert sorted(pl.from_arrow(table.to_pyarrow_table(columns=["k", "n"])).rows(), key=repr) == wanted  # type: ignore[union-attr]
    again = bl.Pipeline("again").read("rows", bl.Delta(str(path))).collect()
    assert sorted(again.select("k", "n").rows(), key=repr) == wanted
    if LONG not in values:  # polars reads values from the names of folders
        assert sorted(pl.read_delta(str(path)).select("k", "n").rows(), key=repr) == wanted
    write_deltalake(str(path), frame.filter(pl.col("n") == 0), mode="append")
    DeltaTable(str(path)).optimize.compact()
    assert len(by_query(path)) == len(wanted) + 1


def test_empty_text_in_a_partition_of_delta_is_null(tmp_path: Path) -> None:
    frame = pl.DataFrame({"k": ["", "a"], "n": [1, 2]})
    table_of(tmp_path / "t", frame, partition_by="k")
    write(bl.Delta(str(tmp_path / "t")), frame)
    assert by_query(tmp_path / "t", "k, n") == [("a", 2), (None, 1)]


def fields(**metadata: Any) -> Schema:
    """Returns text `k` and whole numbers `n`; `n` has this metadata."""
    return Schema.from_json(
        json.dumps(
            {
                "type": "struct",
                "fields": [
                    {"name": "k", "type": "string", "nullable": True, "metadata": {}},
                    {"name": "n", "type": "long", "nullable": True, "metadata": metadata},
                ],
            }
        )
    )


NOT_NULL = Schema.from_arrow(
    pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("n", pa.int64())])
)
INVARIANT = json.dumps({"expression": {"expression": "n > 1"}})


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("rule", ["not null", "check", "invariant"])
def test_rows_against_a_rule_of_a_delta_table_fail_the_batch(tmp_path: Path, mode: str, rule: str) -> None:
    path = str(tmp_path / "t")
    schema = {"not null": NOT_NULL, "check": fields(), "invariant": fields(**{"delta.invariants": INVARIANT})}
    table = DeltaTable.create(path, schema[rule])
    if rule == "check":
        table.alter.add_constraint({"great": "n > 1"})
    rows = bl.Rows([{"k": "b", "at": 1}, {"k": "b", "at": 2}, {"k": None, "at": 3}], {"k": str, "at": int})
    p = bl.Pipeline("p")
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    counts = read.window_into(bl.GlobalWindows()).group_by("k").aggregate(n=bl.count())
    counts.write("table", bl.Delta(path, mode=mode))  # type: ignore[arg-type]
    with pytest.raises(
        bl.errors.SinkError, match=r"'k' of the table may not be null|asks for: (great|'n'): .*n > 1"
    ):
        p.run()
    assert by_query(tmp_path / "t") == []


def test_rows_that_keep_the_rules_of_a_delta_table_are_written_once(tmp_path: Path) -> None:
    path, frame = str(tmp_path / "t"), pl.DataFrame({"k": ["a", "b"], "n": [2, 3]})
    table_of(tmp_path / "t", frame, partition_by="k").alter.add_constraint({"great": "n > 1"})
    sink = bl.Delta(path).fitted(SinkInput("rows", frame.schema, tuple(frame.columns)))
    sink.check()
    for again in (False, True):
        parts = sink.prepare(frame[:1], Part("run", 0)) | sink.prepare(frame[1:], Part("run", 0, 1))
        sink.settle("run", 0, parts, again=again)
    assert pl.read_delta(path).sort("n").select("k", "n").equals(frame)
    assert not list((tmp_path / "t" / "_beamlike").glob("*"))


def test_generated_columns_and_those_that_rows_lack_are_filled(tmp_path: Path) -> None:
    schema = json.loads(fields().to_json())
    double = {
        "name": "g",
        "type": "long",
        "nullable": True,
        "metadata": {"delta.generationExpression": "n * 2"},
    }
    schema["fields"] += [double, {"name": "more", "type": "string", "nullable": True, "metadata": {}}]
    DeltaTable.create(str(tmp_path / "t"), Schema.from_json(json.dumps(schema)))
    write(bl.Delta(str(tmp_path / "t")), pl.DataFrame({"k": ["a"], "n": [3]}))
    assert by_query(tmp_path / "t") == [("a", 3, 6, None)]


def test_a_table_with_column_mapping_is_written_and_not_read(tmp_path: Path) -> None:
    mapped = {
        "delta.columnMapping.mode": "name",
        "delta.minReaderVersion": "2",
        "delta.minWriterVersion": "5",
    }
    table_of(tmp_path / "t", pl.DataFrame({"k": ["a"], "n": [1]}), configuration=mapped)
    write(bl.Delta(str(tmp_path / "t")), pl.DataFrame({"k": ["a"], "n": [3]}))
    assert by_query(tmp_path / "t") == [("a", 3)]
    with pytest.raises(bl.PlanError, match="has columnMapping"):
        bl.Pipeline("p").read("rows", bl.Delta(str(tmp_path / "t"))).collect()


@pytest.mark.parametrize(
    ("schema", "choices", "message"),
    [
        (fields(**{"delta.identity.start": 1}), {}, "its column 'n' is an identity column"),
        (fields(CURRENT_DEFAULT="7"), {}, "its column 'n' has a default value"),
        (
            pa.schema([pa.field("z", pa.string(), nullable=False), ("k", pa.string())]),
            {},
            "'z' may not be null, and",
        ),
        (
            pa.schema([("k", pa.binary()), ("n", pa.int64())]),
            {"partition_by": "k"},
            "its partition 'k' is Binary",
        ),
    ],
)
def test_a_delta_table_that_cannot_be_written_is_refused(
    tmp_path: Path, schema: Any, choices: Any, message: str
) -> None:
    made = schema if isinstance(schema, Schema) else Schema.from_arrow(schema)
    DeltaTable.create(str(tmp_path / "t"), made, **choices)
    with pytest.raises(bl.PlanError, match=message):
        write(bl.Delta(str(tmp_path / "t")), pl.DataFrame({"k": ["a"], "n": [1]}))


def test_a_feature_that_deltalake_does_not_write_is_refused(tmp_path: Path) -> None:
    table_of(tmp_path / "t", pl.DataFrame({"k": ["a"]}))
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 1,
                "minWriterVersion": 7,
                "writerFeatures": ["rowTracking"],
            }
    log.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(bl.PlanError, match="it has the feature 'rowTracking'"):
        write(bl.Delta(str(tmp_path / "t")), pl.DataFrame({"k": ["a"]}))


ROWS = pl.DataFrame({"k": ["a", "b"], "n": [1, 2]})


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("change", ["schema", "constraint", "another table"])
def test_a_table_that_is_changed_during_a_run_is_refused(tmp_path: Path, change: str, mode: str) -> None:
    path = str(tmp_path / "t")
    table_of(tmp_path / "t", ROWS)

    def alter(frame: pl.DataFrame, batch: int) -> None:
        if batch == 0 and change == "schema":
            write_deltalake(path, ROWS.with_columns(m=1), mode="overwrite", schema_mode="overwrite")
        elif batch == 0 and change == "constraint":
            DeltaTable(path).alter.add_constraint({"great": "n > 0"})
        elif batch == 0:
            DeltaTable.create(path, Schema.from_arrow(ROWS.to_arrow().schema), mode="overwrite")

    p = bl.Pipeline("p")
    rows = bl.Rows(ROWS.with_columns(at=pl.lit(DAY)), rows_per_batch=1)
    read = p.read("rows", rows, timestamp="at", watermark=bl.MonotonousTimestamps())
    each = bl.Repeatedly(bl.AfterCount(1))
    windowed = read.window_into(bl.GlobalWindows(), trigger=each, accumulation="accumulating")
    counts = windowed.group_by("k").aggregate(n=bl.count())
    counts.write("a", bl.Callback(alter))
    counts.write("b", bl.Delta(path, mode=mode))  # type: ignore[arg-type]
    with pytest.raises(bl.errors.SinkError, match="the table was replaced, or its columns, partitions"):
        p.run()


# Iceberg

KEYED = IcebergSchema(
    NestedField(1, "k", StringType(), required=False),
    NestedField(2, "n", LongType(), required=False),
    NestedField(3, "at", TimestamptzType(), required=False),
)
PARTITIONS = {
    "identity": PartitionField(1, 1000, IdentityTransform(), "p"),
    "bucket": PartitionField(1, 1000, BucketTransform(4), "p"),
    "truncate": PartitionField(1, 1000, TruncateTransform(1), "p"),
    "day": PartitionField(3, 1000, DayTransform(), "p"),
}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = load_catalog("default", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=str(tmp_path))
    made.create_namespace("n")
    return made


def iceberg(catalog: Catalog, **choices: Any) -> bl.Iceberg:
    return bl.Iceberg("n.t", {"name": "default", **catalog.properties}, **choices)


def counts_to(sink: Any) -> bl.Pipeline:
    rows = bl.Rows([{"k": "a", "at": 10}, {"k": "b", "at": 20}, {"k": "a", "at": 86_410}], rows_per_batch=1)
    p = bl.Pipeline("p")
    read = p.read("rows", rows, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())
    counts = read.window_into(bl.FixedWindows("1m")).group_by("k").aggregate(n=bl.count())
    counts.with_columns(at=bl.window_end()).write("t", sink)
    return p


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_table_of_iceberg_is_written_by_partition(catalog: Catalog, partition: str, mode: str) -> None:
    if partition != "identity":
        pytest.importorskip("pyiceberg_core")
    ends = [
        NestedField(4 + at, name, TimestamptzType()) for at, name in enumerate(["window_start", "window_end"])
    ]
    schema = IcebergSchema(*KEYED.fields, *ends)
    catalog.create_table("n.t", schema, partition_spec=PartitionSpec(PARTITIONS[partition]))
    p = counts_to(iceberg(catalog, mode=mode))
    for _ in range(2):
        p.run()
    times = 1 if mode == "upsert" else 2
    table = catalog.load_table("n.t")
    found = pl.DataFrame(pl.from_arrow(table.scan().to_arrow()))
    assert sorted(found["k"]) == sorted(["a", "a", "b"] * times)
    assert table.scan(row_filter="k = 'b'").count() == times


@pytest.mark.parametrize("partition", ["bucket", "truncate", "day"])
def test_a_partition_that_cannot_be_computed_is_refused_before_anything_is_read(
    catalog: Catalog, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg_core", None)
    catalog.create_table("n.t", KEYED, partition_spec=PartitionSpec(PARTITIONS[partition]))
    with pytest.raises(bl.PlanError, match=r"partition 'p' is .* needs pyiceberg-core: pip install"):
        counts_to(iceberg(catalog)).run()


def test_required_columns_of_iceberg_are_written_and_never_null(catalog: Catalog) -> None:
    inner = StructType(NestedField(5, "a", LongType(), required=True))
    catalog.create_table(
        "n.t",
        IcebergSchema(
            NestedField(1, "k", StringType(), required=True),
            NestedField(4, "s", inner, required=False),
        ),
    )
    schema = {"k": pl.String, "s": pl.Struct({"a": pl.Int64})}
    write(iceberg(catalog), pl.DataFrame({"k": ["a"], "s": [{"a": 1}]}, schema))
    with pytest.raises(
        bl.errors.SinkError, match=r"column 'k' of the table may not be null, and 1 of 2 rows"
    ):
        write(iceberg(catalog), pl.DataFrame({"k": ["a", None], "s": [{"a": 1}] * 2}, schema))
    with pytest.raises(bl.errors.SinkError, match="'a'"):
        write(iceberg(catalog), pl.DataFrame({"k": ["a"], "s": [{"a": None}]}, schema))
    with pytest.raises(bl.PlanError, match=r"column 'k' may not be null, and the rows lack it"):
        write(iceberg(catalog), pl.DataFrame({"s": [{"a": 1}]}))
    assert catalog.load_table("n.t").scan().count() == 1


def test_a_table_of_iceberg_that_is_made_anew_during_a_run_is_refused(catalog: Catalog) -> None:
    catalog.create_table("n.t", KEYED)
    frame = pl.DataFrame({"k": ["a"], "n": [1]})
    sink = iceberg(catalog).fitted(SinkInput("rows", frame.schema, tuple(frame.columns)))
    sink.check()
    catalog.drop_table("n.t")
    catalog.create_table("n.t", KEYED)
    with pytest.raises(ValueError, match="the table was replaced"):
        sink.write(frame, Part("run", 0))
