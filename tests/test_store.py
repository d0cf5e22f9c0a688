"""The store on real LanceDB with the real embedder: whole commits, one writer, repair, privacy, equal dumps."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dualtrace_local.embed import Embedder
from dualtrace_local.errors import StoreBusyError, StoreError
from dualtrace_local.records import Component, Encoded, EventDate, Evidence, Memory, Round, Scope, Session, Tier, Turn
from dualtrace_local.store import Outcome, Selection, Store, key_text
from dualtrace_local.store.tables import TABLES

TOPICS = ("beekeeping", "night trains", "a leaking canoe", "sourdough", "the violin", "a lost cat", "tax forms")
ANN = Scope("ann", "home")


def outcome(number: int, scope: Scope = ANN, *, dropped: bool = False, external_id: str = "") -> Outcome:
    """An invented session about one topic: one memory with a scene, one without, two rounds. Every third is as good as any other."""
    topic = TOPICS[number % len(TOPICS)]
    date = datetime(2024, 3, 1, 9, 30) + timedelta(days=number)
    said = f"I spent the whole of day {number} on {topic}."
    session = Session((Turn("user", said), Turn("assistant", "Well done.")), date, scope, external_id or f"s{number}", "chats.json", number)
    rounds = (Round(session.key, 0, scope, date, said, "Well done."), Round(session.key, 1, scope, date, "Thanks!", ""))
    if dropped:
        return Outcome(Encoded(session, Tier.DROP, Evidence(1, 0, 0), (), rounds, ("no user words",)), "dropped", "f1")
    evidence = Evidence(2, 2, 1, (said,))
    day = EventDate("today", f"{date:%Y-%m-%d}")
    component = Component(f"The user spent day {number} on {topic}.", said, 0, events=(day,))
    about = {"session_key": session.key, "scope": scope, "date": date, "tier": Tier.FULL, "evidence": evidence}
    scene = f"Picture: The user bends over {topic}. (Mnemonic depiction only. Not evidence.)"
    memories = (
        Memory(ordinal=0, anchor="day-work", info_type="discrete", category="hobby", components=(component,), scene=scene, **about),
        Memory(ordinal=1, anchor="thanks", info_type="discrete", category="other", components=(component,), scene_refused="x", **about),
    )
    return Outcome(Encoded(session, Tier.FULL, evidence, memories, rounds), "taught", "f1")


def taught(path: Path, embedder: Embedder, *batches: list[Outcome]) -> Path:
    with Store.open(path, embedder, create=True) as store:
        for batch in batches:
            store.commit(batch)
    return path


def dump_of(path: Path) -> list[dict]:
    with Store.open(path, None) as store:
        return list(store.dump())


CHILD = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    import test_store as made
    from dualtrace_local.embed import load_embedder
    from dualtrace_local.records import Scope
    from dualtrace_local.store import Store
    embedder = load_embedder("all-minilm-l6-v2", Path(sys.argv[2]), 384)
    with Store.open(Path(sys.argv[3]), embedder, write=True) as store:
        bob = Scope("bob", "home")
""")


def child(embedder: Embedder, path: Path, body: str, **environment: str) -> subprocess.Popen[str]:
    """Another process with the store open for writing. Bob's sessions have Ann's key texts, so that no model has to be loaded."""
    program = CHILD + textwrap.indent(textwrap.dedent(body), "    ")
    arguments = [sys.executable, "-c", program, str(Path(__file__).parent), str(embedder.folder), str(path)]
    return subprocess.Popen(arguments, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)


# ------------------------------------------------------------------------------------------------------- round trip


