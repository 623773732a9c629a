"""A level of a query that writes the state of a savepoint into its store. No pyspark here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from beamlike.runtime.batch.envelope import Envelope
from beamlike.runtime.savepoint.resharding import put_together
from beamlike.spark.query.level import Level
from stages.state.store import StateStore


@attrs.frozen
class Loading(Level):
    """A level that only stores the savepoint's state for its stages. Envelopes for other stages are passed on."""

    def run(
        self, label: int, envelopes: Iterable[Envelope], store: StateStore, now: int | None = None
    ) -> Iterator[Envelope]:
        mine: dict[str, list[Envelope]] = {stage.name: [] for stage in self.stages}
        for envelope in envelopes:
            if envelope.target in mine:
                mine[envelope.target].append(envelope)
            else:
                yield envelope
        for stage in self.stages:
            if mine[stage.name]:
                put_together(stage, mine[stage.name], store)
