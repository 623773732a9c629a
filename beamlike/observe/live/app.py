"""The application: addresses, pages, their changes, and the numbers of their charts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from beamlike.errors import ViewError
from beamlike.observe.live import pages
from beamlike.observe.live.catalog import Catalog, Entry, OpenRun
from beamlike.observe.live.chart import Chart
from beamlike.observe.live.charts import RunCharts
from beamlike.observe.live.guard import Access, Guard
from beamlike.observe.report import paragraph
from beamlike.system.printable import printable

_HERE: Final = Path(__file__).parent
_SECONDS: Final = 1.0
"""The time between two looks at the records of a run that a page shows."""
_LONGEST: Final = 500  # characters of an error
_LOG = logging.getLogger("beamlike")
_LOOKS: Final = 10
"""The number of looks in that time whether the server ends."""

T = TypeVar("T")


def _shown(value: Any) -> Any:
    """Escapes characters in a value of a page that change the direction of text, or cannot be encoded."""
    return printable(value, keep="\n\t") if type(value) is str else value


class App:
    """The pages of a catalog. Each page has one address; a browser that asks it for events gets its changes."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._ended = False
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            finalize=_shown,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["paragraph"] = lambda text: Markup(paragraph(text))

    def served(self, access: Access) -> Starlette:
        """Returns the application for a server."""
        run = "/runs/{run}"
        routes = [
            Route("/", self.runs),
            Route(run, self.overview),
            Route(f"{run}/sources", self.sources),
            Route(f"{run}/sources/charts", self.source_charts),
            Route(f"{run}/stages/{{stage:path}}/charts", self.stage_charts),
            Route(f"{run}/stages/{{stage:path}}", self.stage),
            Route(f"{run}/batches", self.batches),
            Route(f"{run}/batches/charts", self.batch_charts),
            Route(f"{run}/rows", self.rows),
            Route(f"{run}/completeness", self.completeness),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ]
        return Starlette(
            routes=routes,
            middleware=[Middleware(Guard, access=access)],
            exception_handlers={HTTPException: self._failed},
        )

    def end(self) -> None:
        """Ends the answers that follow a run, so that the server can end."""
        self._ended = True

    async def runs(self, request: Request) -> Response:
        """Shows the list of runs and savepoints."""
        text, state = (request.query_params.get(name, "").strip() for name in ("text", "state"))
        return await self._page(request, "runs.html", lambda shown: pages.run_list(self.catalog, text, state))

    async def overview(self, request: Request) -> Response:
        """Shows a run: its verdict, graph and watermarks."""
        return await self._page_of_run(
            request, "overview.html", lambda entry, run: pages.overview(entry, run, self.catalog)
        )

    async def sources(self, request: Request) -> Response:
        """Shows the sources of a run."""
        return await self._page_of_run(request, "sources.html", pages.source_page)

    async def stage(self, request: Request) -> Response:
        """Shows a stage of a run."""
        name = request.path_params["stage"]
        key, window = request.query_params.get("key", ""), request.query_params.get("window", "")

        def values(entry: Entry, run: OpenRun) -> pages.Values:
            _require_stage(run, name)
            return pages.stage_page(entry, run, name, key, window)

        return await self._page_of_run(request, "stage.html", values)

    async def batches(self, request: Request) -> Response:
        """Shows the batches of a run."""
        return await self._page_of_run(request, "batches.html", pages.batch_page)

    async def rows(self, request: Request) -> Response:
        """Shows the fate of the rows of a run, and the newest rows of an output."""
        chosen = request.query_params.get("of")
        return await self._page_of_run(
            request, "rows.html", lambda entry, run: pages.row_page(entry, run, chosen, self.catalog)
        )

    async def completeness(self, request: Request) -> Response:
        """Shows the completeness of a run."""
        return await self._page_of_run(request, "completeness.html", pages.complete_page)

    async def source_charts(self, request: Request) -> Response:
        """Returns the charts of the sources."""
        return await self._charts(request, lambda charts: charts.sources())

    async def batch_charts(self, request: Request) -> Response:
        """Returns the charts of the batches."""
        return await self._charts(request, lambda charts: charts.batches())

    async def stage_charts(self, request: Request) -> Response:
        """Returns the charts of a stage."""
        name = request.path_params["stage"]
        _, run = await run_in_threadpool(self._run, request)
        _require_stage(run, name)
        return await self._charts(request, lambda charts: charts.stage(name))

    async def _charts(self, request: Request, of: Callable[[RunCharts], Iterator[Chart]]) -> Response:
        def made() -> list[Any]:
            _, run = self._run(request)
            with run.lock, _shown_if_it_fails():
                if not run.history.batches:
                    return []
                return [chart.facts() for chart in of(run.once("charts", RunCharts.of))]

        return JSONResponse(await run_in_threadpool(made))

    def _run(self, request: Request) -> tuple[Entry, OpenRun]:
        entry = self.catalog.entry(request.path_params["run"])
        if entry is None:
            raise HTTPException(404, "there is no such run any more; its records were moved or removed")
        try:
            return entry, self.catalog.opened(entry)
        except (OSError, ViewError) as error:
            raise HTTPException(404, f"the records cannot be read: {error}") from error

    async def _page_of_run(
        self, request: Request, template: str, values: Callable[[Entry, OpenRun], pages.Values]
    ) -> Response:
        entry, run = await run_in_threadpool(self._run, request)

        def read(shown: int | None) -> pages.Values | None:
            with run.lock:
                run.refresh()
                if run.history.closed is not None and run.version == shown:
                    return None
                return values(entry, run)

        return await self._page(request, template, read)

    async def _page(
        self, request: Request, template: str, values: Callable[[int | None], pages.Values | None]
    ) -> Response:
        """Answers with a page or, if the browser asks for events, with its changes.

        `values` gets the version of the run that the page shows, and returns None if nothing can have changed since.
        """

        def part(shown: int | None) -> tuple[str, int | None] | None:
            found = values(shown)
            if found is None:
                return None
            return self._templates.get_template(template).render(**found), found.get("version")

        if "text/event-stream" in request.headers.get("accept", ""):
            return EventSourceResponse(self._changes(part))

        def whole() -> str:
            with _shown_if_it_fails():
                found = values(None) or {}
                main = self._templates.get_template(template).render(**found)
                return self._templates.get_template("base.html").render(**found, main=main, template=template)

        return HTMLResponse(await run_in_threadpool(whole))

    async def _changes(
        self, part: Callable[[int | None], tuple[str, int | None] | None]
    ) -> AsyncIterator[ServerSentEvent]:
        """Yields the main part of a page at once, and again whenever it differs."""
        sent, shown = "", None
        while not self._ended:
            try:
                found = await run_in_threadpool(part, shown)
            except (OSError, ViewError, HTTPException):  # the run was removed, and may come back
                found = None
            if found is not None:
                now, shown = found
                if now != sent:
                    sent = now
                    yield ServerSentEvent(data=now)
            for _ in range(_LOOKS):
                if not self._ended:
                    await anyio.sleep(_SECONDS / _LOOKS)

    async def _failed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        page = self._templates.get_template("base.html")
        main = self._templates.get_template("failed.html").render(said=error.detail)
        return HTMLResponse(page.render(title="Not found", main=main, template=""), error.status_code)


@contextmanager
def _shown_if_it_fails() -> Iterator[None]:
    """Shows errors as pages. Damaged or forged records may cause errors of any kind."""
    try:
        yield
    except HTTPException:
        raise
    except Exception as error:
        _LOG.warning("a page cannot be shown: %s", error, exc_info=True)
        raise HTTPException(
            500, f"this cannot be shown: {type(error).__name__}: {error}"[:_LONGEST]
        ) from error


def _require_stage(run: OpenRun, name: str) -> None:
    try:
        run.history.require_stage(name)
    except ViewError as error:
        raise HTTPException(404, str(error)) from error
