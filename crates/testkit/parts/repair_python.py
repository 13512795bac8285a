"""Repairs the project of `workspace/server/repair.rs` through the MCP URL of a
built-in server, with the official Python SDK: runs its tests, finds and fixes
one bug after the other until they pass, and commits.

usage: python repair_python.py URL DIR

Prints {"ok":true,"rounds":N,"fixed":[…]}, or what went wrong with exit code 1.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path

import anyio
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client

WATCHDOG_SECONDS = 240

# By failing test: where to look, and what to change there.
FIXES = {
    "test_total": (
        "def total",
        "search_replace",
        {"old_string": "price + quantity", "new_string": "price * quantity"},
    ),
    "test_discounted": (
        "def discounted",
        "edit_file",
        {
            "code_edit": "# ... existing code ...\n"
            "def discounted(amount, percent):\n"
            '    """An amount less a percentage."""\n'
            "    return amount - amount * percent / 100\n"
        },
    ),
}


async def repair(client: Client) -> dict:
    async def call(tool: str, arguments: dict) -> tuple[dict, bool]:
        result = await client.call_tool(tool, arguments)
        return result.structured_content, result.is_error

    async def succeed(tool: str, arguments: dict) -> dict:
        data, is_error = await call(tool, arguments)
        assert not is_error, f"{tool}: {data}"
        return data

    async def test() -> dict:
        command = {"command": "python3 -B -m unittest", "wait_seconds": 45}
        return (await call("run_terminal_cmd", command))[0]

    # The client checks results against the schemas that it has listed.
    await client.list_tools()
    fixed: list[str] = []
    ended = await test()
    while ended["exit_code"] != 0:
        assert "AssertionError" in ended["output"], ended
        failing = re.search(r"^FAIL: (\w+)", ended["output"], re.MULTILINE)[1]
        assert failing not in fixed, f"{failing} was not fixed:\n{ended['output']}"
        query, tool, change = FIXES[failing]
        found = await succeed("grep_search", {"query": query, "include_pattern": "*.py"})
        assert found["total_matches"] == 1, found
        path, line = found["matches"][0]["path"], found["matches"][0]["line"]
        read = await succeed("read_file", {"path": path, "start_line_one_indexed": line})
        assert read["content"].startswith(query), read
        edited = await succeed(tool, {"path": path, "expected_hash": read["hash"], **change})
        assert (edited["lines_added"], edited["lines_removed"]) == (1, 1), edited
        fixed.append(failing)
        ended = await test()

    commit = "git commit --quiet --all --message 'Fix the prices' && git status --porcelain"
    assert (await succeed("run_terminal_cmd", {"command": commit}))["output"] == ""
    diff = await succeed("session_diff", {})
    assert diff["files"] == [
        {"path": "shop/prices.py", "status": "modified", "lines_added": 2, "lines_removed": 2}
    ], diff
    assert "+    return amount - amount * percent / 100\n" in diff["diff"], diff
    return {"ok": True, "rounds": len(fixed) + 1, "fixed": sorted(fixed)}


async def main(url: str, directory: str) -> None:
    async def answer_roots(context) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=Path(directory).as_uri())])

    with anyio.fail_after(WATCHDOG_SECONDS):
        async with Client(streamable_http_client(url), mode="legacy", list_roots_callback=answer_roots) as client:
            outcome = await repair(client)
    print(json.dumps(outcome, separators=(",", ":")))


if __name__ == "__main__":
    # The 2025-era methods are deprecated in this SDK; they are what is tested.
    warnings.simplefilter("ignore")
    anyio.run(main, *sys.argv[1:3])
