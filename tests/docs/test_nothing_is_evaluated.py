"""No input is evaluated or unpickled: neither data nor transcripts, records or control files."""

from __future__ import annotations

import ast
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beamlike as bl
from beamlike.records.history import History
from beamlike.system.seals import sealed
from beamlike.testing.transcripts import TranscriptError, parse
from stages.state.store import decode, encode
from tests.support.places import ROOT

LAYERS: Final = ("windowing", "stages", "beamlike")

# Modules that make objects or code of bytes or text.
MODULES: Final = {
    "_pickle", "cloudpickle", "code", "codeop", "copyreg", "dill", "joblib", "jsonpickle", "marshal", "pickle",
    "pyspark.cloudpickle", "pyspark.serializers", "runpy", "shelve", "yaml",
}  # fmt: skip
# Functions that evaluate, or can be made to, of any module.
CALLS: Final = {
    "__import__", "deserialize", "eval", "exec", "exec_module", "from_pickle", "import_module", "load_module",
    "read_pickle", "run_module", "run_path", "unpack_archive", "unsafe_load",
}  # fmt: skip
OPTIONS: Final = {"allow_pickle", "shell"}

ALLOWED: Final = {
    # A CombineFn's accumulators are the user's own objects; its docstring says what that means.
    "stages/aggregates/combine_fn.py": {"import pickle"},
    # A Value(object) is the user's own object; its docstring says what that means.
    "stages/process/fields.py": {"import pickle"},
    # Reads both, with an error that names the stage and the class.
    "stages/pickled.py": {"import pickle", "pickle.loads in load"},
    # The records of earlier batches, in the memory of the run that has made them.
    "beamlike/records/recent.py": {"import pickle", "pickle.loads in _record"},
    # Writes the compiled code of the user's modules, which the workers would compile otherwise.
    "beamlike/spark/session/archive.py": {"compile in _compiled", "import marshal"},
    # The state of a worker of Beam, as dicts, lists and bytes, which this process itself has written.
    "beamlike/beam/stateful.py": {"import marshal", "marshal.loads in load"},
    # The same for a whole run, in its checkpoint, which is trusted input (docs/security.md).
    "beamlike/beam/checkpoint.py": {"import marshal", "marshal.loads in follow"},
    # A dict display, in which the names of columns are literals, as `repr` writes them.
    "windowing/python_values.py": {"eval in _display"},
    # The fused stages of a pipeline, and the metrics of its bundles, as bytes that the plan of this run itself carries.
    "beamlike/beam/planned/job.py": {"import marshal", "marshal.loads in __init__"},
    "beamlike/beam/planned/play.py": {"import marshal", "marshal.loads in _infos"},
    # Looks at what Spark will pickle; nothing is read.
    "beamlike/spark/query/modules.py": {"import pyspark.cloudpickle"},
    # The operator or function itself, which Spark sends to its tasks pickled anyway.
    "beamlike/spark/session/loading.py": {
        "import pickle",
        "import pyspark.serializers",
        "pickle.loads in load",
    },
    # The module that is named on the command line, and the package that brings a Java.
    "beamlike/cli/target.py": {"import_module in convert"},
    # The functions that a pipeline file names, as `module:name`. YAML is composed, and no object is made of it.
    "beamlike/spec/public.py": {"import_module in public", "import_module in public_names"},  # this package
    "beamlike/spec/references.py": {"import_module in _module"},
    "beamlike/spec/document.py": {"import yaml"},
    "beamlike/api/as_file.py": {"import yaml"},
    "beamlike/spark/session/java.py": {"import_module in _candidates"},
    # Modules of this package, by names that are written there.
    "beamlike/__init__.py": {"import_module in __getattr__"},
    "beamlike/observe/__init__.py": {"import_module in __getattr__"},
    # Looks at what cannot be sent, to say which variable it is.
    "beamlike/spark/query/unpicklable.py": {"import pyspark.cloudpickle"},
    # The module of the same name that Python would have imported.
    "beamlike/spark/session/early/sitecustomize.py": {"exec_module in _import_next"},
}


def dangers(text: str) -> set[str]:
    """Returns the calls in a module that make objects or code out of bytes or text, as `what in function`."""
    return set(_dangers(ast.parse(text), "the module"))


def _dangers(node: ast.AST, function: str) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            function = name
        case ast.Import(names=names):
            yield from (f"import {name.name}" for name in names if name.name in MODULES)
        case ast.ImportFrom(module=module, names=names):
            found = {module, *(f"{module}.{name.name}" for name in names)} & MODULES
            yield from (f"import {name}" for name in found)
        case ast.Call(func=called, keywords=options):
            yield from (f"{what} in {function}" for what in _called(called))
            yield from (f"{option.arg}= in {function}" for option in options if option.arg in OPTIONS)
    for child in ast.iter_child_nodes(node):
        yield from _dangers(child, function)


def _called(called: ast.expr) -> Iterator[str]:
    match called:
        case ast.Attribute(value=ast.Name("ast"), attr="literal_eval"):
            return
        case ast.Attribute(value=ast.Attribute(attr="list" | "arr"), attr="eval"):
            return  # an expression of polars over the elements of lists
        case ast.Attribute(value=ast.Name("re"), attr="compile"):
            return
        case ast.Attribute(value=ast.Name("os"), attr="system" | "popen" as name):
            yield f"os.{name}"
        case ast.Attribute(value=ast.Name(module), attr="load" | "loads" | "Unpickler" as name):
            if module in MODULES:
                yield f"{module}.{name}"
        case ast.Attribute(attr=name) if name in CALLS:
            yield name
        case ast.Name(name) if name in {*CALLS, "compile"}:
            yield name


