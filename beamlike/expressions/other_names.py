"""Names of functions and methods in other libraries, mapped to what to use here, for error messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PACKAGE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("avg", "average"), "bl.mean"),
    **dict.fromkeys(("countDistinct", "n_unique", "nunique"), "bl.count_distinct"),
    **dict.fromkeys(("approx_n_unique", "approxCountDistinct"), "bl.approx_count_distinct"),
    **dict.fromkeys(("collect_list", "array_agg", "implode"), "bl.collect"),
    **dict.fromkeys(("max_by", "argmax"), "bl.arg_max(column, by=...)"),
    **dict.fromkeys(("min_by", "argmin"), "bl.arg_min(column, by=...)"),
    **dict.fromkeys(("stddev", "stddev_samp"), "bl.std"),
    **dict.fromkeys(("variance", "var_samp"), "bl.var"),
    "percentile": "bl.quantile",
    **dict.fromkeys(("percentile_approx", "approxQuantile"), "bl.approx_quantile"),
    **dict.fromkeys(("concat", "union", "Flatten", "merge"), "bl.flatten"),
    **dict.fromkeys(("TumblingWindows", "Tumbling", "FixedWindow"), "bl.FixedWindows"),
    **dict.fromkeys(("HoppingWindows", "Hopping", "SlidingWindow"), "bl.SlidingWindows"),
    **dict.fromkeys(("SessionWindows", "Session", "SessionWindow"), "bl.Sessions"),
    **dict.fromkeys(
        ("read_csv", "read_parquet", "read_json", "read"),
        "bl.Pipeline('name').read('name', source), with bl.CSV, bl.Parquet or bl.JSONLines",
    ),
    **dict.fromkeys(("lead", "lag"), "bl.previous"),
    **dict.fromkeys(("expr", "F", "c"), "bl.col('name')"),
    "KafkaSource": "bl.Kafka",
}
"""Names of functions in other libraries, with the function of this package to use instead."""

METHODS: Final[Mapping[str, str]] = {
    "isin": "is_in([...])",
    **dict.fromkeys(("isNull", "isnull", "isna", "is_na"), "is_null()"),
    **dict.fromkeys(("isNotNull", "notnull", "notna", "is_not_null"), "~bl.col('x').is_null()"),
    **dict.fromkeys(("isNaN", "isnan"), "is_nan()"),
    "between": "is_between(low, high)",
    **dict.fromkeys(("fillna", "na", "nvl", "coalesce"), "fill_null(value)"),
    **dict.fromkeys(("astype", "as_type", "to"), "collection.cast({'x': float})"),
    **dict.fromkeys(("like", "rlike", "ilike", "match", "contains"), "str.contains(pattern)"),
    **dict.fromkeys(("startswith", "startsWith", "starts_with"), "str.starts_with(text)"),
    **dict.fromkeys(("endswith", "endsWith", "ends_with"), "str.ends_with(text)"),
    **dict.fromkeys(("substr", "substring"), "str.slice(offset, length)"),
    **dict.fromkeys(("lower", "to_lower", "lowercase"), "str.to_lowercase()"),
    **dict.fromkeys(("upper", "to_upper", "uppercase"), "str.to_uppercase()"),
    **dict.fromkeys(("strip", "trim"), "str.strip_chars()"),
    **dict.fromkeys(("replace_text", "regexp_replace"), "str.replace_all(pattern, text)"),
    **dict.fromkeys(("getItem", "get", "getField"), "struct.field('name') or list.get(0)"),
    **dict.fromkeys(("apply", "map_elements", "transform"), "collection.map(function, schema=...)"),
    **dict.fromkeys(
        ("otherwise", "then", "where", "when"), "bl.when(condition).then(value).otherwise(other)"
    ),
    **dict.fromkeys(("eq", "equals", "eqNullSafe"), "=="),
    **dict.fromkeys(("hours", "minutes", "seconds", "days"), "hour(), minute(), second() and day()"),
    "to_text": "collection.cast({'x': str})",
    **dict.fromkeys(("strftime", "format", "date_format"), "dt.to_string('%Y-%m-%d')"),
    **dict.fromkeys(("strptime", "to_date", "to_timestamp"), "str.to_datetime('%Y-%m-%d')"),
    **dict.fromkeys(("floor_to", "date_trunc", "trunc", "round_to"), "dt.truncate('1h')"),
    **dict.fromkeys(
        ("asc", "desc", "sort"), "bl.top(column, n, by=...) in aggregate(...), as a stream has no order"
    ),
}
"""Names of methods in pandas, polars and Spark, with what to use instead."""


def other_method(name: str) -> str:
    """Returns the clause of an error that says what to write for a method of another library; empty for others."""
    return f"; use {METHODS[name]}" if name in METHODS else ""


def other_name(name: str) -> str:
    """Returns the public name of a function or class that has another name in other libraries; empty for others."""
    return PACKAGE.get(name, "").removeprefix("bl.").partition("(")[0]
