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
    for path in (BENCH / "results").glob("tutorial-*.json"):
        (folder / f"{path.stem}.md").write_text(report.table(json.loads(path.read_text())) + "\n")


def setup(app):
    app.connect("builder-inited", write_results, priority=1)
