"""The command line: every command, its one document on stdout, its exit codes, and what it survives."""

import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import time

import kit
import pytest
import yaml
from click.testing import CliRunner

from dualtrace_local.cli import main
from dualtrace_local.cli.reference import commands
from dualtrace_local.config import BATCH, package_file
from dualtrace_local.embed import Embedder
from dualtrace_local.store import Store

CONSOLE = [sys.executable, "-c", "from dualtrace_local.cli import main; main(prog_name='dualtrace')"]

PROGRESS = re.compile(r"(?:starting \S+ \(\S+\)|(?:teach|recall \S+|judge \S+): \d+ of \d+ in \d+ s(?:, about \d+ s left)?)")


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    """Four invented sessions."""
    sessions = [
        kit.session("a1", "2024-03-02 09:00", "I named my boat Marigold and it is 7 metres long.", "A lovely name."),
        kit.session("a2", "2024-03-05 10:00", "Explain tides.", "The moon pulls the sea."),
        kit.session("a3", "2024-04-09 18:20", "My sister Ada moved to Lisbon yesterday.", "A big step."),
        kit.session("a4", "2024-05-01 07:45", "  ", ""),
    ]
    return kit.jsonl(tmp_path_factory.mktemp("chats") / "chats.jsonl", sessions)


@pytest.fixture(scope="module")
def store(chats):
    """A taught store that tests only read."""
    kit.teach(chats.parent / "store", chats)
    return chats.parent / "store"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run that tests only read."""
    place = tmp_path_factory.mktemp("run")
    bench = kit.rows(place / "bench.json", kit.small_benchmark())
    result = kit.dualtrace("run", bench, "--out", place / "run", "--conditions", "c6,c7", "--json")
    assert result.exit_code == 0, result.stderr
    return bench, place / "run", kit.document(result)


def refused(result, code, *words):
    """A refusal is one line on stderr, nothing on stdout, and its exit code."""
    assert result.exit_code == code, (result.exit_code, result.stderr)
    assert not result.stdout
    told = [line for line in result.stderr.splitlines() if line.startswith(("dualtrace: ", "Error: "))]
    assert len(told) == 1
    for word in words:
        assert word in told[0]


# ------------------------------------------------------------------------------------------------- every command

EVERY = dict(commands(main, "dualtrace"))


def test_the_fixed_names_are_there():
    alone = "demo teach remember ask run report doctor".split()
    judge = ("judge run", "judge calibrate", "judge import")
    below = ("memory list", "memory show", "memory stats", "store dump", "store info", "models list", "models pull", "models check")

    assert set(EVERY) >= {f"dualtrace {name}" for name in (*alone, *judge, *below)}


@pytest.mark.parametrize("name", EVERY)
def test_every_command_explains_itself_and_its_options(name):
    result = kit.dualtrace(*name.split()[1:], "--help", model=None)

    assert result.exit_code == 0
    assert len(EVERY[name].help) > 20
    assert all(p.help for p in EVERY[name].params if p.param_type_name == "option")


def test_help_of_every_command_is_light():
    names = [name.split()[1:] for name in EVERY]
    code = (
        "import sys, time\nstarted = time.process_time()\nfrom click.testing import CliRunner\nfrom dualtrace_local.cli import main\n"
        f"for name in {names!r}:\n    assert CliRunner().invoke(main, [*name, '--help']).exit_code == 0\n"
        "heavy = {'torch', 'vllm', 'lancedb', 'transformers', 'sentence_transformers', 'matplotlib', 'scipy', 'pyarrow'}\n"
        "print(sorted(heavy & set(sys.modules)), time.process_time() - started < 5)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split() == ["[]", "True"]


def test_version():
    assert re.fullmatch(r"dualtrace, version \d+\.\d+\.\d+\n", kit.dualtrace("--version", model=None).stdout)


# --------------------------------------------------------------------------------------------------- teach and ask


def test_teach_counts_every_session(tmp_path, chats):
    totals = kit.teach(tmp_path / "store", chats)

    assert {k: totals[k] for k in ("read", "taught", "dropped", "empty", "failed")} == {
        "read": 4,
        "taught": 2,
        "dropped": 1,
        "empty": 1,
        "failed": 0,
    }
    assert totals["memories"] == totals["with_scene"] == 2
    for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
        assert totals[name] == sum(kind[name] for kind in totals["usage"].values())
    assert totals["prompt_tokens"] > totals["completion_tokens"] > 0
    assert totals["seconds"] >= 0


def test_teaching_again_adds_nothing_and_says_so(store, chats):
    before = kit.dump(store)
    result = kit.dualtrace("teach", chats, "--store", store)

    assert result.exit_code == 0
    assert "4 sessions read = 0 taught + 0 dropped + 0 empty + 4 unchanged" in result.stdout
    assert "nothing was added" in result.stdout
    assert kit.dump(store) == before
    assert kit.teach(store, chats)["unchanged"] == 4


def test_ask_says_state_confidence_and_sources(store):
    found = kit.ask(store, "What did I name my boat?", as_of="2024-06-30")

    assert {"question", "state", "confidence", "answer", "abstained", "sources"} <= found.keys()
    assert (found["state"], found["confidence"], found["abstained"]) == ("A", "high", False)
    assert "Marigold" in found["answer"]
    (source,) = found["sources"]
    assert source.keys() >= {"memory_id", "session_id", "date", "anchor"}
    assert (source["session_id"], source["date"]) == ("a1", "2024-03-02")
    assert found["asked_on"] == "2024-06-30 00:00"


def test_ask_without_a_memory_of_it(store):
    found = kit.ask(store, "What is the name of my dentist's hamster?")

    assert (found["state"], found["confidence"], found["abstained"]) == ("C", "none", True)
    assert found["answer"] == "I don't have that information stored."
    assert found["sources"] == []


@pytest.mark.parametrize(("condition", "state"), [("c6", "A"), ("c7", "B"), ("vanilla", "C")])
def test_ask_under_a_condition(store, condition, state):
    assert kit.ask(store, "What did I name my boat?", condition=condition)["state"] == state


def test_ask_in_words(store):
    result = kit.dualtrace("ask", "What did I name my boat?", "--store", store)

    assert "Marigold" in result.stdout
    assert "state A, confidence high" in result.stdout
    assert "2024-03-02" in result.stdout
    assert "session a1" in result.stdout


def test_scopes_do_not_see_each_other(tmp_path, chats):
    kit.teach(tmp_path / "store", chats, scope="user=ada")

    assert kit.ask(tmp_path / "store", "What did I name my boat?", scope="user=ada")["state"] == "A"
    assert kit.ask(tmp_path / "store", "What did I name my boat?", scope="user=ben")["state"] == "C"
    assert kit.ask(tmp_path / "store", "What did I name my boat?")["state"] == "C"
    assert kit.memories(tmp_path / "store", scope="user=ben") == []
    assert kit.teach(tmp_path / "store", chats, scope="user=ben")["taught"] == 2
    assert len(kit.memories(tmp_path / "store", scope="user=ben")) == 2
    result = kit.dualtrace("memory", "show", kit.memories(tmp_path / "store", scope="user=ben")[0]["id"], "--store", tmp_path / "store")
    refused(result, 1, "is not there")


def test_limit_takes_the_first_records(tmp_path, chats):
    assert kit.teach(tmp_path / "store", chats, limit=2)["read"] == 2
    totals = kit.teach(tmp_path / "store", chats)
    assert (totals["read"], totals["unchanged"]) == (4, 2)


def test_rounds_are_kept_as_asked(tmp_path, chats):
    counts = {}
    for rounds in ("all", "kept", "none"):
        kit.teach(tmp_path / rounds, chats, keep_rounds=rounds)
        counts[rounds] = kit.document(kit.dualtrace("store", "info", "--store", tmp_path / rounds, "--json"))["rounds"]

    assert counts == {"all": 3, "kept": 2, "none": 0}


# ---------------------------------------------------------------------------------------------- remember, history


def remember(store, text, code=0, **options):
    """``remember --json`` on a day of its own; returns its document."""
    result = kit.dualtrace("remember", text, "--store", store, "--json", *kit.flags({"as_of": "2024-05-01 08:15", **options}))
    assert result.exit_code == code, result.stderr
    return kit.document(result)


def test_a_statement_is_remembered_whatever_the_gate_would_say(tmp_path):
    """Nobody is spoken of, so that the same words in a chat are dropped; said here, the owner's own words are the fact."""
    chat = kit.jsonl(tmp_path / "chat.jsonl", [kit.session("a1", "2024-05-01 08:15", "The allotment gate sticks.", "Oh.")])
    assert kit.teach(tmp_path / "chats", chat)["dropped"] == 1
    found = remember(tmp_path / "store", "The allotment gate sticks.")

    assert (found["status"], found["tier"], found["masked"], found["date"], found["reason"]) == (
        "taught",
        "FULL",
        0,
        "2024-05-01 08:15",
        "",
    )
    (memory,) = found["memories"]
    assert memory["fact"] == 'The user said: "The allotment gate sticks."'
    assert memory["components"][0]["quote"] == "The allotment gate sticks."
    assert memory["evidence"]["override"] == "remember"
    assert kit.memories(tmp_path / "store")[0]["id"] == memory["id"]
    assert kit.ask(tmp_path / "store", "What is wrong with the allotment gate?")["state"] == "A"


