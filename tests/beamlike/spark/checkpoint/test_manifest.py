"""A manifest that is damaged, or of another version, is refused before Spark starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

import beamlike as bl
from beamlike.plan.manifest import MANIFEST, describe, new_manifest, parse
from beamlike.spark.checkpoint.checkpoint import refuse_early
from beamlike.system.seals import sealed
from stages.state.store import ENCODING
from tests.beamlike.spark.checkpoint.test_damage import ANEW
from tests.support import kept


def manifest() -> dict[str, Any]:
    """Returns the manifest of a run that has begun."""
    plan = kept.pipeline(kept.DATA, bl.Memory(), bl.Memory()).plan()
    return {**new_manifest(describe(plan, kept.SHARDS)), "begun": True}


def without(*names: str) -> dict[str, Any]:
    return {name: fact for name, fact in manifest().items() if name not in names}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ("null", "names no encoding of state: put it back from a copy"),
        ("[4]", "names no encoding"),
        ("", "is no JSON: put it back from a copy"),
        (without("encoding"), "names no encoding"),
        (without("restoring"), "'restoring' is missing or damaged: put it back"),
        (manifest() | {"shards": "2"}, "'shards' is missing or damaged"),
        (manifest() | {"stages": {"games": {}}}, "'stages: games' is missing or damaged"),
        (
            without("restoring", "levels") | {"encoding": 1},
            f"state of encoding 1, and this version of beamlike knows {ENCODING}: continue with the version",
        ),
        (
            manifest() | {"encoding": ENCODING + 1},
            f"encoding {ENCODING + 1}, and this version.*: continue with",
        ),
    ],
)
def test_a_manifest_that_is_none_is_refused_before_spark_starts(
    found: str | dict[str, Any], told: str, tmp_path: Path
) -> None:
    file = tmp_path / "beamlike" / "manifest.json"
    file.parent.mkdir()
    file.write_text(found if isinstance(found, str) else json.dumps(sealed(found, MANIFEST)))
    plan = kept.pipeline(kept.DATA, bl.Memory(), bl.Memory()).plan()
    with pytest.raises(bl.CheckpointError, match=f"the checkpoint {tmp_path} has .*{told}.*{ANEW}"):
        refuse_early(plan, str(tmp_path), None, draining=False)


def test_a_manifest_is_read_as_it_was_written() -> None:
    read = manifest() | {"run": ANY, "operators": 2, "rows": False, "store": "spark"}
    assert parse(json.dumps(sealed(manifest(), MANIFEST)), "it") == read
