"""The owner corrects memories: versions with who and when, undo of any change, nothing retracted in any answer."""

import signal
import subprocess
from datetime import datetime

import kit
import pytest

from dualtrace_local import Memory
from dualtrace_local.config import read_models
from dualtrace_local.errors import ConfigError, DataError, StoreError
from dualtrace_local.pipeline.correct import STALE, Edit
from dualtrace_local.records import Scope, State
from dualtrace_local.store import Selection, Store

NOON = datetime(2024, 6, 1, 12, 0, 5)


@pytest.fixture(scope="module")
def models():
    return read_models().with_roles(encode="scripted", read="scripted", judge="scripted")


@pytest.fixture(scope="module")
def taught(tmp_path_factory, models):
    place = tmp_path_factory.mktemp("taught")
    sessions = [
        kit.session("a1", "2024-03-02 09:00", "I named my boat Marigold and it is 7 metres long.", "A lovely name."),
        kit.session("a3", "2024-04-09 18:20", "My sister Ada moved to Lisbon yesterday.", "A big step."),
    ]
    with Memory.open(place / "store", models=models) as memory:
        memory.teach(kit.jsonl(place / "chats.jsonl", sessions))
    return place / "store"


@pytest.fixture
def mine(tmp_path, models, taught):
    subprocess.run(["cp", "-a", str(taught), str(tmp_path / "store")], check=True)
    with Memory.open(tmp_path / "store", models=models) as memory:
        yield memory


def boat(mine):
    (found,) = (m for m in kit.memories(mine.path) if "boat" in m["fact"])
    return found


def test_an_edit_is_a_new_version_that_every_reader_uses(mine):
    before = boat(mine)
    made = mine.edit(before["id"][:8], Edit(fact=["The user named the boat Periwinkle."]), by="Ann", at=NOON)

    assert (made.number, made.action, made.by, made.at) == (1, "edit", "Ann", "2024-06-01T12:00:05")
    now = boat(mine)
    assert now["fact"] == "The user named the boat Periwinkle."
    assert (now["scene"], now["scene_refused"], now["version"]) == ("", STALE, 1)
    assert now["components"][0]["said_by"] == "owner"
    answer = mine.ask("What did I name my boat?")
    assert "Periwinkle" in answer.text
    assert "Marigold" not in answer.text
    assert mine.search("What did I name my boat?", condition="c7").state is State.B
    taught, edited = mine.history(now["id"])
    assert (taught.action, taught.memory.fact) == ("taught", before["fact"])
    assert edited == made


def test_edits_of_other_parts_keep_the_rest(mine):
    before = boat(mine)
    mine.edit(before["id"], Edit(scene="a boat under a red sail", anchor="boat-name", category="boats", info_type="relational"))
    now = boat(mine)
    assert now["scene"] == "Picture: a boat under a red sail (Mnemonic depiction only. Not evidence.)"
    assert (now["anchor"], now["category"], now["info_type"]) == ("boat-name", "boats", "relational")
    assert now["components"] == before["components"]
    assert mine.search("What did I name my boat?").items[0].scene == now["scene"]


def test_retracted_memories_are_in_nothing_but_history(mine):
    found = boat(mine)
    mine.retract(found["id"], by="Ann")

    assert [m["id"] for m in kit.memories(mine.path)] != []
    assert found["id"] not in {m["id"] for m in kit.memories(mine.path)}
    assert [m["id"] for m in kit.document(kit.dualtrace("memory", "list", "--store", mine.path, "--json", "--retracted"))["memories"]] == [
        found["id"]
    ]
    for condition in ("c6", "c7", "c2", "c5-fs", "c6-shuffled"):
        assert found["id"] not in {i.memory_id for i in mine.search("What did I name my boat?", condition=condition).items}, condition
    assert "Marigold" not in mine.ask("What did I name my boat?").text
    with pytest.raises(ConfigError, match="retracted already"):
        mine.retract(found["id"])
    mine.undo(found["id"])
    assert "Marigold" in mine.ask("What did I name my boat?").text
    assert [c.action for c in mine.history(found["id"])] == ["taught", "retract", "undo 1"]


