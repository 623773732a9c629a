"""Checkpoints in S3 whose settings only Hadoop has: state in files, few requests, and secrets stay secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import beamlike as bl
from beamlike.errors import CheckpointError
from beamlike.records.model import BatchRecord
from beamlike.spark.checkpoint.checkpoint import Checkpoint
from beamlike.spark.checkpoint.s3 import require_followed
from tests.connectors.jars import jars
from tests.connectors.killed_on_s3 import totals
from tests.connectors.s3 import Store, object_store, requests

pytestmark = [pytest.mark.connectors, pytest.mark.spark]

FILES = 6


def write(folder: Path, files: int) -> None:
    """Writes files with a play of each of three users."""
    (folder / "in").mkdir(parents=True)
    for number in range(files):
        lines = [json.dumps({"user": f"u{user}", "at": number}) for user in range(3)]
        (folder / "in" / f"{number:03d}.jsonl").write_text("\n".join(lines) + "\n")


def require_right(folder: Path, files: int) -> None:
    """Checks that the output has each total of each user once."""
    found = pl.concat([pl.read_ndjson(path) for path in (folder / "out").glob("*.jsonl")])
    expected = [(f"u{user}", n) for user in range(3) for n in range(1, files + 1)]
    assert sorted(found.select("user", "n").iter_rows()) == expected


def content(store: Store, bucket: str) -> dict[str, bytes]:
    """Returns all objects in a bucket."""
    import boto3

    keys = {"aws_access_key_id": "tests", "aws_secret_access_key": "hunter2"}
    client = boto3.client("s3", endpoint_url=store.endpoint, region_name="eu-central-1", **keys)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    names = [one["Key"] for page in pages for one in page.get("Contents", [])]
    return {name: client.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names}


def of_hadoop(store: Store, prefix: str = "spark.hadoop.fs.s3a") -> dict[str, str]:
    """Returns all that Hadoop needs to know of a store."""
    known = {"endpoint": store.endpoint, "access.key": "tests", "secret.key": "hunter2"}
    return {f"{prefix}.{name}": value for name, value in {**known, "endpoint.region": "eu-central-1"}.items()}


def test_a_run_whose_settings_only_hadoop_has_is_killed_and_goes_on(store: Store, tmp_path: Path) -> None:
    write(tmp_path, FILES)
    bucket = store.bucket()
    there = {"spark.jars": ",".join(map(os.fspath, jars("spark-s3"))), "spark.driver.memory": "1g"}
    config = {**there, **store.of_hadoop, **of_hadoop(store)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    said = ""
    for last in (3, FILES):
        command = [sys.executable, "-m", "tests.connectors.killed_on_s3", f"s3a://{bucket}/checkpoint"]
        command += [str(tmp_path), json.dumps(config), str(last)]
        run = subprocess.run(
            command, env=environment, start_new_session=True, capture_output=True, text=True, timeout=600
        )
        said += run.stdout + run.stderr
        assert run.returncode == (0 if last == FILES else -9), said
    require_right(tmp_path, FILES)
    objects = content(store, bucket)
    assert any(name.startswith("checkpoint/beamlike/state/data/") for name in objects)
    assert not any(b"hunter2" in text for text in objects.values())
    assert "hunter2" not in said


def test_a_steady_batch_makes_few_requests_with_the_settings_of_its_bucket(
    spark: Any, store: Store, tmp_path: Path
) -> None:
    write(tmp_path, 3 * FILES)
    log, sizes = tmp_path / "log", list[int]()

    def on_batch(record: BatchRecord) -> None:
        sizes.append(log.stat().st_size)

    with store.in_environment(), log.open("w") as file, object_store(file) as other:
        bucket = other.bucket()
        settings = of_hadoop(other, f"fs.s3a.bucket.{bucket}")
        runner = bl.SparkRunner(
            f"s3a://{bucket}/checkpoint",
            session=spark,
            shards=1,
            config={**settings, "spark.sql.streaming.minBatchesToRetain": "4"},
            on_batch=on_batch,
        )
        totals(tmp_path).run(runner)
        part = tmp_path / "part"
        part.write_bytes(log.read_bytes()[sizes[2 * FILES - 1] : sizes[3 * FILES - 1]])
    require_right(tmp_path, 3 * FILES)
    ours = [
        (method, path.partition("?")[0].rpartition("/")[0])
        for method, path in requests(part, bucket)
        if "beamlike/state" in path or "tally" in path or "delete" in path.partition("?")[2]
    ]
    counted = Counter(ours)
    beamlike = "checkpoint/beamlike"
    assert counted[("PUT", beamlike)] == FILES  # the tally
    assert counted[("PUT", f"{beamlike}/state/data")] == FILES
    assert counted[("PUT", f"{beamlike}/state/versions")] == FILES
    assert counted[("POST", "")] == FILES  # removes what only an old version needs
    reads = {("HEAD", f"{beamlike}/state/versions"), ("GET", f"{beamlike}/state/versions")}
    data = {("HEAD", f"{beamlike}/state/data"), ("GET", f"{beamlike}/state/data")}
    writes = {("PUT", beamlike), ("PUT", f"{beamlike}/state/data"), ("PUT", f"{beamlike}/state/versions")}
    assert {*counted} <= reads | data | writes | {("POST", "")}
    assert all(counted[one] == FILES for one in reads)


def test_a_setting_that_pyarrow_cannot_follow_leaves_the_state_to_spark(
    spark: Any, store: Store, tmp_path: Path
) -> None:
    write(tmp_path, 1)
    bucket = store.bucket()
    path, name = f"s3a://{bucket}/checkpoint", f"fs.s3a.bucket.{bucket}.requester.pays.enabled"
    assert Checkpoint.of(spark, path, None).new_store == "files"
    session = spark.newSession()
    session.conf.set(name, "true")
    assert Checkpoint.of(session, path, None).new_store == "spark"
    with pytest.raises(CheckpointError, match=rf"no equivalent for {name}; .*state='spark'"):
        totals(tmp_path).run(bl.SparkRunner(path, session=session, state="files"))
    session.conf.set(name, "false")
    session.conf.set(f"fs.s3a.bucket.{bucket}.endpoint", "http://127.0.0.1:1")
    assert Checkpoint.of(session, path, None).new_store == "spark"
    with pytest.raises(CheckpointError, match=r"pyarrow, which cannot access it: .*state='spark'"):
        require_followed(session, path)
