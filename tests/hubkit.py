"""A model hub on 127.0.0.1: the few endpoints that the hub's own client asks when it fetches a repository."""

import hashlib
import json
import struct
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".gguf")
"""Endings that the hub keeps in large-file storage, with their SHA-256 listed."""

CARD = b"---\nlicense: apache-2.0\ntags: [invented]\n---\n# An invented model\n"


def safetensors(*numbers):
    """A valid safetensors file with one tensor."""
    body = struct.pack(f"<{len(numbers)}f", *numbers)
    head = json.dumps({"w": {"dtype": "F32", "shape": [len(numbers)], "data_offsets": [0, len(body)]}}).encode()
    return struct.pack("<Q", len(head)) + head + body


def model_files(*numbers, **more):
    """A tiny chat model as a publisher lays it out, with files that must never be fetched beside it."""
    files = {
        "README.md": CARD,
        "config.json": json.dumps({"model_type": "llama", "max_position_embeddings": 8192}).encode(),
        "tokenizer_config.json": json.dumps({"chat_template": "{{ messages }}"}).encode(),
        "model.safetensors": safetensors(*(numbers or (1, 2, 3))),
        "modeling_tiny.py": b"raise SystemExit('run')\n",
        "pytorch_model.bin": b"\x80\x04.",
        "original/model.safetensors": safetensors(9, 9),
        ".gitattributes": b"*.safetensors filter=lfs\n",
    }
    return {name: content for name, content in (files | more).items() if content is not None}


def digest(content):
    return hashlib.sha256(content).hexdigest()


@dataclass
class Hub:
    """What the server holds, and what was asked of it. ``sent`` is other bytes than those listed, for a tampered hub."""

    address: str = ""
    commits: dict = field(default_factory=dict)
    branches: dict = field(default_factory=dict)
    gated: bool = False
    sent: dict = field(default_factory=dict)
    hold: dict = field(default_factory=dict)
    """File: the event that its second half waits for."""
    cut: Counter = field(default_factory=Counter)
    """File: so many times the connection breaks after half of it."""
    asked: list = field(default_factory=list)

    def commit(self, files, branch="main"):
        """Let ``branch`` mean these files; returns the commit."""
        name = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()  # noqa: S324 - as git names a commit
        self.commits[name], self.branches[branch] = files, name
        return name

    def fetched(self):
        """Names of the files whose bytes were asked for."""
        return [path.split("/resolve/")[1].split("/", 1)[1] for method, path, _ in self.asked if method == "GET" and "/resolve/" in path]

    def ranges(self):
        return [headers["range"] for _, _, headers in self.asked if headers.get("range")]


class Handler(BaseHTTPRequestHandler):
    """Answers as the hub does; ``server`` holds the hub and the name of its one repository."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        path = unquote(urlsplit(self.path).path)
        self.server.hub.asked.append((self.command, path, {name.lower(): value for name, value in self.headers.items()}))
        if path.startswith(f"/api/models/{self.server.repository}/revision/"):
            self.listing(path.rsplit("/revision/", 1)[1])
        elif path.startswith(f"/{self.server.repository}/resolve/"):
            self.file(*path.split("/resolve/")[1].split("/", 1))
        else:
            self.refuse(404, "RepoNotFound")

    def listing(self, revision):
        commit = self.server.hub.branches.get(revision, revision)
        if commit not in self.server.hub.commits:
            self.refuse(404, "RevisionNotFound")
            return
        siblings = [
            {"rfilename": name, "size": len(content), "blobId": "0" * 40}
            | ({"lfs": {"sha256": digest(content), "size": len(content), "pointerSize": 134}} if name.endswith(LARGE) else {})
            for name, content in self.server.hub.commits[commit].items()
        ]
        document = {
            "id": self.server.repository,
            "modelId": self.server.repository,
            "sha": commit,
            "gated": self.server.hub.gated and "auto",
            "siblings": siblings,
        }
        self.send(200, json.dumps(document).encode(), {"Content-Type": "application/json"})

    def file(self, revision, name):
        commit = self.server.hub.branches.get(revision, revision)
        if self.server.hub.gated and self.headers.get("Authorization") != "Bearer let-me-in":
            self.refuse(401, "GatedRepo")
        elif name not in self.server.hub.commits.get(commit, {}):
            self.refuse(404, "EntryNotFound")
        else:
            listed = self.server.hub.commits[commit][name]
            tag = digest(listed) if name.endswith(LARGE) else hashlib.sha1(listed).hexdigest()  # noqa: S324
            self.send(200, self.server.hub.sent.get(name, listed), {"ETag": f'"{tag}"', "X-Repo-Commit": commit}, name)

    def refuse(self, status, code):
        self.send(status, b"", {"X-Error-Code": code})

    def send(self, status, body, headers, name=""):
        first = int(self.headers["Range"].removeprefix("bytes=").rstrip("-")) if self.headers.get("Range") else 0
        if first:
            status, headers = 206, headers | {"Content-Range": f"bytes {first}-{len(body) - 1}/{len(body)}"}
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body) - first), "Accept-Ranges": "bytes"}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        middle = first + (len(body) - first) // 2
        self.wfile.write(body[first:middle])
        self.wfile.flush()
        if self.server.hub.cut[name] > 0:
            self.server.hub.cut[name] -= 1
            self.close_connection = True
            return
        if name in self.server.hub.hold:
            self.server.hub.hold[name].wait(60)
        try:
            self.wfile.write(body[middle:])
        except OSError:
            self.close_connection = True


@contextmanager
def serving(repository="acme/tiny"):
    """A hub with one repository, on a port of its own."""
    hub = Hub()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.hub, server.repository = True, hub, repository
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
