"""The source text of rules: a lambda's expression, a function's definition."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType
from typing import Any

from odyssey.table.array_rules import OP_MODULES
from odyssey.table.declare import PASS
from odyssey.table.derived_rules import DERIVED

__all__ = ["helpers_of", "rule_text"]


def rule_text(rule: Callable[..., Any]) -> str:
    """Return what a rule computes: one expression where it is one, else its whole definition.

    >>> from odyssey.ops import OPS
    >>> rule_text(OPS["exp"].vjp["x"])
    'mul(g, out)'
    """
    if rule is PASS:
        return "g"
    rule = inspect.unwrap(getattr(rule, "func", rule))  # of a partial
    if rule.__code__.co_filename == DERIVED:
        return "derived from the decomposition"
    node, source = _definition(rule)
    if isinstance(node, ast.Lambda):
        return _on_one_line(source, node.body)
    *before, last = node.body
    documented = len(before) == 1 and ast.get_docstring(node) is not None
    if isinstance(last, ast.Return) and last.value and (documented or not before):
        return _on_one_line(source, last.value)
    return textwrap.dedent(inspect.getsource(rule)).rstrip()


def helpers_of(rule: Callable[..., Any]) -> list[str]:
    """Return the definitions of the functions that a rule calls and that are not ops."""
    rule = inspect.unwrap(getattr(rule, "func", rule))  # of a partial
    called = [name for code in _codes(rule.__code__) for name in code.co_names]
    namespace = rule.__globals__
    found = []
    for name in dict.fromkeys(called):
        helper = namespace.get(name)
        if inspect.isfunction(helper) and _is_no_op(helper):
            found.append(textwrap.dedent(inspect.getsource(helper)).rstrip())
    return found


def _is_no_op(function: Any) -> bool:
    ours = function.__module__ in OP_MODULES and function is not PASS
    return ours and not (hasattr(function, "row") or hasattr(function, "aliases"))


def _on_one_line(source: str, node: ast.expr) -> str:
    text = " ".join((ast.get_source_segment(source, node) or "").split())
    return re.sub(r",? (?=[)\]}])", "", re.sub(r"(?<=[(\[{]) ", "", text))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@cache
def _parsed(path: str) -> tuple[str, ast.Module]:
    with open(path, encoding="utf-8") as file:
        source = file.read()
    return source, ast.parse(source)


def _definition(rule: Callable[..., Any]) -> tuple[Any, str]:
    """The node of a lambda or function in its file, found by where its code says that it is."""
    code = rule.__code__
    source, tree = _parsed(code.co_filename)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Lambda, ast.FunctionDef)) and _means(node, code):
            return node, source
    raise OSError(f"no definition of {code.co_qualname} in {code.co_filename}")


def _means(node: ast.Lambda | ast.FunctionDef, code: CodeType) -> bool:
    """Whether ``node`` is what ``code`` was compiled from; several lambdas may share a line."""
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    if names != list(code.co_varnames[: code.co_argcount]):
        return False
    if isinstance(node, ast.FunctionDef):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        return node.name == code.co_name and first == code.co_firstlineno
    if code.co_name != "<lambda>" or node.lineno != code.co_firstlineno:
        return False
    places = [place for place in code.co_positions() if place[0] and place[2] is not None]
    return any(_inside(place, node.body) for place in places)


def _inside(place: tuple[Any, ...], node: ast.expr) -> bool:
    line, _, column, _ = place
    start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    return bool(start <= (line, column) < end)
