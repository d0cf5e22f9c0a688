"""Personal imports: what ChatGPT and Claude give back, and chats as Markdown or text. All inputs are invented."""

import io
import json
import tracemalloc
import zipfile
from datetime import datetime

import kit
import pytest

from dualtrace_local.corpus import found, read
from dualtrace_local.errors import DataError
from dualtrace_local.records import Entry, Rejected

MONDAY = 1_709_539_200.0
"""2024-03-04 08:00 UTC."""
HOUR = 3600


def message(role, *parts, at=None, **more):
    content = {"content_type": "multimodal_text" if any(isinstance(p, dict) for p in parts) else "text", "parts": list(parts)}
    return {"author": {"role": role}, "create_time": at, "content": content} | more


def chatgpt(nodes, *, title="Loom", at=MONDAY, leaf=None, name="abcdef01-2345"):
    """A conversation; ``nodes`` are (id, parent, message)."""
    mapping = {i: {"id": i, "parent": p, "message": m, "children": [c for c, up, _ in nodes if up == i]} for i, p, m in nodes}
    return {"title": title, "create_time": at, "conversation_id": name, "mapping": mapping} | ({"current_node": leaf} if leaf else {})


def simple(n, *said, at=MONDAY):
    """A conversation of user and assistant in turn."""
    nodes = [("root", None, None)]
    for k, text in enumerate(said):
        nodes.append((f"m{k}", nodes[-1][0], message(("user", "assistant")[k % 2], text, at=at + k)))
    return chatgpt(nodes, title=f"Talk {n}", at=at, leaf=nodes[-1][0], name=f"{n:08d}-x")


def claude(*messages, name="Bread", created="2024-03-04T08:00:00.5Z", **more):
    return {"uuid": "9f8e7d6c-1", "name": name, "created_at": created, "chat_messages": list(messages)} | more


def written(tmp_path, content, name="conversations.json"):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def zipped(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, bytes | str) else json.dumps(content))
    return path


def turns(entry):
    return [[(t.role, t.text) for t in s.turns] for s in entry.sessions]


def only(path):
    (entry,) = read(path)
    assert isinstance(entry, Entry), entry
    return entry


# ------------------------------------------------------------------------------------------------------- ChatGPT


def test_gpt_01_a_conversation_with_its_date_and_title(tmp_path):
    entry = only(written(tmp_path, [simple(1, "What is a heddle?", "A part of a loom.")], "anything.txt"))

    assert turns(entry) == [[("user", "What is a heddle?"), ("assistant", "A part of a loom.")]]
    (session,) = entry.sessions
    assert (session.date, session.external_id, session.source, session.record) == (
        datetime(2024, 3, 4, 8), "Talk 1 (00000001)", "anything.txt", 1,
    )  # fmt: skip
    assert entry.left_out == ()


def test_gpt_01_json_of_an_unknown_shape_is_one_line_and_no_text(tmp_path):
    path = written(tmp_path, [{"title": "Boats", "nodes": {"a": "User: I own a boat."}}])
    (bad,) = read(path)

    assert isinstance(bad, Rejected)
    for shape in ("turns", "messages", "haystack_sessions", "mapping", "chat_messages"):
        assert shape in bad.reason
    assert kit.teach(tmp_path / "store", path, code=3)["failed"] == 1


def branched(leaf):
    return chatgpt(
        [
            ("r", None, None),
            ("q", "r", message("user", "My cat is Tofu.", at=MONDAY)),
            ("draft", "q", message("assistant", "A dull draft.", at=MONDAY + 1)),
            ("again", "draft", message("user", "More?", at=MONDAY + 2)),
            ("kept", "q", message("assistant", "Hello Tofu!", at=MONDAY + 3)),
            ("end", "kept", message("user", "She is grey.", at=MONDAY + 4)),
        ],
        leaf=leaf,
    )


@pytest.mark.parametrize("leaf", ["end", None])
def test_gpt_02_the_branch_that_was_seen_last(tmp_path, leaf):
    """The named leaf, else the newest one; drafts are other branches."""
    entry = only(written(tmp_path, [branched(leaf)]))

    assert turns(entry) == [[("user", "My cat is Tofu."), ("assistant", "Hello Tofu!"), ("user", "She is grey.")]]
    assert entry.left_out == ("messages on other branches",) * 2


def test_gpt_02_an_older_branch_that_was_gone_back_to(tmp_path):
    entry = only(written(tmp_path, [branched("again")]))

    assert turns(entry)[0][1] == ("assistant", "A dull draft.")


