"""Uses what programs in Python use, and prints what came of it as one line of JSON."""

import asyncio
import json
import mmap
import sqlite3
import subprocess
import tempfile
import threading


def run_thread():
    seen = []
    thread = threading.Thread(target=seen.append, args=["ran"])
    thread.start()
    thread.join()
    return seen[0]


async def run_asynchronously():
    process = await asyncio.create_subprocess_exec("echo", "awaited", stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode().strip()


def use_temporary_files():
    with tempfile.TemporaryDirectory() as directory, tempfile.NamedTemporaryFile(dir=directory) as file:
        file.write(b"temporary text")
        file.flush()
        with open(file.name) as again:
            return again.read()


def use_database():
    connection = sqlite3.connect("rows.sqlite")
    (journal,) = connection.execute("pragma journal_mode = wal").fetchone()
    connection.execute("create table rows (number)")
    connection.executemany("insert into rows values (?)", ((number,) for number in range(1000)))
    connection.commit()
    (rows,) = connection.execute("select count(*) from rows").fetchone()
    connection.close()
    return journal, rows


def map_file():
    with open("mapped", "w+b") as file:
        file.truncate(4096)
        with mmap.mmap(file.fileno(), 4096) as memory:
            memory[:6] = b"mapped"
            memory.flush()
        return file.read(6).decode()


journal, rows = use_database()
tr = subprocess.run(["tr", "a-z", "A-Z"], input="piped", text=True, capture_output=True, check=True)
found = {
    "thread": run_thread(),
    "subprocess": tr.stdout,
    "asynchronous": asyncio.run(run_asynchronously()),
    "temporary": use_temporary_files(),
    "journal": journal,
    "rows": rows,
    "mapped": map_file(),
}
print(json.dumps(found))
