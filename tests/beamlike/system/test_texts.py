"""Hostile text in every target that text of data or names is written into, read back by the parser of the target."""

from __future__ import annotations

import ast
import datetime
import re
import sqlite3
import subprocess
import tomllib
import zoneinfo
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlglot
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import beamlike as bl
from beamlike.api.as_file import text_of
from beamlike.expressions.grammar import expression_from_text
from beamlike.expressions.written import expression_as_text
from beamlike.io.files.hive import folder, values_of
from beamlike.observe.report import paragraph
from beamlike.rows.type_text import dtype_as_python
from beamlike.system.html import html_text, table
from beamlike.system.path_names import file_name
from beamlike.system.printable import printable
from beamlike.system.texts import (
    label_value,
    python_argument,
    python_comment,
    python_docstring,
    python_names,
    python_value,
    quoted,
    shell_word,
    sql_name,
)
from beamlike.testing.transcripts import _toml

HOSTILE = {
    "plain": "ada",
    "quotes": "it's \"so\"",
    "triple": '"""\nopen("ran", "w")\n"""',
    "triple_single": "'''\nopen('ran', 'w')\n'''",
    "backslash": "a\\",
    "escapes": "\\n\\x41\\u0041\\",
    "line": "a\n    open('ran', 'w')  #",
    "return": "a\r\nb\rc",
    "feeds": "a\x0bb\x0cc",
    "u2028": "a\u2028b\u2029c",
    "next_line": "a\x85b",
    "null": "a\0b",
    "comment": "a*/ /* -- # // b",
    "sql": "'; DROP TABLE t; --",
    "script": "</script><script>open()</script>",
    "attribute": "\" onload='open()' x=\"",
    "comment_end": "--> ]]> <![CDATA[",
    "template": "{{ $value }} {% x %} ${HOME} $${x} {0} %s %(x)s",
    "shell": "$(touch ran) `touch ran` ; touch ran & | > ran",
    "parent": "..",
    "path": "../../etc/passwd",
    "option": "--checkpoint=/",
    "blanks": "  a  ",
    "empty": "",
    "yaml": "- a: [b, *c] # !!python/object/apply:open ['ran']",
    "word": "null",
    "number": "0x1F",
    "long": "x" * 20_000,
    "bidi": "a\u202eb\u2066c\u200f",
    "escape": "\x1b[2J\x07\x7f\x9b",
    "emoji": "\U0001f600\U000e0001",
    "surrogate_text": "\\ud83d\\ude00",
    "half": "a\ud800b",
    "combined": "ﬁ",
    "keyword": "lambda",
}  # fmt: skip
SENDABLE = {name: text for name, text in HOSTILE.items() if name != "half"}
"""Texts that UTF-8 can encode, as those of frames and columns always can be."""

every = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
every_sendable = pytest.mark.parametrize("text", SENDABLE.values(), ids=SENDABLE)


def named(text: str) -> str:
    """Returns the text as the name of a step or a pipeline may have it: in one line."""
    return "".join(one for one in printable(text) if one.isprintable()).strip() or "p"


def encoded(text: str) -> str:
    """Returns the text as it is read from a file. Raises `UnicodeEncodeError` if it cannot be in one."""
    return text.encode().decode()


@every
def test_python_reads_a_value_a_type_a_docstring_and_an_argument_as_the_text(text: str) -> None:
    row = {text: [text, {text: text}], "b": text.encode(errors="surrogatepass")}
    assert ast.literal_eval(encoded(python_value(row))) == row
    assert ast.literal_eval(encoded(quoted(text))) == text
    module = ast.parse(encoded(f"{python_docstring(text)}\nx = 1\n"))
    assert ast.get_docstring(module, clean=False) == text
    assert len(module.body) == 2
    call = ast.parse(encoded(f"f({python_argument(text, '1')})"), mode="eval").body
    assert isinstance(call, ast.Call)
    (given,) = call.keywords
    assert given.arg == text or ast.literal_eval(given.value) == {text: 1}


@every_sendable
def test_python_reads_a_type_as_the_type(text: str) -> None:
    dtype = pl.Struct(
        {text: pl.List(pl.Enum([text, "Int64"])), "Pl x": pl.Array(pl.Datetime("us", "UTC"), 2)}
    )
    code = encoded(dtype_as_python(dtype))
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    assert names == {"pl"}
    assert eval(code) == dtype  # only names of polars


@every
def test_a_comment_of_python_stays_one(text: str) -> None:
    assert [type(one) for one in ast.parse(encoded(f"{python_comment(text)}\nx = 1\n")).body] == [ast.Assign]


