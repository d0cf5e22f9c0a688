"""Nothing leaves the machine: the daily commands and a whole experiment in a network namespace, under an audit hook, and under strace."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys

import kit
import pytest

from dualtrace_local.config import cache_folder

CHILD = """
import json, sys
asked = []
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        asked.append([event, repr(arguments[-1 if event == "socket.connect" else 0])])
sys.addaudithook(hook)
from dualtrace_local.cli import main
codes = []
for command in json.loads(sys.argv[1]):
    try:
        main(command, prog_name="dualtrace")
    except SystemExit as end:
        codes.append(end.code)
print("CHILD", json.dumps({"codes": codes, "asked": asked}))
"""
"""Runs commands one after the other and says how each ended and what was asked of the network through Python."""

NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")
OUTSIDE = "import socket; s = socket.socket(); s.settimeout(3); s.connect(('192.0.2.1', 80))"


@functools.cache
def why_no_namespace():
    """Empty where a process may have a network of its own, with nothing in it."""
    if shutil.which("unshare") is None:
        return "unshare is not installed"
    tried = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    return f"this machine allows no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


def commands(at):
    chats = kit.jsonl(at / "chats.jsonl", [kit.session("s", "2024-03-02", "I named my boat Marigold in 2019.", "A lovely name.")])
    bench = kit.rows(at / "bench.json", kit.small_benchmark()[:2])
    store, run = at / "store", at / "run"
    made = [
        ["teach", chats, "--store", store],
        ["ask", "What did I name my boat?", "--store", store],
        ["ask", "What did I name my boat?", "--store", store, "--condition", "history"],
        ["remember", "The spare key is in the blue jar.", "--store", store],
        ["memory", "list", "--store", store],
        ["data", "check", bench],
        ["run", bench, "--out", run, "--conditions", "c6"],
        ["judge", "run", run],
        ["report", run],
    ]
    return [[*map(str, command), "--model", "scripted"] for command in made]


def run(at, *before):
    """The commands in a child with a home of its own, behind ``before``; what it says of itself."""
    home = at / "home"
    home.mkdir()
    keep = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    environment = keep | {"DUALTRACE_CACHE": str(cache_folder()), "HOME": str(home), "MPLCONFIGDIR": str(at / "matplotlib")}
    done = subprocess.run(
        [*before, sys.executable, "-c", CHILD, json.dumps(commands(at))],
        capture_output=True, text=True, check=False, env=environment, cwd=at, timeout=540,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("CHILD ")).removeprefix("CHILD ")), home


def test_p13_everything_works_in_a_namespace_without_a_network(tmp_path):
    if reason := why_no_namespace():
        pytest.skip(reason)
    control = subprocess.run([*NAMESPACE, sys.executable, "-c", OUTSIDE], capture_output=True, text=True, check=False)
    said, home = run(tmp_path, *NAMESPACE)

    assert "unreachable" in control.stderr
    assert said == {"codes": [0] * 9, "asked": []}
    assert sorted(home.rglob("*")) == []
    assert (tmp_path / "run" / "report" / "report.md").is_file()


ADDRESS = re.compile(r"\b(?:connect|sendto|sendmsg|sendmmsg)\(.*\{sa_family=(?P<family>AF_\w+)(?P<rest>[^}]*)")
OURS = re.compile(r"inet_addr\(\"127\.|\"::1\"")


def outside(log):
    """Calls in a strace log that name an address which is not this machine's."""
    found = [m for line in log.splitlines() if (m := ADDRESS.search(line))]
    local = ("AF_UNIX", "AF_NETLINK", "AF_UNSPEC")
    return [m.group() for m in found if m["family"] not in local and not OURS.search(m["rest"])]


def test_p13_no_system_call_names_an_outside_address(tmp_path):
    """What Python's hooks do not see: libraries in Rust and C++. A look-up of a name would be a call to port 53."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    strace = ("strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o")
    control = subprocess.run([*strace, tmp_path / "control", sys.executable, "-c", OUTSIDE], capture_output=True, text=True, check=False)
    if not (tmp_path / "control").is_file():
        pytest.skip(f"this machine allows no strace: {control.stderr.strip()[:100]}")
    said, _ = run(tmp_path, *strace, str(tmp_path / "log"))

    assert len(outside((tmp_path / "control").read_text())) == 1
    assert outside((tmp_path / "log").read_text()) == []
    assert said == {"codes": [0] * 9, "asked": []}


def test_run_06_a_missing_model_is_one_line_that_names_the_file(tmp_path):
    """Not a stack of retries; nothing is looked up."""
    result = kit.child(tmp_path, "teach", kit.jsonl(tmp_path / "c.jsonl", kit.small_sessions(1)), "--store", tmp_path / "store",
                       environment={"DUALTRACE_CACHE": str(tmp_path / "nothing")})  # fmt: skip

    assert result.ended() == 1
    (line,) = [line for line in result.stderr.read_text().splitlines() if line.startswith("dualtrace: ")]
    assert "models pull" in line
    assert "Traceback" not in result.stderr.read_text()
