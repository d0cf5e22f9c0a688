"""One real language model through the whole command line: SmolLM2-135M on vLLM, on this machine.

It writes nothing usable; what is tested is that real weights, constrained output, token counts and both streams work together.
"""

import json
import subprocess
import sys

import kit
import pytest

DUALTRACE = [sys.executable, "-c", "from dualtrace_local.cli import main; main(prog_name='dualtrace')"]
SMALL = ("--model", "smollm2-135m")
WARNINGS = ("Traceback", "Warning", "WARNING", "ERROR")


def dualtrace(*arguments):
    """A command in its own process, with stdout as the one JSON document it is, and stderr without noise of libraries."""
    command = [*DUALTRACE, *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode in (0, 3), done.stderr
    assert not [line for line in done.stderr.splitlines() if any(word in line for word in WARNINGS)], done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.model
def test_teach_and_ask_with_a_real_model(tmp_path):
    sessions = [
        kit.session("a1", "2024-03-02 09:00", "I named my boat Marigold and it is 7 metres long.", "A lovely name."),
        kit.session("a2", "2024-03-05 10:00", "Explain tides in one sentence.", "The moon pulls the sea."),
    ]
    source = kit.jsonl(tmp_path / "chats.jsonl", sessions)

    totals, said = dualtrace("teach", source, "--store", tmp_path / "store", *SMALL)

    assert totals["read"] == 2 == sum(totals[name] for name in kit.SESSION_COUNTS)
    facts = totals["usage"]["facts"]
    assert 2 <= facts["calls"] <= 6
    assert facts["prompt_tokens"] > 100
    assert totals["completion_tokens"] >= facts["completion_tokens"] > 0
    assert 0 <= totals["cached_tokens"] < totals["prompt_tokens"]
    assert totals["memories"] == len(kit.memories(tmp_path / "store"))
    assert "teach: 2 of 2" in said


@pytest.mark.model
def test_ask_reads_with_a_real_model_after_a_search(tmp_path):
    """Searching comes before the engine's start here, with all that it imports; rules write what the small model reads."""
    source = kit.jsonl(tmp_path / "chats.jsonl", [kit.session("a1", "2024-03-02 09:00", "I named my boat Marigold.", "A lovely name.")])
    dualtrace("teach", source, "--store", tmp_path / "store", "--model", "scripted")

    answer, said = dualtrace("ask", "What did I name my boat?", "--store", tmp_path / "store", *SMALL)

    assert "starting smollm2-135m (vllm)" in said
    assert answer["state"] == "A"
    assert answer["abstained"] == (answer["confidence"] == "none")
    assert answer["answer"]
