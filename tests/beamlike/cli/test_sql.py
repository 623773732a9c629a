"""`beamlike sql`: queries over files, from the command line and at a prompt."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from beamlike.cli.main import main
from tests.support.places import ROOT

PLAYS = [
    ("ada", 3, "2026-01-31T12:00:10Z"),
    ("bob", 5, "2026-01-31T12:00:40Z"),
    ("ada", 4, "2026-01-31T12:01:20Z"),
]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plays = pl.DataFrame(PLAYS, ["user", "points", "at"], orient="row")
    plays.write_ndjson("plays.jsonl")
    Path("people").mkdir()
    pl.DataFrame({"user": ["ada"], "age": [36]}).write_csv("people/ages.csv")
    Path("out/0").mkdir(parents=True)
    for number in range(3):
        plays[number : number + 1].select("user", "points", ts=pl.lit(number)).write_parquet(
            f"out/0/{number}.parquet"
        )
    Path("out/_hidden.parquet").write_text("no rows")


def call(*words: str, typed: str = "") -> str:
    return CliRunner().invoke(main, ["sql", *words], input=typed).output


def test_the_docs_show_what_a_query_prints() -> None:
    shown = (ROOT / "docs/sql.md").read_text().partition("    $ beamlike sql ")[2]
    (query,) = re.findall(r'-e "(.*)"', shown.partition("┌")[0])
    table = [
        line.strip() for line in re.match(r"(?:    .*\n)+", "    ┌" + shown.partition("┌")[2])[0].splitlines()
    ]
    assert call("plays.jsonl", "ages=people/ages.csv", "-e", query).splitlines() == table


def test_a_script_in_which_a_query_is_refused_fails_after_the_others() -> None:
    asked = "SELECT usr FROM plays; SELECT user FROM plays;"
    done = CliRunner().invoke(main, ["sql", "plays.jsonl"], input=asked)
    assert done.exit_code == 1
    assert "did you mean 'user'?" in done.output
    assert done.output.endswith("3 rows\n")
    assert CliRunner().invoke(main, ["sql", "plays.jsonl"], input="SELECT user FROM plays").exit_code == 0


def test_folders_are_tables_and_tables_are_joined() -> None:
    text = call(
        "plays=out", "people", "-e", "SELECT SUM(points) AS n FROM plays", "--time", "ts", "--unit", "s"
    )
    assert "│ 12 │" in text
    text = call(
        "out", "people", "-e", "SELECT o.user, age, points FROM out o JOIN people p ON o.user = p.user"
    )
    assert text.endswith("2 rows\n")


def test_a_prompt_goes_on_after_an_error() -> None:
    text = call(
        "plays.jsonl",
        typed="SELECT usr FROM plays;\n\\d\nSELECT COUNT(*) AS n\nFROM plays;\n\\q\nSELECT 1;\n",
    )
    assert "there is no column 'usr'; did you mean 'user'?" in text
    assert "plays: 3 rows; user String, points Int64, at String; event time at" in text
    assert "│ 3 │" in text
    assert text.endswith("1 row\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "there is no file or folder with files at nothing"),
        (["plays.jsonl", "plays=out"], "two tables are called 'plays'"),
        (["1.parquet"], "'1.parquet': write NAME=PATH"),
        (["plays.jsonl", "--time", "att"], "no table has a column 'att'; did you mean 'at'?"),
        (["readme=plays.txt"], "is no Parquet, CSV or JSON lines; known are .parquet"),
        (["plays.jsonl", "-e", "SELECT 1"], "a query needs FROM"),
    ],
)
def test_what_is_wrong_is_said(words: list[str], said: str) -> None:
    Path("plays.txt").write_text("x")
    assert said in " ".join(call(*words).split())


def test_columns_and_types_are_those_of_all_rows() -> None:
    rows = [{"at": second} for second in range(150)]
    pl.DataFrame([*rows, {"at": 150, "late": 7.5}], infer_schema_length=None).write_csv("csv.csv")
    lines = [str(row).replace("'", '"') for row in [*rows, {"at": 150, "late": 7}, {"at": 151, "late": 8.5}]]
    Path("json.jsonl").write_text("\n".join(lines))
    assert "7.5" in call("csv.csv", "--unit", "s", "-e", "SELECT late FROM csv WHERE at >= 149")
    found = call("json.jsonl", "--unit", "s", "-e", "SELECT late FROM json WHERE at >= 149")
    assert re.findall(r"null|7\.0|8\.5", found) == ["null", "7.0", "8.5"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.jsonl", '{"at": 1}\n{"at": '), ("a.csv", ""), ("a.csv", "a\n1,2\n"), ("a.parquet", "x")],
)
def test_a_damaged_file_is_named(name: str, text: str) -> None:
    Path(name).write_text(text)
    assert call(name, "-e", "SELECT * FROM a").startswith(f"Error: {name} cannot be read: ")


def test_files_that_do_not_fit_together_are_refused() -> None:
    Path("mixed").mkdir()
    Path("mixed/a.jsonl").write_text('{"a": [1]}\n')
    Path("mixed/b.jsonl").write_text('{"a": {"b": 1}}\n')
    assert call("mixed", "-e", "SELECT * FROM mixed").startswith(
        "Error: the files in mixed do not fit together: "
    )
