"""Calls a tool three times with a Python library, as an application that never connects again.

usage: python client_again.py mcp | fastmcp | pydantic-ai | langchain | mcp-use | openai-agents URL DIR TOOL [ARGUMENTS]

DIR is the client's root; libraries that report no roots name it in the header `Ringfence-Workspace`. After the first call it prints {"paused":true}, and waits for a line on stdin. Prints
{"tools":[…],"outputs":[…]}; the output of a call that failed is the error.
"""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

# The 2025-era methods are deprecated in the SDK.
warnings.simplefilter("ignore")


def text_of(result) -> str:
    """The text of a result, whatever a library makes of it."""
    if isinstance(result, str):
        return result
    content = getattr(result, "content", result)
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, (list, tuple)) else [content]
    text = lambda part: part.get("text") if isinstance(part, dict) else getattr(part, "text", part)
    return "".join(str(text(part)) for part in parts)


def names_of(listed) -> list[str]:
    return [entry.name for entry in getattr(listed, "tools", listed)]


@asynccontextmanager
async def opened(library: str, url: str, directory: str):
    """Two functions: the names of the tools, and a call."""
    root = Path(directory).as_uri()
    headers = {"Ringfence-Workspace": directory}
    if library == "fastmcp":
        from fastmcp import Client

        async with Client(url, roots=[root]) as client:
            yield client.list_tools, client.call_tool
    elif library == "mcp":
        from mcp import Client, types

        async def answer_roots(context) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=root)])

        async with Client(url, mode="legacy", list_roots_callback=answer_roots) as client:
            yield client.list_tools, client.call_tool
    elif library == "openai-agents":
        from agents.mcp import MCPServerStreamableHttp

        async with MCPServerStreamableHttp(params={"url": url, "headers": headers, "timeout": 60}) as client:
            yield client.list_tools, client.call_tool
    elif library == "mcp-use":
        from mcp_use import MCPClient

        client = MCPClient.from_dict({"mcpServers": {"ringfence": {"url": url, "headers": headers}}})
        session = await client.create_session("ringfence")
        try:
            yield session.list_tools, session.call_tool
        finally:
            await client.close_all_sessions()
    elif library == "langchain":
        from langchain_mcp_adapters.client import MultiServerMCPClient
        from langchain_mcp_adapters.tools import load_mcp_tools

        server = {"transport": "streamable_http", "url": url, "headers": headers}
        async with MultiServerMCPClient({"ringfence": server}).session("ringfence") as session:
            tools = await load_mcp_tools(session)

            async def list_tools():
                return tools

            async def call_tool(name, arguments):
                return await next(tool for tool in tools if tool.name == name).ainvoke(arguments)

            yield list_tools, call_tool
    else:
        from pydantic_ai.mcp import MCPToolset

        async with MCPToolset(url, roots=[root]) as client:
            yield client.list_tools, client.direct_call_tool


async def call(call_tool, tool: str, arguments: dict) -> str:
    try:
        with anyio.fail_after(60):
            return text_of(await call_tool(tool, arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def main(library: str, url: str, directory: str, tool: str, arguments: str = "{}") -> None:
    outputs, tools = [], []
    try:
        async with opened(library, url, directory) as (list_tools, call_tool):
            tools = names_of(await list_tools())
            outputs.append(await call(call_tool, tool, json.loads(arguments)))
            print(json.dumps({"paused": True}), flush=True)
            await anyio.to_thread.run_sync(sys.stdin.readline)
            for _ in range(2):
                outputs.append(await call(call_tool, tool, json.loads(arguments)))
    except Exception as error:
        # Some end with their session, also when they are only closed.
        if len(outputs) < 3:
            outputs.append(f"{type(error).__name__}: {error}")
    print(json.dumps({"tools": tools, "outputs": outputs}))


anyio.run(main, *sys.argv[1:])