def modules() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def test_no_module_evaluates_or_unpickles_but_where_it_is_told_why() -> None:
    found = {name: dangers((ROOT / name).read_text()) for name in modules()}
    assert len(found) > 100
    assert {name: what for name, what in found.items() if what} == ALLOWED


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "from pyspark import cloudpickle",
        "import yaml",
        "x = eval(text)",
        "exec(text)",
        "exec(compile(text, 'x', 'exec'))",
        "frame.eval('a + b')",
        "pl.LazyFrame.deserialize(data)",
        "np.load(file, allow_pickle=True)",
        "pandas.read_pickle(file)",
        "importlib.import_module(name)",
        "__import__(name)",
        "subprocess.run(text, shell=True)",
        "os.system(text)",
        "def f():\n    class A:\n        x = eval('1')",
    ],
)
def test_a_newcomer_is_found(text: str) -> None:
    assert dangers(text)


@pytest.mark.parametrize("text", ["x.list.eval(pl.element())", "re.compile('x')", "ast.literal_eval('1')"])
def test_what_only_looks_like_one_is_not(text: str) -> None:
    assert dangers(text) == set()


class Payload:
    """An object whose pickle creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.path,)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that exists if a payload was executed."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "executed"


def test_the_payload_would_be_seen(mark: Path) -> None:
    pickle.loads(pickle.dumps(Payload(mark)))
    assert mark.exists()


def code(mark: Path) -> str:
    return f"__import__('pathlib').Path({str(mark)!r}).touch()"


FORMATS = {"parquet": bl.Parquet, "csv": bl.CSV, "jsonl": bl.JSONLines}


@pytest.mark.parametrize("kind", FORMATS)
def test_data_is_data(kind: str, mark: Path, tmp_path: Path) -> None:
    values = {
        "bytes": [pickle.dumps(Payload(mark))],
        "text": [code(mark)],
        "at": [code(mark)],
        "n": ["!!python"],
    }
    frame = pl.DataFrame({name: value * 2 for name, value in values.items()})
    p = bl.Pipeline("p")
    first = p.read("given", bl.Rows(frame.with_columns(time=0)), timestamp="time", timestamp_unit="s",
                   watermark=bl.MonotonousTimestamps())  # fmt: skip
    first.select("bytes", "text", "at", "n").write("files", FORMATS[kind](tmp_path / "in"))
    p.run()
    p, out = bl.Pipeline("again", max_dead_letters=4), bl.Memory()
    schema = {"bytes": bytes, "text": str, "at": str, "n": int if kind != "parquet" else str}
    again = p.read("rows", FORMATS[kind](tmp_path / "in", schema=schema))
    again.dead_letters().write("unread", bl.JSONLines(tmp_path / "unread"))
    timed = again.with_watermark(bl.MonotonousTimestamps(), "at", name="timed")
    timed.dead_letters().write("lost", out)
    p.run()
    assert len(out.rows()) == 2
    assert not mark.exists()


def test_a_parquet_file_that_names_a_python_type_is_only_its_bytes(mark: Path, tmp_path: Path) -> None:
    """Arrow once unpickled the types that such a file declares."""
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Payload(mark), protocol=0),  # which is text
    }
    field = pa.field("value", pa.int64(), metadata=metadata)
    table = pa.table([pa.array([7]), pa.array([1])], schema=pa.schema([field, pa.field("at", pa.int64())]))
    pq.write_table(table, tmp_path / "x.parquet")
    p, out = bl.Pipeline("p"), bl.Memory()
    rows = p.read("rows", bl.Parquet(tmp_path / "x.parquet", schema={"value": int, "at": int}),
                  timestamp="at", timestamp_unit="s", watermark=bl.MonotonousTimestamps())  # fmt: skip
    rows.map_batches(lambda table: table).write("out", out)
    rows.dead_letters().write("lost", bl.Memory())
    assert p.run().batches[0].sources["rows"].read == 1
    assert not mark.exists()


@pytest.mark.parametrize("choice", ["windows", "trigger"])
@pytest.mark.parametrize("form", ["{code}", "FixedWindows({code})", "AfterCount({code})"])
def test_a_transcript_is_read_and_not_run(choice: str, form: str, mark: Path) -> None:
    chosen = {"windows": "FixedWindows(10)", "trigger": "AfterCount(1)", choice: form.format(code=code(mark))}
    lines = [f"{name} = {json.dumps(text)}" for name, text in chosen.items()]
    text = "\n".join(["name = 'x'", "[windowing]", *lines, "[[step]]", "watermark = 1"])
    with pytest.raises(TranscriptError, match=choice):
        parse(text, "x.toml")
    assert not mark.exists()


def test_records_state_and_orders_are_plain_data(mark: Path, tmp_path: Path) -> None:
    payload = pickle.dumps(Payload(mark)).decode("latin-1")
    records = tmp_path / "records.jsonl"
    plan = {"pipeline": payload, "sources": {}, "stages": {}, "sinks": {}}
    records.write_text(json.dumps(sealed({"plan": plan}, "records")) + "\n")
    assert History.open(records).plan.pipeline == payload
    frame = pl.DataFrame({"value": [pickle.dumps(Payload(mark))]})
    assert decode(encode(frame, {"facts": payload}))[0].equals(frame)
    assert not mark.exists()
