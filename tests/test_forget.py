"""Forgetting: by every way of naming, physically, proved by the bytes, and for good."""

import json
import signal
import subprocess
from pathlib import Path

import kit
import pytest

from dualtrace_local import Memory
from dualtrace_local.config import read_models
from dualtrace_local.errors import ConfigError, StoreError
from dualtrace_local.pipeline.forget import Which
from dualtrace_local.records import Scope
from dualtrace_local.store import Store
from dualtrace_local.store.proof import Needle, search_files, seen

GREENHOUSE = "My greenhouse in Zandvoort is called Quixotica and holds 47 orchids."
SESSIONS = [
    kit.session("g1", "2024-03-02 09:00", GREENHOUSE, "Quixotica sounds lovely, 47 orchids is a lot."),
    kit.session("b1", "2024-03-05 10:00", "I named my boat Marigold and it is 7 metres long.", "A fine name."),
    kit.session("m1", "2024-04-09 18:20", "My sister Ada moved to Lisbon.", "Oh.", "I bought a kiln for 300 euros in Graz.", "Nice."),
    kit.session("d1", "2024-05-05 10:00", "How do tides near Zandvoort work?", "The moon pulls the sea."),
]
WORDS = ("Quixotica", "quixotica", "orchids")


@pytest.fixture(scope="module")
def models():
    return read_models().with_roles(encode="scripted", read="scripted", judge="scripted")


@pytest.fixture(scope="module")
def chats(tmp_path_factory):
    return kit.jsonl(tmp_path_factory.mktemp("chats") / "chats.jsonl", SESSIONS)


@pytest.fixture(scope="module")
def taught(models, chats):
    with Memory.open(chats.parent / "store", models=models) as memory:
        memory.teach(chats)
        memory.search("What orchids?", condition="history")  # vectors of rounds are made, and have to go too
    return chats.parent / "store"


@pytest.fixture
def mine(tmp_path, models, taught):
    subprocess.run(["cp", "-a", str(taught), str(tmp_path / "store")], check=True)
    with Memory.open(tmp_path / "store", models=models) as memory:
        yield memory


def bytes_with(root: Path, *words: str) -> list[str]:
    """Files below ``root`` that hold a word, as UTF-8 or UTF-16; written anew, apart from the package's own search."""
    forms = [w.encode(code) for w in words for code in ("utf-8", "utf-16-le", "utf-16-be")]
    return [str(f.relative_to(root)) for f in root.rglob("*") if f.is_file() and any(form in f.read_bytes() for form in forms)]


def the(mine, word):
    (found,) = (m for m in kit.memories(mine.path) if word in m["fact"])
    return found["id"]


@pytest.mark.parametrize("by", ["memory", "session", "key", "anchor", "words"])
def test_p14_forgotten_text_is_in_no_file(mine, chats, by):
    """The store's text columns are readable in its files, so that the same search finds the word before: the control."""
    found = the(mine, "Quixotica")
    record = next(m for m in kit.memories(mine.path) if m["id"] == found)
    assert bytes_with(mine.path, *WORDS)
    which = {
        "memory": Which(memory=found[:12]),
        "session": Which(session="g1"),
        "key": Which(session=record["session_key"][:12]),
        "anchor": Which(anchor=record["anchor"]),
        "words": Which(words="QUIXOTICA"),
    }[by]
    done = mine.forget(which)

    assert done.gone
    assert not done.blind
    assert all(s.before >= 1 and s.left == 0 for s in done.proof.values()), done.proof
    assert bytes_with(mine.path, *WORDS) == []
    assert [f for f in bytes_with(mine.path, found) if "forgotten.lance" not in f] == []
    assert "Quixotica" not in mine.ask("What is my greenhouse called?").text
    assert not mine.search("What orchids?", condition="history").items or "orchids" not in str(
        mine.search("What orchids?", condition="history")
    )
    again = mine.teach(chats)
    assert (again.forgotten, again.unchanged, again.accounted) == (1, 3, 4)
    assert bytes_with(mine.path, *WORDS) == []


def test_p14_it_comes_back_only_when_asked_for(mine, chats):
    before = kit.dump(mine.path)
    mine.forget(Which(session="g1"))
    assert mine.teach(chats).forgotten == 1
    again = mine.teach(chats, again=True)
    assert (again.taught, again.unchanged, again.forgotten) == (1, 3, 0)
    assert kit.dump(mine.path) == before
    assert mine.teach(chats).unchanged == 4


def test_what_stays_is_untouched(mine):
    def rest():
        rows = [json.loads(line) for line in kit.dump(mine.path).splitlines()]
        return [r for r in rows if r["table"] != "forgotten"]

    before = rest()
    key = next(r["key"] for r in before if r["table"] == "sessions" and r["external_id"] == "g1")
    mine.forget(Which(session="g1"))
    assert rest() == [r for r in before if key not in (r.get("key"), r.get("session_key"))]


def test_a_single_memory_takes_the_rounds_of_its_session_along_and_leaves_the_others(mine):
    plans = []
    done = mine.forget(Which(memory=the(mine, "Lisbon")), lambda plan: not plans.append(plan))
    (plan,) = plans
    assert len(plan.memories) == 1
    assert len(plan.rounds) == 2
    assert not plan.sessions
    assert done.gone
    assert bytes_with(mine.path, "Lisbon") == []
    assert any("kiln" in m["fact"] for m in kit.memories(mine.path))
    with Store.open(mine.path, None) as store:
        row = next(r for r in store.sessions(Scope()) if r.external_id == "m1")
        assert row.evidence.basis == ()
        assert store.info().memories == 3
    assert len(kit.memories(mine.path)) == 3


