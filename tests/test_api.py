"""The Python API: ``Memory`` with the rule-made model."""

import json
import subprocess
import sys
from datetime import datetime

import kit
import pytest

import dualtrace_local
from dualtrace_local import Memory
from dualtrace_local.config import read_models
from dualtrace_local.errors import ConfigError, DataError, StoreError
from dualtrace_local.records import ABSTENTION, State, Tier


@pytest.fixture
def models():
    return read_models().with_roles(encode="scripted", read="scripted", judge="scripted")


@pytest.fixture
def chats(tmp_path):
    sessions = [
        kit.session("a1", "2024-03-02 09:00", "I named my boat Marigold and it is 7 metres long.", "A lovely name."),
        kit.session("a2", "2024-03-05 10:00", "Explain tides.", "The moon pulls the sea."),
        kit.session("a3", "2024-04-09 18:20", "My sister Ada moved to Lisbon yesterday.", "A big step."),
    ]
    return kit.jsonl(tmp_path / "chats.jsonl", sessions)


def test_open_teach_ask_search(tmp_path, chats, models):
    with Memory.open(tmp_path / "store", models=models) as memory:
        totals = memory.teach(chats)
        answer = memory.ask("What did I name my boat?", as_of=datetime(2024, 6, 30))
        found = memory.search("Where does my sister live?")

    assert (totals.read, totals.taught, totals.dropped, totals.accounted) == (3, 2, 1, 3)
    assert (answer.state, answer.confidence, answer.abstained) == (State.A, "high", False)
    assert "Marigold" in answer.text
    assert [(s.session_id, s.date) for s in answer.sources] == [("a1", "2024-03-02")]
    assert found.state is State.A
    assert any("Lisbon" in item.fact and item.scene for item in found.items)


def test_teaching_again_and_elsewhere(tmp_path, chats, models):
    with Memory.open(str(tmp_path / "store"), models=models) as memory:
        memory.teach(str(chats))
        assert memory.teach(chats, limit=2).unchanged == 2
    with Memory.open(tmp_path / "store", user="ben", project="boat", models=models) as other:
        assert other.search("What did I name my boat?").state is State.C
        assert other.teach(chats).taught == 2
        assert other.search("What did I name my boat?").state is State.A


def test_conditions_and_budget(tmp_path, chats, models):
    with Memory.open(tmp_path / "store", models=models) as memory:
        memory.teach(chats)
        assert memory.search("What did I name my boat?", condition="c7").state is State.B
        assert memory.ask("What did I name my boat?", condition="vanilla").text == ABSTENTION
        assert memory.search("What did I name my boat?", budget=1).state is State.C
        with pytest.raises(ConfigError, match="no condition named"):
            memory.ask("What did I name my boat?", condition="c99")


def test_remember_a_statement(tmp_path, models):
    with Memory.open(tmp_path / "store", user="ada", models=models) as memory:
        said = memory.remember("The allotment gate code is 7731.", as_of=datetime(2024, 5, 1, 8, 15))
        again = memory.remember("  The allotment gate code is 7731.\n", as_of=datetime(2024, 5, 1, 8, 15))
        later = memory.remember("My boat is called Marigold.")
        answer = memory.ask("What is the code of the allotment gate?", as_of=datetime(2024, 6, 1))

    assert (said.status, said.tier, said.masked, len(said.memories)) == ("taught", Tier.FULL, 0, 1)
    assert (again.status, again.memories) == ("unchanged", said.memories)
    assert said.memories[0].evidence.override == "remember"
    assert abs(datetime.now() - later.session.date).total_seconds() < 120  # noqa: DTZ005 - local wall time, as sessions have it
    assert "7731" in answer.text
    assert [(s.session_id, s.date) for s in answer.sources] == [("remembered-2024-05-01-0815", "2024-05-01")]


@pytest.mark.model
def test_remember_with_a_real_model(tmp_path):
    """Whatever a model of 135M parameters writes, nothing that the owner said is lost and nothing else is added."""
    said = "My boat is called Marigold. She lies at berth 14."
    program = "from dualtrace_local.cli import main; main(prog_name='dualtrace')"
    command = [sys.executable, "-c", program, "remember", said, "--store", str(tmp_path / "store"), "--model", "smollm2-135m", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["status"], found["tier"]) == ("taught", "FULL")
    components = [c for m in found["memories"] for c in m["components"]]
    assert {c["quote"] for c in components} == {"My boat is called Marigold.", "She lies at berth 14."}
    assert "Marigold" in " ".join(c["text"] for c in components)


def test_what_an_assistant_said_is_in_the_history(tmp_path, models):
    source = kit.jsonl(tmp_path / "chats.jsonl", [kit.session("g1", "2024-05-20 09:00", *kit.GUESTHOUSE)])
    with Memory.open(tmp_path / "store", models=models) as memory:
        memory.teach(source)
        found = memory.search(kit.WHICH_GUESTHOUSE, condition="history")
        answer = memory.ask(kit.WHICH_GUESTHOUSE, condition="history")
        assert memory.search(kit.WHICH_GUESTHOUSE).state is State.C

    assert [turn.role for turn in found.items[0].turns] == ["user", "assistant"]
    assert (answer.state, answer.abstained, answer.sources[0].said_by) == (State.B, False, "assistant")
    assert "Oriel" in answer.text


def test_errors_are_ours(tmp_path, models):
    with Memory.open(tmp_path / "store", models=models) as memory:
        with pytest.raises(StoreError):
            memory.search("anything")
        with pytest.raises(DataError):
            memory.teach(tmp_path / "nothing.jsonl")
        with pytest.raises(DataError, match="nothing to remember"):
            memory.remember("Who am I?")
    with pytest.raises(ConfigError, match="no model named 'gpt'"):
        read_models().with_roles(encode="gpt")
    with pytest.raises(ConfigError, match="cannot generate text"):
        Memory.open(tmp_path / "store", models=read_models().with_roles(read="all-minilm-l6-v2"))


def test_the_package_offers_memory_and_a_version():
    assert dualtrace_local.__all__ == ["Memory", "__version__"]
    with pytest.raises(AttributeError):
        dualtrace_local.Remember  # noqa: B018 - the access is the test
