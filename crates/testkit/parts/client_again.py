"""Calls a tool three times with the official Python SDK or with fastmcp, as an application that never connects again.

usage: python client_again.py mcp | fastmcp URL DIR TOOL

DIR is the client's root. After the first call it prints {"paused":true}, and waits for a line on stdin. Prints
{"tools":[…],"outputs":[…]}; the output of a call that failed is the error.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import anyio

# The 2025-era methods are deprecated in the SDK.
warnings.simplefilter("ignore")


def client_of(library: str, url: str, root: str):
    if library == "fastmcp":
        from fastmcp import Client

        return Client(url, roots=[root])
    from mcp import Client, types

    async def answer_roots(context) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=root)])

    return Client(url, mode="legacy", list_roots_callback=answer_roots)


async def call(client, tool: str) -> str:
    try:
        with anyio.fail_after(60):
            result = await client.call_tool(tool, {})
        return "".join(part.text for part in result.content)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def main(library: str, url: str, directory: str, tool: str) -> None:
    outputs = []
    try:
        async with client_of(library, url, Path(directory).as_uri()) as client:
            listed = await client.list_tools()
            tools = [entry.name for entry in getattr(listed, "tools", listed)]
            outputs.append(await call(client, tool))
            print(json.dumps({"paused": True}), flush=True)
            await anyio.to_thread.run_sync(sys.stdin.readline)
            for _ in range(2):
                outputs.append(await call(client, tool))
    except Exception as error:
        # Some end with their session, also when they are only closed.
        if len(outputs) < 3:
            outputs.append(f"{type(error).__name__}: {error}")
    print(json.dumps({"tools": tools, "outputs": outputs}))


anyio.run(main, *sys.argv[1:])
