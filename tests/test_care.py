"""A store that can be checked and cared for: every flipped byte named, optimize, another embedding model, an older format."""

import json
import shutil
import signal
import subprocess

import kit
import lancedb
import pyarrow as pa
import pytest
from test_store import ANN, child, dump_of, outcome, taught

from dualtrace_local.embed import Embedder, load_embedder
from dualtrace_local.errors import StoreError
from dualtrace_local.store import Selection, Store
from dualtrace_local.store.care import migrate, optimize, reembed
from dualtrace_local.store.check import check
from dualtrace_local.store.folder import Folder
from dualtrace_local.store.sums import read_sums
from dualtrace_local.store.tables import TABLES, schema


@pytest.fixture(scope="module")
def whole(tmp_path_factory, embedder):
    path = tmp_path_factory.mktemp("whole") / "s"
    taught(path, embedder, [outcome(0), outcome(1)], [outcome(2, dropped=True)])
    with Store.open(path, embedder, write=True) as store:
        store.keys(Selection(ANN), "round")
        store.index_words()
    return path


@pytest.fixture
def mine(whole, tmp_path):
    subprocess.run(["cp", "-a", str(whole), str(tmp_path / "s")], check=True)
    return tmp_path / "s"


def problems(path, *, read=True):
    return [(p.where, p.what) for p in check(path, print, read=read).problems]


# ----------------------------------------------------------------------------------------------------------- check


def test_p05_a_whole_store_is_whole(mine):
    found = check(mine, print, read=True)
    assert found.problems == ()
    assert found.rows["memories"] == 4
    sums, bad = read_sums(mine)
    assert bad == []
    there = {str(f.relative_to(mine)) for f in mine.rglob("*.lance") if f.is_file()}
    assert there <= set(sums)


def test_p05_one_flipped_byte_in_any_file_is_found_and_named(mine):
    files = sorted(f for f in mine.rglob("*") if f.is_file() and f.name != ".lock" and f.stat().st_size)
    assert len(files) > 20
    for n, file in enumerate(files):
        before = file.read_bytes()
        at = (n * 7919) % len(before)
        file.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
        named = {where for where, _ in problems(mine)}
        name = str(file.relative_to(mine))
        assert name in named or (name == ".sums" and named), (name, at)
        file.write_bytes(before)
    assert problems(mine) == []


def test_p05_sizes_are_compared_without_reading(mine):
    file = next((mine / "memories.lance" / "data").iterdir())
    file.write_bytes(file.read_bytes() + b"x")
    assert problems(mine, read=False) == [
        (str(file.relative_to(mine)), f"has {file.stat().st_size} bytes, {file.stat().st_size - 1} were written")
    ]


def spoil(path, table, *changes):
    """Write a table anew with some values changed; the files are as they should be, what they say is not."""
    folder = Folder(path)
    rows = folder.rows(table)
    for row, column, change in changes:
        rows[row][column] = change(rows[row][column])
    folder.rewrite(table, folder.prepared(table, rows))


def test_p05_rows_that_are_not_as_they_must_be_are_named(mine, embedder):
    with Store.open(mine, embedder, write=True) as store:
        store.set_haystacks({"q": [store.sessions()[0].key]})
    spoil(mine, "memories", (0, "ordinal", lambda v: v + 7), (1, "version", lambda v: v + 1), (2, "user", lambda v: v + "x"))
    spoil(mine, "memories", (3, "total", lambda v: v - 1))
    spoil(mine, "rounds", (0, "ordinal", lambda v: v + 7))
    spoil(mine, "haystacks", (0, "question_id", lambda v: v + "x"))
    wrong = [(0, "vector", lambda v: [2 * x for x in v]), (1, "digest", lambda v: v[::-1]), (2, "terms", lambda v: v + " more")]
    spoil(mine, "vectors", *wrong, (3, "kind", lambda _: "anchor"))
    found = " / ".join(what for _, what in problems(mine, read=False))
    for told in (
        "its id does not fit its session and place",
        "is version 1, its history ends at 0",
        "its scope does not fit its names or its session",
        "its total does not fit its evidence",
        "its hash does not fit its question",
        "its vector is not 384 finite numbers of length 1",
        "its hash does not fit its text",
        "its text is not that of what it is a key of",
        "its id does not fit its owner and kind",
        "is active and has keys for",
    ):
        assert told in found


def test_p05_the_commands_say_so_and_end_with_1(mine):
    good = kit.dualtrace("store", "check", "--read-data", "--store", mine)
    assert (good.exit_code, good.stdout.split(":")[0]) == (0, "whole")
    spoil(mine, "vectors", (0, "digest", lambda v: v[::-1]))
    bad = kit.dualtrace("store", "check", "--store", mine, "--json")
    assert bad.exit_code == 1
    assert not kit.document(bad)["whole"]
    assert kit.dualtrace("store", "check", "--store", mine / "none").exit_code == 1


