"""The type stub of ``odyssey.backward``, whose functions exist at run time only."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from odyssey import backward, ops
from odyssey.table.declare import REQUIRED, Row
from tools.reference.hints import Imports, annotated, shown_literal
from tools.reference.layout import HEAD, definition, listed

__all__ = ["backward_stub"]


def backward_stub() -> str:
    """Return the stub of ``odyssey.backward``."""
    imports = Imports()
    for module, name in (
        ("collections.abc", "Callable"),
        ("collections.abc", "Mapping"),
        ("typing", "Any"),
        ("typing", "TypeAlias"),
        ("numpy.typing", "ArrayLike"),
        ("numpy.typing", "NDArray"),
    ):
        imports.add(module, name)
    body = [
        listed("__all__", backward.__all__),
        "",
        "_Array: TypeAlias = NDArray[Any]",
        "",
        "TABLE: Mapping[str, Callable[..., Any]]",
        "",
    ]
    for name in sorted(backward.TABLE):
        row = ops.OPS[name]
        body += [*_backward(row, imports), *(f"{alias} = {name}" for alias in row.aliases)]
    title = "The backward functions of all ops, ``od.backward.<op>(g, ...)``, with their types."
    return HEAD.format(title=title, imports=imports.text(), body="\n".join(body))


def _backward(row: Row, imports: Imports) -> Iterator[str]:
    options = inspect.signature(inspect.unwrap(row.reference)).parameters
    defaults = dict(zip(row.options, row.defaults, strict=True))
    texts = [f"{name}: ArrayLike | None" for name in row.cotangents] or ["g: ArrayLike"]
    optional = False
    for name in row.requested_names:
        hint, none = "ArrayLike", name in row.optional
        if none:
            hint, optional = "ArrayLike | None", True
        elif name.endswith("_spec") and name not in row.options:
            imports.add("odyssey.spec", "Spec")
            hint, optional = "Spec", True  # read from the operand where that is given by name
        elif name in row.options:
            hint = annotated(row.reference, options[name], imports)
            optional = optional or defaults[name] is not REQUIRED
        default = defaults.get(name, None if none else REQUIRED)
        shown = "..." if default is REQUIRED else shown_literal(default)
        texts.append(f"{name}: {hint} = {shown}" if optional else f"{name}: {hint}")
    unasked = [f"{name}: ArrayLike = ..." for name in row.arrays if name not in row.requested_names]
    texts += ["*", *unasked] if unasked else []
    results = [name for name, rule in row.vjp.items() if rule]
    kinds = ["_Array | None" if name in row.optional else "_Array" for name in results]
    # Of one operand the name says it all.
    docstring = f"The gradients in {' and '.join(results)}." if len(results) > 1 else ""
    returns = kinds[0] if len(results) == 1 else f"tuple[{', '.join(kinds)}]"
    yield from definition(row.name, texts, returns, docstring)
