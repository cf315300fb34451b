"""Sphinx configuration, built by ``make docs`` without warnings and without a network."""

project = "Convolutions on TMA im2col"
extensions = ["myst_parser"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
html_theme = "sphinx_rtd_theme"
# A code block of MLIR has no lexer in Pygments.
suppress_warnings = ["misc.highlighting_failure"]