def test_the_same_statement_at_the_same_time_is_unchanged(tmp_path):
    first = remember(tmp_path / "store", "My locker at the pool is 27.")
    before = kit.dump(tmp_path / "store")
    again = remember(tmp_path / "store", "My locker at the pool is 27.")

    assert (again["status"], again["memories"]) == ("unchanged", first["memories"])
    assert kit.dump(tmp_path / "store") == before
    assert remember(tmp_path / "store", "My locker at the pool is 27.", as_of="2024-05-02")["status"] == "taught"
    assert len(kit.memories(tmp_path / "store")) == 2


def test_it_is_what_a_session_of_one_turn_would_be(tmp_path):
    """Equal dumps but for the id that people see: identity, masking, rounds and ledger are the teaching's own."""
    said = "Remember that my yellow key opens the boat shed since yesterday."
    chat = kit.jsonl(tmp_path / "chat.jsonl", [kit.session("remembered-2024-05-01-0815", "2024-05-01 08:15", said)])
    kit.teach(tmp_path / "chats", chat)
    remember(tmp_path / "store", said)

    assert kit.dump(tmp_path / "store") == kit.dump(tmp_path / "chats")
    assert kit.teach(tmp_path / "store", chat)["unchanged"] == 1


def test_every_sentence_of_a_statement_is_kept_and_questions_are_not(tmp_path):
    found = remember(tmp_path / "store", "My dentist is Dr. Okafor. The practice closed in May. Is that bad?")
    facts = " ".join(memory["fact"] for memory in found["memories"])

    assert "Okafor" in facts
    assert "The practice closed in May." in facts
    assert "Is that bad" not in facts


