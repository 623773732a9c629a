"""`python -m tests.docs.live` takes the pictures of docs/live.md: the live page about two runs, in a browser."""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import beamlike as bl
from beamlike.observe.live.catalog import Catalog
from beamlike.records.status_files import RunStatusFile
from tests.beamlike.observe.live.places import write_run
from tests.support.browser import find_program
from tests.support.places import ROOT
from tests.support.simulated import flagship

PICTURES: Final = ROOT / "docs" / "pictures"
_NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
_COLOURS: Final = 160


def orders(folder: Path) -> Path:
    """Runs a pipeline with late rows, dead letters and a promise. Returns its checkpoint."""
    generator = random.Random(3)
    (folder / "in").mkdir()
    for number in range(60):
        rows = [_order(generator, number * 30 + place * 0.15) for place in range(200)]
        (folder / "in" / f"{number:02}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    p = bl.Pipeline("orders")
    source = bl.JSONLines(
        folder / "in", {"at": str, "shop": str, "amount": str}, max_files_per_trigger=1, order="path"
    )
    read = p.read("orders", source, timestamp="at", watermark=bl.BoundedOutOfOrderness("10s"))
    parsed = read.map(_parsed, schema={"shop": str, "amount": float}, name="parse")
    minutes = parsed.window_into(bl.FixedWindows("1m"), allowed_lateness="30s").group_by("shop")
    totals = minutes.aggregate(total=bl.sum("amount")).named("totals")
    totals.promise(complete=0.98, within="1m").write("out", bl.Parquet(folder / "out"))
    totals.late().write("late orders", bl.JSONLines(folder / "late"))
    parsed.dead_letters().write("damaged orders", bl.JSONLines(folder / "damaged"))
    p.run(bl.LocalRunner(checkpoint=folder / "orders"))
    return folder / "orders"


def _order(generator: random.Random, seconds: float) -> dict[str, str]:
    late = generator.random() * 200 if generator.random() < 0.03 else 0
    at = (_NOON + timedelta(seconds=seconds - late)).isoformat()
    amount = "n/a" if generator.random() < 0.01 else f"{generator.random() * 90:.2f}"
    return {"at": at, "shop": generator.choice(["berlin", "lima", "oslo"]), "amount": amount}


def _parsed(row: dict[str, str]) -> dict[str, object]:
    return {"shop": row["shop"], "amount": float(row["amount"])}


def take(page: Page, address: str, name: str, height: int) -> None:
    """Takes a picture of a page, with few colours, so that the file is small."""
    page.set_viewport_size({"width": 1120, "height": height})
    page.goto(address)
    page.wait_for_selector("#link:text-is('live')")
    if page.locator(".charts").count():
        page.wait_for_selector(".charts canvas")
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(_COLOURS).save(PICTURES / f"live-{name}.png", optimize=True)


def main() -> None:
    """Takes all pictures."""
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory())
        folder = Path(made).resolve()
        stack.enter_context(contextlib.chdir(folder))  # paths are shown relative to the current folder
        checkpoint = orders(folder)
        live = write_run(folder / "sessions.jsonl", flagship(held=True, ended=False))
        status = RunStatusFile.take(live, simulated=True)
        with bl.observe.serving(folder) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_program(), args=["--no-sandbox"])
            page = browser.new_page()
            runs = {entry.path: f"{address}runs/{entry.id}" for entry in Catalog.of([folder]).entries()}
            sessions, shop = runs[str(live)], runs[str(checkpoint / "beamlike" / "records.jsonl")]
            window = "window=2026-01-01T12:29:30Z&key=lima"
            take(page, sessions, "overview", 860)
            take(page, f"{shop}/stages/totals?{window}", "stage", 1000)
            take(page, f"{shop}/batches", "batches", 640)
            take(page, f"{shop}/rows?of=late+orders", "rows", 800)
            browser.close()
        status.remove()


if __name__ == "__main__":
    main()
