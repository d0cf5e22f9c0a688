"""Nothing leaves the machine: the daily commands and a whole experiment in a network namespace, under an audit hook, and under strace."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

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
        ["memory", "export", at / "memories.jsonl", "--store", store],
        ["memory", "import", at / "memories.jsonl", "--store", at / "copy"],
        ["memory", "forget", "--search", "blue jar", "--yes", "--store", store],
        ["store", "check", "--read-data", "--store", store],
        ["data", "check", bench],
        ["run", bench, "--out", run, "--conditions", "c6"],
        ["judge", "run", run],
        ["report", run],
    ]
    return [[*map(str, command), "--model", "scripted"] for command in made]


STRACE = ("strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o")


@functools.cache
def why_no_strace():
    """Empty where system calls can be watched."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run([*STRACE, "/dev/null", "true"], capture_output=True, text=True, check=False)
    return f"this machine allows no strace: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass
class Ran:
    """What the commands said, and where they ran: ``home`` was their home, ``log`` strace's."""

    said: dict
    at: Path
    home: Path
    log: Path


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The commands once, in a child with a home of its own, without a network and watched wherever the machine allows it."""
    at = tmp_path_factory.mktemp("offline")
    (home := at / "home").mkdir()
    before = [*(() if why_no_namespace() else NAMESPACE), *(() if why_no_strace() else (*STRACE, str(at / "log")))]
    keep = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    environment = keep | {"DUALTRACE_CACHE": str(cache_folder()), "HOME": str(home), "MPLCONFIGDIR": str(at / "matplotlib")}
    done = subprocess.run(
        [*before, sys.executable, "-c", CHILD, json.dumps(commands(at))],
        capture_output=True, text=True, check=False, env=environment, cwd=at, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("CHILD ")).removeprefix("CHILD "))
    return Ran(said, at, home, at / "log")


def test_p13_nothing_is_asked_of_the_network_through_python(ran):
    """No connection, no look-up of a name; and nothing is written into the home folder."""
    assert ran.said == {"codes": [0] * 13, "asked": []}
    assert sorted(ran.home.rglob("*")) == []


def test_p13_everything_works_in_a_namespace_without_a_network(ran):
    if reason := why_no_namespace():
        pytest.skip(reason)
    control = subprocess.run([*NAMESPACE, sys.executable, "-c", OUTSIDE], capture_output=True, text=True, check=False)

    assert "unreachable" in control.stderr
    assert ran.said["codes"] == [0] * 13
    assert (ran.at / "run" / "report" / "report.md").is_file()


ADDRESS = re.compile(r"\b(?:connect|sendto|sendmsg|sendmmsg)\(.*\{sa_family=(?P<family>AF_\w+)(?P<rest>[^}]*)")
OURS = re.compile(r"inet_addr\(\"127\.|\"::1\"")


def outside(log):
    """Calls in a strace log that name an address which is not this machine's."""
    found = [m for line in log.splitlines() if (m := ADDRESS.search(line))]
    local = ("AF_UNIX", "AF_NETLINK", "AF_UNSPEC")
    return [m.group() for m in found if m["family"] not in local and not OURS.search(m["rest"])]


def test_p13_no_system_call_names_an_outside_address(ran, tmp_path):
    """What Python's hooks do not see: libraries in Rust and C++. A look-up of a name would be a call to port 53."""
    if reason := why_no_strace():
        pytest.skip(reason)
    subprocess.run([*STRACE, tmp_path / "control", sys.executable, "-c", OUTSIDE], capture_output=True, check=False)

    assert len(outside((tmp_path / "control").read_text())) == 1
    assert outside(ran.log.read_text()) == []


def test_run_06_a_missing_model_is_one_line_that_names_the_file(tmp_path):
    """Not a stack of retries; nothing is looked up."""
    result = kit.child(tmp_path, "teach", kit.jsonl(tmp_path / "c.jsonl", kit.small_sessions(1)), "--store", tmp_path / "store",
                       environment={"DUALTRACE_CACHE": str(tmp_path / "nothing")})  # fmt: skip

    assert result.ended() == 1
    (line,) = [line for line in result.stderr.read_text().splitlines() if line.startswith("dualtrace: ")]
    assert "models pull" in line
    assert "Traceback" not in result.stderr.read_text()
