"""The command `beamlike ui`: the live page about runs."""

from __future__ import annotations

import webbrowser

import click

from beamlike.cli.plainly import plainly


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="The port; default: the first free one from 8787."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen at. With one that other machines reach, the page asks for a token.",
)
@click.option("--open", "opened", is_flag=True, help="Open the page in a browser.")
def ui(runs: tuple[str, ...], port: int | None, host: str, opened: bool) -> None:
    """Show runs in a browser, on a page that follows them: watermarks, charts, batches, rows, and why a window waits.

    RUN is a file of records, a checkpoint, or a folder with several of them, such as one with all checkpoints; default:
    the current folder. The page only reads, and needs no network. Ctrl-C ends it.
    """

    from beamlike import observe

    def ready(address: str) -> None:
        click.echo(f"beamlike ui: {address}  (Ctrl-C ends it)")
        if opened:
            webbrowser.open(address)

    try:
        plainly(lambda: observe.serve(*runs, host=host, port=port, ready=ready))
    except OSError as error:
        raise click.ClickException(str(error)) from None