def test_credentials_of_a_statement_are_masked_and_counted(tmp_path):
    result = kit.dualtrace("remember", "My boat is Marigold and my password is hunter2x!", "--store", tmp_path / "store")

    assert result.exit_code == 0
    assert "1 credential" in result.stdout
    assert "Marigold" in result.stdout
    assert "[masked]" in result.stdout
    assert "kept because the user asked for it" in result.stdout
    assert "hunter2x" not in result.stdout + result.stderr + kit.dump(tmp_path / "store")
    assert not [p for p in (tmp_path / "store").rglob("*") if p.is_file() and b"hunter2x" in p.read_bytes()]


def test_a_request_not_to_remember_is_obeyed_and_told(tmp_path):
    said = "I owe Tom 5 euros. Please do not remember this."
    found = remember(tmp_path / "store", said)

    assert (found["status"], found["memories"]) == ("refused", [])
    assert "ask not to be remembered" in found["reason"]
    assert "not stored" in kit.dualtrace("remember", said, "--store", tmp_path / "store").stdout
    assert not (tmp_path / "store").exists()


def test_a_statement_from_stdin(tmp_path):
    def told(data):
        arguments = ["remember", "-", "--store", str(tmp_path / "store"), "--as-of", "2024-05-01", "--model", "scripted", "--json"]
        return CliRunner().invoke(main, arguments, input=data, prog_name="dualtrace")

    assert "café" in kit.document(told("My café is\nin Ghent.\n".encode()))["memories"][0]["fact"]
    refused(told(b"\xff\xfe"), 1, "stdin", "UTF-8")
    refused(told(b" \n"), 1, "nothing to remember")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["nothing to remember", "no words"]),
        (" \n\t", ["nothing to remember"]),
        ("!!! 🙂", ["nothing to remember"]),
        ("What is my name?", ["nothing to remember", "only asks", "dualtrace ask"]),
        ("How are you? And where do I live?", ["only asks"]),
        ("ghp_" + "a1B2" * 9, ["nothing to remember", "credential"]),
        ("I sail. " * 300, ["2,000 characters", "2,399", "dualtrace teach"]),
        ("I own a \udc80 boat.", ["not valid Unicode", "character 9"]),
    ],
)
def test_what_holds_nothing_to_remember_is_refused_before_anything_is_made(tmp_path, text, words):
    refused(kit.dualtrace("remember", text, "--store", tmp_path / "store"), 1, *words)
    assert list(tmp_path.iterdir()) == []


def test_remember_can_be_asked_politely(tmp_path):
    found = remember(tmp_path / "store", "Can you remember that my locker is 27?")

    assert "27" in found["memories"][0]["fact"]


def test_remember_keeps_to_its_scope_and_the_writer_lock(tmp_path, embedder: Embedder):
    remember(tmp_path / "store", "My boat is called Marigold.", scope="user=ada")
    assert kit.memories(tmp_path / "store") == []
    with Store.open(tmp_path / "store", embedder, write=True):
        result = kit.dualtrace("remember", "My boat is blue.", "--store", tmp_path / "store")
    refused(result, 11, "in use by process")


