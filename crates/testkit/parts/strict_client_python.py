"""Reads structured results as fastmcp 2 does: it makes a class of each output schema, and an object whose fields the
schema does not list becomes an empty `Root()`. The calls go through the official Python SDK; the classes are made by
fastmcp's own module, which needs none of the packages that the rest of fastmcp needs.

usage: python strict_client_python.py URL CALLS

CALLS is a JSON list of [TOOL, ARGUMENTS]. Prints {"tools":N,"read":[TOOL,…],"lost":{TOOL:[FIELD,…]},"control":[FIELD,…]}:
the tools whose class was made and whose result was read, the fields that the class did not take over, and the fields
that are lost with a schema that has such an object.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from pathlib import Path

import anyio
from mcp import Client
from pydantic import TypeAdapter

# The 2025-era methods are deprecated in the SDK.
warnings.simplefilter("ignore")

MODULE = "fastmcp/utilities/json_schema_type.py"
WATCHDOG_SECONDS = 240


def load_library():
    """Loads the one module, without the package around it."""
    place = Path(__file__).parent / "fastmcp" / MODULE
    spec = importlib.util.spec_from_file_location("json_schema_type", place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


LIBRARY = load_library()


def lost_fields(schema: dict, data: dict) -> list[str]:
    """The fields of a result that the class of its schema does not hold as they were sent."""
    adapter = TypeAdapter(LIBRARY.json_schema_to_type(schema))
    held = adapter.dump_python(adapter.validate_python(data), mode="json", by_alias=True)
    return [name for name, value in data.items() if held.get(name) != value]


async def main(url: str, calls: list) -> None:
    read, lost = [], {}
    with anyio.fail_after(WATCHDOG_SECONDS):
        async with Client(url, mode="legacy") as client:
            tools = (await client.list_tools()).tools
            schemas = {tool.name: tool.output_schema for tool in tools}
            for schema in schemas.values():
                TypeAdapter(LIBRARY.json_schema_to_type(schema))
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                if result.is_error:
                    raise SystemExit(f"{name}: {result.content}")
                read.append(name)
                if fields := lost_fields(schemas[name], result.structured_content):
                    lost[name] = fields
    nested = {"type": "object", "properties": {"kept": {"type": "string"}, "lost": {"type": "object"}}}
    control = lost_fields(nested, {"kept": "x", "lost": {"a": 1}})
    print(json.dumps({"tools": len(tools), "read": read, "lost": lost, "control": control}))


anyio.run(main, sys.argv[1], json.loads(sys.argv[2]))
