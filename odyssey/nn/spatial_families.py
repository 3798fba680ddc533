"""Families of ops over one to three spatial axes: names and docstrings from one declaration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["axis_letters", "with_spatial_terms"]

# For each number of axes: an operand, the axes and their lengths.
_TERMS = (
    ("signal", "axis", "length"),
    ("image", "two axes", "height, width"),
    ("volume", "three axes", "depth, height, width"),
)


def axis_letters(n: int) -> str:
    """Return the letters of the spatial axes, as messages write a shape.

    >>> axis_letters(2)
    'H, W'
    """
    return ", ".join("DHW"[3 - n :]) if n > 1 else "L"


def with_spatial_terms(
    name: str, n: int, example: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that names a function and fills the template of its docstring.

    Terms in braces are those of ``n`` spatial axes: ``{image}``, ``{images}``, ``{Images}``,
    ``{axes}``, ``{letters}``, ``{sizes}``, ``{window_sizes}`` and ``{n}``.

    Args:
        name: The public name of the op.
        n: The number of spatial axes.
        example: A doctest, added to the docstring.

    >>> @with_spatial_terms("blur2d", 2)
    ... def blur_nd(x, /):
    ...     '''Blur {images} over the last {axes}, (..., {sizes}).'''
    >>> blur_nd.__name__, blur_nd.__doc__
    ('blur2d', 'Blur images over the last two axes, (..., height, width).')
    """
    image, axes, sizes = _TERMS[n - 1]
    terms = {
        "n": n,
        "axes": axes,
        "letters": axis_letters(n),
        "sizes": sizes,
        "window_sizes": ", ".join(f"window {size}" for size in sizes.split(", ")),
        "image": image,
        "images": f"{image}s",
        "Images": f"{image}s".capitalize(),
    }

    def fill(function: Callable[..., Any]) -> Callable[..., Any]:
        first, _, rest = (function.__doc__ or "").strip().partition("\n")
        parts = (first.format(**terms), _dedent(rest).format(**terms), _dedent(example))
        function.__name__ = function.__qualname__ = name
        function.__doc__ = "\n\n".join([part for part in parts if part])
        return function

    return fill


def _dedent(text: str) -> str:
    """Remove the indentation of the first line from all lines; textwrap takes ten times as long."""
    body = text.lstrip()
    margin = text[: len(text) - len(body)].rpartition("\n")[2]
    return body.replace(f"\n{margin}", "\n").rstrip()