def test_history_finds_what_the_assistant_said(tmp_path):
    source = kit.jsonl(tmp_path / "chats.jsonl", [kit.session("g1", "2024-05-20 09:00", *kit.GUESTHOUSE)])
    kit.teach(tmp_path / "store", source)
    found = kit.ask(tmp_path / "store", kit.WHICH_GUESTHOUSE, condition="history", as_of="2024-05-30")

    assert (found["state"], found["confidence"], found["abstained"]) == ("B", "medium", False)
    assert "Oriel" in found["answer"]
    (source,) = found["sources"]
    assert (source["session_id"], source["date"], source["said_by"]) == ("g1", "2024-05-20", "assistant")
    shown = kit.dualtrace("ask", kit.WHICH_GUESTHOUSE, "--store", tmp_path / "store", "--condition", "history").stdout
    assert "verbatim round, said by the assistant  session g1" in shown
    assert kit.ask(tmp_path / "store", kit.WHICH_GUESTHOUSE)["state"] == "C"
    kit.teach(tmp_path / "none", tmp_path / "chats.jsonl", keep_rounds="none")
    assert kit.ask(tmp_path / "none", kit.WHICH_GUESTHOUSE, condition="history")["state"] == "C"


# ------------------------------------------------------------------------------------------------ memory and store


def test_memory_list_has_its_fields(store):
    first, second = kit.memories(store)

    assert {"id", "anchor", "date", "components", "scene"} <= first.keys()
    assert (first["date"], second["date"]) == ("2024-03-02 09:00", "2024-04-09 18:20")
    assert "Marigold" in first["components"][0]["text"]
    assert first["components"][0]["quote"].startswith("I named my boat")
    assert first["scene"].startswith("Picture:")
    assert len(kit.memories(store, limit=1)) == 1
    assert "2 memories, 2 with a scene" in kit.dualtrace("memory", "list", "--store", store).stdout


def test_memory_show_takes_the_start_of_an_id(store):
    wanted = kit.memories(store)[0]
    shown = kit.document(kit.dualtrace("memory", "show", wanted["id"][:8], "--store", store, "--json"))

    assert shown.items() >= wanted.items()
    assert shown["source"] == "chats.jsonl:1"
    text = kit.dualtrace("memory", "show", wanted["id"], "--store", store).stdout
    assert "FACT" in text
    assert "SCENE" in text
    assert "Marigold" in text
    refused(kit.dualtrace("memory", "show", "0000000000", "--store", store), 1, "is not there")
    refused(kit.dualtrace("memory", "show", "' OR 1=1", "--store", store), 1, "is not a memory id")


def test_memory_stats_and_store_info(store):
    stats = kit.document(kit.dualtrace("memory", "stats", "--store", store, "--json"))
    info = kit.document(kit.dualtrace("store", "info", "--store", store, "--json"))

    assert stats["sessions"] == sum(stats["by_status"].values()) == info["sessions"] == 4
    assert stats["memories"] == info["memories"] == 2
    assert info["embedder"] == "all-minilm-l6-v2"
    assert "memories" in kit.dualtrace("memory", "stats", "--store", store).stdout
    assert "embedder" in kit.dualtrace("store", "info", "--store", store).stdout


def test_store_dump_in_both_forms(store):
    lines = [json.loads(line) for line in kit.dump(store).splitlines()]

    assert {row["table"] for row in lines} >= {"sessions", "memories", "rounds"}
    assert kit.document(kit.dualtrace("store", "dump", "--store", store, "--json")) == lines


def test_looking_at_a_store_needs_no_model(store, tmp_path, monkeypatch):
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path))

    assert len(kit.memories(store)) == 2
    assert kit.dump(store)


def test_a_store_is_private(tmp_path, chats):
    """Also what a user's loose umask would leave open."""
    before = os.umask(0o000)
    try:
        kit.teach(tmp_path / "store", chats)
    finally:
        os.umask(before)
    modes = {(p.is_dir(), stat.S_IMODE(p.stat().st_mode)) for p in (tmp_path / "store", *(tmp_path / "store").rglob("*"))}

    assert modes == {(True, 0o700), (False, 0o600)}


# ------------------------------------------------------------------------------------------------------ experiments


