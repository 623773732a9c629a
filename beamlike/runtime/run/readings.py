"""Stores the readings of refreshed sources as files next to a checkpoint, so that a replayed batch reads the
same rows.
"""

from __future__ import annotations

import os

import attrs

from beamlike.errors import CheckpointError
from beamlike.io.refreshed import Clock, ReadingsAsFiles, Refreshed, damaged_readings
from beamlike.plan.model import Plan
from beamlike.system.path_names import file_name, is_remote


def with_readings_as_files(plan: Plan, folder: str, clock: Clock) -> Plan:
    """Returns the plan with each refreshed source replaced by files in a subfolder of `folder`.

    Raises `CheckpointError` if the folder is not on this machine, or if a stored reading is damaged.
    """
    sources = dict(plan.sources)
    for name, source in plan.sources.items():
        if isinstance(source.source, Refreshed):
            if is_remote(folder):
                raise CheckpointError(
                    f"source {name!r}: a refreshed source needs a checkpoint on this machine, not {folder}"
                )
            own = os.path.join(folder, file_name(name))
            for damaged in damaged_readings(own):
                raise CheckpointError(
                    f"source {name!r}: the reading {damaged} is not what was written; put it back from a copy of the "
                    "checkpoint, or start again with another checkpoint"
                )
            files = ReadingsAsFiles.of(source.source, own, clock)
            sources[name] = attrs.evolve(source, source=files)
    return attrs.evolve(plan, sources=sources)