def test_gpt_02_circles_and_missing_parents_cost_their_conversation_alone(tmp_path):
    good = simple(7, "I row.")
    circle = chatgpt([("a", "b", message("user", "x")), ("b", "a", message("assistant", "y"))], leaf="a")
    no_leaf = chatgpt([("a", "b", message("user", "x")), ("b", "a", message("assistant", "y"))])
    lost = chatgpt([("a", "gone", message("user", "x"))], leaf="a")
    found_in = list(read(written(tmp_path, [circle, no_leaf, lost, {"mapping": []}, good])))

    assert [str(e) for e in found_in if isinstance(e, Rejected)] == [
        'conversations.json:1: mapping has parents that go in a circle at: "a"',
        "conversations.json:2: mapping has no last message: its parents go in a circle",
        'conversations.json:3: mapping does not hold the message: "gone"',
        "conversations.json:4: mapping is a list, not an object",
    ]
    assert turns(found_in[-1]) == [[("user", "I row.")]]


def test_gpt_03_what_nobody_said_is_left_out_and_counted(tmp_path):
    hidden = {"metadata": {"is_visually_hidden_from_conversation": True}}
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://f1"}
    chain = [
        ("s", None, message("system", "")),
        ("h", "s", message("user", "I am called Bo.", **hidden)),
        ("u", "h", message("user", picture, "Which bird is this?")),
        ("th", "u", {"author": {"role": "assistant"}, "content": {"content_type": "thoughts", "thoughts": []}}),
        ("c", "th", {"author": {"role": "assistant"}, "recipient": "python", "content": {"content_type": "code", "text": "look()"}}),
        ("t", "c", {"author": {"role": "tool"}, "content": {"content_type": "execution_output", "text": "owl"}}),
        ("n", "t", {"author": {"role": "assistant"}, "content": None}),
        ("p", "n", message("user", picture)),
        (
            "v",
            "p",
            message("assistant", {"content_type": "audio_transcription", "text": "An owl."}, {"content_type": "audio_asset_pointer"}),
        ),
    ]
    entry = only(written(tmp_path, [chatgpt(chain, title=None, leaf="v")]))

    assert turns(entry) == [[("user", "[image] Which bird is this?"), ("assistant", "An owl.")]]
    assert sorted(entry.left_out) == [
        "hidden messages", *["messages without text"] * 2, "system messages", "thinking", *["tool messages"] * 2,
    ]  # fmt: skip
    assert entry.sessions[0].external_id == "[image] Which bird is this? (abcdef01)"


@pytest.mark.parametrize(
    ("times", "day"),
    [
        ({"create_time": MONDAY, "update_time": MONDAY + 1}, "2024-03-04"),
        ({"create_time": None, "update_time": MONDAY + 86_400}, "2024-03-05"),
        ({"create_time": 0}, "2024-03-06"),
        ({"create_time": "2024-03-09T10:00:00Z"}, "2024-03-09"),
    ],
)
def test_gpt_04_the_date_and_what_stands_for_it(tmp_path, times, day):
    record = chatgpt([("a", None, message("user", "I like figs.", at=MONDAY + 2 * 86_400))], leaf="a") | {"create_time": None} | times

    assert f"{only(written(tmp_path, [record])).sessions[0].date:%Y-%m-%d}" == day


def test_gpt_04_no_time_at_all_is_undated_and_never_today(tmp_path):
    none = chatgpt([("a", None, message("user", "I fixed my gate yesterday."))], leaf="a", at=None)
    del none["create_time"]
    bad = simple(2, "x") | {"create_time": "soon"}
    path = written(tmp_path, [none, simple(3, "I bought 4 quinces."), bad])
    totals = kit.teach(tmp_path / "store", path, code=3)

    assert (totals["taught"], totals["failed"]) == (2, 1)
    assert {m["date"] for m in kit.memories(tmp_path / "store")} == {"", "2024-03-04 08:00"}
    assert '"soon"' in str(list(read(path))[-1])