def test_run_gives_one_document(finished):
    _, out, found = finished

    assert found["run"] == str(out)
    assert (found["failed"], found["unscored"], found["problems"]) == (0, 0, [])
    assert found["teach"]["read"] == sum(found["teach"][name] for name in kit.SESSION_COUNTS) == 18
    for row in found["rows"]:
        assert row["n"] == row["scored"] + row["unscored"] + row["failed"] + row["missing"]
    assert {row["condition"] for row in found["rows"]} == {"c6", "c7"}
    assert [(p["first"], p["second"]) for p in found["pairs"]] == [("c6", "c7")]
    assert json.loads((out / "report" / "report.json").read_text())["questions"] == 5


def test_judge_and_report_from_the_folder_alone(finished):
    _, out, found = finished
    report = kit.document(kit.dualtrace("report", out, "--json"))
    judged = kit.document(kit.dualtrace("judge", out, "--json"))

    assert report["rows"] == judged["rows"] == found["rows"]
    text = kit.dualtrace("report", out).stdout
    assert f"whole report: {out / 'report' / 'report.md'}\n" in text
    assert "official protocol" in text


def test_hypotheses_are_what_the_official_scorer_reads(finished):
    lines = [json.loads(line) for line in (finished[1] / "answers" / "c6.hypotheses.jsonl").read_text().splitlines()]

    assert [line.keys() for line in lines] == [{"question_id", "hypothesis"}] * 5


def test_another_experiment_in_the_same_folder_is_refused(finished):
    bench, out, _ = finished
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}

    refused(kit.dualtrace("run", bench, "--out", out, "--protocol", "pooled"), 1, "recall was run with another protocol", "--out")
    refused(kit.dualtrace("run", bench, "--out", out, "--assistant-chars", "9"), 1, "teach was run with another settings.assistant_chars")
    assert before == {p: p.read_bytes() for p in before}


def test_the_demo_shows_the_idea(tmp_path):
    result = kit.dualtrace("demo", "--out", tmp_path / "demo")
    document = kit.document(kit.dualtrace("demo", "--out", tmp_path / "demo", "--json"))

    assert result.exit_code == 0, result.stderr
    for shown in ("The gate read", "FACT", "SCENE", "Picture:", "state A", "whole report:", "c6 - c7"):
        assert shown in result.stdout
    assert document["memory"]["scene"]
    assert document["answer"]["sources"]
    assert document["kept"] < document["sessions"]


# ----------------------------------------------------------------------------------------------- models and doctor


def test_models_list_and_check():
    listed = kit.document(kit.dualtrace("models", "list", "--json", model=None))

    assert set(listed["roles"]) == {"encode", "read", "judge", "embed"}
    assert listed["models"]["scripted"]["here"]
    assert all(m["licence"] == "Apache-2.0" for m in listed["models"].values())
    assert kit.document(kit.dualtrace("models", "check", "all-minilm-l6-v2", "scripted", "--json", model=None)) == {
        "models": {"all-minilm-l6-v2": {"good": True, "problems": []}, "scripted": {"good": True, "problems": []}}
    }
    assert kit.document(kit.dualtrace("models", "pull", "scripted", "--json", model=None)) == {"models": {"scripted": {"folder": ""}}}
    assert "scripted" in kit.dualtrace("models", "list").stdout


def test_models_that_are_not_here(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "nothing"))

    assert not kit.document(kit.dualtrace("models", "list", "--json"))["models"]["all-minilm-l6-v2"]["here"]
    result = kit.dualtrace("models", "check", "all-minilm-l6-v2", "--json")
    assert result.exit_code == 1
    assert not kit.document(result)["models"]["all-minilm-l6-v2"]["good"]
    assert not (tmp_path / "nothing").exists()


def test_doctor_when_all_is_well():
    result = kit.dualtrace("doctor", "--json")
    found = {f["what"]: f for f in kit.document(result)["findings"]}

    assert {"machine", "gpu", "model cache", "vllm", "lancedb", "encode model", "embed model", "off-switches"} <= found.keys()
    assert found["embed model"]["remedy"] == found["lancedb"]["remedy"] == ""
    switches = re.fullmatch(r"(\d+) of (\d+) in force", found["off-switches"]["value"])
    assert switches
    assert switches[1] == switches[2]
    assert result.exit_code == (0 if kit.document(result)["good"] else 1)


