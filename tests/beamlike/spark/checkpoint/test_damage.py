"""A damaged checkpoint, or one that storage refuses: the error says what is wrong and what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import beamlike as bl
from beamlike.plan.manifest import MANIFEST
from beamlike.records.model import BatchRecord
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.sourcelog import taken
from beamlike.spark.query.listing import Listing, Lists
from beamlike.spark.savepoint import savepoint as savepoints
from beamlike.system.seals import sealed, unsealed
from tests.beamlike.system.test_durable import Disk
from tests.support import kept
from tests.support.spark_versions import needs_state_store

Damage = Callable[[Path], object]
ANEW = "start again with another checkpoint"
VERSIONS = "beamlike/state/versions"


def remove(name: str) -> Damage:
    """Returns the removal of a file or folder of the checkpoint."""
    return lambda folder: (
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
    )


def cut(name: str, keep: int = 2) -> Damage:
    """Returns the truncation of a file to half or a smaller part, without its checksum."""

    def half(folder: Path) -> None:
        file = folder / name
        file.write_bytes(file.read_bytes()[: file.stat().st_size // keep if keep else 0])
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    return half


def flip(name: str, text: str = "") -> Damage:
    """Returns a bit flip in the last letter of a text in a file, or of the file, with unchanged checksums."""

    def do(folder: Path) -> None:
        file = folder / name
        content = bytearray(file.read_bytes())
        content[content.index(text.encode()) + len(text) - 1] ^= 1
        file.write_bytes(content)

    return do


def damage_data(damage: Callable[[str], Damage]) -> Damage:
    """Returns a damage of the last file of each shard's state."""

    def do(folder: Path) -> None:
        files = json.loads((folder / VERSIONS / "000000002.json").read_text())["heads"].values()
        for name, _ in files:
            damage(f"beamlike/state/data/{name}")(folder)

    return do


def no_text(name: str) -> Damage:
    """Returns a bit flip that makes the file invalid text."""

    def do(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 2] ^= 128
        (folder / name).write_bytes(content)

    return do


def empty(name: str) -> Damage:
    """Returns a truncation of a file to nothing, with unchanged checksums."""
    return lambda folder: next(folder.glob(name)).write_bytes(b"")


def change(**facts: object) -> Damage:
    """Returns a change of a manifest, which is sealed again."""

    def edit(folder: Path) -> None:
        file = folder / "beamlike" / "manifest.json"
        file.write_text(json.dumps(sealed(unsealed(file.read_text(), MANIFEST) | facts, MANIFEST)))

    return edit


def both(*damages: Damage) -> Damage:
    """Returns several damages at once."""
    return lambda folder: [damage(folder) for damage in damages]


def undo(checkpoint: Path, batch: int) -> None:
    """Removes the results of a finished batch: its record, and the version of the state after it."""
    records = checkpoint / "beamlike" / "records.jsonl"
    lines = [line for line in records.read_text().splitlines() if json.loads(line).get("batch") != batch]
    records.write_text("".join(f"{line}\n" for line in lines))
    (checkpoint / VERSIONS / f"{batch:09d}.json").unlink()


def newest(log: str) -> list[Damage]:
    """Returns the removal of the last entry of one of Spark's logs, with its checksums."""
    return [remove(f"{log}/2"), remove(f"{log}/.2.crc")]


