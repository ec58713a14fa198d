"""Pictures of the guide, taken anew: ``python -m docs.pictures [NAME...]``, in the repository's root.

NAME is ``dashboards`` (of docs/loop.py while it runs, and what ``gpu-worker top`` shows then), ``notebooks`` (what of
their outputs is kept) or ``report`` (of PySpark's K-means after ``vispark run``). Chromium draws them, as Debian has
it; notebooks also take ``pip install nbconvert``. As root, programs run on a host that is called node1. Look at each
picture before it is committed.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyspark
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES, EXAMPLES = ROOT / "docs" / "guide" / "images", ROOT / "docs" / "examples"
WIDTH, HEIGHT = 1280, 900
#: How long the loop runs before it is shown, and between two looks of ``gpu-worker top``.
_SECONDS, _INTERVAL = 60, 2.0
#: Notebooks, and their first cell that is shown.
NOTEBOOKS = {"port": 6, "heat": 3, "profile": 1, "xarray": 1}


def main(*names: str) -> None:
    """Take the pictures that are named, or all."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory(prefix="vp-") as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in names or PICTURES:
            PICTURES[name](browser, Path(folder))
        browser.close()


def dashboards(browser: Browser, folder: Path) -> None:
    """Show a node and an application in the browser, and the node in the terminal, while a loop runs."""
    shutil.copy(ROOT / "docs" / "loop.py", folder)
    environment = _environment(folder)
    with (_running(["-m", "gpu_worker", "dashboard", "--port", "0"], folder) as node,
          _running(["loop.py"], folder) as application):
        pages = {"dashboard": _opened(browser, node), "application": _opened(browser, application)}
        time.sleep(_SECONDS)
        for name, page in pages.items():
            _keep(page.screenshot(full_page=True), IMAGES / f"{name}.png")
        looks = subprocess.run(["timeout", "--signal=INT", str(3 * _INTERVAL), sys.executable, "-m", "gpu_worker",
                                "top", "--interval", str(_INTERVAL)], env=environment, stdout=subprocess.PIPE,
                               text=True, check=False).stdout
        last = looks[looks.rindex("worker "):]
        (IMAGES / "top.txt").write_text("\n".join(map(str.rstrip, last.strip().splitlines())) + "\n", encoding="utf-8")
    subprocess.run([sys.executable, "-m", "gpu_worker", "stop"], env=environment, check=True)


def notebooks(browser: Browser, folder: Path) -> None:
    """Show notebooks as they are kept, from one of their cells on."""
    for name, first in NOTEBOOKS.items():
        subprocess.run([sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", folder,
                        ROOT / "examples" / "notebooks" / f"{name}.ipynb"], check=True)
        page = browser.new_page(viewport={"width": 940, "height": HEIGHT})
        page.goto((folder / f"{name}.html").as_uri())
        page.wait_for_load_state("networkidle")
        top = page.locator(".jp-Cell").nth(first).bounding_box()
        end = page.locator(".jp-Cell").last.bounding_box()
        assert top and end
        _keep(page.screenshot(full_page=True, clip={
            "x": 0, "y": top["y"], "width": 940, "height": end["y"] + end["height"] - top["y"]}),
            EXAMPLES / f"notebook_{name}.png")
        page.close()


def report(browser: Browser, folder: Path) -> None:
    """Show the job of PySpark's K-means in the report, after ``vispark run``."""
    shutil.copy(Path(pyspark.__file__).parent / "examples" / "src" / "main" / "python" / "kmeans.py", folder)
    generator = np.random.default_rng(0)
    np.savetxt(folder / "points.txt", generator.normal(size=(50_000, 8)) + 4 * generator.integers(0, 4, (50_000, 1)),
               fmt="%.4f")
    _started(["-m", "vispark.migrate", "run", "kmeans.py", "points.txt", "4", "0.2"], folder).wait()
    with _running(["-m", "vispark.migrate", "report", "ui", "--job", "1", "--port", "0"], folder) as served:
        _keep(_opened(browser, served).screenshot(), IMAGES / "report.png")
    subprocess.run([sys.executable, "-m", "gpu_worker", "stop"], env=_environment(folder), check=True)


PICTURES = {"dashboards": dashboards, "notebooks": notebooks, "report": report}


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "VISPARK_RUNTIME_DIR": str(folder / "run"), "VISPARK_HISTORY": str(folder / "history.db"),
        "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.showConsoleProgress=false pyspark-shell"}


def _started(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start Python in a folder, as root under the host name node1."""
    named = ["unshare", "--uts", "sh", "-c", 'hostname node1; exec "$0" "$@"'] if os.geteuid() == 0 else []
    return subprocess.Popen([*named, sys.executable, *arguments], cwd=folder, env=_environment(folder),
                            stdout=subprocess.PIPE, text=True)


@contextmanager
def _running(arguments: list[str], folder: Path) -> Iterator[str]:
    """Run a program while the block runs, which gets the link that it prints first."""
    program = _started(arguments, folder)
    try:
        assert program.stdout is not None
        yield next(word for line in program.stdout for word in line.split() if word.startswith("http://"))
    finally:
        program.terminate()
        program.wait()


def _opened(browser: Browser, link: str) -> Page:
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.goto(link)
    page.locator("h1").wait_for()
    page.wait_for_load_state("load")
    return page


def _keep(png: bytes, path: Path) -> None:
    """Write a picture in 256 colours, which takes a third."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