@every
def test_variables_are_names_that_differ(text: str) -> None:
    variables = python_names([text, "fi", "pl", "source_1"], ["pl"], "source")
    assert len({*variables.values()}) == len(variables)
    for name in variables.values():
        (statement,) = ast.parse(f"{name} = 1").body
        assert isinstance(statement, ast.Assign)
        assert isinstance(statement.targets[0], ast.Name)
        assert statement.targets[0].id == name != "pl"


class Zone(datetime.tzinfo):
    pass


class Text(str):
    pass


@pytest.mark.parametrize(
    "value", [object(), {"a": object()}, [Text("x")], datetime.datetime(2026, 1, 1, tzinfo=Zone())]
)
def test_no_repr_of_another_class_becomes_code(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be written as Python code"):
        python_value(value)


NEW_YEAR = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize("value", [
    None, True, 1 << 80, -0.0, b"\0'", Decimal("1.50"), NEW_YEAR.date(), datetime.time(1, 2), datetime.timedelta(1),
    NEW_YEAR, NEW_YEAR.astimezone(zoneinfo.ZoneInfo("Europe/Berlin")),
])  # fmt: skip
def test_python_reads_values_of_frames(value: Any) -> None:
    names = {"datetime": datetime, "zoneinfo": zoneinfo, "Decimal": Decimal}
    found = eval(python_value([value]), names)
    assert repr(found) == repr([value])


@every
def test_yaml_reads_a_scalar_as_the_text(text: str) -> None:
    assert yaml.safe_load(encoded(f"a: {quoted(text)}\nb: 1\n")) == {"a": text, "b": 1}


@every_sendable
def test_yaml_reads_a_pipeline_file_as_its_data(text: str) -> None:
    data = {"a": text, "b": {text[:100]: [text, text]}}
    shown = text.replace("${", "$${")  # which a parameter would begin with
    assert yaml.safe_load(encoded(text_of(data))) == {"a": shown, "b": {text[:100]: [shown, shown]}}


@every_sendable
def test_toml_reads_a_pane_as_the_pane(text: str) -> None:
    assert tomllib.loads(f"a = {encoded(_toml({text: [text, 1]}))}") == {"a": {text: [text, 1]}}


@every
def test_the_grammar_of_expressions_reads_a_column_and_a_literal(text: str) -> None:
    written = encoded(expression_as_text(bl.col(text) == text))
    assert repr(expression_from_text(written)) == repr(bl.col(text) == text)


@every_sendable
def test_sql_reads_a_name_as_the_name(text: str) -> None:
    name = text.replace("\0", "") or "x"
    select = sqlglot.parse(f"SELECT {sql_name(name)} FROM t", read="postgres")
    assert [column.name for one in select if one for column in one.find_all(sqlglot.exp.Column)] == [name]
    with sqlite3.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE t ({sql_name(name)} TEXT)")
        assert connection.execute("SELECT * FROM t").description[0][0] == name


class Parsed(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.values, self.text = list[str](), list[str](), ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [f"{name}={value}" for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.tags.append("comment")


@every
def test_html_reads_text_and_attributes_as_the_text(text: str) -> None:
    found = Parsed(encoded(f'<p title="{html_text(text)}">{html_text(text)}</p>'))
    shown = printable(text, keep="\n\t")
    assert (found.tags, found.values, found.text) == (["p"], [f"title={shown}"], shown)
    assert {*Parsed(encoded(paragraph(text))).tags} <= {"p", "code"}
    assert {*Parsed(encoded(table((text, "b"), [(text, text)]))).tags} <= {
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }


@every
def test_prometheus_reads_a_label_as_the_text(text: str) -> None:
    metrics = bl.observe.PrometheusMetrics(text or "p", registry=CollectorRegistry())
    rows = bl.Pipeline("p").read("r", bl.Rows([{"a": 1}]))
    rows.write("out", bl.Memory())
    rows.pipeline.run(bl.LocalRunner(on_batch=metrics))
    page = encoded(generate_latest(metrics.registry).decode())
    labels = {sample.labels["pipeline"] for family in text_string_to_metric_families(page)
              for sample in family.samples if "pipeline" in sample.labels}  # fmt: skip
    assert labels == {label_value(text or "p")}
    assert label_value(text) == text or "\ud800" in text


@every
def test_an_alert_selects_the_pipeline_and_the_stage(text: str) -> None:
    name, stage = named(text), named(f"s{text}")
    rows = bl.Pipeline(name).read("r", bl.Rows([{"at": 1}]), timestamp="at", timestamp_unit="s",
                                  watermark=bl.MonotonousTimestamps())  # fmt: skip
    counts = rows.window_into(bl.FixedWindows("1m")).aggregate(n=bl.count()).named(stage)
    counts.promise(complete=0.9, within="2m").write("out", bl.Memory())
    (group,) = yaml.safe_load(encoded(bl.observe.alert_rules(rows.pipeline)))["groups"]
    (rule,) = group["rules"]
    assert group["name"] == f"beamlike promises of {name}"
    found = re.fullmatch(
        r".*\{pipeline=(\".*\"), stage=(\".*\"), outcome!=\"kept\"\}\[1h\]\)\) > 0", rule["expr"]
    )
    assert found is not None
    # The escapes of `quoted` are those that PromQL and Python have in common.
    assert [ast.literal_eval(one) for one in found.groups()] == [label_value(name), label_value(stage)]
    assert len(name) < 10 or name not in str(rule["annotations"])


@every_sendable
def test_a_shell_reads_a_word_as_the_text(text: str, tmp_path: Path) -> None:
    word = text.replace("\0", "")  # which no argument may have
    found = subprocess.run(
        ["sh", "-c", f"printf '%s|' {shell_word(word)} end"], capture_output=True, cwd=tmp_path
    )
    assert found.stdout == f"{word}|end|".encode()
    assert list(tmp_path.iterdir()) == []


@every
def test_a_file_has_a_name_within_its_folder(text: str, tmp_path: Path) -> None:
    path = tmp_path / "inner" / f"s{file_name(text)}"
    path.parent.mkdir()
    path.write_text("x")
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert (tmp_path / file_name(text)).resolve().parent == tmp_path.resolve()


def test_different_texts_have_different_files() -> None:
    assert len({file_name(text) for text in HOSTILE.values()}) == len(HOSTILE)


@every_sendable
def test_a_partition_is_one_folder_that_reads_as_its_value(text: str) -> None:
    found = folder(f"a{text}"[:200], text)
    assert "/" not in found
    assert found not in (".", "..")
    assert values_of(f"{found}/part") == {f"a{text}"[:200]: text}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bl.Pipeline]:
    """A run whose keys, columns, sources, steps and sinks have these texts."""
    names = [text for text in SENDABLE.values() if 0 < len(text) < 100]
    p = bl.Pipeline(named(HOSTILE["template"]))
    given = [{"k": text, **dict.fromkeys(names, text), "at": 1} for text in SENDABLE.values()]
    source = bl.Rows(given, schema={"k": str, **dict.fromkeys(names, str), "at": int})
    rows = p.read(
        named(HOSTILE["triple"]),
        source,
        timestamp="at",
        timestamp_unit="s",
        watermark=bl.MonotonousTimestamps(),
    )
    counts = (
        rows.window_into(bl.FixedWindows("1m"))
        .group_by("k")
        .aggregate(n=bl.count(), most=bl.max(HOSTILE["line"]))
    )
    counts.named(HOSTILE["script"]).write(HOSTILE["attribute"], bl.Memory())
    place = str(tmp_path_factory.mktemp("runs") / HOSTILE["triple"].replace("/", ""))
    p.run(bl.LocalRunner(checkpoint=place, drain=True))
    return place, p


@every_sendable
def test_a_recorded_test_plays_rows_and_runs_nothing_of_them(
    text: str, recorded: tuple[str, bl.Pipeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place, p = recorded
    code = encoded(bl.testing.as_test(bl.record(place, p, batches=(0, 0), key={"k": text}), p, "jobs:p"))
    (test,) = [one for one in ast.parse(code).body if isinstance(one, ast.FunctionDef)]
    names: dict[str, Any] = {"p": p}
    exec(code.replace("from jobs import p\n", ""), names)
    names[test.name]()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "target",
    [
        "",
        "jobs",
        "jobs:",
        "a b:p",
        "jobs:p; x",
        "jobs:p\nx",
        "jobs:p.q",
        "a;b:p",
        "jobs:1()",
        "jobs:p() or x()",
    ],
)
def test_a_target_that_is_more_than_a_pipeline_is_refused(
    target: str, recorded: tuple[str, bl.Pipeline]
) -> None:
    place, p = recorded
    with pytest.raises(ValueError, match="as_test: target must be"):
        bl.testing.as_test(bl.record(place, p, batches=(0, 0)), p, target)