@pytest.fixture(scope="module")
def halfway(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has read half of its files, in `checkpoint` and in a copy; the other half has arrived since."""
    return begun(spark, tmp_path_factory.mktemp("halfway"))


@pytest.fixture(scope="module")
def halfway_in_store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run like that of `halfway`, with its state in Spark's own store."""
    return begun(spark, tmp_path_factory.mktemp("halfway"), state="spark")


def begun(spark: SparkSession, folder: Path, **options: Any) -> Path:
    kept.write(folder / "plays", 0, kept.HALF)
    run(spark, folder, **options)
    shutil.copytree(folder / "checkpoint", folder / "copy")
    kept.write(folder / "plays", kept.HALF, kept.FILES)
    return folder


Damaged = Callable[[Damage], Path]
"""A function that restores a checkpoint and damages it."""


@pytest.fixture
def damaged(halfway: Path) -> Damaged:
    return partial(damage_copy, halfway)


@pytest.fixture
def damaged_in_store(halfway_in_store: Path) -> Damaged:
    return partial(damage_copy, halfway_in_store)


def damage_copy(folder: Path, damage: Damage) -> Path:
    shutil.rmtree(folder / "checkpoint")
    damage(Path(shutil.copytree(folder / "copy", folder / "checkpoint")))
    return folder


def run(spark: SparkSession, folder: Path, **options: Any) -> list[tuple[Any, ...]]:
    sessions, games = bl.Memory(), bl.Memory()
    runner = bl.SparkRunner(str(folder / "checkpoint"), session=spark, **{"shards": 2, **options})
    kept.pipeline(folder / "plays", sessions, games).run(runner)
    return kept.panes(sessions, games)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (remove("commits"), "Spark's commits/1 is gone"),
        (remove("offsets/2"), "Spark's offsets/2 is gone"),
        (remove("offsets"), "Spark's offsets are gone"),
        (cut("commits/2"), "Spark's commits/2 is not whole"),
        (cut("offsets/2"), "Spark's offsets/2 is not whole"),
        (remove("metadata"), "Spark's metadata is gone"),
        (remove("sources/0/1"), "Spark's sources/0/1 is gone"),
        (cut("sources/0/2"), "Spark's sources/0/2 is not whole"),
        (remove("beamlike/files"), "the list of files .*000000000000.json, or one before it, is gone"),
        (cut("beamlike/files/plays/000000000001.json"), "000000000001.json is not whole"),
        (no_text("beamlike/files/plays/000000000001.json"), "000000000001.json is not whole"),
        (
            flip("beamlike/files/plays/000000000001.json", "/plays/"),
            "the list of files .*1.json is not whole",
        ),
        (flip("beamlike/manifest.json", '"run": "'), "has a damaged manifest|no JSON"),
        (
            lambda folder: (folder / "beamlike/tally.json").write_text(""),
            r"beamlike/tally\.json is not what was written",
        ),
        (
            flip("offsets/2", "batchTimestampMs"),
            "offsets/2 is damaged: by its checksums, it is not what was written",
        ),
        (empty("sources/0/2"), r"sources/0/2 is not what was written|Spark's sources/0/2 is not whole"),
        (
            both(*newest("offsets"), *newest("commits")),
            "Spark's offsets/2 is gone, of a batch that the records",
        ),
        (remove("beamlike/manifest.json"), "lost its manifest"),
        (remove(f"{VERSIONS}/000000002.json"), r"the version .*000000002\.json of the state is gone"),
        (flip(f"{VERSIONS}/000000002.json", '"unused'), r"000000002\.json is not what was written"),
        (remove("beamlike/state/data"), "the state file .*/data/.* is gone"),
        (damage_data(lambda name: flip(name, '"values')), "/data/.* is not what was written"),
        (damage_data(cut), "/data/.*: its end is missing"),
    ],
)
def test_what_is_gone_or_not_whole_is_named(
    spark: SparkSession, damaged: Damaged, damage: Damage, told: str
) -> None:
    require_named(spark, damaged(damage), told)


