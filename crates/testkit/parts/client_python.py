"""Exercises a server through its MCP URL with the official Python SDK.

usage: python client_python.py URL everything | filesystem DIR | time | fixture [DIR]

Runs once in the client's `legacy` mode and once in `auto`, its default, which
first probes for the 2026-07-28 era and must fall back when the server
declines. Prints {"ok":true,"checks":[…]}, or the failing check on stderr with
exit code 1. The checks are those of server-checks.mjs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from contextlib import AsyncExitStack, contextmanager
from datetime import date
from pathlib import Path

import anyio
import httpx2
from mcp import Client, MCPError
from mcp import types
from mcp.client.streamable_http import streamable_http_client

WATCHDOG_SECONDS = 240
WAIT_SECONDS = 120
TRICKY_TEXT = 'a "quoted"\nline, ünïcödé and \u2028'
SERVERS = ("everything", "filesystem", "time", "fixture")

passed: list[str] = []
current = "start"


@contextmanager
def check(name: str):
    """Names the step that is running, and records it once it has passed."""
    global current
    current = name
    yield
    passed.append(name)


class Session:
    """A client, what it answers, and what it has received."""

    def __init__(self, url: str, server: str, directory: str, mode: str) -> None:
        self.url = url
        self.directory = directory
        self.session_id: str | None = None
        self.notifications: list = []
        self.http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(WATCHDOG_SECONDS),
            event_hooks={"response": [self._remember_session]},
        )
        # Roots only where the server has to do with a directory.
        uses_roots = server in ("filesystem", "fixture")
        self.client = Client(
            streamable_http_client(url, http_client=self.http),
            mode=mode,
            sampling_callback=answer_sampling,
            elicitation_callback=answer_elicitation,
            list_roots_callback=self._answer_roots if uses_roots else None,
            message_handler=self._remember_notification,
        )

    async def texts(self, tool: str, arguments: dict, **options) -> list[str]:
        """The texts of a successful tool result."""
        result = await self.client.call_tool(tool, arguments, **options)
        assert not result.is_error, f"the tool failed: {result.content}"
        return [part.text for part in result.content]

    async def received(self, kind: type, matches) -> None:
        """Waits until a notification that matches has arrived."""
        with anyio.fail_after(WAIT_SECONDS):
            while not any(isinstance(n, kind) and matches(n.params) for n in self.notifications):
                await anyio.sleep(0.01)

    async def _remember_session(self, response) -> None:
        self.session_id = response.headers.get("mcp-session-id", self.session_id)

    async def _remember_notification(self, message) -> None:
        self.notifications.append(message)

    async def _answer_roots(self, context) -> types.ListRootsResult:
        root = types.Root(uri=Path(self.directory).as_uri(), name="test root")
        return types.ListRootsResult(roots=[root])


async def answer_sampling(context, params) -> types.CreateMessageResult:
    text = f"sampled {params.messages[0].content.text}"
    return types.CreateMessageResult(
        role="assistant",
        model="test-model",
        stop_reason="endTurn",
        content=types.TextContent(type="text", text=text),
    )


async def answer_elicitation(context, params) -> types.ElicitResult:
    """Fills every plain text field with the message that asked for it."""
    fields = params.requested_schema["properties"]
    plain_text = [
        name
        for name, schema in fields.items()
        if schema.get("type") == "string" and not schema.keys() & {"enum", "oneOf", "format"}
    ]
    return types.ElicitResult(action="accept", content={name: params.message for name in plain_text})


# ---- server-everything ----


async def everything(prefix: str, session: Session) -> None:
    client = session.client
    resource = "demo://resource/dynamic/text/7"

    with check(prefix + "tools-list"):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        wanted = {"echo", "get-sum", "trigger-long-running-operation", "trigger-sampling-request"}
        assert wanted <= set(tools), tools
    with check(prefix + "prompts-list"):
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        assert names == ["simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"], names
    with check(prefix + "resources-list"):
        uris = [str(entry.uri) for entry in (await client.list_resources()).resources]
        assert "demo://resource/static/document/features.md" in uris, uris
    with check(prefix + "resource-templates-list"):
        listed = await client.list_resource_templates()
        templates = [entry.uri_template for entry in listed.resource_templates]
        assert templates == [
            "demo://resource/dynamic/text/{resourceId}",
            "demo://resource/dynamic/blob/{resourceId}",
        ], templates
    with check(prefix + "echo"):
        assert await session.texts("echo", {"message": TRICKY_TEXT}) == [f"Echo: {TRICKY_TEXT}"]
    with check(prefix + "sum"):
        assert await session.texts("get-sum", {"a": 19, "b": 23}) == ["The sum of 19 and 23 is 42."]
    with check(prefix + "progress"):
        seen = []

        async def on_progress(progress, total, message):
            seen.append((progress, total))

        texts = await session.texts(
            "trigger-long-running-operation",
            {"duration": 0.8, "steps": 4},
            progress_callback=on_progress,
        )
        assert texts == ["Long running operation completed. Duration: 0.8 seconds, Steps: 4."], texts
        assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)], seen
    with check(prefix + "sampling"):
        [text] = await session.texts("trigger-sampling-request", {"prompt": "Tag-1"})
        heading, _, answer = text.partition("\n")
        assert heading == "LLM sampling result: ", heading
        assert json.loads(answer) == {
            "role": "assistant",
            "model": "test-model",
            "stopReason": "endTurn",
            "content": {
                "type": "text",
                "text": "sampled Resource trigger-sampling-request context: Tag-1",
            },
        }, answer
    if "trigger-elicitation-request" in tools:
        with check(prefix + "elicitation"):
            outcome, inputs, _ = await session.texts("trigger-elicitation-request", {})
            assert outcome == "✅ User provided the requested information!", outcome
            assert inputs == (
                "User inputs:\n- Name: Please provide inputs for the following fields:"
            ), inputs
    with check(prefix + "resource-read"):
        [content] = (await client.read_resource(resource)).contents
        assert str(content.uri) == resource
        assert content.text.startswith("Resource 7: This is a plaintext resource created at ")
    with check(prefix + "resource-unknown"):
        try:
            await client.read_resource("demo://no/such/resource")
        except MCPError as error:
            assert error.code in (-32602, -32002), error
        else:
            raise AssertionError("an unknown resource was read")
    with check(prefix + "logging-level"):
        await client.set_logging_level("info")
    with check(prefix + "subscribe"):
        await client.subscribe_resource(resource)
        data = f"Received Subscribe Resource request for URI: {resource} "
        await session.received(types.LoggingMessageNotification, lambda params: params.data == data)
        # The tool turns updates on and off; the first one is sent at once.
        await session.texts("toggle-subscriber-updates", {})
        await session.received(
            types.ResourceUpdatedNotification, lambda params: str(params.uri) == resource
        )
        await session.texts("toggle-subscriber-updates", {})
        await client.unsubscribe_resource(resource)
    with check(prefix + "prompt-get"):
        prompt = await client.get_prompt("args-prompt", {"city": "Ulm", "state": "BW"})
        [message] = prompt.messages
        assert (message.role, message.content.text) == ("user", "What's weather in Ulm, BW?")
    with check(prefix + "completion"):
        answer = await client.complete(
            types.PromptReference(type="ref/prompt", name="completable-prompt"),
            {"name": "name", "value": "A"},
            {"department": "Engineering"},
        )
        assert answer.completion.values == ["Alice"], answer
    with check(prefix + "cancel"):
        await cancel(session, "trigger-long-running-operation", {"duration": 4, "steps": 40})
    with check(prefix + "echo-after-cancel"):
        assert await session.texts("echo", {"message": "still here"}) == ["Echo: still here"]


# ---- server-filesystem ----


async def filesystem(prefix: str, session: Session) -> None:
    inside = Path(tempfile.mkdtemp(prefix="client-", dir=session.directory))
    file = inside / "note.txt"

    with check(prefix + "write"):
        arguments = {"path": str(file), "content": "first\nsecond\n"}
        assert await session.texts("write_file", arguments) == [f"Successfully wrote to {file}"]
        assert file.read_text() == "first\nsecond\n"
    with check(prefix + "read"):
        assert await session.texts("read_text_file", {"path": str(file)}) == ["first\nsecond\n"]
    with check(prefix + "list"):
        assert await session.texts("list_directory", {"path": str(inside)}) == ["[FILE] note.txt"]
    with check(prefix + "edit"):
        edits = [{"oldText": "second", "newText": "zweite"}]
        [difference] = await session.texts("edit_file", {"path": str(file), "edits": edits})
        assert {"-second", "+zweite"} <= set(difference.splitlines()), difference
        assert file.read_text() == "first\nzweite\n"
    with check(prefix + "outside-refused"):
        result = await session.client.call_tool("read_text_file", {"path": "/etc/hostname"})
        assert result.is_error
        text = result.content[0].text
        assert text.startswith("Access denied - path outside allowed directories: "), text
    shutil.rmtree(inside)


# ---- mcp-server-time ----


async def time(prefix: str, session: Session) -> None:
    with check(prefix + "tools-list"):
        names = [tool.name for tool in (await session.client.list_tools()).tools]
        assert sorted(names) == ["convert_time", "get_current_time"], names
    # Two zones without clock changes, so that the answer is always the same.
    with check(prefix + "convert"):
        [text] = await session.texts(
            "convert_time",
            {
                "source_timezone": "Asia/Kolkata",
                "time": "12:00",
                "target_timezone": "Asia/Kathmandu",
            },
        )
        answer = json.loads(text)
        day = answer["source"]["datetime"][:10]

        def at(timezone: str, clock: str) -> dict:
            return {
                "timezone": timezone,
                "datetime": f"{day}T{clock}",
                "day_of_week": date.fromisoformat(day).strftime("%A"),
                "is_dst": False,
            }

        assert answer == {
            "source": at("Asia/Kolkata", "12:00:00+05:30"),
            "target": at("Asia/Kathmandu", "12:15:00+05:45"),
            "time_difference": "+0.25h",
        }, answer
    with check(prefix + "unknown-zone-refused"):
        result = await session.client.call_tool("get_current_time", {"timezone": "Mars/Olympus"})
        assert result.is_error


# ---- our own fixture ----


async def fixture(prefix: str, session: Session) -> None:
    async def ask(kind: str, tag: str) -> dict:
        return json.loads((await session.texts("ask", {"kind": kind, "tag": tag}))[0])

    with check(prefix + "echo"):
        assert await session.texts("echo", {"text": TRICKY_TEXT}) == [TRICKY_TEXT]
    with check(prefix + "progress"):
        seen = []

        async def on_progress(progress, total, message):
            seen.append(progress)

        arguments = {"ms": 500, "progress_every_ms": 100}
        await session.texts("sleep", arguments, progress_callback=on_progress)
        assert len(seen) >= 2, seen
        assert seen == sorted(set(seen)), f"progress must increase: {seen}"
    with check(prefix + "sampling"):
        answer = await ask("sampling", "tag-sampling")
        assert "tag-sampling" in answer["content"]["text"], answer
    with check(prefix + "elicitation"):
        answer = await ask("elicitation", "tag-elicitation")
        assert answer["action"] == "accept", answer
        assert "tag-elicitation" in json.dumps(answer["content"]), answer
    # roots/list carries nothing to echo, and a gateway may answer it with the
    # scope it locked; either way the directory is what must come back.
    with check(prefix + "roots"):
        answer = await ask("roots", "tag-roots")
        uris = [root["uri"] for root in answer["roots"]]
        assert uris == [Path(session.directory).as_uri()], uris
    with check(prefix + "cancel"):
        await cancel(session, "sleep", {"ms": 60_000, "progress_every_ms": 100})
    with check(prefix + "echo-after-cancel"):
        assert await session.texts("echo", {"text": "still here"}) == ["still here"]


# ---- shared steps ----


async def cancel(session: Session, tool: str, arguments: dict) -> None:
    """Starts a long call, waits for a sign of life, and abandons it."""
    with anyio.CancelScope() as scope:

        async def on_progress(progress, total, message):
            scope.cancel()

        await session.client.call_tool(tool, arguments, progress_callback=on_progress)
    assert scope.cancelled_caught, "the call ended before it was cancelled"


async def check_session_is_gone(url: str, session_id: str, version: str) -> None:
    async with httpx2.AsyncClient() as http:
        response = await http.post(
            url,
            headers={
                "accept": "application/json, text/event-stream",
                "mcp-session-id": session_id,
                "mcp-protocol-version": version,
            },
            json={"jsonrpc": "2.0", "id": "gone", "method": "tools/list"},
        )
        assert response.status_code == 404, response.status_code


async def run(url: str, server: str, directory: str) -> None:
    checks = {"everything": everything, "filesystem": filesystem, "time": time, "fixture": fixture}
    for mode in ("legacy", "auto"):
        prefix = f"{mode}:"
        session = Session(url, server, directory, mode)
        async with session.http, AsyncExitStack() as stack:
            with check(prefix + "connect"):
                await stack.enter_async_context(session.client)
                version = session.client.protocol_version
                assert version.startswith("2025-"), version
                assert re.fullmatch(r"[\x21-\x7e]{16,}", session.session_id or ""), session.session_id
            await checks[server](prefix, session)
            # Leaving the client sends DELETE.
            with check(prefix + "terminate"):
                await stack.aclose()
        with check(prefix + "session-is-gone"):
            await check_session_is_gone(url, session.session_id, version)


async def main(url: str, server: str, directory: str) -> None:
    with anyio.fail_after(WATCHDOG_SECONDS):
        await run(url, server, directory)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if len(arguments) < 2 or arguments[1] not in SERVERS or arguments[1:] == ["filesystem"]:
        sys.exit("usage: client_python.py URL everything | filesystem DIR | time | fixture [DIR]")
    # The 2025-era methods are deprecated in this SDK; they are what is tested.
    warnings.simplefilter("ignore")
    try:
        anyio.run(main, *arguments[:2], arguments[2] if len(arguments) > 2 else os.getcwd())
    except BaseException:
        sys.stderr.write(f"check failed: {current}\n")
        traceback.print_exc()
        sys.exit(1)
    print(json.dumps({"ok": True, "checks": passed}, separators=(",", ":")))
