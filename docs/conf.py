"""Sphinx's configuration; ``python -m tools.docs build`` copies it beside the pages."""

from pathlib import Path

import odyssey

HERE = Path(__file__).resolve().parent

project = "odyssey"
author = "the odyssey authors"
project_copyright = author
release = odyssey.__version__
html_title = f"odyssey {release}"

extensions = ["myst_parser", "sphinx_gallery.gen_gallery", "tools.docs.sphinx_extension"]
exclude_patterns = ["**/*.py", "gallery/**/*.ipynb", "**/GALLERY_HEADER.rst"]
nitpicky = True

# ------------------------------------------------------------------ Markdown
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]  # the gallery's settings hold functions

# ------------------------------------------------------------------ HTML
html_theme = "furo"
pygments_dark_style = "a11y-high-contrast-dark"
html_math_renderer = "images"
html_static_path = [str(HERE / "_static")]
html_css_files = ["odyssey.css"]
html_copy_source = False
html_show_sourcelink = False
python_maximum_signature_line_length = 88
python_display_short_literal_types = True
add_module_names = True

# ------------------------------------------------------------------ examples


def example_arguments(gallery_conf, script):
    """Return the arguments of an example: fewer steps, where it trains for minutes."""
    return ["300"] if Path(script["src_file"]).stem == "22_language_model" else []


sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d\d_",
    "reset_argv": example_arguments,
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
    "plot_gallery": not tags.has("no_examples"),  # noqa: F821 - Sphinx defines it,
    "abort_on_example_error": False,
}
