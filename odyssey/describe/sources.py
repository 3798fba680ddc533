"""Source text of rules: the expression of a lambda, or the definition of a function."""

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
    """Return a rule's source: one expression if it has no other statement, else the definition.

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
        return _single_line(source, node.body)
    *other, last = node.body
    is_documented = len(other) == 1 and ast.get_docstring(node) is not None
    if isinstance(last, ast.Return) and last.value and (is_documented or not other):
        return _single_line(source, last.value)
    return textwrap.dedent(inspect.getsource(rule)).rstrip()


def helpers_of(rule: Callable[..., Any]) -> list[str]:
    """Return the definitions of the functions called by a rule that are not ops."""
    rule = inspect.unwrap(getattr(rule, "func", rule))  # of a partial
    names = [name for code in _code_objects(rule.__code__) for name in code.co_names]
    namespace = rule.__globals__
    definitions = []
    for name in dict.fromkeys(names):
        helper = namespace.get(name)
        if inspect.isfunction(helper) and _is_helper(helper):
            definitions.append(textwrap.dedent(inspect.getsource(helper)).rstrip())
    return definitions


def _is_helper(function: Any) -> bool:
    is_internal = function.__module__ in OP_MODULES and function is not PASS
    return is_internal and not (hasattr(function, "row") or hasattr(function, "aliases"))


def _single_line(source: str, node: ast.expr) -> str:
    text = " ".join((ast.get_source_segment(source, node) or "").split())
    return re.sub(r",? (?=[)\]}])", "", re.sub(r"(?<=[(\[{]) ", "", text))


def _code_objects(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_objects(constant)


@cache
def _parse_file(path: str) -> tuple[str, ast.Module]:
    with open(path, encoding="utf-8") as file:
        source = file.read()
    return source, ast.parse(source)


def _definition(rule: Callable[..., Any]) -> tuple[Any, str]:
    """Return the syntax node of a lambda or function, by its position, and the file's source."""
    code = rule.__code__
    source, tree = _parse_file(code.co_filename)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Lambda, ast.FunctionDef)) and _is_compiled_from(node, code):
            return node, source
    raise OSError(f"no definition of {code.co_qualname} in {code.co_filename}")


def _is_compiled_from(node: ast.Lambda | ast.FunctionDef, code: CodeType) -> bool:
    """Return whether ``code`` was compiled from ``node``; lambdas may share a line."""
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    if names != list(code.co_varnames[: code.co_argcount]):
        return False
    if isinstance(node, ast.FunctionDef):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        return node.name == code.co_name and first == code.co_firstlineno
    if code.co_name != "<lambda>" or node.lineno != code.co_firstlineno:
        return False
    positions = [p for p in code.co_positions() if p[0] and p[2] is not None]
    return any(_is_inside(position, node.body) for position in positions)


def _is_inside(position: tuple[Any, ...], node: ast.expr) -> bool:
    line, _, column, _ = position
    start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    return bool(start <= (line, column) < end)