def test_a_talk_that_goes_on_after_a_night_is_another_session(tmp_path):
    """ "Yesterday" means another day then; and a grown conversation adds only what is new."""
    night = MONDAY + 24 * HOUR
    short = [
        ("a", None, message("user", "I sowed 9 leeks yesterday.", at=MONDAY)),
        ("b", "a", message("assistant", "Good.", at=MONDAY + 9)),
    ]
    grown = [*short, ("c", "b", message("user", "I sowed 8 beets yesterday.", at=night))]
    first = kit.teach(tmp_path / "store", written(tmp_path, [chatgpt(short, leaf="b")]))
    again = kit.teach(tmp_path / "store", written(tmp_path, [chatgpt(grown, leaf="c")]))

    assert (first["taught"], again["taught"], again["unchanged"]) == (1, 1, 1)
    days = {m["components"][0]["text"]: m["components"][0]["events"][0]["day"] for m in kit.memories(tmp_path / "store")}
    assert {("leeks" in text, day) for text, day in days.items()} == {(True, "2024-03-03"), (False, "2024-03-04")}
    assert [s.external_id for s in only(tmp_path / "conversations.json").sessions] == ["Loom (abcdef01)", "Loom (abcdef01), part 2"]


# ------------------------------------------------------------------------------------------------------- Claude