def test_undo_works_on_any_of_the_last_changes(mine):
    found = boat(mine)["id"]
    mine.edit(found, Edit(fact=["The user named the boat Periwinkle."]))
    mine.edit(found, Edit(category="boats"))
    mine.verify(found)
    mine.undo(found, 1)
    now = boat(mine)
    assert "Marigold" in now["fact"]
    assert now["scene"].startswith("Picture:")
    assert (now["category"], now["status"], now["version"]) == ("boats", "verified", 4)
    with pytest.raises(StoreError, match="changed again after change 1"):
        mine.undo(found, 1)
    with pytest.raises(StoreError, match="no change 9"):
        mine.undo(found, 9)
    mine.undo(found, 4)
    assert "Periwinkle" in boat(mine)["fact"]


def test_what_cannot_be_kept_is_refused_and_credentials_are_masked(mine):
    found = boat(mine)["id"]
    for edit, error in (
        (Edit(), ConfigError),
        (Edit(fact=[" "]), DataError),
        (Edit(fact=["x" * 3000]), DataError),
        (Edit(fact=["half \ud83d"]), DataError),
        (Edit(anchor="../up"), DataError),
    ):
        with pytest.raises(error):
            mine.edit(found, edit)
    mine.edit(found, Edit(fact=["The password of the boat's radio is: hunter2-Zebra!9"]))
    assert "hunter2" not in kit.dump(mine.path)


def test_a_run_is_not_corrected(tmp_path):
    bench = kit.rows(tmp_path / "bench.json", kit.small_benchmark()[:1])
    assert kit.dualtrace("run", bench, "--out", tmp_path / "run", "--conditions", "c7", "--json").exit_code == 0
    found = kit.memories(tmp_path / "run" / "store")[0]["id"]
    result = kit.dualtrace("memory", "retract", found, "--store", tmp_path / "run" / "store")
    assert result.exit_code == 1
    assert "measures what was taught" in result.stderr


@pytest.mark.parametrize("point", ["after-version", "after-old-keys", "after-new-row"])
def test_p01_a_correction_that_was_killed_is_finished_at_the_next_opening(mine, embedder, tmp_path, point):
    found = boat(mine)["id"]
    command = ("memory", "edit", found, "--fact", "The user named the boat Periwinkle.", "--store", mine.path, "--model", "scripted")
    assert kit.child(tmp_path, *command, environment={"DUALTRACE_CRASH_POINT": point}).ended() == -signal.SIGKILL
    with Store.open(mine.path, embedder, write=True) as store:
        assert store.memory(found, Scope()).fact == "The user named the boat Periwinkle."
        assert found in store.keys(Selection(Scope()), "fact").owner_ids
    assert "Periwinkle" in mine.ask("What did I name my boat?").text


def test_commands_correct_and_show(mine):
    found = boat(mine)["id"]
    shown = kit.dualtrace("memory", "show", found[:10], "--store", mine.path).stdout
    assert "ROUND 1" in shown
    assert "A lovely name." in shown
    edited = kit.dualtrace("memory", "edit", found, "--fact", "The boat is Periwinkle.", "--store", mine.path).stdout
    assert "> The boat is Periwinkle. (a correction)" in edited
    kit.dualtrace("memory", "undo", found, "--store", mine.path)
    for arguments in (
        ("edit", found, "--category", "boats", "--by", "Ann"),
        ("verify", found),
        ("retract", found),
        ("undo", found),
        ("undo", found, "3"),
    ):
        result = kit.dualtrace("memory", *arguments, "--store", mine.path, "--json")
        assert result.exit_code == 0, result.stderr
        assert kit.document(result)["memory"]["id"] == found
    listed = kit.document(kit.dualtrace("memory", "history", "--store", mine.path, "--json"))["changes"]
    assert [c["action"] for c in listed] == ["taught", "edit", "undo 1", "edit", "verify", "retract", "undo 5", "undo 3"]
    assert "undo 5" in kit.dualtrace("memory", "history", found, "--store", mine.path).stdout
    assert boat(mine)["status"] == "verified"
