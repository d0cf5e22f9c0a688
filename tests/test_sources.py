"""Files as they come: packed, of other kinds, under wrong names, written by this program itself; and chats as other programs save them."""

import gzip
import io
import json
import random
import re
import resource
import sqlite3
import tarfile
import zipfile

import kit
import pytest

from dualtrace_local.corpus import packed, read
from dualtrace_local.errors import DataError
from dualtrace_local.records import Entry, Rejected


def said(*contents, name="s1"):
    """A plain session of the user's words."""
    return {"id": name, "turns": [{"role": "user", "content": c} for c in contents]}


def written(tmp_path, content, name="source.json"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def turns(entry):
    return [(t.role, t.text) for s in entry.sessions for t in s.turns]


# ------------------------------------------------------------------------------------------------------- ShareGPT


def test_sgp_01_speakers_by_name_and_odd_rows_one_line_each(tmp_path):
    """A speaker is known by what it is called, never by its place; what no speaker said is one line, and the rest goes on."""
    rows = [
        {"id": "a", "conversations": [{"from": "human", "value": "I keep bees."}, {"from": "gpt", "content": None, "value": "Nice."}]},
        {"id": "b", "messages": [{"from": "chatgpt", "role": None, "value": "Hello."}, {"role": "user", "content": "I paint."}]},
        {"id": "c", "conversations": [{"assistant": "Good.", "user": "I row."}]},
        {"id": "d", "conversations": [7, "I swim."]},
        {"id": "e", "conversations": None},
        {"id": "f", "conversations": [{"from": "bard", "value": "x"}, {"from": "SYSTEM", "value": "y"}, {"from": "Human", "value": "z"}]},
        {"id": "g", "conversations": [{"from": "human"}]},
        {"id": "h", "conversations": [{"value": "Who said that?"}]},
        {"id": "i", "conversations": [{"from": "human", "value": {"text": "I sing."}}]},
        {"id": "j", "conversations": None, "messages": [{"role": "human", "content": "I knit."}]},
    ]

    found = list(read(written(tmp_path, "\n".join(map(json.dumps, rows)).encode())))

    assert [turns(e) for e in found if isinstance(e, Entry)] == [
        [("user", "I keep bees."), ("assistant", "Nice.")],
        [("assistant", "Hello."), ("user", "I paint.")],
        [("user", "I row."), ("assistant", "Good.")],
        [("bard", "x"), ("system", "y"), ("user", "z")],
        [("user", "I knit.")],
    ]
    assert [str(e) for e in found if isinstance(e, Rejected)] == [
        "source.json:4: conversations[0] is a number, not an object",
        "source.json:5: conversations is null, not a list",
        "source.json:7: conversations[0].content is missing",
        "source.json:8: conversations[0].role is missing",
        "source.json:9: conversations[0].value is an object, not text",
    ]


def test_sharegpt_is_taught(tmp_path):
    rows = [{"id": "a", "conversations": [{"from": "human", "value": "I own 3 kayaks."}, {"from": "gpt", "value": "Fine."}]}]
    totals = kit.teach(tmp_path / "store", written(tmp_path, rows))

    assert (totals["taught"], totals["failed"]) == (1, 0)
    assert "3 kayaks" in kit.ask(tmp_path / "store", "How many kayaks do I own?")["answer"]


# ------------------------------------------------------------------------------------------------------- layouts


@pytest.mark.parametrize("name", ["chats.json", "chats.jsonl", "chats.gz", "chats"])
@pytest.mark.parametrize("layout", ["array", "lines", "object"])
@pytest.mark.parametrize("pack", [False, True])
def test_the_content_tells_the_format_and_the_name_means_nothing(tmp_path, name, layout, pack):
    records = [said("one")] if layout == "object" else [said("one"), said("two")]
    text = {
        "array": json.dumps(records, indent=1),
        "lines": "\r\n".join(map(json.dumps, records)) + "\r\n",
        "object": json.dumps(records[0], indent=2),
    }[layout]
    content = b"\xef\xbb\xbf" + text.encode()

    found = list(read(written(tmp_path, gzip.compress(content) if pack else content, name)))

    assert [turns(e) for e in found] == [[("user", "one")], [("user", "two")]][: len(records)]


def test_one_object_that_is_broken_is_one_line(tmp_path):
    (bad,) = read(written(tmp_path, b'{\n "id": "x",\n "turns": [}\n'))

    assert "broken JSON" in str(bad)


def test_files_of_several_packed_parts(tmp_path):
    """What `cat a.gz b.gz` makes."""
    parts = [gzip.compress(json.dumps(said(t)).encode() + b"\n") for t in ("one", "two")]

    assert [turns(e)[0][1] for e in read(written(tmp_path, b"".join(parts)))] == ["one", "two"]


# ------------------------------------------------------------------------------------------------------- gzip


@pytest.mark.parametrize("layout", ["array", "lines"])
@pytest.mark.parametrize("harm", ["cut off", "damaged"])
def test_a_packed_file_that_is_cut_off_or_damaged(tmp_path, layout, harm):
    """What comes before is used; the end is one line. (Damaged: the checksum at its end is another.)"""
    words = random.Random(7)  # noqa: S311 - no secret
    records = [said(" ".join(str(words.random()) for _ in range(20)), name=str(n)) for n in range(300)]
    content = gzip.compress((json.dumps(records) if layout == "array" else "\n".join(map(json.dumps, records))).encode())
    content = content[: len(content) // 2] if harm == "cut off" else content[:-8] + b"\xff" * 4 + content[-4:]

    *good, bad = read(written(tmp_path, content))

    assert len(good) > 100
    assert all(isinstance(e, Entry) for e in good)
    assert str(bad) == f"source.json:{len(good) + 1}: the gzip file is {harm} here; copy it again"


def test_a_packed_file_that_holds_nothing_whole(tmp_path):
    with pytest.raises(DataError, match="gzip file is cut off"):
        read(written(tmp_path, gzip.compress(b"[]" * 9)[:10]))


def bomb(path, unit, megabytes, head=b""):
    """A gzip file that unpacks to ``megabytes`` of the same byte."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(head)
        for _ in range(megabytes):
            file.write(unit * (1 << 20))
    return path


@pytest.mark.parametrize(
    ("unit", "megabytes", "head", "reason"),
    [
        (b"\n", (packed.BOMB_FROM >> 20) + 8, b'{"turns": []}\n', "unpacks to more than 100 times its size"),
        (b"a", 70, b'[{"turns": [{"role": "user", "content": "', "longer than 64 MiB"),
        (b",", 70, b"[", "100000 records in a row cannot be read"),
    ],
    ids=["blank lines", "one record", "no records"],
)
def test_a_bomb_ends_and_fills_no_memory(tmp_path, unit, megabytes, head, reason):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    *_, last = read(bomb(tmp_path / "b.gz", unit, megabytes, head))

    assert reason in str(last)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_a_bomb_of_nothing_but_white_space(tmp_path):
    with pytest.raises(DataError, match="unpacks to more than 100 times"):
        read(bomb(tmp_path / "b.gz", b" ", (packed.BOMB_FROM >> 20) + 8))


# ------------------------------------------------------------------------------------------------------- other kinds


def zipped():
    with zipfile.ZipFile(made := io.BytesIO(), "w") as archive:
        archive.writestr("chats.json", "[]")
    return made.getvalue()


def tarred():
    with tarfile.open(fileobj=(made := io.BytesIO()), mode="w") as archive:
        archive.addfile(tarfile.TarInfo("chats.json"))
    return made.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (zipped(), "zip archive.*unpack it"),
        (tarred(), "tar archive.*unpack it"),
        (gzip.compress(tarred()), "tar archive"),
        (gzip.compress(gzip.compress(b"[]")), "packed twice"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "zstd -d"),
        (b"\xfd7zXZ\x00\x00", "unxz"),
        (b"BZh91AY", "bunzip2"),
        (b"PAR1\x15\x04", "Parquet"),
        (b"SQLite format 3\x00" + bytes(80), "SQLite database"),
        (b"%PDF-1.7\n", "PDF"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "picture"),
        (b"GGUF\x03\0\0\0", "weights of a model"),
        (b"\n<!DOCTYPE html><html>", "web page"),
        (b"<html><body>", "web page"),
        (b"<?xml version='1.0'?>", "XML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"[FACT:kayak-blue]\n---\n", "exported memory"),
        (b"[SCENE:kayak-blue]\n---\n", "exported memory"),
    ],
)
def test_another_kind_of_file_is_named_and_refused(tmp_path, content, words):
    """By its first bytes, whatever it is called, in one line that says what to do."""
    path = written(tmp_path, content, "chats.jsonl")
    with pytest.raises(DataError, match=words):
        read(path)

    result = kit.dualtrace("teach", path, "--store", tmp_path / "store")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "store").exists()


def test_a_real_database_is_known(tmp_path):
    with sqlite3.connect(tmp_path / "chats.json") as base:
        base.execute("create table t (x)")
    with pytest.raises(DataError, match="SQLite"):
        read(tmp_path / "chats.json")


# ------------------------------------------------------------------------------------------------------- own output


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Every kind of file that a run leaves, and what commands print."""
    at = tmp_path_factory.mktemp("own")
    bench = kit.rows(at / "b.json", kit.small_benchmark())
    assert kit.dualtrace("run", bench, "--out", at / "run", "--conditions", "c6").exit_code == 0
    printed = {
        "dump.jsonl": kit.dump(at / "run" / "store"),
        "memories.json": kit.dualtrace("memory", "list", "--store", at / "run" / "store", "--json").stdout,
        "answer.json": kit.dualtrace("ask", "What did I name my boat?", "--store", at / "run" / "store", "--json").stdout,
        "totals.json": kit.dualtrace("teach", bench, "--store", at / "run" / "store", "--json").stdout,
        "result.json": kit.dualtrace("report", at / "run", "--json").stdout,
    }
    for name, text in printed.items():
        (at / name).write_text(text, encoding="utf-8")
    (at / "failures.jsonl").write_text('{"stage":"teach","key":"k","source":"s","record":1,"reason":"cut off","raw":"I own"}\n')
    return at


@pytest.mark.parametrize(
    "name",
    ["run/answers/c6.jsonl", "run/answers/c6.hypotheses.jsonl", "run/verdicts/c6.scripted.jsonl", "run/gold.jsonl", "run/questions.jsonl",
     "run/sessions.jsonl", "run/usage.jsonl", "run/run.json", "run/report/report.json", "dump.jsonl", "memories.json", "answer.json",
     "totals.json", "result.json", "failures.jsonl"],
)  # fmt: skip
def test_p19_what_this_program_wrote_is_never_taught(tmp_path, outputs, name):
    """Answers and verdicts would come back as things the user said."""
    result = kit.dualtrace("teach", outputs / name, "--store", tmp_path / "store")

    assert result.exit_code == 1
    assert re.fullmatch(rf"dualtrace: {name.split('/')[-1]} holds .*; what this program wrote is never taught\.\n", result.stderr)
    assert not (tmp_path / "store").exists()


def test_own_lines_among_chats_cost_themselves_alone(tmp_path, outputs):
    answer = (outputs / "run" / "answers" / "c6.jsonl").read_text().splitlines()[0]
    source = written(tmp_path, f"{json.dumps(said('I own a kayak.'))}\n{answer}\n{json.dumps(said('I own a loom.'))}\n".encode())

    first, bad, last = read(source)

    assert [turns(e)[0][1] for e in (first, last)] == ["I own a kayak.", "I own a loom."]
    assert str(bad) == "source.json:2: answers of a run; what this program wrote is never taught"


def test_a_chat_about_our_fields_is_a_chat(tmp_path):
    record = said("I like state machines.") | {
        "question_id": None,
        "state": "A",
        "abstained": False,
        "table": "memories",
        "condition": "c6",
    }

    (entry,) = read(written(tmp_path, [record | {"haystack": []}]))
    assert isinstance(entry, Rejected)  # a question_id makes it a row of the benchmark

    del record["question_id"]
    (entry,) = read(written(tmp_path, [record]))
    assert turns(entry) == [("user", "I like state machines.")]
