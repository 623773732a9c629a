"""The names of datasets, compared with those that OpenLineage's client makes."""

from __future__ import annotations

import polars as pl
import pytest

import beamlike as bl
from beamlike.io.datasets import datasets_of
from beamlike.system.datasets import file_dataset

naming = pytest.importorskip("openlineage.client.naming.dataset")


def named(one: object) -> tuple[str, str]:
    return one.get_namespace(), one.get_name()


SCHEMA = {"user": str, "at": int}


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (lambda: bl.Parquet("/data/plays"), naming.LocalFileSystem("/data/plays")),
        (lambda: bl.CSV("file:///data/plays/"), naming.LocalFileSystem("/data/plays")),
        (lambda: bl.Parquet("s3://games/plays/2026/*/*.parquet"), naming.S3("games", "plays/2026")),
        (lambda: bl.JSONLines("s3a://games/plays"), naming.S3("games", "plays")),
        (lambda: bl.Parquet("gs://games/plays"), naming.GCS("games", "plays")),
        (lambda: bl.Parquet("hdfs://node:8020/plays"), naming.HDFS("node", "8020", "/plays")),
        (
            lambda: bl.Parquet("abfss://box@store.dfs.core.windows.net/plays"),
            naming.ABFSS("box", "store", "plays"),
        ),
        (lambda: bl.Kafka("b1:9092,b2:9092", "plays", value=str), naming.Kafka("b1", "9092", "plays")),
        (lambda: bl.Kafka(["b2:9093", "b1:9092"], "plays", value=str), naming.Kafka("b2", "9093", "plays")),
        (lambda: bl.KafkaSink("b1:9092", "plays"), naming.Kafka("b1", "9092", "plays")),
        (
            lambda: bl.Table("postgresql://ada:s3cret@db/games", "plays"),
            naming.Postgres("db", "5432", "games", "public", "plays"),
        ),
        (
            lambda: bl.Table("postgresql+psycopg://db:5433/games", "old.plays"),
            naming.Postgres("db", "5433", "games", "old", "plays"),
        ),
        (
            lambda: bl.Table("mysql+pymysql://ada:s3cret@db/games", "plays"),
            naming.MySQL("db", "3306", "games", "plays"),
        ),
        (lambda: bl.Delta("s3://games/table"), naming.S3("games", "table")),
        (lambda: bl.SparkSink("delta", "s3a://games/table"), naming.S3("games", "table")),
        (
            lambda: bl.Refreshed(bl.Parquet("/data/ages", schema=SCHEMA), every="5m"),
            naming.LocalFileSystem("/data/ages"),
        ),
    ],
)
def test_datasets_have_the_names_of_the_conventions(thing, expected):
    assert datasets_of(thing()) == [named(expected)]


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (
            lambda: bl.Redis("redis://ada:s3cret@cache/0", "plays", group="g", fields={"a": str}),
            "redis://cache:6379",
        ),
        (lambda: bl.Table("sqlite:////data/games.db", "plays"), "sqlite:///data/games.db"),
        (lambda: bl.Parquet("https://ada:s3cret@files.example/plays"), "https://files.example"),
    ],
)
def test_other_datasets_are_named_alike_and_without_secrets(thing, expected):
    ((namespace, name),) = datasets_of(thing())
    assert namespace == expected
    assert name.strip("/").removeprefix("main.") == "plays"


def test_several_paths_and_topics_are_several_datasets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert datasets_of(bl.Parquet(["a.parquet", "b.parquet"])) == [
        ("file", str(tmp_path / "a.parquet")),
        ("file", str(tmp_path / "b.parquet")),
    ]
    assert datasets_of(bl.Kafka("b1:9092", ["plays", "stops"], value=str)) == [
        ("kafka://b1:9092", "plays"),
        ("kafka://b1:9092", "stops"),
    ]


@pytest.mark.slow
def test_an_iceberg_table_is_named_by_its_place(tmp_path):
    pytest.importorskip("pyiceberg")
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/lake",
    }
    p = bl.Pipeline("p")
    table = bl.Iceberg("games.plays", catalog)
    p.read("rows", bl.Rows([{"n": 1}])).write("out", table)
    p.run()
    ((namespace, name),) = datasets_of(p.plan().sinks["out"].sink)
    assert namespace == "file"
    assert name.startswith(f"{tmp_path}/lake/games")


def test_what_is_only_in_the_process_is_no_dataset():
    things = [bl.Rows([{"n": 1}]), bl.TestStream({"n": int}), bl.Memory(), bl.Console(), bl.Callback(print)]
    assert [datasets_of(thing) for thing in things] == [[]] * 5


def test_a_query_and_a_class_that_does_not_say_have_no_name():
    query = bl.Table("postgresql://db/games", "SELECT 1 AS n", schema={"n": int})
    assert datasets_of(query) is None
    assert datasets_of(object()) is None
    assert datasets_of(bl.SparkSink("noop")) is None


def test_a_sink_of_the_users_own_with_a_path_is_a_file():
    class Own:
        path = "/data/plays"

        def write(self, frame: pl.DataFrame, part: object) -> None: ...

    assert datasets_of(Own()) == [("file", "/data/plays")]


@pytest.mark.parametrize("path", ["s3://games", "s3://games/", "/"])
def test_the_whole_of_a_place_is_named_by_a_slash(path):
    assert file_dataset(path)[1] == "/"


def test_a_method_with_other_arguments_is_refused():
    class Wrong:
        def write(self, frame: pl.DataFrame, part: object) -> None: ...

        def datasets(self, which: str) -> None: ...

    rows = bl.Pipeline("p").read("rows", bl.Rows([{"n": 1}]))
    with pytest.raises(bl.errors.WrongType, match=r"asks a sink for datasets\(\)"):
        rows.write("out", Wrong())
