"""Configuration of the documentation's site: ``.ci/docs`` builds it, warnings are errors."""

from __future__ import annotations

import vispark

project = "vispark"
author = "vispark maintainers"
copyright = "vispark maintainers, Apache License 2.0"
version = release = vispark.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx_design"]
exclude_patterns = ["_build", "figures"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_enable_extensions = ["colon_fence", "deflist"]
# Headings that pages link to by "#name", as GitHub does.
myst_heading_anchors = 3
# Links to files of the repository, as on GitHub; the files are no pages.
suppress_warnings = ["myst.xref_missing"]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = f"vispark {release}"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 5,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
# The site opens from a folder, without a network.
html_sidebars = {"index": []}
