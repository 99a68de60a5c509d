"""Draw the pictures of docs/gallery.md, each by the command that stands beside it.

python -m tools.make_gallery runs/quickstart-no-train

The run is that of `tools/quickstart.sh --no-train`.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import NamedTuple

from PIL import Image

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "gallery"
WIDTH_PIXELS = 900
LINE = 118
HEAD = Path(__file__).parent / "pages" / "gallery.md"


class Picture(NamedTuple):
    """A picture: what it shows, in a sentence, and what draws it.

    ``figure``: how the name of its file begins, where a script draws several.
    """

    title: str
    sentence: str
    script: str
    figure: str = ""
    takes_run: bool = True

    @property
    def command(self) -> str:
        """As a user would type it."""
        run = " RUN" if self.takes_run else ""
        return f"python analysis/{self.script}.py{run} -o figures"


OF_A_RUN = [
    Picture(
        "pass@k",
        "How many problems each model solves in k samples: base dashed, trained solid. "
        "The grey ground is where k is more than a quarter of the samples.",
        "pass_at_k",
    ),
    Picture(
        "Difference and crossing",
        "Trained minus base. The narrow band is for one k, the wide one for all of them at "
        "once; the bar on the axis is where the curves may cross.",
        "difference",
    ),
    Picture(
        "Coverage",
        "Problems that both solve, that the base alone solves, that the trained model alone "
        "solves, and that neither solves.",
        "coverage",
    ),
    Picture(
        "Equal budgets",
        "The same curves over response tokens: what each model solves at equal cost.",
        "budget",
    ),
    Picture(
        "Accuracy of the problems",
        "How many problems have which rate of right samples, before and after training.",
        "accuracy_histogram",
    ),
    Picture(
        "Cover@τ",
        "The share of problems that are solved with a success rate of at least τ.",
        "cover_at_tau",
    ),
    Picture(
        "Majority vote",
        "maj@k beside pass@k, for the problems whose answers are known.",
        "majority",
    ),
    Picture(
        "Beyond the samples",
        "pass@k beyond n by models of the rates. The bars are forecasts from a tenth of the "
        "samples, so that one sees what a forecast is worth.",
        "extrapolation",
    ),
    Picture(
        "Perplexity",
        "Is what the trained model writes likely under the base? A dot is a response.",
        "perplexity",
    ),
    Picture(
        "Search tree",
        "Responses of both models to one problem as a tree of shared beginnings, with the "
        "verdict at each leaf.",
        "search_tree",
    ),
]
PUBLISHED = [
    Picture(
        "pass@k of the published study",
        "Read from the tables and figures of Yue et al. (2025).",
        "published_pass_at_k",
        "published_pass_at_k-math",
        takes_run=False,
    ),
    Picture(
        "Training dynamics of the published study",
        "Reward and entropy over the steps of five algorithms.",
        "published_training_dynamics",
        takes_run=False,
    ),
]


def main() -> None:
    """Draw all pictures and write the page."""
    run = Path(sys.argv[1]).resolve()
    PICTURES.mkdir(exist_ok=True)
    sections = []
    for heading, pictures in (("A run", OF_A_RUN), ("Published numbers", PUBLISHED)):
        sections.append(f"## {heading}\n")
        sections.extend(section(picture, draw(picture, run)) for picture in pictures)
    PAGE.write_text("\n".join([HEAD.read_text(), *sections]))


def draw(picture: Picture, run: Path) -> Path:
    """Run the command of a picture, and keep its PNG at the width of a page."""
    with tempfile.TemporaryDirectory() as folder:
        command = shlex.split(picture.command.replace("RUN", shlex.quote(str(run))))
        command[0], command[-1] = sys.executable, folder
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        drawn = min(Path(folder).glob(f"{picture.figure or picture.script}*.png"))
        path = PICTURES / f"{picture.script}.png"
        with Image.open(drawn) as image:
            height = round(image.height * WIDTH_PIXELS / image.width)
            small = image.convert("RGB").resize((WIDTH_PIXELS, height), Image.Resampling.LANCZOS)
            small.quantize(64).save(path, optimize=True)
    return path


def section(picture: Picture, path: Path) -> str:
    """Heading, sentence, picture and command."""
    return (
        f"### {picture.title}\n\n{textwrap.fill(picture.sentence, LINE)}\n\n"
        f"![{picture.title}]({path.relative_to(PAGE.parent)})\n\n"
        f"```\n{picture.command}\n```\n"
    )


if __name__ == "__main__":
    main()