def test_doctor_names_the_remedy_for_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "nothing"))
    result = kit.dualtrace("doctor", "--json", model=None)
    found = {f["what"]: f["remedy"] for f in kit.document(result)["findings"]}

    assert result.exit_code == 1
    assert found["embed model"] == "dualtrace models pull all-minilm-l6-v2"
    assert found["encode model"] == "dualtrace models pull qwen2.5-coder-1.5b"
    assert "dualtrace models pull all-minilm-l6-v2" in kit.dualtrace("doctor").stdout.replace("\n", " ").replace("  ", " ")
    assert not (tmp_path / "nothing").exists()


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["teach", "{tmp}/none.jsonl", "--store", "{tmp}/s"], 1, ["none.jsonl"]),
        (["teach", "{tmp}", "--store", "{tmp}/s"], 1, ["folder"]),
        (["teach", "{bench}", "--store", "{run}"], 1, ["holds other files"]),
        (["teach", "{bench}", "--store", "{tmp}/s", "--encode-model", "gpt"], 2, ["no model named 'gpt'; known: "]),
        (["teach", "{bench}", "--store", "{tmp}/s", "--models", "{tmp}/none.yaml"], 2, ["none.yaml"]),
        (["teach", "{bench}", "--store", "{tmp}/s", "--scope", "team=x"], 2, ["user=NAME"]),
        (["teach", "{bench}", "--store", "{tmp}/s", "--scope", "user="], 2, ["user=NAME"]),
        (["teach", "{bench}", "--store", "{tmp}/s", "--limit", "0"], 2, ["--limit"]),
        (["teach", "{bench}", "--store", "{tmp}/s", "--encode-model", "all-minilm-l6-v2"], 2, ["cannot generate text"]),
        (["teach", "--store", "{tmp}/s"], 2, ["SOURCE"]),
        (["ask", "Who?", "--store", "{tmp}/s"], 1, ["there is no store in", "dualtrace teach"]),
        (["ask", "Who?", "--store", "{run}/store", "--condition", "c99"], 2, ["no condition named 'c99'; known: vanilla, "]),
        (["remember", "I sail."], 2, ["--store"]),
        (["remember", "I sail.", "--store", "{run}"], 1, ["holds other files"]),
        (["remember", "I sail.", "--store", "{tmp}/s", "--as-of", "soon"], 2, ["YYYY-MM-DD"]),
        (["ask", "Who?", "--store", "{run}/store", "--as-of", "last week"], 2, ["YYYY-MM-DD"]),
        (["memory", "list", "--store", "{tmp}/s"], 1, ["there is no store in"]),
        (["store", "dump", "--store", "{tmp}"], 1, ["there is no store in"]),
        (["run", "{tmp}/none.json", "--out", "{tmp}/r"], 1, ["none.json"]),
        (["run", "{bench}", "--out", "{tmp}/r", "--conditions", "c6,c99"], 2, ["no condition named 'c99'"]),
        (["run", "{bench}", "--out", "{tmp}/r", "--conditions", ","], 2, ["--conditions is empty"]),
        (["run", "{bench}", "--out", "{tmp}/r", "--protocol", "own"], 2, ["--protocol"]),
        (["run", "{bench}", "--out", "{tmp}/r", "--conditions-file", "{tmp}/none.yaml"], 2, ["none.yaml"]),
        (["judge", "{tmp}"], 1, ["is not a run folder"]),
        (["report", "{tmp}"], 1, ["is not a run folder"]),
        (["report", "{tmp}/none"], 1, ["is not a run folder"]),
        (["models", "check", "gpt"], 2, ["no model named 'gpt'"]),
        (["models", "pull", "../x"], 2, ["no model named '../x'"]),
        (["fly"], 2, ["fly"]),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else str(value),
)
def test_what_cannot_be_done_is_one_line_and_an_exit_code(tmp_path, finished, arguments, code, words):
    bench, out, _ = finished
    given = [a.format(tmp=tmp_path, bench=bench, run=out) for a in arguments]
    result = kit.dualtrace(*given, model=None if arguments[0] == "fly" else "scripted")

    refused(result, code, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_record_is_one_line_and_the_rest_goes_on(tmp_path, chats):
    source = tmp_path / "mixed.jsonl"
    source.write_text("not json SENTINEL\n" + chats.read_text() + '{"id":"x","date":"someday","turns":[]}\n')
    result = kit.dualtrace("teach", source, "--store", tmp_path / "store", "--json")
    totals = kit.document(result)

    assert result.exit_code == 3
    assert (totals["read"], totals["failed"], totals["taught"]) == (6, 2, 2)
    assert [line for line in result.stderr.splitlines() if line.startswith("mixed.jsonl:")] == [
        line for line in result.stderr.splitlines() if re.match(r"mixed\.jsonl:(1: broken JSON|6: date not readable: \"someday\")", line)
    ]
    assert "SENTINEL" not in result.stderr
    assert "teach: 6 of 6" in result.stderr
    assert kit.teach(tmp_path / "store", source, code=3)["unchanged"] == 4


def test_options_of_ones_own_files(tmp_path, finished):
    """Another models.yaml and another conditions file, both with an unknown key first."""
    models = yaml.safe_load(package_file("models.yaml").read_text())
    models["models"]["mine"] = models["models"]["scripted"] | {"window": 2}
    (tmp_path / "models.yaml").write_text(yaml.safe_dump(models))
    conditions = yaml.safe_load(package_file("conditions.yaml").read_text())
    conditions["conditions"] = {"mine": conditions["conditions"]["c7"]}
    (tmp_path / "conditions.yaml").write_text(yaml.safe_dump(conditions))
    options = ["--models", tmp_path / "models.yaml", "--conditions-file", tmp_path / "conditions.yaml", "--conditions", "mine"]

    result = kit.dualtrace("run", finished[0], "--out", tmp_path / "run", *options, "--json", model="mine")
    assert result.exit_code == 0, result.stderr
    assert {row["condition"] for row in kit.document(result)["rows"]} == {"mine"}

    asked = kit.dualtrace(
        "ask", "What did I name my boat?", "--store", tmp_path / "run" / "store", *options[:4], "--condition", "mine", "--json"
    )
    assert kit.document(asked)["condition"] == "mine"

    conditions["conditions"]["mine"]["treshold"] = 1
    (tmp_path / "conditions.yaml").write_text(yaml.safe_dump(conditions))
    refused(kit.dualtrace("run", finished[0], "--out", tmp_path / "r2", *options, model="mine"), 2, "conditions.yaml", "treshold")


# -------------------------------------------------------------------------------- streams, clocks, interruptions, kills


def test_streams_of_a_process_of_its_own(tmp_path, chats):
    """stdout is one JSON document in UTF-8 and stderr holds progress alone, whatever the locale and time zone say."""
    said = "I named my café Ñandú and it opened yesterday."
    source = kit.jsonl(tmp_path / "more.jsonl", [kit.session("é", "2024-03-02 09:00", said, "Oh.")])
    environment = {**os.environ, "TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [*CONSOLE, "teach", source, chats, "--store", tmp_path / "abroad", "--model", "scripted", "--json"]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=120, check=False)

    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout.decode("utf-8"))["taught"] == 3
    assert all(PROGRESS.fullmatch(line) for line in done.stderr.decode().splitlines())

    there = subprocess.run([*CONSOLE, "store", "dump", "--store", tmp_path / "abroad"], capture_output=True, env=environment, check=True)
    kit.teach(tmp_path / "home", source, chats)
    assert there.stdout.decode("utf-8") == kit.dump(tmp_path / "home")
    assert not there.stderr


def test_ask_keeps_its_streams_apart(store):
    result = kit.dualtrace("ask", "What did I name my boat?", "--store", store, "--json")

    assert kit.document(result)["state"] == "A"
    assert all(PROGRESS.fullmatch(line) for line in result.stderr.splitlines())
    assert "boat" not in result.stderr


def test_no_chat_text_on_stderr(tmp_path, finished):
    result = kit.dualtrace("run", finished[0], "--out", tmp_path / "run")

    assert all(PROGRESS.fullmatch(line) for line in result.stderr.splitlines()), result.stderr


def windowed(tmp_path, window):
    """A models.yaml whose scripted model has another window."""
    models = yaml.safe_load(package_file("models.yaml").read_text())
    models["models"]["scripted"]["window"] = window
    path = tmp_path / f"window{window}.yaml"
    path.write_text(yaml.safe_dump(models))
    return path


def test_p23_windows_and_the_order_of_files_leave_no_mark(tmp_path):
    """Case RUN-07 with the scripted model: equal dumps for every window and order."""
    sessions = list(kit.small_sessions(20))
    one, two = kit.jsonl(tmp_path / "one.jsonl", sessions[:9]), kit.jsonl(tmp_path / "two.jsonl", sessions[9:])
    dumps = set()
    for window, files in ((1, (one, two)), (7, (two, one)), (20, (one, two, one))):
        kit.teach(tmp_path / f"store{window}", *files, models=windowed(tmp_path, window))
        dumps.add(kit.dump(tmp_path / f"store{window}"))

    assert len(dumps) == 1


def test_a_second_teach_at_the_same_time_is_told_who_writes(tmp_path, chats, embedder: Embedder):
    kit.teach(tmp_path / "store", chats, limit=1)
    with Store.open(tmp_path / "store", embedder, write=True):
        second = kit.child(tmp_path, "teach", chats, "--store", tmp_path / "store", "--model", "scripted", "--json")
        assert second.ended() == 11
        assert kit.ask(tmp_path / "store", "What did I name my boat?")["state"] == "A"

    assert f"in use by process {os.getpid()}" in second.stderr.read_text()
    assert len(second.stderr.read_text().splitlines()) == 1
    assert second.stdout.read_text() == ""
    assert kit.teach(tmp_path / "store", chats)["unchanged"] == 1


def committed(store):
    """Sessions in the ledger, 0 before there is a store."""
    result = kit.dualtrace("store", "info", "--store", store, "--json")
    return kit.document(result)["sessions"] if result.exit_code == 0 else 0


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def test_ctrl_c_ends_at_once_and_clean(tmp_path):
    source = kit.jsonl(tmp_path / "chats.jsonl", kit.small_sessions(900))
    running = kit.child(tmp_path, "teach", source, "--store", tmp_path / "store", "--model", "scripted", "--json")
    wait_for(lambda: running.stderr.exists() and "starting" in running.stderr.read_text() and committed(tmp_path / "store") >= BATCH)
    os.kill(running.pid, signal.SIGINT)
    asked = time.monotonic()

    assert running.ended(30) == 130
    assert time.monotonic() - asked < 10
    lines = running.stderr.read_text().splitlines()
    assert lines[-1] == "dualtrace: interrupted; what was finished is kept, the same command goes on from there"
    assert not [line for line in lines if "Traceback" in line or "Error" in line]
    assert running.stdout.read_text() == ""
    assert BATCH <= committed(tmp_path / "store") < 900


@pytest.fixture(scope="module")
def sixty(tmp_path_factory):
    """Sixty small sessions and the dump of an unbroken teach."""
    place = tmp_path_factory.mktemp("sixty")
    source = kit.jsonl(place / "chats.jsonl", kit.small_sessions(60))
    kit.teach(place / "store", source)
    return source, kit.dump(place / "store")


KILLS = 25
POINTS = ("after-memories", "before-ledger", "after-ledger", "after-fsync")


def test_kill_9_at_any_moment_costs_no_more_than_the_batch(tmp_path, sixty):
    """Case RUN-01: 25 kills, then the same command; every session once, the dump of an unbroken run, and what was resumed is said."""
    source, whole = sixty
    store = tmp_path / "store"
    moments = random.Random(7)  # noqa: S311 - moments to kill at, no secret
    before = killed = 0
    for kill in range(KILLS):
        point = {"DUALTRACE_CRASH_POINT": POINTS[kill]} if kill < len(POINTS) else {}
        running = kit.child(tmp_path, "teach", source, "--store", store, "--model", "scripted", environment=point)
        if not point:
            wait_for(lambda running=running: "starting" in running.stderr.read_text() or not running.process.is_alive())
            time.sleep(moments.uniform(0, 0.3))
            running.process.kill()
        status = running.ended()
        assert status in (-signal.SIGKILL, 0)
        killed += status != 0
        after = committed(store)
        assert after >= before
        before = after

    assert killed > len(POINTS)
    last = kit.dualtrace("teach", source, "--store", store, "--json")
    totals = kit.document(last)
    assert totals["read"] == 60
    assert totals["failed"] == 0
    assert totals["unchanged"] == before
    assert kit.dump(store) == whole


def test_what_was_resumed_is_one_line(tmp_path):
    """A kill right after a batch reached the disk keeps that batch."""
    source = kit.jsonl(tmp_path / "chats.jsonl", kit.small_sessions(14))
    crash = {"DUALTRACE_CRASH_POINT": "after-fsync"}
    running = kit.child(tmp_path, "teach", source, "--store", tmp_path / "store", "--model", "scripted", environment=crash)
    assert running.ended() == -signal.SIGKILL
    assert committed(tmp_path / "store") == BATCH

    again = kit.dualtrace("teach", source, "--store", tmp_path / "store", "--json")
    resumed = [line for line in again.stderr.splitlines() if "resumed" in line]
    assert resumed == [f"resumed: an earlier teach was interrupted; {BATCH} sessions are already in the store and stay"]
    assert kit.document(again)["unchanged"] == BATCH
    assert committed(tmp_path / "store") == 14
    assert "resumed" not in kit.dualtrace("teach", source, "--store", tmp_path / "store").stderr


def test_a_killed_run_goes_on_and_lists_every_start(tmp_path, finished):
    bench, unbroken, _ = finished
    out = tmp_path / "run"
    arguments = ["run", bench, "--out", out, "--conditions", "c6,c7", "--model", "scripted"]
    for point in ("before-ledger", "after-ledger"):
        running = kit.child(tmp_path, *arguments, environment={"DUALTRACE_CRASH_POINT": point})
        assert running.ended() == -signal.SIGKILL
    result = kit.dualtrace(*arguments[:-2], "--json")

    assert result.exit_code == 0, result.stderr
    assert len(json.loads((out / "run.json").read_text())["starts"]) == 3
    assert kit.dump(out / "store") == kit.dump(unbroken / "store")
    one, other = (sorted((folder / "answers" / "c6.jsonl").read_text().splitlines()) for folder in (out, unbroken))
    assert one == other
