"""Sphinx extension: formulas as SVG drawn by matplotlib's mathtext, and texts of thumbnails.

A page with formulas then needs neither TeX nor a script. Formulas are in the subset of TeX that
mathtext knows; another is a warning with its place, and so fails the build.
"""

from __future__ import annotations

import html
import re
from functools import lru_cache
from typing import Any

from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath
from sphinx.util import logging

__all__ = ["setup"]

_LOGGER = logging.getLogger(__name__)
_SIZE = 100.0  # units of the drawing for one em


def setup(app: Any) -> dict[str, Any]:
    """Add the renderer to Sphinx; ``html_math_renderer = "images"`` selects it."""
    app.add_html_math_renderer("images", (_visit_inline, None), (_visit_block, None))
    app.connect("doctree-read", _describe_thumbnails)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _describe_thumbnails(app: Any, document: nodes.document) -> None:
    """Give the thumbnails of the gallery a text, which sphinx-gallery leaves empty."""
    del app
    for image in document.findall(nodes.image):
        name = re.search(r"sphx_glr_(\w+)_thumb", image.get("uri", ""))
        if name and not image.get("alt"):
            image["alt"] = f"Thumbnail of the example {name[1]}"


def _visit_inline(writer: Any, node: nodes.Element) -> None:
    writer.body.append(f'<span class="odyssey-math">{_image(node.astext(), node)}</span>')
    raise nodes.SkipNode


def _visit_block(writer: Any, node: nodes.Element) -> None:
    writer.body.append('<div class="odyssey-math">')
    for line in _lines(node.astext()):
        writer.body.append(f"<div>{_image(line, node)}</div>")
    writer.body.append("</div>")
    raise nodes.SkipNode


def _lines(formula: str) -> list[str]:
    """Return the lines of an aligned formula, without the marks that align them."""
    text = re.sub(r"\\(begin|end)\{(aligned|align\*?|split|gather\*?|gathered)\}", "", formula)
    lines = [line.replace("&", " ") for line in re.split(r"\\\\", text)]
    return [line for line in lines if line.strip()]


def _image(formula: str, node: nodes.Element) -> str:
    text = " ".join(formula.split())
    try:
        return _draw(text)
    except Exception as error:  # mathtext's own parser errors, of several kinds
        _LOGGER.warning("formula %r is not mathtext: %s", text, error, location=node)
        return f"<code>{html.escape(text)}</code>"


@lru_cache(maxsize=4096)
def _draw(formula: str) -> str:
    """Return a formula as SVG, with its text for those who do not see it."""
    outline = TextPath((0, 0), f"${_known(formula)}$", size=_SIZE, prop=FontProperties())
    box = outline.get_extents()
    pad = 4.0
    left, width = box.x0 - pad, box.width + 2 * pad
    bottom, height = box.y0 - pad, box.height + 2 * pad
    em = 1.05 / _SIZE
    style = (
        f"width:{width * em:.3f}em;height:{height * em:.3f}em;vertical-align:{bottom * em:.3f}em"
    )
    view = f"{left:.1f} {-(bottom + height):.1f} {width:.1f} {height:.1f}"
    label = html.escape(formula, quote=True)
    return (
        f'<svg role="img" aria-label="{label}" viewBox="{view}" style="{style}">'
        f'<path d="{_path_data(outline)}"/></svg>'
    )


def _known(formula: str) -> str:
    """Return the formula with a few commands of LaTeX written as mathtext knows them."""
    for old, new in _SYNONYMS:
        formula = re.sub(old, new, formula)
    return formula


_SYNONYMS = (
    (r"\\text\{", r"\\mathrm{"),
    (r"\\operatorname\{", r"\\mathrm{"),
    (r"\\(lVert|rVert)(?![a-z])", r"\\Vert"),
    (r"\\(lvert|rvert)(?![a-z])", r"\\vert"),
    (r"\\[td]frac(?![a-z])", r"\\frac"),
    (r"\\frac\s*(\w)\s*(\w)", r"\\frac{\1}{\2}"),
    (r"\\(b|B)ig(g?)[lr]?(?![a-z])", ""),
    (r"\\le(?![a-z])", r"\\leq"),
    (r"\\ge(?![a-z])", r"\\geq"),
    (r"\\to(?![a-z])", r"\\rightarrow"),
    (r"\\top(?![a-z])", r"\\mathsf{T}"),
)


def _path_data(outline: Outline) -> str:
    letters = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C"}
    parts = []
    for points, code in outline.iter_segments(simplify=False):
        if code == Outline.CLOSEPOLY:
            parts.append("Z")
        else:
            pairs = points.reshape(-1, 2)
            parts.append(letters[code] + " ".join(f"{x:.1f} {-y:.1f}" for x, y in pairs))
    return "".join(parts)
