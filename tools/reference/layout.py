"""How definitions stand in a stub: on one line, or as the formatter breaks them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from tools.reference.hints import WIDTH, shown_literal

__all__ = ["HEAD", "definition", "in_order", "listed"]

HEAD = '''\
"""{title}

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

{imports}

{body}
'''


def definition(
    name: str, parameters: list[str], returns: str, docstring: str = "", *, indent: str = ""
) -> Iterator[str]:
    """Yield the lines of a function without a body, or with a docstring for one."""
    end = "" if docstring else " ..."
    line = f"{indent}def {name}({', '.join(parameters)}) -> {returns}:{end}"
    inner = f"{indent}    {', '.join(parameters)}"
    if len(line) <= WIDTH:
        yield line
    elif len(inner) <= WIDTH:
        yield from (f"{indent}def {name}(", inner, f"{indent}) -> {returns}:{end}")
    else:
        yield f"{indent}def {name}("
        yield from (f"{indent}    {parameter}," for parameter in parameters)
        yield f"{indent}) -> {returns}:{end}"
    if docstring:
        yield f'{indent}    """{docstring}"""'


def in_order(typed: list[tuple[inspect.Parameter, str]]) -> list[str]:
    """Return parameters as text, with the ``/`` and ``*`` between their kinds."""
    texts: list[str] = []
    star = False
    for k, (p, hint) in enumerate(typed):
        if p.kind is p.VAR_POSITIONAL:
            texts.append(f"*{p.name}: {hint}")
            star = True
            continue
        if p.kind is p.KEYWORD_ONLY and not star:
            texts.append("*")
            star = True
        default = "" if p.default is p.empty else f" = {shown_literal(p.default)}"
        texts.append(f"{p.name}: {hint}{default}")
        following = typed[k + 1][0].kind if k + 1 < len(typed) else None
        if p.kind is p.POSITIONAL_ONLY and following is not p.POSITIONAL_ONLY:
            texts.append("/")
    return texts


def listed(name: str, values: list[str]) -> str:
    """Return a list of names, one a line."""
    return "\n".join([f"{name} = [", *(f'    "{value}",' for value in values), "]"])
