"""Services of every kind that refuse, delay or cut one request in twenty: no run ends, and no row differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

import beamlike as bl
from beamlike.spark.checkpoint.arrow_files import ArrowFiles
from tests.connectors import test_object_store as objects
from tests.connectors.kafka import Cluster
from tests.connectors.redis import Queues
from tests.connectors.s3 import Store
from tests.connectors.unwell import TROUBLES, Trouble, Unwell, unwell
from tests.support.databases import postgres, rows_of

# A request that is cut off has been done, so it is the hardest to repeat.
IN_CI: Final = [one if one == "cut" else pytest.param(one, marks=pytest.mark.long) for one in TROUBLES]

pytestmark = [pytest.mark.connectors, pytest.mark.parametrize("trouble", IN_CI)]

BATCHES = 4
EACH = 8


@pytest.fixture
def relayed(store: Store, trouble: Trouble) -> Iterator[tuple[Store, Unwell]]:
    """The object store behind a relay."""
    port = int(store.endpoint.rpartition(":")[2])
    with unwell(port, trouble, s3=True) as relay:
        yield Store(f"http://127.0.0.1:{relay.port}"), relay


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres() as url:
        yield url


def plays() -> list[dict[str, Any]]:
    return [{"user": f"u{n % 3}", "at": n} for n in range(BATCHES * EACH)]


def read(p: bl.Pipeline, source: Any) -> bl.Collection:
    return p.read("plays", source, timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())


def files(folder: Path) -> bl.JSONLines:
    """Writes files of plays, each of which is a batch."""
    folder.mkdir()
    for batch in range(BATCHES):
        rows = pl.DataFrame(plays()[batch * EACH : (batch + 1) * EACH])
        rows.write_ndjson(folder / f"{batch:02}.jsonl")
    return bl.JSONLines(folder, {"user": str, "at": int}, max_files_per_trigger=1, order="path")


def ran(tmp_path: Path, source: Any, write: Callable[[bl.Collection, bl.Collection], object]) -> Any:
    """Runs plays, and their counts in windows of ten seconds, on a checkpoint, to the end."""
    p = bl.Pipeline("p")
    rows = read(p, source)
    counts = rows.window_into(bl.FixedWindows("10s")).group_by("user").aggregate(n=bl.count())
    write(rows, counts)
    return p.run(bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"), drain=True, chunk_rows=EACH))


def check(found: pl.DataFrame, counts: pl.DataFrame | None = None) -> None:
    expected = pl.DataFrame(plays())
    assert sorted(found.select("user", "at").rows()) == sorted(expected.rows())
    if counts is not None:
        windows = expected.group_by("user", pl.col("at") // 10).len()
        assert sorted(counts.group_by("user", "n").len().rows()) == sorted(
            windows.group_by("user", pl.col("len").cast(pl.Int64)).len(name="of").rows()
        )


def check_told(trouble: Trouble, relay: Unwell, batches: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert relay.happened
    if trouble != "delay":
        assert "trying again in" in caplog.text
        assert sum(batch.retries for batch in batches)


def test_files_in_s3(relayed: tuple[Store, Unwell], store: Store, tmp_path: Path) -> None:
    bucket = f"s3://{store.bucket()}"
    with store.in_environment():
        objects.put("first", range(90), bucket)
        objects.put("then", range(90, 130), bucket)
    with relayed[0].in_environment():
        run = objects.counts(bucket).run(bl.LocalRunner(checkpoint=str(tmp_path / "checkpoint"), drain=True))
    with store.in_environment():
        assert objects.written(bucket) == {kind: [3, 3, 4, *[20] * 6] for kind in objects.FORMATS}
    assert relayed[1].happened
    assert run.batches


def test_files_of_a_checkpoint(
    relayed: tuple[Store, Unwell], store: Store, trouble: Trouble, caplog: pytest.LogCaptureFixture
) -> None:
    folder = f"s3://{store.bucket()}/checkpoint"
    with relayed[0].in_environment():
        all_files = ArrowFiles()
        for number in range(10):
            all_files.write(f"{folder}/small-{number}", f"{number}")
            all_files.replace(f"{folder}/one", f"{number}")
            assert all_files.read(f"{folder}/small-{number}") == f"{number}"
            assert all_files.latest(f"{folder}/one") == f"{number}"
        assert len(all_files.names(folder)) == 11
        # The client itself does not repeat a read of a small object.
        assert {all_files.read(f"{folder}/small-9") for _ in range(100)} == {"9"}
        all_files.remove_files(f"{folder}/small-{number}" for number in range(5))
        all_files.copy(folder, f"{folder}-copy")
        assert len(all_files.names(f"{folder}-copy")) == 6
    assert relayed[1].happened
    assert ("trying again in" in caplog.text) == (trouble == "refuse")


def test_tables_of_postgres(
    database: str, trouble: Trouble, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket = f"{database.rpartition('host=')[2]}/.s.PGSQL.5432"
    with unwell(socket, trouble) as relay:
        url = f"postgresql+psycopg://tests:hunter2@127.0.0.1:{relay.port}/postgres"
        names = f"plays_{trouble}", f"counts_{trouble}"

        def write(rows: bl.Collection, counts: bl.Collection) -> None:
            rows.write("all", bl.Table(url, names[0], mode="append"))
            counts.write("counts", bl.Table(url, names[1]))

        run = ran(tmp_path / "first", files(tmp_path / "in"), write)
        check(*(pl.DataFrame(rows_of(database, name)) for name in names))
        out = tmp_path / "out"
        again = ran(
            tmp_path / "again",
            bl.Table(url, names[0], grows="at"),
            lambda rows, counts: rows.write("out", bl.Parquet(out)),
        )
        check(pl.read_parquet(out / "*.parquet"))
        check_told(trouble, relay, [*run.batches, *again.batches], caplog)


def test_streams_of_redis(
    redis: Queues, trouble: Trouble, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream, out = redis.stream(), tmp_path / "out"
    redis.send(stream, *plays())
    with unwell(int(redis.url.rpartition(":")[2].partition("/")[0]), trouble) as relay:
        url = f"redis://127.0.0.1:{relay.port}/0"
        source = bl.Redis(
            url, stream, group="g", fields={"user": str, "at": int}, max_messages_per_trigger=EACH
        )
        run = ran(tmp_path, source, lambda rows, counts: rows.write("out", bl.Parquet(out)))
        check(pl.read_parquet(out / "*.parquet"))
        check_told(trouble, relay, run.batches, caplog)
    assert redis.unacknowledged(stream, "g") == 0


def test_topics_of_kafka(kafka: Cluster, trouble: Trouble, tmp_path: Path) -> None:
    topic, target, out = kafka.topic(partitions=2), kafka.topic(), tmp_path / "out"
    kafka.send(topic, plays())
    port = int(kafka.relayed.rpartition(":")[2])
    with unwell(kafka.relayed_port, trouble, port=port) as relay:
        value = bl.json({"user": str, "at": int})
        source = bl.Kafka(kafka.relayed, topic, value=value, max_offsets_per_trigger=EACH, end="latest")

        def write(rows: bl.Collection, counts: bl.Collection) -> None:
            rows.write("out", bl.Parquet(out))
            rows.select("user", "at").write("topic", bl.KafkaSink(kafka.relayed, target))

        ran(tmp_path, source, write)
        assert relay.happened
    check(pl.read_parquet(out / "*.parquet"))
    sent = bl.Pipeline("p").read("sent", bl.Kafka(kafka.servers, target, value=value, end="latest")).collect()
    check(sent)


def test_delta_tables_in_s3(
    relayed: tuple[Store, Unwell], store: Store, trouble: Trouble, tmp_path: Path
) -> None:
    paths = [f"s3://{store.bucket()}/{name}" for name in ("plays", "counts")]
    options = relayed[0].options

    def write(rows: bl.Collection, counts: bl.Collection) -> None:
        rows.write("all", bl.Delta(paths[0], storage_options=options))
        counts.write("counts", bl.Delta(paths[1], mode="upsert", storage_options=options))

    ran(tmp_path / "first", files(tmp_path / "in"), write)
    check(*(pl.read_delta(path, storage_options=store.options) for path in paths))
    out = tmp_path / "out"
    table = bl.Delta(paths[0], storage_options=options)
    ran(tmp_path / "again", table, lambda rows, counts: rows.write("out", bl.Parquet(out)))
    check(pl.read_parquet(out / "*.parquet"))
    assert relayed[1].happened


def test_iceberg_tables_in_s3(
    relayed: tuple[Store, Unwell], store: Store, trouble: Trouble, tmp_path: Path
) -> None:
    bucket = store.bucket()

    def catalog(of: Store) -> dict[str, str]:
        uri = f"sqlite:///{tmp_path}/catalog.db"
        return {
            "name": "lake",
            "type": "sql",
            "uri": uri,
            "warehouse": f"s3://{bucket}/warehouse",
            **of.of_iceberg,
        }

    def write(rows: bl.Collection, counts: bl.Collection) -> None:
        rows.write("all", bl.Iceberg("games.plays", catalog(relayed[0])))

    ran(tmp_path, files(tmp_path / "in"), write)
    from pyiceberg.catalog import load_catalog

    loaded = load_catalog(**catalog(store))
    check(pl.DataFrame(pl.from_arrow(loaded.load_table("games.plays").scan().to_arrow())))
    assert relayed[1].happened
