"""Families over one to three spatial axes: names, docstrings, and where each op is found."""

import importlib
import inspect

import pytest

import odyssey as od
from odyssey.nn.spatial_families import axis_letters, with_spatial_terms

FAMILIES = (
    *("max_pool", "avg_pool", "lp_pool", "adaptive_avg_pool", "adaptive_max_pool", "max_unpool"),
    *("conv", "conv_transpose"),
)
SIZES = {1: "length", 2: "height, width", 3: "depth, height, width"}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_docstring_of_an_op_of_a_family_names_its_own_shapes(family, n):
    doc = getattr(od.nn, f"{family}{n}d").__doc__
    assert f", {SIZES[n]})" in doc
    assert "{" not in doc
    assert all(f"{family}{m}d" not in doc for m in SIZES if m != n)


@pytest.mark.parametrize("n", SIZES)
def test_the_docstring_of_channel_dropout_names_its_own_shape(n):
    assert f"(N, C, {axis_letters(n)})" in getattr(od.nn, f"dropout{n}d").__doc__


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("family", [*FAMILIES, "dropout"])
def test_an_op_of_a_family_is_the_attribute_of_its_module_that_it_is_named_after(family, n):
    function = getattr(od.nn, f"{family}{n}d")
    assert function.__name__ == function.__qualname__ == f"{family}{n}d"
    assert getattr(importlib.import_module(function.__module__), function.__name__) is function


def test_an_example_has_the_indentation_of_the_docstring_that_it_ends():
    @with_spatial_terms("example3d", 3, example="\n            >>> 1 + 1\n            2\n        ")
    def example_nd(x, /):
        """First line of {images}.

        Args:
            x: {Images}, (..., {sizes}).
        """

    wanted = "First line of volumes.\n\nArgs:\n    x: Volumes, (..., depth, height, width).\n\n"
    assert example_nd.__doc__ == inspect.cleandoc(example_nd.__doc__) == f"{wanted}>>> 1 + 1\n2"
