"""Keys of any type, also as text, in recordings and traces, and tests of recordings without secrets."""

from __future__ import annotations

import re
import zipfile
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.errors import UnknownKey
from beamlike.replaying.recording import Recording
from beamlike.replaying.typed import value_of_type

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEYS: dict[str, tuple[pl.DataType, Any, str]] = {
    "day": (pl.Date(), date(2026, 1, 1), "2026-01-01"),
    "moment": (pl.Datetime("us", "UTC"), AT, "2026-01-01T12:00:00Z"),
    "plain": (pl.Datetime("us"), AT.replace(tzinfo=None), "2026-01-01T12:00:00"),
    "clock": (pl.Time(), time(12, 30), "12:30:00"),
    "length": (pl.Duration("us"), timedelta(minutes=5), "5m"),
    "price": (pl.Decimal(10, 2), Decimal("1.50"), "1.50"),
    "flag": (pl.Boolean(), True, "true"),
    "number": (pl.Int32(), 7, "7"),
    "half": (pl.Float64(), 0.5, "0.5"),
    "name": (pl.String(), "ada", "ada"),
}
WRONG = [
    (pl.Date(), "1st"),
    (pl.Int64(), "x"),
    (pl.Int64(), 1.5),
    (pl.Int8(), 999),
    (pl.Boolean(), "yes"),
    (pl.Int64(), True),
]


@pytest.mark.parametrize("name", KEYS)
def test_a_value_or_its_text_has_the_type_of_the_column(name: str) -> None:
    dtype, value, text = KEYS[name]
    assert value_of_type(value, dtype, "k") == value_of_type(text, dtype, "k") == value


@pytest.mark.parametrize(("dtype", "value"), WRONG)
def test_a_value_of_another_type_is_refused(dtype: pl.DataType, value: Any) -> None:
    with pytest.raises(UnknownKey, match=f"'k' is {re.escape(str(dtype))}, and {value!r} is none"):
        value_of_type(value, dtype, "'k'")


def job(folder: Path) -> bl.Pipeline:
    """Declares a pipeline that counts by day and price, and runs it."""
    rows = pl.DataFrame(
        {"day": [date(2026, 1, 1)] * 2 + [date(2026, 1, 2)], "price": [Decimal("1.50")] * 3, "at": [1, 2, 3]}
    )
    (folder / "in").mkdir()
    rows.cast({"price": pl.Decimal(10, 2)}).write_parquet(folder / "in" / "0.parquet")
    p = bl.Pipeline("days")
    schema = {"day": date, "price": pl.Decimal(10, 2), "at": int}
    read = p.read(
        "class",
        bl.Parquet(folder / "in", schema),
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )
    read.group_by("day", "price").aggregate(n=bl.count()).named("counts").write("out", bl.Memory())
    p.run(bl.LocalRunner(checkpoint=str(folder / "checkpoint"), drain=True, quiet=True))
    return p


def test_a_recording_has_a_key_of_any_type(tmp_path: Path) -> None:
    p = job(tmp_path)
    for number, key in enumerate(
        ({"day": date(2026, 1, 1), "price": Decimal("1.50")}, {"day": "2026-01-01", "price": "1.50"})
    ):
        file = tmp_path / f"{number}.recording"
        bl.record(tmp_path / "checkpoint", p, file, batches=0, key=key)
        replay = bl.replay(file, p)
        assert replay.comparison.differences == ()
        assert replay.record.sources["class"].elements == 2
    assert (
        len(bl.replay(tmp_path / "checkpoint", p, batch=1).go().state("counts", {"day": "2026-01-02"})) == 0
    )
    traced = bl.trace_row(tmp_path / "checkpoint", p, "class", {"day": "2026-01-02"})
    assert "row 3" in traced[0]
    with pytest.raises(UnknownKey, match="'day' is Date, and 'soon' is none"):
        bl.trace_row(tmp_path / "checkpoint", p, "class", {"day": "soon"})


def test_a_recording_that_cannot_be_written_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = job(tmp_path)
    found = bl.record(tmp_path / "checkpoint", p, batches=0)
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(zipfile.ZipFile, "writestr", lambda *_: (_ for _ in ()).throw(full))
    with pytest.raises(OSError, match="No space left"):
        Recording.write(found, tmp_path / "a")
    assert not (tmp_path / "a").exists()


FILE = """
pipeline: days
parameters: {password: str, limit: {type: int, default: 0}}
collections:
  class:
    read:
      source: {Parquet: {path: in, schema: {day: Date, price: 'Decimal(10, 2)', at: int}}}
      timestamp: at
      timestamp_unit: s
      watermark: MonotonousTimestamps
    steps:
    - filter: at > ${limit}
    - {group_by: [day, price], running: {n: count()}}
    - write: {name: out, sink: Memory}
"""


def test_a_test_of_a_file_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("days.yaml").write_text(FILE)
    settings = ["--set", "password=hunter2", "--set", "limit=1"]

    def call(*words: str) -> str:
        found = CliRunner().invoke(main, words)
        assert found.exit_code == 0, found.output
        return found.output

    call("run", "days.yaml", *settings, "--checkpoint", "other", "--drain")
    call(
        "record", "other", "days.yaml", *settings, "--batches", "0..0", "--into", "test_days.py", "--as-test"
    )
    text = Path("test_days.py").read_text()
    assert "from beamlike import from_yaml\n" in text
    assert "from_yaml('days.yaml', password=os.environ['PASSWORD'], limit='1')" in text
    assert "hunter2" not in text
    monkeypatch.setenv("PASSWORD", "hunter2")
    namespace: dict[str, Any] = {}
    exec(compile(text, "test_days.py", "exec"), namespace)
    namespace["test_batches_0_to_0"]()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("replay", "--batch", "0", "--key", "dya=1"),
            "no stage has the key dya; the keys of stages are day, price",
        ),
        (
            ("replay", "--batch", "0", "--step", "--before", "x"),
            "--before, --after and --step: give one of them",
        ),
    ],
)
def test_a_wrong_option_is_named(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("days.yaml").write_text(FILE)
    command, *rest = words
    CliRunner().invoke(main, ["run", "days.yaml", "--set", "password=x", "--checkpoint", "other", "--drain"])
    found = CliRunner().invoke(main, [command, "other", "days.yaml", "--set", "password=x", *rest])
    assert found.exit_code == 2
    assert said in " ".join(found.output.split())
