"""Pipelines as YAML files: reads what `Pipeline.to_yaml` writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from beamlike.api.cogroup import cogroup
from beamlike.api.other_names import COLLECTION, GROUPED
from beamlike.api.pipeline import Pipeline
from beamlike.errors import BadFile, MissingFiles, PlanError, WrongType, nearest
from beamlike.spec.document import Item, parse
from beamlike.spec.kinds import grouped_methods, heads, methods
from beamlike.spec.parameters import Parameters
from beamlike.spec.sql import sql_of_file
from beamlike.spec.values import Values

KEYS: Final = ("pipeline", "on_error", "max_dead_letters", "parameters", "collections")
"""The keys of a file."""


def from_yaml(path: str | os.PathLike[str], **settings: Any) -> Pipeline:
    """Reads a pipeline from a YAML file, as `Pipeline.to_yaml` writes it and docs/files.md explains.

    The file contains no code. Reading it imports the modules that it names as `module:name`, which runs their code, and
    creates objects of classes that fit their places. PyYAML is needed: `pip install 'beamlike[yaml]'`.

    Args:
        path: The file.
        **settings: Values of the parameters that the file declares, as text or as values of their types.

    Raises:
        BadFile: The file cannot be read; the message has the line, the column and the nearest match.
        PlanError: A parameter is unknown, is not set, or has another type.

    Example, with the `plays` of `bl.Collection`:
        >>> plays.filter(bl.col("points") > 3).write("out", bl.Console())
        <Collection 'plays.filter': user String, points Int64, at String>
        >>> from pathlib import Path
        >>> _ = Path("scores.yaml").write_text(p.to_yaml())
        >>> bl.from_yaml("scores.yaml").explain() == p.explain()
        True
    """
    if not isinstance(path, str | os.PathLike):
        raise WrongType(f"from_yaml takes the path of a file, such as 'scores.yaml', not {path!r}")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingFiles(f"there is no file {os.fspath(path)!r} in {str(Path.cwd())!r}") from None
    except UnicodeDecodeError as error:
        raise BadFile(f"{os.fspath(path)}:1:1: the file is not UTF-8: {error}") from None
    return read(text, os.fspath(path), settings)


def read(text: str, file: str, settings: Mapping[str, Any]) -> Pipeline:
    """Returns the pipeline of the text of a file. Errors begin with the name of the `file`."""
    document = parse(text, file)
    document.require_keys([*KEYS], "a pipeline")
    parts = document.mapping("the file")
    for key in ("pipeline", "collections"):
        if key not in parts:
            raise document.fault(
                f"the file has no {key!r}; it begins with 'pipeline: NAME', and has 'collections:'"
            )
    parameters = Parameters.of(parts.get("parameters"), settings)
    blocks = parts["collections"].mapping("collections")
    values = Values(parameters, {}, tuple(blocks))
    options = {key: values.plain(parts[key]) for key in ("on_error", "max_dead_letters") if key in parts}
    try:
        pipeline = Pipeline(values.plain(parts["pipeline"]), **options)
    except (PlanError, TypeError) as error:
        raise parts["pipeline"].fault(str(error)) from error
    file_reader = _Reader(pipeline, values)
    for name, item in blocks.items():
        values.collections[name] = file_reader.block(name, item)
    return pipeline


@attrs.frozen
class _Reader:
    """The reader of the blocks of a file."""

    pipeline: Pipeline
    values: Values

    def block(self, name: str, item: Item) -> Any:
        """Declares the collection of a block: how it begins, and its steps."""
        known = ["from", *heads(), "sql", "steps"]
        item.require_keys(known, f"the collection {name!r}")
        begins = [key for key in item.mapping(name) if key != "steps"]
        if len(begins) != 1:
            given = " and ".join(begins) or "none"
            raise item.fault(
                f"the collection {name!r} begins with one of {', '.join(known[:-1])}; it has {given}"
            )
        made = self._begun(begins[0], name, item.value[begins[0]])
        steps = item.value.get("steps")
        for step in () if steps is None else steps.listed("steps"):
            made = self._step(made, step)
        return made

    def _begun(self, key: str, name: str, item: Item) -> Any:
        match key:
            case "from":
                return self.values.collection(item)
            case "read":
                return self._read(name, item)
            case "cogroup":
                return self._cogroup(item)
            case "sql":
                return self._sql(item)
        return self.values.build(heads()[key], key, item)

    def _read(self, name: str, item: Item) -> Any:
        if item.value is None:
            raise item.fault(
                "read has no source; write one such as {JSONLines: {path: plays, schema: {user: str}}}"
            )
        given = {} if isinstance(item.value, dict) and "name" in item.value else {"name": name}
        return self.values.build(self.pipeline.read, "read", item, **given)

    def _cogroup(self, item: Item) -> Any:
        item.require_keys(["collections", "by"], "cogroup")
        parts = item.mapping("cogroup")
        for key in ("collections", "by"):
            if key not in parts:
                raise item.fault(f"cogroup has no {key!r}; it needs 'collections: {{...}}' and 'by: key'")
        sides = {
            key: self.values.collection(one)
            for key, one in parts["collections"].mapping("collections").items()
        }
        try:
            together = cogroup(**sides)
        except PlanError as error:
            raise item.fault(str(error)) from error
        return self.values.build(together.by, "by", parts["by"])

    def _sql(self, item: Item) -> Any:
        """Declares a query over the collections above. A fault has its place in the query, and that of the query."""
        try:
            return sql_of_file(item, self.values.parameters, self.values.collections)
        except BadFile:
            raise
        except PlanError as error:
            raise item.fault(str(error)) from error

    def _step(self, before: Any, item: Item) -> Any:
        """Declares a step: a key with the name of a method, or that and `group_by`."""
        parts = (
            {item.value: attrs.evolve(item, value=None)}
            if isinstance(item.value, str)
            else item.mapping("a step")
        )
        names = [key for key in parts if key != "group_by"]
        if [*parts] == ["group_by"]:
            raise item.fault(
                "group_by is in one step with a method, such as {group_by: user, aggregate: {n: count()}}"
            )
        known = {**grouped_methods()} if "group_by" in parts else {**methods(), "group_by": None}
        if len(names) != 1:
            what = "a method such as aggregate" if "group_by" in parts else "a method such as filter"
            raise item.fault(f"a step has {what}; this has {' and '.join(names) or 'none'}")
        (name,) = names
        if name in heads() or name in ("from", "sql"):
            raise item.fault(f"{name!r} begins a collection, and is no step", key=name)
        if name not in known:
            hint = _other_step(name, known) or nearest(name, known) or f"; there are {', '.join(known)}"
            raise item.fault(
                f"there is no step {name!r}{hint}", key=name if isinstance(item.value, dict) else None
            )
        if name == "write" and not (
            isinstance(parts[name].value, dict) and {*parts[name].value} & {"name", "sink"}
        ):
            raise parts[name].fault(
                "write has a name and a sink: write: {name: plays, sink: {Parquet: plays}}"
            )
        if "group_by" in parts:
            before = self.values.build(before.group_by, "group_by", parts["group_by"])
        return self.values.build(getattr(before, name), name, parts[name])


def _other_step(name: str, known: Iterable[str]) -> str:
    """Returns a clause with the step for a name of another library; empty for other names."""
    hint = COLLECTION.get(name) or GROUPED.get(name, "")
    step = re.match(r"\w+", hint)
    return f"; did you mean {step[0]!r}?" if step and step[0] in known else f"; {hint}" if hint else ""