def test_what_was_committed_is_read_back(tmp_path, embedder):
    first, second = outcome(1), outcome(2, dropped=True)
    taught(tmp_path / "s", embedder, [first, second])
    with Store.open(tmp_path / "s", embedder) as store:
        assert store.memories(ANN) == list(first.encoded.memories)
        assert store.rounds(ANN) == [*first.encoded.rounds, *second.encoded.rounds]
        one, two = store.sessions(ANN)
        assert (one.key, one.external_id, one.date, one.scope) == (first.encoded.session.key, "s1", first.encoded.session.date, ANN)
        assert (one.tier, one.evidence, one.status, one.fingerprint) == (Tier.FULL, first.encoded.evidence, "taught", "f1")
        assert (one.source, one.record, one.memories, one.with_scene, one.rounds) == ("chats.json", 1, 2, 1, 2)
        assert (two.status, two.memories, two.dropped_sentences) == ("dropped", 0, ("no user words",))
        assert store.known() == {one.key: "f1", two.key: "f1"}
        info = store.info()
        assert (info.sessions, info.memories, info.with_scene, info.rounds, info.vectors, info.cut) == (2, 2, 1, 4, 4, 0)
        assert (info.embedder, info.embedder_digest, info.dimension) == (embedder.name, embedder.digest, 384)
        assert info.bytes > 1000


def test_undated_sessions_and_odd_text_survive(tmp_path, embedder):
    made = outcome(1).encoded
    turns = (Turn("user", "a\u2028b\x85c \U0001f600 O'Brien \\ \" \x00 ]]"),)
    session = Session(turns, None, ANN)
    odd = Round(session.key, 0, ANN, None, turns[0].text, "")
    taught(tmp_path / "s", embedder, [Outcome(Encoded(session, Tier.DROP, made.evidence, (), (odd,)), "dropped", "f")])
    with Store.open(tmp_path / "s", embedder) as store:
        assert store.rounds(ANN) == [odd]
        assert store.sessions()[0].date is None


def test_memory_is_found_by_a_unique_beginning_of_its_id(tmp_path, embedder):
    made = outcome(1)
    taught(tmp_path / "s", embedder, [made, outcome(2)])
    wanted = made.encoded.memories[0]
    with Store.open(tmp_path / "s", embedder) as store:
        assert store.memory(wanted.id[:12].upper(), ANN) == wanted
        with pytest.raises(StoreError, match="is not there"):
            store.memory(wanted.id, Scope("bob", "home"))
        for wrong in ("", "x' OR 1=1 --", "%", "zz"):
            with pytest.raises(StoreError, match="not a memory id"):
                store.memory(wrong, ANN)
        everything = store.memories(ANN) + store.memories(ANN)
        shared = [m.id[:1] for m in everything]
        twice = next((c for c in shared if len({m.id for m in everything if m.id.startswith(c)}) > 1), None)
        if twice:
            with pytest.raises(StoreError, match="give more of it"):
                store.memory(twice, ANN)


def test_haystacks_keep_their_order_and_repeating_them_writes_nothing(tmp_path, embedder):
    path = taught(tmp_path / "s", embedder)
    stacks = {"q'1": ["bb", "aa", "cc"], "q2": ["aa"], "gpt4_ü": []}
    with Store.open(path, embedder, write=True) as store:
        store.set_haystacks(stacks)
        assert [store.haystack(q) for q in (*stacks, "unknown")] == [("bb", "aa", "cc"), ("aa",), (), ()]
        before = sorted(path.rglob("*"))
        store.set_haystacks(stacks | {"q2": ("aa",)})
        assert sorted(path.rglob("*")) == before
        store.set_haystacks({"q2": ["dd", "aa"]})
        assert store.haystack("q2") == ("dd", "aa")
        assert store.haystack("q'1") == ("bb", "aa", "cc")


# ----------------------------------------------------------------------------------------------------- never twice


def test_the_same_session_is_stored_once(tmp_path, embedder):
    """Twice in a batch, again later, and again after reopening."""
    path = tmp_path / "s"
    with Store.open(path, embedder, create=True) as store:
        assert store.commit([outcome(1), outcome(2), outcome(1, external_id="copy")]) == 2
        assert store.commit([outcome(2), outcome(1)]) == 0
    before = dump_of(path)
    with Store.open(path, embedder, write=True) as store:
        assert store.commit([outcome(1)]) == 0
    assert dump_of(path) == before
    assert sum(row["table"] == "sessions" for row in before) == 2
    assert {row.get("external_id") for row in before} >= {"s1"}