def test_earlier_versions_go_too(mine):
    from dualtrace_local.pipeline.correct import Edit

    found = the(mine, "Quixotica")
    mine.edit(found, Edit(fact=["The greenhouse of the user is called Wintergarden."]))
    mine.retract(found)
    assert mine.forget(Which(words="wintergarden")).gone
    assert bytes_with(mine.path, "Quixotica", "Wintergarden", "orchids") == []
    assert mine.history() == []


def test_a_scope_and_a_source_are_forgotten_whole_and_only_they(tmp_path, models, chats):
    with Memory.open(tmp_path / "s", user="ann", models=models) as ann, Memory.open(tmp_path / "s", user="bob", models=models) as bob:
        ann.teach(chats)
        bob.teach(chats)
        with pytest.raises(StoreError, match="nothing fits"):
            ann.forget(Which(source="other.jsonl"))
        assert len(ann.forget(Which(source="chats.jsonl")).plan.sessions) == 4
        assert kit.memories(tmp_path / "s", scope="user=ann") == []
        assert len(kit.memories(tmp_path / "s", scope="user=bob")) == 4
        assert bytes_with(tmp_path / "s", "Quixotica"), "Bob's own words stay"
        assert bob.forget(Which(everything=True)).gone
        assert bytes_with(tmp_path / "s", "Quixotica", "Marigold", "Lisbon", "tides") == []
        assert ann.teach(chats).forgotten == bob.teach(chats).forgotten == 4


def test_failures_and_copies_of_a_run_go_too(tmp_path, models):
    bench = kit.rows(tmp_path / "bench.json", kit.small_benchmark())
    run = tmp_path / "run"
    assert kit.dualtrace("run", bench, "--out", run, "--conditions", "c6,history", "--json").exit_code == 0
    assert len(bytes_with(run, "Marigold")) > 4
    line = {"stage": "teach", "key": "x", "source": "bench.json", "record": 1, "reason": "cut", "raw": "The user named the boat Marigold"}
    (run / "store" / "failures.jsonl").write_text(json.dumps(line) + "\n")
    with Memory.open(run / "store", models=models) as memory:
        done = memory.forget(Which(words="marigold"))
    assert done.gone, done
    assert done.cleaned["failures.jsonl"] == 1
    assert bytes_with(run, "Marigold") == []
    assert kit.dualtrace("report", run, "--json").exit_code == 0


@pytest.mark.parametrize("point", ["forget-intent", "forget-vectors", "forget-sessions"])
def test_p01_a_forget_that_was_killed_is_finished_at_the_next_opening(mine, embedder, tmp_path, point):
    command = ("memory", "forget", "--session", "g1", "--yes", "--store", mine.path)
    assert kit.child(tmp_path, *command, environment={"DUALTRACE_CRASH_POINT": point}).ended() == -signal.SIGKILL
    with Store.open(mine.path, None) as reader:
        assert "g1" not in {row.external_id for row in reader.sessions()}
        assert not any("Quixotica" in m.fact for m in reader.memories(Scope()))
    Store.open(mine.path, embedder, write=True).close()
    assert bytes_with(mine.path, *WORDS) == []


def test_the_command_shows_asks_and_proves(mine):
    found = the(mine, "Quixotica")
    shown = kit.dualtrace("memory", "forget", found, "--dry-run", "--store", mine.path)
    assert shown.exit_code == 0
    assert "1 memories, 1 verbatim rounds, 1 whole sessions" in shown.stdout
    assert kit.dualtrace("memory", "forget", found, "--store", mine.path).exit_code == 1, "nobody said yes"
    assert the(mine, "Quixotica") == found
    done = kit.dualtrace("memory", "forget", found, "--yes", "--store", mine.path, "--json")
    told = kit.document(done)
    assert (done.exit_code, told["removed"], told["gone"], told["left_in"]) == (0, True, True, [])
    assert told["out_of_reach"]
    for arguments in ((), (found, "--everything"), ("--session", "g1")):
        result = kit.dualtrace("memory", "forget", *arguments, "--yes", "--store", mine.path)
        assert result.exit_code in (1, 2)
        assert "dualtrace:" in result.stderr
    told = kit.dualtrace("memory", "forget", "--everything", "--yes", "--store", mine.path).stdout
    assert "Out of reach:" in told
    assert "removed" in told


def test_unclear_orders_are_refused(mine):
    with pytest.raises(ConfigError, match="say what to forget by one of"):
        mine.forget(Which())
    with pytest.raises(ConfigError, match="say what to forget by one of"):
        mine.forget(Which(anchor="a", everything=True))


def test_p14_the_search_sees_every_place_and_encoding(tmp_path):
    needles = frozenset(Needle("text", w.encode(code)) for w in ("Quixotica", "quixotica") for code in ("utf-8", "utf-16-le"))
    for offset in range(20):
        for code in ("utf-8", "utf-16-le"):
            assert len(seen(b"x" * offset + "Quixotica".encode(code) + b"y" * (20 - offset), needles)) == 1
    assert seen(b"", needles) == seen(b"short", needles) == seen(b"Quixotic!" * 40, needles) == set()
    import gzip

    (tmp_path / "packed").write_bytes(gzip.compress(b"the word quixotica inside"))
    assert list(search_files(tmp_path, needles)) == [tmp_path / "packed"]
