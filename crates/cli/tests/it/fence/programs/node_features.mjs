// Uses what programs for Node use, and prints what came of it as one line of JSON.
import { execFileSync, fork, spawn } from "node:child_process";
import crypto from "node:crypto";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";

const script = fileURLToPath(import.meta.url);

async function main() {
  const worker = new Worker(script, { workerData: 21 });
  const [doubled] = await once(worker, "message");

  const forked = fork(script, ["child"]);
  forked.send("over ipc");
  const [echoed] = await once(forked, "message");
  await once(forked, "exit");

  const cat = spawn("cat", { stdio: ["pipe", "pipe", "inherit"] });
  cat.stdin.end("through pipes");
  let piped = "";
  for await (const piece of cat.stdout) piped += piece;

  const talking = spawn(process.execPath, [script, "child"], { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  talking.send("over ipc too");
  const [echoedToo] = await once(talking, "message");
  await once(talking, "exit");

  fs.mkdirSync("watched", { recursive: true });
  fs.rmSync("watched/appeared", { force: true });
  const watcher = fs.watch("watched");
  const change = once(watcher, "change");
  fs.writeFileSync("watched/appeared", "");
  const [, watched] = await change;
  watcher.close();

  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "features-"));
  const file = path.join(directory, "file");
  fs.writeFileSync(file, "temporary text");

  const derived = await promisify(crypto.pbkdf2)("password", "salt", 1000, 32, "sha256");
  const found = {
    worker: doubled,
    fork: echoed,
    spawn: piped,
    spawn_ipc: echoedToo,
    exec_sync: execFileSync("sh", ["-c", "echo synchronously"]).toString(),
    watched,
    temporary: fs.readFileSync(file, "utf8"),
    random_bytes: crypto.randomBytes(16).length,
    derived_bytes: derived.length,
    processors: os.cpus().length,
  };
  console.log(JSON.stringify(found));
}

if (!isMainThread) {
  parentPort.postMessage(workerData * 2);
} else if (process.argv[2] === "child") {
  process.once("message", (message) => process.send(message, () => process.disconnect()));
} else {
  await main();
}