def test_equal_input_gives_equal_dumps_in_any_batches_and_order(tmp_path, embedder):
    made = [outcome(n, dropped=n % 3 == 0) for n in range(6)]
    taught(tmp_path / "one", embedder, made)
    taught(tmp_path / "two", embedder, *([o] for o in reversed(made)))
    assert dump_of(tmp_path / "one") == dump_of(tmp_path / "two")
    assert json.dumps(dump_of(tmp_path / "one"))


def test_dump_holds_no_secret(tmp_path, embedder):
    path = taught(tmp_path / "s", embedder, [outcome(1)])
    with Store.open(path, embedder) as store:
        assert len(store.secret) == 16
        assert store.secret.hex() not in json.dumps(list(store.dump()))
        assert store.secret != Store.open(taught(tmp_path / "t", embedder), embedder).secret


def test_equal_key_texts_are_embedded_once(tmp_path, embedder):
    """Bob's sessions read as Ann's do: the second process never loads the model."""
    path = taught(tmp_path / "s", embedder, [outcome(1), outcome(2)])
    body = """
        store.commit([made.outcome(1, bob), made.outcome(2, bob)])
        assert "torch" not in sys.modules
    """
    assert child(embedder, path, body).wait(60) == 0
    with Store.open(path, embedder) as store:
        assert len(store.memories(Scope("bob", "home"))) == 4


# --------------------------------------------------------------------------------------------------------- kill -9


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, embedder) -> list[dict]:
    path = tmp_path_factory.mktemp("unbroken") / "s"
    bob = Scope("bob", "home")
    taught(path, embedder, [outcome(n) for n in range(4)], [outcome(n, bob) for n in range(2)], [outcome(n, bob) for n in range(2, 4)])
    return dump_of(path)


@pytest.mark.parametrize("point", ["after-memories", "before-ledger", "after-ledger", "after-fsync"])
def test_killed_at_any_step_then_repeated_equals_an_unbroken_run(tmp_path, embedder, unbroken, point):
    bob = Scope("bob", "home")
    path = taught(tmp_path / "s", embedder, [outcome(n) for n in range(4)])
    body = "store.commit([made.outcome(n, bob) for n in range(2)])"
    killed = child(embedder, path, body, DUALTRACE_CRASH_POINT=point)
    assert killed.wait(60) == -signal.SIGKILL
    whole = point in ("after-ledger", "after-fsync")
    with Store.open(path, embedder) as reader:
        assert len(reader.sessions(bob)) == (2 if whole else 0)
        assert len(reader.memories(bob)) == (4 if whole else 0)
        assert len(reader.rounds(bob)) == (4 if whole else 0)
        assert len(reader.keys(Selection(bob), "fact").owner_ids) == (4 if whole else 0)
    with Store.open(path, embedder, write=True) as writer:
        assert writer.commit([outcome(n, bob) for n in range(4)]) == (2 if whole else 4)
    assert dump_of(path) == unbroken


# ------------------------------------------------------------------------------------------------------- one writer


def test_second_writer_is_told_the_process_and_readers_go_on(tmp_path, embedder):
    """The writer is another process, in the middle of its work; after kill -9 the lock is free at once."""
    path = taught(tmp_path / "s", embedder, [outcome(1)])
    writer = child(embedder, path, 'store.commit([made.outcome(1, bob)]); print("ready", flush=True); time.sleep(100)')
    try:
        assert writer.stdout.readline() == "ready\n"
        start = time.monotonic()
        with pytest.raises(StoreBusyError, match=f"in use by process {writer.pid};") as refused:
            Store.open(path, embedder, write=True)
        assert time.monotonic() - start < 5
        assert refused.value.exit_code == 11
        with Store.open(path, embedder) as reader:
            assert len(reader.sessions()) == 2
    finally:
        writer.kill()
        writer.wait()
    with Store.open(path, embedder, write=True) as again:
        assert again.commit([outcome(2)]) == 1


def test_second_writer_in_the_same_process_is_refused(tmp_path, embedder):
    path = taught(tmp_path / "s", embedder)
    store = Store.open(path, embedder, write=True)
    with pytest.raises(StoreBusyError, match=str(os.getpid())):
        Store.open(path, embedder, write=True)
    store.close()
    store.close()
    Store.open(path, embedder, write=True).close()


