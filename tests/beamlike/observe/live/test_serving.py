"""The server: its pages and their updates, refused requests, and the escaping of its pages."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from beamlike.observe import serving
from beamlike.observe.live.catalog import Catalog
from tests.beamlike.observe.live.places import append, write_run
from tests.support.simulated import HARMFUL, flagship, wide


class Client:
    """A client of a real server."""

    def __init__(self, address: str) -> None:
        found = urlsplit(address)
        self.host, self.port, self.query = found.hostname or "", found.port or 80, found.query

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request(
            method, path, headers={name.replace("_", "-"): one for name, one in headers.items()}
        )
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found

    def changes(self, path: str) -> Iterator[str]:
        """Yields the main part of a page whenever the server sends it."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request("GET", path, headers={"Accept": "text/event-stream"})
        answer = connection.getresponse()
        lines: list[str] = []
        try:
            while line := answer.readline().decode().rstrip("\r\n") or "end":
                if line == "end":
                    if lines:
                        yield "\n".join(lines)
                    lines = []
                elif line.startswith("data:"):
                    lines.append(line.removeprefix("data:").removeprefix(" "))
        finally:
            connection.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "flagship.jsonl", flagship(held=True))
    write_run(folder / "wide.jsonl", wide(each=20))
    return folder


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[Client]:
    with serving(place) as address:
        yield Client(address)


def address_of(path: Path) -> str:
    (entry,) = Catalog.of([path]).entries()
    return f"/runs/{entry.id}"


def test_every_page_of_every_run_is_there(client: Client, place: Path) -> None:
    status, _, text = client.ask("/")
    assert status == 200
    for name, stage in (("flagship", "average"), ("wide", "stage 3")):
        run = address_of(place / f"{name}.jsonl")
        assert run in text
        for page in ("", "/sources", "/batches", "/rows", "/completeness", f"/stages/{quote(stage)}"):
            status, headers, page_text = client.ask(run + page)
            assert status == 200, page_text
            assert "script-src 'self'" in headers["content-security-policy"]
        for charts in ("/sources/charts", "/batches/charts", f"/stages/{quote(stage)}/charts"):
            assert json.loads(client.ask(run + charts)[2])


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Client]:
    """Runs of all states that can be made without a living process; each began later than the one before."""
    for number, closed in enumerate(("ended", "failed", "stopped", "ended", None)):
        one = flagship(held=True, batches=2 + number, ended=False)
        one.closed = closed
        write_run(tmp_path / f"{number}-{closed}" / "records.jsonl", one)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "records.jsonl").write_text(
        run_of(tmp_path / "0-ended" / "records.jsonl")[:40] + "\n"
    )
    with serving(tmp_path) as address:
        yield Client(address)


def run_of(path: Path) -> str:
    return path.read_text()


def listed(text: str) -> list[str]:
    return re.findall(r"(\d-\w+)/records", text)


def test_runs_are_listed_by_state_and_the_latest_first(many: Client) -> None:
    text = many.ask("/")[2]
    assert listed(text) == ["4-None", "1-failed", "2-stopped", "3-ended", "0-ended"]
    for kind in ("running", "failed", "stopped", "ended"):
        assert f'<span class="state {kind}">' in text
    assert text.count("2026-01-01T12:") >= 4, "runs that are over have the time of their last batch"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=ended", ["3-ended", "0-ended"]),
        ("state=failed", ["1-failed"]),
        ("state=killed", []),
        ("text=2-STOP", ["2-stopped"]),
        ("text=ended&state=ended", ["3-ended", "0-ended"]),
        ("text=ended&state=failed", []),
        ("text=%3Cscript%3E", []),
        ("state=none", []),
    ],
)
def test_runs_are_filtered_by_name_and_state(many: Client, query: str, found: list[str]) -> None:
    text = many.ask(f"/?{query}")[2]
    assert listed(text) == found
    assert found or "None of the" in text
    assert "<script>" not in text


def test_names_of_data_are_text_and_no_code(client: Client, place: Path) -> None:
    run = address_of(place / "wide.jsonl")
    harmful = f"source 3 {HARMFUL}"
    for page in ("", "/sources", "/rows", "/completeness", "/stages/all", "/stages/all?key=%3Cscript%3E"):
        text = client.ask(run + page)[2]
        assert "<script>alert" not in text
        assert text.count("<script") == 4  # our own, from files
    assert harmful not in client.ask(run)[2]


def test_a_missing_run_or_stage_is_not_found_and_the_nearest_is_named(client: Client, place: Path) -> None:
    status, _, text = client.ask("/runs/0123456789ab")
    assert status == 404
    assert "no such run" in text
    run = address_of(place / "flagship.jsonl")
    for page in ("/stages/averag", "/stages/averag/charts"):
        status, _, text = client.ask(run + page)
        assert status == 404
        assert "average" in text


def test_a_window_is_explained_and_a_bad_one_says_what_is_wrong(client: Client, place: Path) -> None:
    run = address_of(place / "flagship.jsonl")
    assert "no time" in client.ask(f"{run}/stages/average?window=noon")[2]
    answer = client.ask(f"{run}/stages/average?window={quote('2026-01-31T12:03Z')}")[2]
    assert "12:02:00" in answer or "12:04:00" in answer


def test_a_page_is_sent_again_when_the_run_has_done_a_batch(tmp_path: Path) -> None:
    history = flagship(held=True, batches=8, ended=False)
    last = history.batches.pop()
    path = write_run(tmp_path / "live.jsonl", history)
    with serving(path) as address:
        changes = Client(address).changes(address_of(path))
        first = next(changes)
        assert f"batch {history.batches[-1].batch}" in first
        append(path, last)
        again = next(part for part in changes if f"batch {last.batch}" in part)
        assert again != first
        changes.close()


def test_only_the_names_of_this_machine_are_served(client: Client) -> None:
    for name in ("127.0.0.1", "localhost", "[::1]"):
        assert client.ask("/", Host=f"{name}:{client.port}")[0] == 200
    for name in ("evil.example", f"evil.example:{client.port}", "127.0.0.1.evil.example"):
        assert client.ask("/", Host=name)[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_pages_can_only_be_read(client: Client, method: str) -> None:
    assert client.ask("/", method)[0] == 405


def test_files_outside_of_the_page_are_not_served(client: Client) -> None:
    assert client.ask("/static/page.css")[0] == 200
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd"):
        assert client.ask(path)[0] == 404


def test_another_address_needs_the_token(place: Path) -> None:
    with serving(place, host="0.0.0.0") as address:
        port = urlsplit(address).port
        client = Client(f"http://127.0.0.1:{port}/?{urlsplit(address).query}")
        assert client.ask("/")[0] == 401
        assert client.ask("/?token=wrong")[0] == 401
        assert client.ask("/static/page.css")[0] == 401
        status, headers, _ = client.ask(f"/?{client.query}")
        assert status == 303
        assert "token" not in headers["location"]
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert client.ask("/", Cookie=cookie.partition(";")[0])[0] == 200
        assert client.ask("/", Cookie=cookie.partition("=")[0] + "=é")[0] == 401


def test_a_port_that_is_in_use_is_named_and_without_one_the_next_is_taken(place: Path) -> None:
    with serving(place) as one, serving(place) as other:
        assert urlsplit(one).port != urlsplit(other).port
        with pytest.raises(OSError, match=str(urlsplit(one).port)), serving(place, port=urlsplit(one).port):
            pass


def test_the_server_ends_with_a_page_open(place: Path) -> None:
    with serving(place) as address:
        changes = Client(address).changes("/")
        next(changes)
        port = urlsplit(address).port
    changes.close()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
