"""A study that brings its parts, inside an image: jobs read copies that the launch made."""

from __future__ import annotations

import pytest

from tests.launch.site import IMAGE, Site, site
from tests.launch.test_on_a_cluster import digest, local_cube
from tests.test_plugins import FILES
from tests.test_plugins import STUDY as BROUGHT

__all__ = ["site"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]


def test_a_study_of_plugins_trains_and_samples_inside_an_image(site: Site) -> None:
    if not IMAGE.is_file():
        pytest.skip("no image here: make cluster-up")
    from rlbhpc.engines.tiny import make_tiny_model

    make_tiny_model(site.folder / "model", hidden_size=32)
    for name, text in FILES.items():
        (site.folder / name).write_text(text)
    study = site.folder / "own.yaml"
    study.write_text(BROUGHT)
    site.own()
    expected = local_cube(site, study)
    table = site.cluster(**site.image())
    site.rlbhpc("launch", str(study), "--cluster", str(table), "--submit")
    for name in FILES:
        if name.endswith(".py"):
            (site.folder / name).write_text("broken(")
    site.idle()
    run = site.folder / "runs" / "own"
    found = site.status(str(run))
    assert (found["missing"], found["failures"]) == (0, [])
    assert digest((run / "cube.zarr").resolve()) == expected
    page = (run / "report" / "report.html").read_text()
    assert "An aspect of this study." in page