def test_an_open_reader_sees_each_commit_whole_as_it_comes(tmp_path, embedder):
    path = tmp_path / "s"
    with Store.open(path, embedder, create=True) as writer, Store.open(path, embedder) as reader:
        for n in range(3):
            assert len(reader.memories(ANN)) == 2 * n
            writer.commit([outcome(n)])
        assert len(reader.memories(ANN)) == 6
        with pytest.raises(StoreError, match="reading only"):
            reader.commit([outcome(9)])


# ---------------------------------------------------------------------------------------------------------- repair


def newest(folder: Path) -> Path:
    return max((f for f in folder.iterdir() if f.is_file()), key=lambda f: f.stat().st_mtime_ns)


def newest_manifest(folder: Path) -> Path:
    return min(folder.glob("*.manifest"))


def empty(file: Path) -> None:
    file.write_bytes(b"")


def zero(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def halve(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("table", "spoil"),
    [("memories", empty), ("memories", zero), ("memories", halve), ("sessions", empty), ("rounds", zero), ("vectors", empty)],
)
@pytest.mark.parametrize(("where", "choose"), [("_versions", newest_manifest), ("data", newest)])
def test_a_torn_newest_version_is_stepped_back_and_taught_again(damaged_store, embedder, table, where, choose, spoil):
    """Loss of power tears the newest file of a table: recall opens the version before, teach does the lost batch again."""
    path, whole, batches = damaged_store
    spoil(choose(path / f"{table}.lance" / where))
    lines: list[str] = []
    with Store.open(path, embedder, say=lines.append) as reader:
        kept = {m.session_key for m in reader.memories(ANN)}
        assert kept == {o.encoded.session.key for o in (batches[0] if table != "vectors" else [*batches[0], *batches[1]])}
        assert len(reader.keys(Selection(ANN), "fact+scene").owner_ids) == 2 * len(kept)
    assert len(lines) == 1
    assert "newest version unreadable, moved to _damaged/" in lines[0]
    assert any((path / "_damaged").iterdir())
    with Store.open(path, embedder, write=True, say=lines.append) as writer:
        writer.commit([*batches[0], *batches[1]])
    assert len(lines) == 1
    assert dump_of(path) == whole


@pytest.fixture(scope="module")
def two_batches(tmp_path_factory, embedder):
    path = tmp_path_factory.mktemp("torn") / "s"
    batches = ([outcome(0), outcome(1)], [outcome(2)])
    taught(path, embedder, *batches)
    return path, dump_of(path), batches


@pytest.fixture
def damaged_store(two_batches, tmp_path):
    """A copy of the two-batch store, with its times, to be damaged."""
    path, whole, batches = two_batches
    subprocess.run(["cp", "-a", str(path), str(tmp_path / "s")], check=True)
    return tmp_path / "s", whole, batches


@pytest.mark.parametrize("table", ["sessions", "memories"])
@pytest.mark.parametrize("name", ["_transactions", "_versions/latest_version_hint.json"])
def test_torn_files_that_nothing_rests_on_cost_nothing(damaged_store, embedder, table, name):
    path, whole, _ = damaged_store
    place = path / f"{table}.lance" / name
    empty(newest(place) if place.is_dir() else place)
    lines: list[str] = []
    with Store.open(path, embedder, write=True, say=lines.append) as store:
        assert list(store.dump()) == whole
        assert store.commit([outcome(5)]) == 1
    assert lines == []


def test_several_tables_torn_at_once_are_one_line(damaged_store, embedder):
    path, whole, batches = damaged_store
    for table in ("sessions", "memories", "rounds", "vectors"):
        empty(newest_manifest(path / f"{table}.lance" / "_versions"))
    lines: list[str] = []
    with Store.open(path, embedder, write=True, say=lines.append) as store:
        assert store.commit([*batches[0], *batches[1]]) == 1
    assert len(lines) == 1
    assert dump_of(path) == whole


def test_damage_beyond_the_last_commits_is_refused_with_every_file_in_place(damaged_store, embedder):
    path, _, _ = damaged_store
    for file in (path / "memories.lance" / "data").iterdir():
        empty(file)
    for file in (path / "memories.lance" / "_versions").glob("*.manifest"):
        zero(file)
    before = sorted(f for f in path.rglob("*") if f.is_file())
    with pytest.raises(StoreError, match="table memories has no readable version"):
        Store.open(path, embedder, write=True)
    assert sorted(f for f in path.rglob("*") if f.is_file()) == before


# ------------------------------------------------------------------------------------------------- scopes and names


@pytest.mark.parametrize(
    "name", ["O'Brien", "x' OR 1=1 --", 'back\\slash"dq', "a%_*", "Ünï 東京", "a\nb", "'; DROP TABLE memories", "../../up"]
)
def test_odd_names_of_people_stay_theirs_alone(tmp_path, embedder, name):
    """Scopes never widen or break a filter, and never become a path."""
    odd = Scope(name, name)
    path = taught(tmp_path / "s", embedder, [outcome(1, odd, external_id=name), outcome(1), outcome(2, Scope(name, "home"))])
    with Store.open(path, embedder) as store:
        assert [m.scope for m in store.memories(odd)] == [odd, odd]
        assert [r.external_id for r in store.sessions(odd)] == [name]
        assert len(store.memories(ANN)) == len(store.memories(Scope(name, "home"))) == 2
        assert store.memories(Scope("' OR ''='", "home")) == []
    assert sorted(f.name for f in tmp_path.iterdir()) == ["s"]


@pytest.mark.parametrize("key", ["x' OR 1=1 --", "O'Brien", "zz", "ab\n", ""])
def test_only_hashes_reach_a_filter(tmp_path, embedder, key):
    path = taught(tmp_path / "s", embedder, [outcome(1)])
    with Store.open(path, embedder) as store, pytest.raises(StoreError, match="not an id of this store"):
        store.memories(ANN, frozenset({key}))


def test_half_characters_are_a_store_error_and_nothing_is_stored(tmp_path, embedder):
    """Readers repair lone surrogates; should one get here, it is one line without the text."""
    path = taught(tmp_path / "s", embedder)
    good, made = outcome(1), outcome(2).encoded
    bad = Round(made.session.key, 7, ANN, None, "half \ud83d emoji", "")
    with Store.open(path, embedder, write=True) as store:
        with pytest.raises(StoreError, match="lone surrogate"):
            store.commit([good, Outcome(Encoded(made.session, made.tier, made.evidence, made.memories, (bad,)), "taught", "f")])
        assert store.sessions() == []
        with pytest.raises(StoreError, match="not valid Unicode"):
            store.memories(Scope("\ud83d"))


def test_memories_can_be_narrowed_to_sessions_evidence_and_days(tmp_path, embedder):
    one, two, three = outcome(1), outcome(2), outcome(3)
    path = taught(tmp_path / "s", embedder, [one, two, three])
    with Store.open(path, embedder) as store:
        keys = [o.encoded.session.key for o in (one, two, three)]
        seen = lambda **k: [m.session_key for m in store.memories(ANN, **k)][::2]  # noqa: E731 - three uses below
        assert seen(session_keys=frozenset(keys[1:])) == keys[1:]
        assert seen(session_keys=frozenset()) == []
        assert seen(minimum=5) == keys
        assert seen(minimum=6) == []
        assert seen(hide_after=two.encoded.session.date) == keys[:2]


# ---------------------------------------------------------------------------------------------------- the folder


def test_no_store_names_the_path_and_the_command(tmp_path, embedder):
    with pytest.raises(StoreError, match=rf"no store in {tmp_path}/none; `dualtrace teach"):
        Store.open(tmp_path / "none", embedder)
    assert not (tmp_path / "none").exists()


def test_a_folder_with_other_files_is_not_made_a_store(tmp_path, embedder):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match=r"other files \(letter\.txt"):
        Store.open(tmp_path, embedder, create=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="opening failed"):
        Store.open(tmp_path / "file", embedder, create=True)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["file", "letter.txt"]


