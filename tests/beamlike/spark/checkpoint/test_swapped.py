"""A file of a checkpoint of Spark in the place of another one: an error names the place."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.beamlike.spark.checkpoint import test_damage
from tests.beamlike.spark.checkpoint.test_damage import VERSIONS, Damaged, require_named
from tests.support.swaps import Swap

halfway, damaged = test_damage.halfway, test_damage.damaged

LISTS = "beamlike/files/plays"
MANIFEST, TALLY = "beamlike/manifest.json", "beamlike/tally.json"
NO_MANIFEST = "names no encoding|has a damaged manifest"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("of", "file", "told"),
    [
        (f"{VERSIONS}/000000000.json", f"{VERSIONS}/000000002.json", "it is state/versions/000000000.json, in the"),
        (f"{VERSIONS}/000000001.json", f"{VERSIONS}/000000002.json", "it is state/versions/000000001.json, in the"),
        (TALLY, f"{VERSIONS}/000000002.json", "it is tally.json, in the place of state/versions/000000002.json"),
        (f"{LISTS}/000000000000.json", f"{LISTS}/000000000002.json", "000000000002.json is not whole, or not what"),
        (f"{LISTS}/000000000001.json", f"{LISTS}/000000000002.json", "000000000002.json is not whole, or not what"),
        (f"{LISTS}/000000000002.json", f"{LISTS}/000000000000.json", "000000000000.json is not whole, or not what"),
        (f"{VERSIONS}/000000002.json", f"{LISTS}/000000000001.json", "000000000001.json is not whole, or not what"),
        (MANIFEST, TALLY, "it is manifest.json, in the place of tally.json"),
        (f"{LISTS}/000000000000.json", TALLY, "it is files/plays/000000000000.json, in the place of tally.json"),
        (TALLY, MANIFEST, NO_MANIFEST),
        (f"{VERSIONS}/000000002.json", MANIFEST, NO_MANIFEST),
        ("beamlike/state/data/0-0-000000001-*", "beamlike/state/data/0-0-000000002-*", "is not what was written"),
        ("beamlike/state/data/0-1-000000002-*", "beamlike/state/data/0-0-000000002-*", "is not what was written"),
        ("beamlike/state/data/1-0-000000002-*", "beamlike/state/data/0-0-000000002-*", "is not what was written"),
    ],
)  # fmt: skip
def test_no_file_is_taken_for_another_one(
    of: str, file: str, told: str, spark: SparkSession, damaged: Damaged
) -> None:
    def swap(folder: Path) -> None:
        names = (str(next(folder.glob(name)).relative_to(folder)) for name in (of, file))
        Swap(*names).do(folder)

    require_named(spark, damaged(swap), told)
