"""One real language model through the whole command line: SmolLM2-135M on vLLM, on this machine.

It writes nothing usable; what is tested is that real weights, constrained output, token counts and both streams work together.
"""

import json
import subprocess
import sys
from typing import Literal

import kit
import pytest
from pydantic import BaseModel, ConfigDict

from dualtrace_local import config
from dualtrace_local.config import Role
from dualtrace_local.engines import Job, ask
from dualtrace_local.pipeline.parts import Listener, Parts
from dualtrace_local.records import Done, Request

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


class Animal(BaseModel):
    model_config = ConfigDict(extra="forbid")
    animal: Literal["goat", "heron"]


@pytest.mark.model
def test_one_model_after_the_other_and_the_memory_is_given_back():
    shipped = config.read_models()
    small = shipped.spec("smollm2-135m").model_copy(update={"engine": "transformers"})
    models = config.Models(roles=shipped.roles, models={**shipped.models, "smollm2-135m": small})
    lines = []

    class Heard(Listener):
        def say(self, line):
            lines.append(line)

    with Parts(models.with_roles(encode="smollm2-135m", read="scripted", judge="scripted"), Heard()) as parts:
        request = Request("word", "", "Name an animal.", Animal, 20)
        assert isinstance(next(parts.engine(Role.ENCODE).run([Job("a", lambda: ask(request))], window=1)), Done)
        assert parts.engine(Role.READ).name == "scripted"

    assert lines[0] == "starting smollm2-135m (transformers)"
    closed, freed = lines[1].split(": ")
    assert closed == "closed smollm2-135m"
    assert float(freed.removesuffix(" GB freed")) >= 0.2