def test_another_embedding_model_is_refused_with_the_remedy(tmp_path, embedder):
    path = taught(tmp_path / "s", embedder, [outcome(1)])
    with pytest.raises(StoreError, match="use that model, or move the store"):
        Store.open(path, Embedder("another", embedder.folder, 384))


def test_a_newer_format_is_refused(tmp_path, embedder):
    from dualtrace_local.store.folder import Folder

    Folder(tmp_path / "s").create(384, {"version": "3"}, {})
    with pytest.raises(StoreError, match="format version 3, this program reads 2: a newer dualtrace"):
        Store.open(tmp_path / "s", embedder)


def test_making_a_store_that_was_cut_off_is_finished_the_next_time(tmp_path, embedder):
    from dualtrace_local.store.folder import Folder

    Folder(tmp_path / "s").create(384, {}, {})
    subprocess.run(["rm", "-r", str(tmp_path / "s" / "sessions.lance"), str(tmp_path / "s" / "forgotten.lance")], check=True)
    taught(tmp_path / "s", embedder, [outcome(1)])
    assert len(dump_of(tmp_path / "s")) == 1 + 2 + 2 + 4


def test_folders_and_files_are_private_after_every_commit(tmp_path, embedder):
    old = os.umask(0o022)
    try:
        path = tmp_path / "s"
        with Store.open(path, embedder, create=True) as store:
            for n in range(2):
                store.commit([outcome(n)])
                store.set_haystacks({f"q{n}": [outcome(n).encoded.session.key]})
                assert {f.stat().st_mode & 0o777 for f in path.rglob("*") if f.is_file()} == {0o600}
                assert {f.stat().st_mode & 0o777 for f in (path, *path.rglob("*")) if f.is_dir()} == {0o700}
    finally:
        os.umask(old)


