"""As much of JSON Schema as the description of the control endpoint uses."""

from __future__ import annotations

from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_KNOWN = {
    *("$ref", "type", "enum", "minimum", "properties", "required", "additionalProperties"),
    *("items", "minItems", "maxItems", "description"),
}


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "") -> list[str]:
    """What does not fit, each with its place; `root` has what references name."""
    assert schema.keys() <= _KNOWN, schema
    if "$ref" in schema:
        named: Any = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            named = named[name]
        return problems(value, named, root, at)
    kinds = schema.get("type", list(_TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool):
        fits = "boolean" in kinds
    else:
        fits = any(isinstance(value, _TYPES[kind]) for kind in kinds)
    if not fits:
        return [f"{at or 'it'} is {value!r}, not {kinds}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at} is {value!r}, not one of {schema['enum']}")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{at} is {value!r}, less than {schema['minimum']}")
    if isinstance(value, dict):
        found += _of_object(value, schema, root, at)
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            found.append(f"{at} has {len(value)} items")
        for number, item in enumerate(value):
            found += problems(item, schema.get("items", {}), root, f"{at}/{number}")
    return found


def _of_object(
    value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], at: str
) -> list[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    found = [f"{at}/{name} is missing" for name in schema.get("required", ()) if name not in value]
    for name, member in value.items():
        if name not in known and others is False:
            found.append(f"{at}/{name} is not described")
            continue
        found += problems(member, known.get(name) or others, root, f"{at}/{name}")
    return found
