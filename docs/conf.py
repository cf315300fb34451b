"""Sphinx configuration. ``make docs`` builds without warnings and without a network, and runs the tutorial for its page."""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
BENCH = ROOT / "python" / "triton_conv" / "bench"
sys.path.insert(0, str(BENCH))

import report  # noqa: E402

project = "Convolutions on TMA im2col"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "myst_parser",
    "sphinx-mathjax-offline",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["_generated", "requirements.txt"]
html_theme = "sphinx_rtd_theme"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["im2col-explorer.js"]
autodoc_typehints = "description"
# Documented by PyTorch, which is on the network.
nitpick_ignore = [("py:class", "torch.Tensor")]
# A code block of MLIR has no lexer in Pygments.
suppress_warnings = ["misc.highlighting_failure"]

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "python" / "tutorials" / "gluon"),
    "gallery_dirs": "gluon/tutorials",
    "filename_pattern": "",
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "copyfile_regex": r"$^",
    "abort_on_example_error": True,
    "default_thumb_file": str(HERE / "gluon" / "im2col-walk.svg"),
    "write_computation_times": False,
}


def write_results(app):
    """The tables of measured results, from the committed files."""
    folder = HERE / "_generated"
    folder.mkdir(exist_ok=True)
    for path in (path for kind in report.KINDS for path in (BENCH / "results").glob(f"{kind}-*.json")):
        (folder / f"{path.stem}.md").write_text(report.table(json.loads(path.read_text())) + "\n")


REAL_RUN = """

On an H200
----------

Where this page is built without a GPU, the output above is of a simulated one. This is the script's output on an NVIDIA H200
(Triton 3.9.0, PyTorch 2.11, cuDNN 9.19), and TFLOP/s on :doc:`more layers </gluon/performance>`:

.. literalinclude:: ../tutorial-h200.txt
   :language: text

.. figure:: ../conv-im2col-h200.svg
   :alt: TFLOP/s of the tutorial's two kernels, cuDNN and cuBLAS on an H200.
"""


def add_real_run(app):
    """To the tutorial's page, which the gallery has just written."""
    page = HERE / "gluon" / "tutorials" / "13-conv-im2col.rst"
    text = page.read_text()
    if REAL_RUN not in text:
        page.write_text(text + REAL_RUN)


def setup(app):
    app.connect("builder-inited", write_results, priority=1)
    app.connect("builder-inited", add_real_run, priority=999)