def test_cla_01_attachments_hold_words_and_nothing_is_said_twice(tmp_path):
    entry = only(
        written(
            tmp_path,
            [
                claude(
                    {"sender": "human", "text": "", "content": [], "attachments": [
                        {"file_name": "list.txt", "extracted_content": "My ferry leaves on 7 May."}, {"file_name": "b.pdf"}], "files": []},
                    {"sender": "assistant", "text": "Seen.\n```\nThis block is not supported\n```", "content": [
                        {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Seen."}, {"type": "tool_use", "name": "web"},
                        {"type": "tool_result", "content": []}]},
                    {"sender": "human", "text": "And this?", "files": [{"file_name": "loaf.jpg"}]},
                    {"sender": "human", "text": " ", "content": [{"type": "text", "text": ""}]},
                    name="",
                )
            ],
        )
    )  # fmt: skip

    assert turns(entry) == [
        [
            ("user", "[attachment b.pdf] [attachment list.txt] My ferry leaves on 7 May."),
            ("assistant", "Seen."),
            ("user", "[file loaf.jpg] And this?"),
        ]
    ]
    assert sorted(entry.left_out) == ["messages without text", "thinking", "tool messages", "tool messages"]
    assert entry.sessions[0].date == datetime(2024, 3, 4, 8)
    assert entry.sessions[0].external_id.startswith("[attachment b.pdf]")


def said(sender, text, uuid, parent, at="2024-03-04T08:00:00Z"):
    return {"sender": sender, "text": text, "uuid": uuid, "parent_message_uuid": parent, "created_at": at}


@pytest.mark.parametrize(("leaf", "last"), [({}, "new"), ({"current_leaf_message_uuid": "b"}, "old")])
def test_branches_of_claude(tmp_path, leaf, last):
    record = claude(
        said("human", "I bake.", "a", "0000"), said("assistant", "old", "b", "a"), said("assistant", "new", "c", "a"), **leaf
    )  # fmt: skip
    entry = only(written(tmp_path, [record]))

    assert turns(entry) == [[("user", "I bake."), ("assistant", last)]]
    assert entry.left_out == ("messages on other branches",)


def test_a_conversation_without_words_is_empty_and_the_sum_holds(tmp_path):
    path = written(tmp_path, [claude(), claude({"sender": "human", "text": ""}, created="2024-03-05T08:00:00Z"), {"chat_messages": None}])
    totals = kit.teach(tmp_path / "store", path, code=3)

    assert (totals["read"], totals["empty"], totals["failed"]) == (3, 2, 1)
    assert totals["left_out"] == {"messages without text": 1}


# ------------------------------------------------------------------------------------------------------- text


HEADINGS = """\
# 2024-03-09 18:20 Buying a concertina

## User
I bought a concertina.
User: is no speaker here

## Assistant
{"fine": 1}
"""
BOLD = """\
---
title: 'Buying a concertina'
date: 2024-03-09T18:20:00Z
tags: [a, b]
---

**You:** I bought a concertina.
User: is no speaker here

**ChatGPT:** {"fine": 1}"""
PLAIN = """\
\ufeff---
create_time: 1710008400
---
# Buying a concertina

You said:
I bought a concertina.
## User: is no speaker here

ChatGPT said:
{"fine": 1}
"""


@pytest.mark.parametrize("text", [HEADINGS, BOLD, PLAIN.replace("\n", "\r\n")], ids=["headings", "bold", "plain"])
@pytest.mark.parametrize("name", ["chat.md", "chat.json"])
def test_one_chat_as_text_in_each_style(tmp_path, text, name):
    entry = only(written(tmp_path, text.encode(), name))

    (talk,) = turns(entry)
    assert talk[0][1].splitlines()[0] == "I bought a concertina."
    assert talk[0][1].splitlines()[1].endswith("is no speaker here")
    assert talk[1:] == [("assistant", '{"fine": 1}')]
    (session,) = entry.sessions
    assert f"{session.date:%Y-%m-%d %H}" == "2024-03-09 18"
    assert session.external_id == "Buying a concertina"


def test_several_chats_in_one_text(tmp_path):
    text = "User: no date.\n# 2024-03-09\nHuman: one\n# 2024-02-30 A day that is none\nUser: two\n# 2024-03-11 Three\nAI: three\n"
    one, two, bad, three = read(written(tmp_path, text.encode(), "log.txt"))

    assert [e.sessions[0].date and f"{e.sessions[0].date:%m-%d}" for e in (one, two, three)] == [None, "03-09", "03-11"]
    assert str(bad) == 'log.txt:3: date not readable: "2024-02-30"'
    assert turns(three) == [[("assistant", "three")]]
    assert one.sessions[0].external_id.startswith("text-")


@pytest.mark.parametrize(
    "text", ["Dear diary.\nUser: hello", "# Notes\n\nSome words.\n", "---\na: b\n---\nNote: buy milk\n", "# A\n# B\nUser: x\n"]
)
def test_other_text_is_no_chat(tmp_path, text):
    with pytest.raises(DataError, match=r"not JSON.*`## User`"):
        read(written(tmp_path, text.encode(), "notes.md"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [(b"User: caf\xe9\n", "not UTF-8 at byte 10 of the chat"), (b"---\n{a: [b\n---\nUser: x\n", "the front matter is not YAML")],
)
def test_a_chat_as_text_that_cannot_be_read(tmp_path, text, reason):
    (bad,) = read(written(tmp_path, text, "chat.md"))

    assert reason in str(bad)


# ------------------------------------------------------------------------------------------------------- folders, archives

EXPORT = {
    "conversations.json": [simple(1, "I bought 3 kayaks.", "Nice."), branched("end")],
    "user.json": {"id": "user-1", "email": "bo@example.invalid"},
    "message_feedback.json": [{"id": "m1", "rating": "thumbs_up"}],
    "chat.html": "<html></html>",
    "images/a.png": b"\x89PNG\r\n\x1a\n\0\0\0",
}


def folder(tmp_path):
    for name, content in EXPORT.items():
        written(tmp_path / "export", content.encode() if isinstance(content, str) else content, name)
    return tmp_path / "export"


@pytest.mark.parametrize("kind", ["zip", "zip in a folder", "folder", "file", "renamed"])
def test_an_export_in_every_wrapping(tmp_path, kind):
    """By content: the names inside mean nothing, and what holds no chats is counted."""
    path = {
        "zip": lambda: zipped(tmp_path / "export.zip", EXPORT),
        "zip in a folder": lambda: zipped(tmp_path / "export", {f"2024/{name}": c for name, c in EXPORT.items()}),
        "folder": lambda: folder(tmp_path),
        "file": lambda: written(tmp_path, EXPORT["conversations.json"], "export"),
        "renamed": lambda: zipped(tmp_path / "export.json", {"x.dat": EXPORT["conversations.json"], "conversations.json": [{"id": 1}]}),
    }[kind]()
    totals = kit.teach(tmp_path / "store", path)
    again = kit.teach(tmp_path / "store", path)

    assert (totals["read"], totals["failed"]) == (2, 0)
    assert (again["unchanged"], again["taught"]) == (2, 0)
    others = {"renamed": 1, "file": 0}.get(kind, 4)
    assert totals["left_out"] == ({"files without chats": others} if others else {}) | {"messages on other branches": 2}
    (bought,) = [m["id"] for m in kit.memories(tmp_path / "store") if "kayaks" in str(m)]
    shown = kit.document(kit.dualtrace("memory", "show", bought, "--store", tmp_path / "store", "--json"))
    inside = {"zip in a folder": "/2024/conversations.json", "file": "", "renamed": "/x.dat"}.get(kind, "/conversations.json")
    assert shown["source"] == f"{path.name}{inside}:1"


def test_totals_name_what_was_left_out(tmp_path):
    result = kit.dualtrace("teach", zipped(tmp_path / "export.zip", EXPORT), "--store", tmp_path / "store")

    assert "left out: 4 files without chats, 2 messages on other branches" in result.stdout


def test_data_check_of_an_archive(tmp_path):
    path = zipped(
        tmp_path / "export.zip", {**EXPORT, "more/claude.json": [claude({"sender": "human", "text": "I bake."})], "a.md": "User: I row."}
    )
    found_in = kit.document(kit.dualtrace("data", "check", path, "--json", model=None))["files"]

    assert [(f["file"], f["formats"], f["occurrences"]) for f in found_in] == [
        ("export.zip/a.md", {"text": 1}, 1),
        ("export.zip/conversations.json", {"chatgpt": 2}, 2),
        ("export.zip/more/claude.json", {"claude": 1}, 1),
    ]
    assert found_in[1]["left_out"] == {"messages on other branches": 2}
    assert found_in[1]["bytes"] == len(json.dumps(EXPORT["conversations.json"]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: zipped(p / "x.zip", {"chats.json": [], "b.json": [{"id": "1", "turns": []}]}), "without an export .*unpack it"),
        (lambda p: zipped(p / "x.zip", {}), "without an export"),
        (lambda p: written(p, b"PK\x03\x04 no archive at all", "x.zip"), "damaged zip archive"),
        (lambda p: written(p, b"[]", "folder/a.json").parent, "is a folder without an export .*name the files in it"),
    ],
)
def test_an_archive_or_folder_without_an_export(tmp_path, make, words):
    with pytest.raises(DataError, match=words):
        read(make(tmp_path))


def test_archives_that_are_harmed_locked_or_bombs(tmp_path):
    chats = [simple(n, f"I own {n} looms. {'thread ' * 50}") for n in range(400)]
    path = zipped(tmp_path / "x.zip", {"conversations.json": chats})
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 16] ^= 0xFF  # the checksum
    (tmp_path / "harmed.zip").write_bytes(content)
    *_, last = read(tmp_path / "harmed.zip")
    assert "the zip archive is damaged here; copy it again" in str(last)

    locked = bytearray(path.read_bytes())
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(locked)
    with pytest.raises(DataError, match="protected by a password; unpack it"):
        read(tmp_path / "locked.zip")

    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("c.json", "w") as file:
        file.write(json.dumps([simple(1, "I row.")])[:-1].encode() + b',{"mapping": "')
        for _ in range(70):
            file.write(b"a" * (1 << 20))
    first, last = read(tmp_path / "bomb.zip")
    assert isinstance(first, Entry)
    assert "longer than 64 MiB" in str(last)


