"""Attacks on the live page: names of other sites, forged and damaged records, rows of other folders, bombs, Ctrl-C."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from click.testing import CliRunner

import beamlike as bl
from beamlike.cli.main import main
from beamlike.observe import serving
from beamlike.observe.live.catalog import Catalog
from beamlike.observe.live.rows import Output, newest
from beamlike.records.history import History
from beamlike.system.seals import sealed
from tests.beamlike.observe.live.places import write_run
from tests.beamlike.observe.live.test_serving import Client
from tests.support.simulated import flagship

SECRET: Final = "TOP-SECRET"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "flagship.jsonl", flagship(held=True))
    with serving(folder) as address:
        yield Client(address)


FOREIGN: Final = """evil.com|a_b.evil.com|a`b.evil.com|a{b}.evil.com|a"b.evil.com|a}b.evil.com|127.0.0.1.evil.com|
localhost.evil.com|foo.localhost|xn--9ca.evil.com|a^b.evil.com|a~b.evil.com|localhost@evil.com|evil.com#localhost|
evil.com/localhost|evil.com?localhost|localhost:1:2|localhost:x|localhost, evil.com|127.0.0.2|127.1|[::1|::1|0.0.0.0|
[::ffff:127.0.0.1]|localhost.|2130706433|localhost%00.evil.com|http://localhost|localhost evil.com""".replace(
    "\n", ""
)


def _raw(client: Client, request: str) -> str:
    with socket.create_connection((client.host, client.port), timeout=60) as connection:
        connection.sendall(request.encode())
        found = b""
        while part := connection.recv(65_536):
            found += part
    return found.decode(errors="replace")


@pytest.mark.parametrize(
    "host", [*FOREIGN.split("|"), "", "localhost\r\nHost: evil.com", "evil.com\r\nHost: localhost"]
)
def test_another_name_of_a_host_is_refused(host: str, client: Client) -> None:
    answer = _raw(client, f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
    assert answer.split(" ")[1] in ("400", "403")
    assert "flagship" not in answer


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "localhost:8787", "127.0.0.1:1"]
)
def test_the_names_of_this_machine_are_served(host: str, client: Client) -> None:
    answer = _raw(client, f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
    assert answer.split(" ")[1] == "200"
    assert "flagship" in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "GETX"])
def test_the_pages_can_only_be_read(method: str, client: Client) -> None:
    assert client.ask("/", method)[0] == 405


def test_a_request_without_a_host_is_refused(client: Client) -> None:
    assert _raw(client, "GET / HTTP/1.0\r\n\r\n").split(" ")[1] in ("400", "403")


# Forged records


def _line(facts: Any) -> str:
    return json.dumps(sealed(facts, "records"), separators=(",", ":"))


def _facts(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    path = write_run(folder / "base.jsonl", flagship(held=True, batches=3))
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    Path(path).unlink()
    for facts in lines:
        facts.pop("crc32"), facts.pop("sealed_as")
    return lines[0], next(facts for facts in lines if "batch" in facts)


def _plan(**more: Any) -> Callable[[Any, Any], str]:
    return lambda plan, batch: f"{_line({**plan, 'plan': {**plan['plan'], **more}})}\n{_line(batch)}\n"


def _batch(**more: Any) -> Callable[[Any, Any], str]:
    return lambda plan, batch: f"{_line(plan)}\n{_line({**batch, **more})}\n"


def _cycle(plan: Any, batch: Any) -> str:
    stages = {name: {**stage, "inputs": [name]} for name, stage in plan["plan"]["stages"].items()}
    return _plan(stages=stages)(plan, batch)


def _watermark(plan: Any, batch: Any) -> str:
    sources = {name: {**one, "watermark": 2**70} for name, one in batch["sources"].items()}
    return _batch(sources=sources)(plan, batch)


FORGED: Final[dict[str, Callable[[Any, Any], str]]] = {
    "a deep graph": lambda plan, batch: '{"plan":' + "[" * 200_000 + "\n",
    "a deep batch": lambda plan, batch: _line(plan) + '\n{"batch":' + "[" * 200_000 + "\n",
    "half a character": _plan(pipeline="\ud800evil"),
    "a name of megabytes": _plan(pipeline="x" * 3_000_000),
    "a number as a name": _plan(pipeline=5),
    "stages as a list": _plan(stages=[1, 2]),
    "sinks as a text": _plan(sinks="all"),
    "a circle": _cycle,
    "an enormous time": _batch(processing_time=10**30),
    "a time before all": _batch(processing_time=-(10**18)),
    "a batch of one and a half": _batch(batch=1.5),
    "a batch that is text": _batch(batch="<script>"),
    "a batch of many digits": _batch(batch=10**40),
    "a time that is no number": _batch(processing_time=float("nan")),
    "no stages": _batch(stages={}, sources={}),
    "other stages": _batch(stages={"ghost<script>": {}}),
    "a watermark beyond 64 bits": _watermark,
    "no graph": lambda plan, batch: _line(batch) + "\n",
    "bytes": lambda plan, batch: '{"plan":\0\n' * 50,
}


@pytest.mark.parametrize("kind", FORGED)
def test_forged_records_hide_no_other_run_and_end_no_command(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = FORGED[kind](*_facts(tmp_path))
    (tmp_path / "runs").mkdir()
    path = tmp_path / "runs/forged.jsonl"
    path.write_text(text, errors="surrogatepass")
    write_run(tmp_path / "runs/good.jsonl", flagship(held=True, batches=3))
    for command in ("status", "why", "report"):
        more = ["--output", str(tmp_path / "report.html")] if command == "report" else []
        run = CliRunner().invoke(main, [command, str(path), *more])
        assert run.exception is None or isinstance(run.exception, SystemExit)
    with serving(tmp_path / "runs") as address:
        client = Client(address)
        status, _, page = client.ask("/")
        assert status == 200
        assert "good.jsonl" in page
        assert len(page) < 100_000
        for entry in Catalog.of([tmp_path / "runs"]).entries():
            for below in ("", "/sources", "/batches", "/rows", "/completeness", "/sources/charts"):
                status, _, page = client.ask(f"/runs/{entry.id}{below}")
                assert '<script>"' not in page
                assert status == 200 or entry.name.endswith("forged.jsonl")


# Rows


def _run(folder: Path, **more: Any) -> None:
    p = bl.Pipeline("p")
    p.read("s", bl.Rows([{"k": "own row"}])).write("o", bl.JSONLines(folder / "out"))
    p.run(bl.LocalRunner(quiet=True, **more))


def _elsewhere(target: Path, home: Path) -> None:
    """Forges records whose sink is in another folder."""
    lines = [json.loads(line) for line in (target / "run.jsonl").read_text().splitlines()]
    for facts in lines:
        facts.pop("crc32"), facts.pop("sealed_as")
        if "plan" in facts:
            facts["plan"]["sinks"]["o"]["folder"] = str(home)
    (target / "run.jsonl").write_text("".join(f"{_line(facts)}\n" for facts in lines))


def _as_link(target: Path, home: Path) -> None:
    _elsewhere(target, target / "rows")
    (target / "rows").symlink_to(home)


def _with_link(target: Path, home: Path) -> None:
    _elsewhere(target, target / "rows")
    (target / "rows").mkdir()
    (target / "rows/x.json").symlink_to(home / "config.json")


def _letters(target: Path, home: Path) -> None:
    (target / "dead-letters").symlink_to(home)


def _above(target: Path, home: Path) -> None:
    _elsewhere(target, target / ".." / home.name)


@pytest.mark.parametrize("forge", [_elsewhere, _as_link, _with_link, _letters, _above])
@pytest.mark.parametrize("named", ["shared", "shared/run.jsonl"])
def test_rows_are_shown_of_the_places_that_the_page_was_given_only(
    named: str, forge: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    home.mkdir()
    shared.mkdir()
    (home / "config.json").write_text(f'{{"token": "{SECRET}"}}\n')
    _run(shared, records=shared / "run.jsonl")
    forge(shared, home)
    with serving(tmp_path / named) as address:
        client = Client(address)
        (entry,) = Catalog.of([tmp_path / named]).entries()
        for of in ("o", "@dead-letters"):
            assert SECRET not in client.ask(f"/runs/{entry.id}/rows?of={of}")[2]
        if forge in (_elsewhere, _above):
            assert "is in none of the places" not in client.ask("/")[2]
            assert "which is in none of the places of this page" in client.ask(f"/runs/{entry.id}/rows")[2]
    with serving(tmp_path / named, home) as address:  # unless the page is given that folder, too
        shown = Client(address).ask(
            f"/runs/{entry.id}/rows?of={'@dead-letters' if forge is _letters else 'o'}"
        )[2]
        assert SECRET in shown


def _gzip(path: Path) -> None:
    with gzip.open(path / "a.jsonl.gz", "wb") as file:
        for _ in range(60):
            file.write(b'{"a":"' + b"A" * 1_000_000 + b'"}\n')


def _parquet(path: Path) -> None:
    pl.select(a=pl.repeat(1, 30_000_000, dtype=pl.Int8)).write_parquet(path / "a.parquet")


def _disguised(path: Path) -> None:
    _gzip(path)
    (path / "a.jsonl.gz").rename(path / "a.csv")


def _plain(path: Path) -> None:
    with open(path / "a.csv", "wb") as file:
        file.truncate(60_000_000)


def _zstd(path: Path) -> None:
    import pyarrow as pa

    with pa.CompressedOutputStream(str(path / "a.csv.zst"), "zstd") as file:
        for _ in range(60):
            file.write(b"a\n" * 500_000)


@pytest.mark.parametrize("make", [_gzip, _parquet, _disguised, _plain, _zstd])
def test_what_unpacks_to_too_much_is_named_and_not_read(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path)
    found = newest(Output("o", "rows", str(tmp_path)))
    assert found.rows == []
    assert [text.partition(":")[0][:2] for text in found.left_out] == ["a."]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only the administrator can give files away")
def test_records_of_another_user_are_left_out_and_told(tmp_path: Path) -> None:
    for name in ("own", "foreign"):
        write_run(tmp_path / f"{name}.jsonl", flagship(held=True, batches=2))
    os.chown(tmp_path / "foreign.jsonl", 12_345, 12_345)
    with serving(tmp_path) as address:
        page = Client(address).ask("/")[2]
    assert "own.jsonl" in page
    assert "foreign.jsonl" not in page
    assert "1 records of other users are left out" in page
    for place in (tmp_path / "foreign.jsonl", tmp_path):  # named, or in a folder of that user
        assert len(Catalog.of([place]).entries()) == 1
        os.chown(tmp_path, 12_345, 12_345)
        os.chown(tmp_path / "own.jsonl", 4_321, 4_321)


def test_a_pipe_in_the_place_does_not_stop_the_page(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "records.jsonl")
    assert Catalog.of([tmp_path]).entries() == []


@pytest.mark.parametrize("reads", [0, 3])
def test_ctrl_c_ends_the_page(reads: int, tmp_path: Path) -> None:
    write_run(tmp_path / "run.jsonl", flagship(held=True, batches=2))
    command = [sys.executable, "-m", "beamlike", "ui", str(tmp_path), "--port", str(_free_port())]
    page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with page:
        assert page.stdout is not None
        address = page.stdout.readline().split()[2]
        for _ in range(reads):
            urllib.request.urlopen(address).close()
        page.send_signal(signal.SIGINT)
        assert page.wait(30) == 0


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_the_history_of_damaged_records_names_the_reason(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"plan":' + "[" * 100_000 + "\n")
    with pytest.raises(bl.errors.ViewError, match=r"no line of .* that can be read"):
        History.open(tmp_path / "a.jsonl")
