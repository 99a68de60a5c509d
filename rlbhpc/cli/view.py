"""``rlbhpc view``: problems, questions and responses of a run in a browser."""

from __future__ import annotations

import os
import platform
import tempfile
from pathlib import Path
from urllib.parse import urlencode

import click

from rlbhpc.errors import DONE


@click.command(
    epilog="Examples: rlbhpc view runs/math; rlbhpc view runs/math --open --problem math500/17; "
    "rlbhpc view runs/math -o web --problem math500/17"
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port to listen on. Default: a free one.",
)
@click.option("--open", "opens", is_flag=True, help="Open it in this machine's browser.")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="Write pages to this folder; serve nothing.",
)
@click.option(
    "--problem", "problems", multiple=True,
    help="Begin at this problem. With -o: write this one, and may be given again. Default: the "
    "table of all; with -o those lost and gained.",
)  # fmt: skip
def view(run: Path, port: int, opens: bool, out: Path | None, problems: tuple[str, ...]) -> int:
    """Look through the run in the folder RUN with a browser: problems, both arms, responses.

    Serves pages to this machine alone, under an address with a secret word in it, until you press
    Ctrl-C. On a node without a browser, the line with ssh makes the address work on yours. Text of
    models is shown, never executed; nothing is written but your judgements.
    """
    if out is None and len(problems) > 1:
        raise click.UsageError("--problem is given once, or with -o; choose others in the table")
    from rlbhpc.view.pages import write_copy
    from rlbhpc.view.run import OpenRun
    from rlbhpc.view.server import LOOPBACK, serve

    opened = OpenRun(run)
    opened.require_problems(problems)
    if out is not None:
        pages = write_copy(opened, out, problems)
        click.echo(f"{pages[0]} and {len(pages) - 1} problems beside it.")
        return DONE
    with serve(opened, port) as server:
        port = server.server_port
        address = f"http://{LOOPBACK}:{port}/{server.viewer.token}/"
        if problems:
            address += f"problem?{urlencode({'problem': problems[0]})}"
        user = os.environ.get("USER", "you")
        click.echo(address)
        click.echo(
            f"From another machine: ssh -N -L {port}:{LOOPBACK}:{port} {user}@{platform.node()}"
        )
        click.echo("Ctrl-C ends it.")
        with tempfile.TemporaryDirectory() as folder:
            if opens:
                # Any user can read the command line of a browser, so the token stands in a file.
                redirect = Path(folder) / "open.html"
                redirect.write_text(f'<meta http-equiv="refresh" content="0; url={address}">')
                click.launch(str(redirect))
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                click.echo()
    return DONE