def test_p21_names_in_an_archive_make_no_file(tmp_path):
    """They are shown, and nothing is unpacked."""
    path = zipped(tmp_path / "x.zip", {"../../out\n.json": [simple(1, "I row.")]})
    before = sorted(tmp_path.rglob("*"))
    entry = only(path)

    assert entry.source == "x.zip/../../out␊.json"
    assert sorted(tmp_path.rglob("*")) == before


def test_p24_memory_does_not_grow_with_an_export(tmp_path):
    peaks = []
    for count in (60, 3000):
        path = zipped(tmp_path / f"{count}.zip", {"c.json": [simple(n, "words " * 170, "more " * 170) for n in range(count)]})
        tracemalloc.start()
        assert sum(1 for _ in read(path)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] - peaks[0] < 3_000_000


def test_p08_a_later_file_of_a_folder_that_is_broken_costs_itself(tmp_path):
    written(tmp_path / "export", [simple(1, "I bought 3 kayaks.")], "a.json")
    written(tmp_path / "export", b"[" + json.dumps(simple(2, "I bought 2 looms.")).encode() + b', {"mapping": 7}, {"a"', "b.json")
    totals = kit.teach(tmp_path / "store", tmp_path / "export", code=3)

    assert (totals["taught"], totals["failed"]) == (2, 2)
    assert found(tmp_path / "export").others == 0


def test_p03_an_interrupted_import_goes_on(tmp_path):
    """What the first start stored is unchanged for the second one, which adds the rest."""
    path = zipped(tmp_path / "x.zip", {"c.json": [simple(n, f"I bought loom number {n} in Ghent.") for n in range(6)]})
    first = kit.teach(tmp_path / "store", path, limit=4)
    second = kit.teach(tmp_path / "store", path)
    kit.teach(tmp_path / "whole", path)

    assert (first["taught"], second["unchanged"], second["taught"]) == (4, 4, 2)
    assert kit.dump(tmp_path / "store") == kit.dump(tmp_path / "whole")


def test_an_archive_is_no_data_set(tmp_path):
    result = kit.dualtrace("run", zipped(tmp_path / "x.zip", EXPORT), "--out", tmp_path / "run")

    assert result.exit_code == 1
    assert "holds no question" in result.stderr
    assert io.StringIO(result.stderr).readlines()[-1].startswith("dualtrace: ")