@needs_state_store
@pytest.mark.spark
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (empty("state/0/_stateSchema/default/0_*"), "_stateSchema/default/0_.* is not what was written"),
        (empty("state/0/_metadata/v2/0"), "_metadata/v2/0 is not what was written"),
        pytest.param(remove("state"), "the state directory is empty or missing", marks=pytest.mark.slow),
        pytest.param(remove("state/1/0/3.changelog"), r"3\.changelog does not exist", marks=pytest.mark.slow),
        pytest.param(cut("state/0/1/3.changelog"), "error occurred during loading", marks=pytest.mark.slow),
        (flip("state/0/0/3.changelog"), r"state/0/0/3\.changelog is not what was written"),
        pytest.param(remove("state/0/_stateSchema"), "_stateSchema.* does not exist", marks=pytest.mark.slow),
        (
            both(*newest("offsets"), *newest("commits"), remove("beamlike/records.jsonl")),
            "Spark's offsets/2 is gone, of a batch that the records or the state",
        ),
    ],
)
def test_what_is_gone_from_sparks_state_store_is_named(
    spark: SparkSession, damaged_in_store: Damaged, damage: Damage, told: str
) -> None:
    require_named(spark, damaged_in_store(damage), told)


def require_named(spark: SparkSession, folder: Path, told: str) -> None:
    """Asserts that a run on a damaged checkpoint fails with this message, and with the remedies."""
    with pytest.raises(bl.CheckpointError, match=told) as refused:
        run(spark, folder)
    assert str(folder / "checkpoint") in str(refused.value)
    assert ANEW in str(refused.value)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(no_text, id="text"),
        pytest.param(cut, id="cut", marks=pytest.mark.slow),
        pytest.param(lambda name: flip(name, '{"step'), id="bit", marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
def test_a_damaged_control_file_is_named(
    spark: SparkSession, tmp_path: Path, damage: Callable[[str], Damage]
) -> None:
    def stop(record: BatchRecord) -> None:
        if record.batch == 1:
            raise SystemExit(3)

    def play(on_batch: Callable[[BatchRecord], None] | None = None) -> None:
        stream = bl.TestStream({"at": int})
        for at in (1, 12, 23):
            stream = stream.add_elements([{"at": at}]).advance_watermark_to(at)
        p = bl.Pipeline("played")
        rows = p.read("stream", stream, timestamp="at", timestamp_unit="s")
        rows.window_into(bl.FixedWindows("10s")).aggregate(n=bl.count()).write("out", bl.Memory())
        p.run(bl.SparkRunner(str(tmp_path / "checkpoint"), session=spark, shards=1, on_batch=on_batch))

    with pytest.raises(SystemExit, match="3"):
        play(stop)
    damage("beamlike/control/000002.json")(tmp_path / "checkpoint")
    with pytest.raises(
        bl.CheckpointError, match="a file in beamlike/control is not what was written"
    ) as refused:
        play()
    assert str(tmp_path / "checkpoint") in str(refused.value)


@pytest.mark.slow
@pytest.mark.spark
def test_what_is_known_of_lists_that_were_read_has_checksums(spark: SparkSession, damaged: Damaged) -> None:
    folder = damaged(lambda _: None)
    run(spark, folder)
    checkpoint, before = Checkpoint(spark, str(folder / "checkpoint")), "beamlike/files/plays/_before.json"
    source = next(iter(kept.pipeline(folder / "plays", bl.Memory(), bl.Memory()).plan().sources.values()))
    Listing.of(checkpoint, source)
    copy = (folder / "checkpoint" / before).read_bytes()
    for damage, told in (
        (flip(before, "/plays/"), "_before.json is not whole"),
        (flip(before, '"number": 1'), "_before.json is not whole"),
        (
            lambda folder: (folder / before).write_bytes(copy[: copy.index(b"\n") + 1]),
            "_before.json is not whole",
        ),
        (empty(before), "or one before it, is gone"),
    ):
        (folder / "checkpoint" / before).write_bytes(copy)
        damage(folder / "checkpoint")
        with pytest.raises(bl.CheckpointError, match=told):
            Listing.of(checkpoint, source)


@pytest.mark.slow
@pytest.mark.spark
def test_lists_that_were_read_are_folded_while_a_run_goes_on(
    spark: SparkSession, damaged: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = damaged(lambda _: None)
    checkpoint = Checkpoint(spark, str(folder / "checkpoint"))
    lists = Lists(checkpoint, "plays")
    names = checkpoint.files.names(lists.folder)
    monkeypatch.setattr("beamlike.spark.query.listing.FOLDED", 2)
    for name in names[:2]:
        lists.fold([name])
    assert checkpoint.files.hidden(lists.folder) == ["_2-000000000000.json"]
    assert checkpoint.files.names(lists.folder) == names[2:]
    assert Lists(checkpoint, "plays").known == Lists(Checkpoint(spark, str(folder / "copy")), "plays").known
    assert len(Lists(checkpoint, "plays").taken(1)) == 2
    # The next run knows all that was read, and makes one list of that.
    assert run(spark, folder, drain=True) == kept.expected(folder / "plays", kept.HALF)
    assert [*checkpoint.files.hidden(lists.folder)] == ["_before.json"]


@pytest.mark.spark
def test_a_number_of_shards_that_was_edited_is_refused(spark: SparkSession, damaged: Damaged) -> None:
    for shards in (None, 3):
        with pytest.raises(
            bl.CheckpointError, match="says 3 shards, and its state has 2: put that number back"
        ):
            run(spark, damaged(change(shards=3)), shards=shards)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("gone", "empty"),
    [
        ([], ["commits/2"]),
        pytest.param(["commits/2"], ["sources/0/2"], marks=pytest.mark.slow),
        pytest.param(["commits/2"], ["offsets/2", "sources/0/2"], marks=pytest.mark.slow),
    ],
)
def test_what_a_power_cut_leaves_empty_is_written_again(
    spark: SparkSession, damaged: Damaged, gone: list[str], empty: list[str]
) -> None:
    def after(folder: Path) -> None:
        for damage in [*map(remove, gone), *(cut(name, 0) for name in empty)]:
            damage(folder)
        if gone:
            undo(folder, 2)

    folder = damaged(after)
    # The unfinished batch is repeated.
    assert run(spark, folder, drain=True) == kept.expected(folder / "plays", kept.HALF - 1)


@needs_state_store
@pytest.mark.slow
@pytest.mark.spark
def test_runs_and_savepoints_sync_what_spark_writes(
    spark: SparkSession, damaged_in_store: Damaged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, disk = damaged_in_store(lambda _: None), Disk(monkeypatch)
    savepoints.save(str(folder / "checkpoint"), str(tmp_path / "saved"), session=spark)
    synced = [call.of for call in disk.calls[: disk.renamed_at(tmp_path / "saved" / "savepoint.json")]]
    parts = [path for path in (tmp_path / "saved").rglob("*") if path.name != "savepoint.json"]
    assert len(parts) > 2 * kept.SHARDS
    assert {path.stat().st_ino for path in parts} <= {*synced}
    run(spark, folder)
    last = max(
        int(path.name) for path in (folder / "checkpoint" / "commits").iterdir() if path.name.isdigit()
    )
    written = [folder / "checkpoint" / "offsets" / str(last)]
    written += (folder / "checkpoint").glob(f"state/*/*/{last + 1}.changelog")
    assert len(written) == 1 + 2 * kept.SHARDS
    assert {path.stat().st_ino for path in written} <= {call.of for call in disk.calls}


@pytest.mark.spark
def test_a_checkpoint_that_was_moved_within_a_batch_is_refused(
    spark: SparkSession, damaged: Damaged, tmp_path: Path
) -> None:
    folder = damaged(remove("commits/2"))
    for name in ("plays", "checkpoint"):
        shutil.copytree(folder / name, tmp_path / name)
    with pytest.raises(bl.CheckpointError, match=r"was moved within a batch.*move it back"):
        run(spark, tmp_path)


@pytest.mark.parametrize("offset", ["-", "5", '{"topic": {"0": 7}}', '[1, "2"]', "null"])
def test_offsets_of_sources_that_are_no_files_name_none(offset: str) -> None:
    assert [*taken(Checkpoint(cast(Any, None), "c"), "sources/0", offset)] == []
