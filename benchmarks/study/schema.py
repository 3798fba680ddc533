"""Validation of records against `schema.json`, in the keywords of JSON Schema that it uses."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("schema.json")

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """Return the schema."""
    read: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return read


def record_faults(record: Any) -> list[str]:
    """Return what is wrong with a record, by the rule nearest to it; empty if nothing is."""
    return faults(record, schema(), "record")


def faults(value: Any, rule: Mapping[str, Any], where: str) -> list[str]:
    """Return where a value breaks a rule, and how.

    Raises:
        KeyError: The rule has a keyword that is not known here.
    """
    found: list[str] = []
    for keyword, wanted in rule.items():
        found += _KEYWORDS[keyword](value, wanted, where, rule)
    return found


def _reference(value: Any, wanted: str, where: str, rule: Any) -> list[str]:
    target: Any = schema()
    for part in wanted.removeprefix("#/").split("/"):
        target = target[part]
    return faults(value, target, where)


def _one_of(value: Any, wanted: list[Any], where: str, rule: Any) -> list[str]:
    tried = [faults(value, choice, where) for choice in wanted]
    matching = sum(not found for found in tried)
    if matching > 1:
        return [f"{where}: {matching} rules fit {value!r:.80}; one may"]
    return [] if matching else min(tried, key=len)


def _type(value: Any, wanted: str, where: str, rule: Any) -> list[str]:
    fits = isinstance(value, _TYPES[wanted])
    if isinstance(value, bool) and wanted in ("integer", "number"):
        fits = False
    if isinstance(value, float) and value - value != 0:
        fits = False  # JSON has no NaN and no infinity
    return [] if fits else [f"{where}: {value!r:.80} came, {wanted} was wanted"]


def _required(value: Any, wanted: list[str], where: str, rule: Any) -> list[str]:
    missing = [name for name in wanted if isinstance(value, dict) and name not in value]
    return [f"{where}: {name} is missing" for name in missing]


def _properties(value: Any, wanted: Mapping[str, Any], where: str, rule: Any) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [
        fault
        for name, inner in wanted.items()
        if name in value
        for fault in faults(value[name], inner, f"{where}.{name}")
    ]


def _additional(value: Any, wanted: Any, where: str, rule: Mapping[str, Any]) -> list[str]:
    if not isinstance(value, dict):
        return []
    others = [name for name in value if name not in rule.get("properties", {})]
    if wanted is False:
        return [f"{where}: {name} is no entry of it" for name in others]
    return [f for name in others for f in faults(value[name], wanted, f"{where}.{name}")]


def _items(value: Any, wanted: Any, where: str, rule: Any) -> list[str]:
    items = value if isinstance(value, list) else []
    return [f for n, item in enumerate(items) for f in faults(item, wanted, f"{where}[{n}]")]


def _enum(value: Any, wanted: list[Any], where: str, rule: Any) -> list[str]:
    same = any(type(value) is type(choice) and value == choice for choice in wanted)
    return [] if same else [f"{where}: {value!r:.80} came, one of {wanted} was wanted"]


def _minimum(value: Any, wanted: float, where: str, rule: Any) -> list[str]:
    low = isinstance(value, (int, float)) and value < wanted
    return [f"{where}: {value} came, at least {wanted} was wanted"] if low else []


def _pattern(value: Any, wanted: str, where: str, rule: Any) -> list[str]:
    fits = not isinstance(value, str) or re.search(wanted, value)
    return [] if fits else [f"{where}: {value!r:.80} came, {wanted} was wanted"]


_KEYWORDS: dict[str, Any] = {
    **dict.fromkeys(("$schema", "$comment", "$defs", "title"), lambda *_: []),
    "$ref": _reference,
    "oneOf": _one_of,
    "type": _type,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "enum": _enum,
    "const": lambda value, wanted, where, rule: _enum(value, [wanted], where, rule),
    "minimum": _minimum,
    "pattern": _pattern,
}
