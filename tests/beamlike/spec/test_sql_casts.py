"""CAST of text to times and flags, whatever the text is an expression of, and whatever other rows are in the batch."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import beamlike as bl
from beamlike.plan.manifest import describe

DAY, TIME = date(2026, 1, 31), datetime(2026, 1, 31, 10, 11, 12)
ZONED = TIME.replace(tzinfo=UTC)
CASTS: dict[str, dict[str, Any]] = {
    "DATE": {"2026-01-31": DAY, "2026-1-31x": None, "31.01.2026": None, "2026-01-31 10:11:12": None},
    "TIMESTAMP": {
        "2026-01-31 10:11:12": TIME,
        "2026-01-31T10:11:12": TIME,
        "2026-01-31 10:11:12.5": TIME.replace(microsecond=500_000),
        "2026-01-31": datetime(2026, 1, 31),
        "soon": None,
    },
    "TIMESTAMPTZ": {
        "2026-01-31T10:11:12Z": ZONED,
        "2026-01-31 11:11:12+01:00": ZONED,
        "2026-01-31 10:11:12": ZONED,
        "2026-01-31": datetime(2026, 1, 31, tzinfo=UTC),
        "soon": None,
    },
    "BOOLEAN": {"true": True, "FALSE": False, "t": True, "0": False, "maybe": None},
}
"""The value of each text by type; None if the row is a dead letter."""


def rows(*texts: str | None) -> bl.Collection:
    given = [{"id": number, "text": text, "n": number} for number, text in enumerate(texts)]
    source = bl.Rows(given, schema={"id": int, "text": str, "n": int})
    how: dict[str, Any] = {"timestamp": "n", "timestamp_unit": "s", "watermark": bl.MonotonousTimestamps()}
    return bl.Pipeline("p").read("rows", source, **how)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", CASTS)
def test_text_becomes_a_value_or_a_dead_letter(kind: str) -> None:
    for text, value in CASTS[kind].items():
        cast = bl.sql(f"SELECT CAST(text AS {kind}) AS x FROM rows", rows=rows(text, None))
        expected = [None] if value is None else [value, None]
        assert cast.collect()["x"].to_list() == expected, text


@pytest.mark.parametrize("kind", CASTS)
def test_texts_of_all_forms_may_be_in_one_batch(kind: str) -> None:
    fits = {text: value for text, value in CASTS[kind].items() if value is not None}
    for texts in ([*fits], [*fits][::-1]):
        cast = bl.sql(f"SELECT id, CAST(text AS {kind}) AS x FROM rows", rows=rows(*texts))
        assert cast.collect().sort("id")["x"].to_list() == [fits[text] for text in texts]


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("SELECT CAST(SUBSTRING(text, 1, 10) AS DATE) AS x FROM rows", DAY),
        ("SELECT CAST(CAST(text AS TIMESTAMP) AS DATE) AS x FROM rows", DAY),
        ("SELECT CAST(MAX(text) AS TIMESTAMP) AS x FROM rows GROUP BY n", TIME),
        ("SELECT MAX(CAST(text AS TIMESTAMP)) AS x FROM rows GROUP BY n", TIME),
        ("SELECT CAST(r.said AS TIMESTAMP) AS x FROM (SELECT text AS said FROM rows) AS r", TIME),
        ("SELECT CAST(d.day AS DATE) AS x FROM rows AS r JOIN days AS d ON r.n = d.n", DAY),
        ("SELECT DATE '2026-01-31' AS x FROM rows WHERE CAST(text AS TIMESTAMP) > DATE '2026-01-30'", DAY),
        ("SELECT CAST(n AS BOOLEAN) AS x FROM rows", False),
        ("SELECT CAST('true' AS BOOLEAN) AS x FROM rows", True),
        ("SELECT CAST(n AS TIMESTAMP) AS x FROM rows", datetime(1970, 1, 1)),
    ],
)
def test_the_value_may_be_any_expression(query: str, value: Any) -> None:
    text = rows("2026-01-31 10:11:12")
    days = text.pipeline.read("days", bl.Rows([{"n": 0, "day": "2026-01-31"}]))
    named = {"rows": text, "days": days}
    used = {name: table for name, table in named.items() if f" {name}" in query}
    assert bl.sql(query, **used).collect()["x"].to_list() == [value]


@pytest.mark.parametrize("kind", CASTS)
def test_it_can_be_written_to_a_file_and_read_again(kind: str, tmp_path: Path) -> None:
    cast = bl.sql(f"SELECT CAST(text AS {kind}) AS x FROM rows", rows=rows(*CASTS[kind]))
    cast.write("out", bl.Parquet(tmp_path / "out"))
    file = tmp_path / "pipeline.yaml"
    file.write_text(cast.pipeline.to_yaml())
    assert describe(bl.from_yaml(file).plan(), 1) == describe(cast.pipeline.plan(), 1)
