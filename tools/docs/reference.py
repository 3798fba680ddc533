"""All generated pages of the reference."""

from __future__ import annotations

from odyssey.describe.entries import entries
from tools.docs.objects import GROUPS, api_page, group_page, modules_page, object_page
from tools.docs.ops import families, family_page, op_page, ops_page

__all__ = ["reference_pages"]


def reference_pages() -> dict[str, str]:
    """Return the text of each generated page by its path in the source folder."""
    pages = {"reference/index.md": index_text(), "reference/modules.rst": modules_page()}
    for group in GROUPS:
        pages[f"reference/{group.slug}.rst"] = group_page(group)
        for name in group.names:
            pages[f"{api_page(name)}.rst"] = object_page(name, group)
    pages["reference/ops.rst"] = ops_page()
    for module in families():
        pages[f"reference/families/{module.removeprefix('odyssey.')}.rst"] = family_page(module)
    for entry in entries().values():
        pages[f"reference/ops/{entry.name}.rst"] = op_page(entry)
    return pages


def index_text() -> str:
    """Return the lists that follow the text of ``docs/reference/index.md``."""
    lines = [
        *("## Ops and names", ""),
        "* [Ops](ops.rst): every operation with its derivative, by family",
        "* [Modules](modules.rst): all public names by module",
        "* {ref}`All names <genindex>`, by letter",
        *("", "## Objects", ""),
        *(f"* [{group.title}]({group.slug}.rst): {group.intro}" for group in GROUPS),
        *("", "```{toctree}", ":hidden:", ""),
        *("ops", *(group.slug for group in GROUPS)),
        *("modules", "All names </genindex>", "```", ""),
    ]
    return "\n".join(lines)