# -------------------------------------------------------------------------------------------------------- optimize


def test_optimize_leaves_one_version_and_the_same_rows(mine, embedder):
    with Store.open(mine, embedder, write=True) as store:
        for n in range(3, 9):
            store.commit([outcome(n)])
    before = dump_of(mine)
    size, smaller = optimize(mine, print)
    assert smaller < size
    assert dump_of(mine) == before
    assert all(len(list((mine / f"{t}.lance" / "_versions").glob("*.manifest"))) == 1 for t in TABLES)
    assert problems(mine) == []
    assert kit.document(kit.dualtrace("store", "optimize", "--store", mine, "--json"))["bytes_after"] > 0


# --------------------------------------------------------------------------------------------------------- reembed


@pytest.fixture(scope="module")
def small(tmp_path_factory, embedder) -> Embedder:
    """An embedding model of another size, with invented weights and the real one's words."""
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel

    place = tmp_path_factory.mktemp("small")
    config = BertConfig(vocab_size=30522, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model = BertModel(config)
    config.architectures = ["BertModel"]
    config.save_pretrained(place)
    save_file(model.state_dict(), place / "model.safetensors", metadata={"format": "pt"})
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (embedder.folder / name).exists():
            shutil.copy(embedder.folder / name, place / name)
    return load_embedder("small", place, 32)


def test_reembed_moves_a_store_to_another_model_and_goes_on_where_it_was_cut_off(mine, embedder, small):
    before = dump_of(mine)
    body = f"""
        store.close()
        from dualtrace_local.store import care, vectors
        care.AT_ONCE = 3
        care.reembed(Path(sys.argv[3]), load_embedder("small", Path({str(small.folder)!r}), 32), print)
    """
    for point in ("reembed-batch", "reembed-before-swap"):
        assert child(embedder, mine, body, DUALTRACE_CRASH_POINT=point).wait(120) == -signal.SIGKILL
        with Store.open(mine, embedder) as old:
            assert len(old.keys(Selection(ANN), "fact").owner_ids) == 4
    told = []
    assert reembed(mine, small, print, told.append) == 8 + 6
    assert told[0] == 14, "everything was there already"
    with Store.open(mine, small) as store:
        assert store.info().dimension == 32
        assert store.words_indexed
        assert len(store.keys(Selection(ANN), "round").owner_ids) == 6
    assert problems(mine) == []
    assert not (mine / ".reembed").exists()
    with pytest.raises(StoreError, match="move the store to this one"):
        Store.open(mine, embedder)
    assert reembed(mine, small, print) == 0
    assert reembed(mine, embedder, print) == 14
    assert dump_of(mine) == before


def test_reembed_goes_by_the_role(mine):
    told = kit.document(kit.dualtrace("store", "reembed", "--store", mine, "--json"))
    assert told == {"embedder": "all-minilm-l6-v2", "vectors": 0}


# --------------------------------------------------------------------------------------------------------- migrate


def make_old(path):
    """The store as format 1 had it: no corrections, one column of forgotten keys, the embedding model in the ledger's schema."""
    folder = Folder(path)
    said = folder.metadata | {"version": "1"}
    later = {"memories": {"status", "version"}, "forgotten": {"kind", "session_key", "scope", "user", "project"}}
    database = lancedb.connect(str(path))
    for table in TABLES:
        rows = folder.read(table).drop_columns(list(later.get(table, ())))
        plain = pa.schema([pa.field(f.name, f.type, nullable=False) for f in rows.schema], metadata=said if table == "sessions" else None)
        database.create_table(table, rows.cast(plain), mode="overwrite")
    database.drop_table("versions")
    (path / ".sums").unlink()


def test_an_older_format_is_refused_untouched_and_migrated_whatever_stops_it(mine, embedder, tmp_path):
    before, secret = dump_of(mine), Store.open(mine, None).secret
    make_old(mine)
    files = sorted(mine.rglob("*"))
    with pytest.raises(StoreError, match=r"format version 1, this program reads 2: bring it up to date: `dualtrace store migrate"):
        Store.open(mine, embedder, write=True)
    assert [f for f in sorted(mine.rglob("*")) if f not in files and f.name != ".lock"] == []
    for point in ("migrate-memories", "migrate-forgotten"):
        killed = kit.child(tmp_path, "store", "migrate", "--store", mine, environment={"DUALTRACE_CRASH_POINT": point})
        assert killed.ended() == -signal.SIGKILL
    assert kit.document(kit.dualtrace("store", "migrate", "--store", mine, "--json")) == {"before": 1, "after": 2}
    assert dump_of(mine) == before
    assert Store.open(mine, embedder).secret == secret
    assert problems(mine) == []
    assert migrate(mine, print) == (2, 2)
    assert schema("memories", 384).equals(Folder(mine).table("memories").schema)
    assert json.dumps(before)
