"""Method and function names of other libraries, mapped to hints for error messages that say what to use instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from beamlike.errors import missing as missing_name

_WINDOWS: Final = "window_into(bl.FixedWindows(...)), as rows without an end are grouped by window"
_ORDER: Final = (
    "rows have no order in a stream: bl.top(column, n, by=...) in aggregate(...) has the greatest of a window, "
    "process(...) with order='time' sees the rows of a key by time, and collect() gives a frame to sort"
)
_DEDUP: Final = "dedup('id', within='1h'), or distinct() for rows that are equal in all columns"
_FLATTEN: Final = "bl.flatten(one, other)"
_KEYED: Final = "group_by('key') before it: collection.group_by('key').{}(...)"
_COLUMNS: Final = "with_columns(name=expression)"
_LIST: Final = "collect(), which gives a polars frame"
_MAP: Final = "map(function, schema=...) for each row, or map_batches(function) for frames"
_RUNNER: Final = "the runner decides that; there is nothing to call"
_NUMBERS: Final = "rows of a stream have no numbers; group_by('key').running(...) counts the rows of a key"
_SENTENCES: Final = frozenset({_ORDER, _RUNNER, _NUMBERS})
_PIVOT: Final = "an aggregate for each column: aggregate(a=bl.sum('n', where=bl.col('kind') == 'a'), ...)"

COLLECTION: Final[Mapping[str, str]] = {
    **dict.fromkeys(("agg", "summarize", "summarise"), "aggregate(name=bl.sum('column'))"),
    **dict.fromkeys(
        ("groupby", "groupBy", "group_by_key", "GroupByKey", "key_by", "keyBy", "partition_by"),
        "group_by('key')",
    ),
    **dict.fromkeys(("sort", "sort_values", "sort_by", "orderBy", "order_by", "sort_index"), _ORDER),
    **dict.fromkeys(
        ("union", "unionAll", "union_all", "unionByName", "concat", "append", "extend", "vstack"), _FLATTEN
    ),
    **dict.fromkeys(
        ("merge", "Flatten"), "bl.flatten(one, other) for the rows of both, or join(other, on='key')"
    ),
    **dict.fromkeys(
        ("drop_duplicates", "dropDuplicates", "dropDuplicatesWithinWatermark", "unique", "deduplicate"),
        _DEDUP,
    ),
    **dict.fromkeys(
        ("limit", "take", "first", "tail", "slice", "fetch", "sample"),
        "head(n), which gives a polars frame of the first rows; in a pipeline, bl.sample or bl.top in aggregate(...)",
    ),
    **dict.fromkeys(("withColumn", "withColumns", "assign", "with_column", "mutate", "eval"), _COLUMNS),
    **dict.fromkeys(("withColumnRenamed", "withColumnsRenamed", "rename_columns"), "rename({'old': 'new'})"),
    **dict.fromkeys(
        ("withWatermark", "assign_timestamps_and_watermarks", "assignTimestampsAndWatermarks"),
        "with_watermark(bl.BoundedOutOfOrderness('5s'), timestamp='at')",
    ),
    **dict.fromkeys(("WithTimestamps", "assign_timestamps", "timestamped"), "with_timestamps('column')"),
    **dict.fromkeys(
        (
            "window",
            "windowed",
            "WindowInto",
            "window_by",
            "rolling",
            "resample",
            "group_by_dynamic",
            "tumble",
        ),
        _WINDOWS,
    ),
    **dict.fromkeys(
        ("transform", "pipe", "foreach", "mapInPandas", "mapInArrow", "map_elements", "map_rows"),
        _MAP,
    ),
    **dict.fromkeys(("applymap", "map_partitions", "mapPartitions", "applyInPandas"), _MAP),
    **dict.fromkeys(("flatMap", "FlatMap", "ParDo", "par_do"), "flat_map(function, schema=...)"),
    **dict.fromkeys(("where", "query", "Filter", "loc", "iloc"), "filter(condition)"),
    **dict.fromkeys(("pivot", "pivot_table", "unstack", "crosstab"), _PIVOT),
    **dict.fromkeys(
        ("melt", "unpivot", "stack"), "flat_map(function, schema=...), which gives several rows for one"
    ),
    **dict.fromkeys(("astype", "as_type"), "cast({'column': float})"),
    **dict.fromkeys(("fillna", "fill_null", "fill_nan", "na"), "with_columns(bl.col('column').fill_null(0))"),
    **dict.fromkeys(("dropna", "drop_nulls", "drop_na"), "filter(~bl.col('column').is_null())"),
    **dict.fromkeys(
        (
            "count",
            "sum",
            "mean",
            "min",
            "max",
            "size",
            "nunique",
            "value_counts",
            "describe",
            "std",
            "reduce",
        ),
        "aggregate(n=bl.count()), with bl.sum, bl.mean and so on, after window_into(...)",
    ),
    **dict.fromkeys(("columns", "dtypes", "printSchema", "print_schema", "info"), "schema"),
    **dict.fromkeys(
        (
            "shape",
            "height",
            "width",
            "rows",
            "to_dicts",
            "toPandas",
            "to_pandas",
            "to_polars",
            "to_frame",
            "iterrows",
            "iter_rows",
            "itertuples",
            "values",
            "to_list",
        ),
        _LIST,
    ),
    **dict.fromkeys(("write_parquet", "to_parquet", "sink_parquet"), "write('name', bl.Parquet('folder'))"),
    **dict.fromkeys(("write_csv", "to_csv", "sink_csv"), "write('name', bl.CSV('folder'))"),
    **dict.fromkeys(
        ("to_json", "write_json", "write_ndjson", "sink_ndjson"), "write('name', bl.JSONLines('folder'))"
    ),
    **dict.fromkeys(
        ("writeStream", "write_stream", "to_sql", "sink", "write_to", "save", "saveAsTable"),
        "write('name', sink)",
    ),
    **dict.fromkeys(("print", "pprint"), "write('name', bl.Console())"),
    **dict.fromkeys(("run", "start", "execute", "plan"), "collection.pipeline.{}(...)"),
    "explain": "collection.pipeline.explain()",
    **dict.fromkeys(("alias", "name_step", "set_name", "uid"), "named('name'), or name= of the step"),
    **dict.fromkeys(
        ("join_where", "interval_join", "intervalJoin"), "join(other, on='key', within=('0s', '30m'))"
    ),
    **dict.fromkeys(("joinAsof", "asof_join", "merge_asof"), "join_asof(other, on='key')"),
    **dict.fromkeys(("crossJoin", "cross_join"), "map(function, side={'other': bl.as_list(other)})"),
    **dict.fromkeys(("cogroup", "coGroup", "CoGroupByKey"), "bl.cogroup(one=one, other=other).by('key')"),
    **dict.fromkeys(("process", "process_batches", "running"), _KEYED),
    **dict.fromkeys(
        ("transformWithState", "transformWithStateInPandas", "stateful_map"), _KEYED.format("process")
    ),
    **dict.fromkeys(
        ("selectExpr", "sql", "select_expr"), "select(...) with expressions such as bl.col('a') + 1"
    ),
    **dict.fromkeys(("with_row_index", "with_row_count", "reset_index", "set_index", "index"), _NUMBERS),
    **dict.fromkeys(
        ("shift", "lag", "diff", "cum_sum", "cumsum", "over", "rank"),
        "group_by('key').running(...), with bl.previous, bl.sum and others",
    ),
    **dict.fromkeys(("repartition", "coalesce", "cache", "persist", "lazy", "checkpoint"), _RUNNER),
}
"""Names of steps in pandas, polars, Spark, Beam and Flink, with what to call on a collection instead."""

GROUPED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("agg", "summarize", "summarise", "reduce", "combine", "aggregate_by"),
        "aggregate(name=bl.sum('column'))",
    ),
    **dict.fromkeys(
        (
            "count",
            "size",
            "len",
            "sum",
            "mean",
            "avg",
            "min",
            "max",
            "std",
            "first",
            "last",
            "nunique",
            "median",
        ),
        "aggregate(name=bl.{}(...))",
    ),
    **dict.fromkeys(
        (
            "apply",
            "map_groups",
            "transform",
            "applyInPandas",
            "applyInPandasWithState",
            "transformWithState",
            "transformWithStateInPandas",
            "flatMapGroupsWithState",
        ),
        "process(bl.Process()), or process_batches(function) with frames",
    ),
    **dict.fromkeys(
        ("window_into", "window", "rolling", "resample"), "window_into(...) before group_by(...)"
    ),
    **dict.fromkeys(
        ("map", "filter", "select", "with_columns", "flat_map", "map_batches", "write", "collect"),
        "aggregate(...) first, which gives a collection",
    ),
    **dict.fromkeys(("cumsum", "cum_sum", "shift", "diff", "rank"), "running(name=bl.sum('column'))"),
    **dict.fromkeys(
        ("head", "tail", "top", "nlargest", "nsmallest", "limit"),
        "aggregate(best=bl.top('column', n, by=...))",
    ),
    **dict.fromkeys(("pivot", "unstack"), _PIVOT),
    **dict.fromkeys(("join", "cogroup"), "collection.join(other, on='key'), without group_by"),
}
"""Names of methods of grouped frames in other libraries, with what to call on a grouping instead."""

PIPELINE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("read_csv", "scan_csv"), "read('name', bl.CSV('folder'))"),
    **dict.fromkeys(("read_parquet", "scan_parquet"), "read('name', bl.Parquet('folder'))"),
    **dict.fromkeys(("read_json", "read_ndjson", "scan_ndjson"), "read('name', bl.JSONLines('folder'))"),
    **dict.fromkeys(
        ("readStream", "source", "add_source", "from_source", "apply", "load"), "read('name', source)"
    ),
    **dict.fromkeys(("create", "Create", "from_dicts", "createDataFrame"), "read('name', bl.Rows([...]))"),
    **dict.fromkeys(
        ("write", "map", "filter", "select", "group_by", "window_into"),
        "read(...) first, which gives a collection with {}",
    ),
    **dict.fromkeys(("start", "execute", "wait_until_finish"), "run(runner)"),
    **dict.fromkeys(
        ("collect", "show", "head", "toPandas", "to_pandas"), "read(...).{}(), as for any collection"
    ),
}
"""Names of other libraries for methods of a pipeline, with what to call instead."""


def missing(
    given: object, what: str, name: str, hints: Mapping[str, str], known: Iterable[str]
) -> AttributeError:
    """Returns the error for a missing attribute `name` of `what`, with the method to use instead, or the
    nearest name.
    """
    hint = hints.get(name, "")
    # A sentence explains why there is no such method; any other hint is the method to use.
    instead = f"; {hint}" if hint in _SENTENCES else f"; use {hint.format(name)}"
    return missing_name(given, what, name, instead if hint else "", known)


def public_names(kind: type[Any]) -> list[str]:
    """Returns the names of the public attributes of a class."""
    return [name for name in dir(kind) if not name.startswith("_")]
