"""A sink for any format that Spark can write. It is declared without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from beamlike.io.base import Part
from beamlike.io.files.paths import path_text_if_any, uri
from beamlike.system.datasets import Dataset, file_datasets
from beamlike.system.fields import as_options

_OWN: Final = ("txnappid", "txnversion")


def _name(owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"SparkSink: format must be a name such as 'delta', not {value!r}")


def _options(owner: object, attribute: attrs.Attribute[Mapping[str, str]], value: Mapping[str, str]) -> None:
    taken = [name for name in value if name.lower() in _OWN]
    if taken:
        raise ValueError(f"SparkSink: the option {taken[0]!r} is set for every batch, so leave it out")


@attrs.frozen
class SparkSink:
    """A sink that appends every batch with a Spark DataFrameWriter, for example to a Delta table. Runs on Spark only.

    Batches pass through the driver. The writer also receives the options `txnAppId` (of run and sink) and `txnVersion`
    (the batch): Delta uses them to skip a batch that it has already. Other formats ignore them, so the rows of a
    replayed batch are written twice.

    Args:
        format: The format of the writer, such as "delta".
        path: The path to save to. By default `save()` is called without one.
        options: Options of the writer.

    Raises:
        ValueError: An option is one of the two that each batch sets.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.write("table", bl.SparkSink("delta", "s3a://bucket/plays", {"mergeSchema": "true"}))
        <Collection 'plays': user String, points Int64, at String>
    """

    format: str = attrs.field(validator=_name)
    path: str | None = attrs.field(default=None, converter=path_text_if_any)
    # Options may contain passwords, so only their names are shown.
    options: Mapping[str, str] = attrs.field(
        factory=dict,
        converter=as_options,
        validator=_options,
        repr=lambda given: f"[{', '.join(given)}]",
        hash=False,
    )

    def datasets(self) -> list[Dataset] | None:
        return None if self.path is None else file_datasets([self.path])

    def options_of(self, part: Part) -> dict[str, str]:
        """Returns the writer's options for a part."""
        return {**self.options, "txnAppId": f"{part.query}/{part.sink}", "txnVersion": str(part.batch)}

    def write_by_spark(self, rows: Any, part: Part) -> None:
        writer = rows.write.format(self.format).mode("append").options(**self.options_of(part))
        writer.save(None if self.path is None else uri(self.path))