def test_one_session_at_a_time_leaves_few_files(tmp_path, embedder):
    """Equal text under many scopes: nothing to embed but the first, so that this is quick."""
    path = tmp_path / "s"
    with Store.open(path, embedder, create=True) as store:
        for n in range(45):
            store.commit([outcome(1, Scope(f"user{n}", "home"))])
        for table in map(store._folder.table, TABLES):
            assert table.stats()["fragment_stats"]["num_fragments"] <= 21
        assert store.info().sessions == 45


# ------------------------------------------------------------------------------------------------------------ keys


def test_key_texts_are_made_of_anchor_day_fact_and_scene():
    memory, bare = outcome(1).encoded.memories
    assert key_text(memory, "fact") == "day work, 2024-03-02\nThe user spent day 1 on night trains."
    assert key_text(memory, "fact-without-anchor") == "2024-03-02\nThe user spent day 1 on night trains."
    assert key_text(memory, "fact+scene") == f"{key_text(memory, 'fact')}\n{memory.scene}"
    assert key_text(bare, "fact+scene") == key_text(bare, "fact")


def test_keys_never_made_before_are_made_when_asked_for(tmp_path, embedder):
    """By a reader in memory, by a writer for good; the dump of the store stays what it was."""
    path = taught(tmp_path / "s", embedder, [outcome(1), outcome(2)])
    before = dump_of(path)
    selection = Selection(ANN)
    with Store.open(path, embedder) as reader:
        keys = reader.keys(selection, "fact-without-anchor")
        assert len(keys.owner_ids) == 4
        assert "work" not in keys.words[0]
        assert reader.size(selection, "fact-without-anchor") == 0
    with Store.open(path, embedder, write=True) as writer:
        assert writer.keys(selection, "fact-without-anchor").words == keys.words
        assert writer.size(selection, "fact-without-anchor") == 4
        assert len(writer.keys(selection, "round").owner_ids) == 4
    assert dump_of(path) == before


def test_a_key_longer_than_the_embedder_reads_is_cut_and_counted(tmp_path, embedder):
    session = outcome(1).encoded.session
    long = Round(session.key, 0, ANN, session.date, "lorem " * 2000 + "My locker code is 4417.", "")
    taught(tmp_path / "s", embedder, [Outcome(Encoded(session, Tier.DROP, Evidence(), (), (long,)), "dropped", "f")])
    with Store.open(tmp_path / "s", embedder, write=True) as store:
        store.keys(Selection(ANN), "round")
        assert store.info().cut == 1
        assert store.rounds(ANN)[0].user.endswith("4417.")
