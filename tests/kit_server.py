"""Servers for tests, on 127.0.0.1: one that speaks the protocol from a script, and the real vLLM one."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

ODD = '{"greeting":"vexolit-17","code":"JQX20.4.","sign":"#2040.","marks":["zae","zou"]}'
"""What the constraint of the start's probe allows."""


class ScriptedServer:
    """A small OpenAI-compatible server.

    ``script`` holds what happens to one chat request after the other, and then each is answered with ``text``: a status,
    ``(status, headers, document)``, a text to answer with, bytes to send as they are, ``drop`` (closes the connection) or ``stall``
    (never answers). Probes are answered well unless the server is told to be bad: ``obeys`` constraints, ``reads`` at most so many
    words, refuses ``fields``. ``chats`` and ``headers`` hold what arrived beside probes, ``hung_up`` counts clients that closed a
    stalled connection.
    """

    def __init__(
        self, script=(), *, text="{}", models=("tiny",), obeys=True, reads=10**6, counts=True, fields=(), key="", delay=0.0, loading=0
    ):
        self.script, self.text, self.models = deque(script), text, models
        self.obeys, self.reads, self.counts, self.fields, self.key = obeys, reads, counts, fields, key
        self.chats, self.headers, self.probes = [], [], []
        self.hung_up = self.most_at_once = self.at_once = 0
        self.lock = threading.Lock()
        self.port, self.delay, self.loading = 0, delay, loading
        self.start()

    def start(self):
        self.stopped = threading.Event()
        self.connections = set()
        made = type("Handler", (_Handler,), {"owner": self})
        ThreadingHTTPServer.allow_reuse_address = True
        self.http = ThreadingHTTPServer(("127.0.0.1", self.port), made)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        """As a crash would: nothing listens any more and every connection is cut."""
        self.stopped.set()
        self.http.shutdown()
        self.http.server_close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: ScriptedServer

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.owner.connections.add(self.connection)

    def finish(self):
        self.owner.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self):
        if self.owner.loading:
            self.owner.loading -= 1
            return self.reply(503, {"error": {"message": "loading the model"}})
        if self.path == "/v1/models":
            return self.reply(
                200, {"object": "list", "data": [{"id": m, "object": "model", "created": time.time()} for m in self.owner.models]}
            )
        return self.reply(404, {"error": {"message": "no such page"}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            return self.reply(404, {"error": {"message": "no such page"}})
        owner = self.owner
        if owner.key and self.headers["Authorization"] != f"Bearer {owner.key}":
            return self.reply(401, {"error": {"message": f"wrong key {self.headers['Authorization']}"}})
        if refused := [f for f in owner.fields if f in body]:
            return self.reply(400, {"error": {"message": f"unknown field {refused[0]}"}})
        if body["response_format"]["json_schema"]["name"].startswith("_"):
            owner.probes.append(body)
            return self.answer(body, ODD if owner.obeys else "hello")
        with owner.lock:
            owner.chats.append(body)
            owner.headers.append(dict(self.headers))
            owner.at_once += 1
            owner.most_at_once = max(owner.most_at_once, owner.at_once)
            act = owner.script.popleft() if owner.script else owner.text
        try:
            self.act(act, body)
        finally:
            with owner.lock:
                owner.at_once -= 1

    def act(self, act, body):
        if act == "drop":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif act == "stall":
            self.stall()
        elif isinstance(act, bytes):
            self.send(200, "text/html", act, {})
        elif isinstance(act, int):
            self.reply(act, {"error": {"message": "come back later", "code": act}})
        elif isinstance(act, tuple):
            status, headers, document = act
            self.reply(status, document, headers)
        else:
            self.answer(body, act)

    def stall(self):
        """Wait until the client goes away or the server stops."""
        self.close_connection = True
        self.connection.settimeout(0.02)
        while not self.owner.stopped.is_set():
            with contextlib.suppress(TimeoutError):
                if not self.connection.recv(1):
                    self.owner.hung_up += 1
                    return

    def answer(self, body, text):
        time.sleep(self.owner.delay)
        read = min(self.owner.reads, sum(len(m["content"].split()) for m in body["messages"]))
        usage = {
            "usage": {"prompt_tokens": read, "completion_tokens": len(text.split()), "prompt_tokens_details": {"cached_tokens": read // 2}}
        }
        message = {"role": "assistant", "content": text, "reasoning_content": "hm, what would they like"}
        self.reply(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]} | (usage if self.owner.counts else {}))

    def reply(self, status, document, headers=None):
        self.send(status, "application/json", json.dumps(document).encode(), headers or {})

    def send(self, status, kind, data, headers):
        with contextlib.suppress(OSError):
            self.send_response(status)
            for name, value in ({"Content-Type": kind, "Content-Length": str(len(data))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def vllm_server(folder, name, *options, log, within=240):
    """The real vLLM server over ``folder``; gives its base address. It is killed at the end, with all it started."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", name]
    command += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--dtype", "bfloat16", "--block-size", "32"]
    command += ["--structured-outputs-config", '{"backend":"guidance","disable_any_whitespace":true}', "--generation-config", "vllm"]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [*command, *options], stdout=sink, stderr=sink, env=os.environ | {"VLLM_ENGINE_READY_TIMEOUT_S": "300"}, start_new_session=True
        )
        try:
            until = time.monotonic() + within
            while not _answers(f"http://127.0.0.1:{port}/health"):
                assert process.poll() is None, log.read_text(errors="replace")[-3000:]
                assert time.monotonic() < until, "the server does not become ready"
                time.sleep(0.3)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()


def _answers(url):
    try:
        return httpx.get(url, timeout=2, trust_env=False).is_success
    except httpx.TransportError:
        return False
