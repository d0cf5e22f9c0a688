"""Reading sources: what comes out, what is refused, and that no record can hurt another or the memory."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from dualtrace_local.corpus import file_digest, parse_date, read
from dualtrace_local.errors import DataError
from dualtrace_local.records import Entry, Rejected, Scope

EVENING = datetime.fromisoformat("2023-06-12T19:05")
TORTOISE = [{"role": "user", "content": "My tortoise is called Pim.", "has_answer": True}, {"role": "assistant", "content": "Hello Pim!"}]


def row(**changes):
    """A LongMemEval row about a tortoise."""
    return {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "What is my tortoise called?",
        "question_date": "2023/06/20 (Tue) 08:00",
        "answer": "Pim",
        "answer_session_ids": ["answer_t1"],
        "haystack_session_ids": ["f1", "answer_t1"],
        "haystack_dates": ["2023/06/10 (Sat) 10:00", "2023/06/12 (Mon) 19:05"],
        "haystack_sessions": [[{"role": "user", "content": "Explain tides."}], TORTOISE],
    } | changes


def written(tmp_path, content, name="source.json"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def entries(tmp_path, content):
    return list(read(written(tmp_path, content)))


def texts(entry):
    return [t.text for s in entry.sessions for t in s.turns]


def plain(content, **fields):
    return {"id": "s1", "date": "2023-06-12", "turns": [{"role": "user", "content": content}]} | fields


# ------------------------------------------------------------------------------------------------------- both formats


@pytest.mark.parametrize("layout", ["array", "indented array", "jsonl"])
def test_a_row_gives_sessions_question_and_gold(tmp_path, layout):
    """The same three things from every layout, whatever the file is called."""
    rows = [row(), row(question_id="q2")]
    content = {
        "array": json.dumps(rows),
        "indented array": json.dumps(rows, indent=2),
        "jsonl": "\n".join(map(json.dumps, rows)),
    }[layout]

    first, second = read(written(tmp_path, content.encode(), "a.txt"), Scope(user="ann"))

    assert (first.question.id, first.question.text, first.question.date) == (
        "q1",
        "What is my tortoise called?",
        datetime.fromisoformat("2023-06-20T08:00"),
    )
    assert first.question.haystack == ()
    assert [s.date for s in first.sessions] == [datetime.fromisoformat("2023-06-10T10:00"), EVENING]
    assert texts(first) == ["Explain tides.", "My tortoise is called Pim.", "Hello Pim!"]
    assert {s.scope.user for s in first.sessions} == {"ann"}
    assert (first.gold.answer, first.gold.kind, first.gold.evidence, first.gold.evidence_turns) == (
        "Pim",
        "single-session-user",
        (1,),
        ((1, 0),),
    )
    assert (second.source, second.record, second.sessions[0].record) == ("a.txt", 2, 2)


@pytest.mark.parametrize("turns", ["turns", "messages", "session"])
@pytest.mark.parametrize("identity", ["id", "session_id"])
def test_plain_sessions_under_every_name(tmp_path, turns, identity):
    record = {identity: "s1", "date": "2023-06-12T19:05", turns: [{"role": "user", "content": "hi"}]}

    (entry,) = entries(tmp_path, [record])

    assert (entry.question, entry.gold) == (None, None)
    assert (entry.sessions[0].external_id, entry.sessions[0].date, texts(entry)) == ("s1", EVENING, ["hi"])


def test_limit_counts_records(tmp_path):
    path = written(tmp_path, [plain(str(n)) for n in range(5)])

    assert [texts(e) for e in read(path, limit=2)] == [["0"], ["1"]]


def test_an_empty_array_holds_nothing(tmp_path):
    assert entries(tmp_path, []) == []


# ------------------------------------------------------------------------------------------------------- LongMemEval


@pytest.mark.parametrize("answer", [15, 2.5, "three", ["a", "b"]])
def test_the_answer_stays_as_the_file_has_it(tmp_path, answer):
    """LME-01: a number is no text, and becomes one only for the judge."""
    (entry,) = entries(tmp_path, [row(answer=answer)])

    assert entry.gold.answer == answer
    assert type(entry.gold.answer) is type(answer)
    assert isinstance(entry.gold.answer_text, str)


@pytest.mark.parametrize(
    "written_date",
    [
        "2023/06/12 (Mon) 19:05",
        "2023/06/12 19:05",
        "2023-06-12T19:05",
        "2023-06-12 19:05:00",
        "2023-06-12T19:05:00Z",
        "2023-06-12T19:05:00.000+02:00",
        "2023/06/12 (Mo.) 19:05",
        "2023/06/12 (月) 19:05",
        "2023/06/12 (Sat) 19:05",
        "2023/6/12 7:05 PM",
        " 2023.06.12 19:05 ",
    ],
)
def test_date_forms_give_one_instant(written_date):
    """LME-02: by pattern, so that no locale and no wrong weekday matters."""
    assert parse_date(written_date) == EVENING


@pytest.mark.parametrize("text", ["30th of May", "", "2023/13/01", "2023/02/30", "12/06/2023", "2023-06-12 25:00", "today", "2023"])
def test_what_is_no_date_is_none(text):
    assert parse_date(text) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"question_date": "30th of May"}, 'question_date not readable: "30th of May"'),
        ({"question_date": 5}, "question_date not readable: 5"),
        ({"haystack_dates": ["2023/06/10", "soon"]}, 'haystack_dates[1] not readable: "soon"'),
        ({"haystack_dates": ["2023/06/10"]}, "haystack_dates, haystack_session_ids and haystack_sessions differ in length: 1, 2, 2"),
        ({"haystack_sessions": {}}, "haystack_sessions is an object, not a list"),
        ({"question": None}, "question is missing"),
        ({"question": " "}, "question is blank"),
        ({"question_id": ["x"]}, "question_id is a list, not text or a number"),
        ({"haystack_sessions": [[], [{"role": "user", "content": 7}]]}, "haystack_sessions[1][0].content is a number, not text"),
    ],
)
def test_a_bad_row_is_one_line_and_the_next_goes_on(tmp_path, changes, reason):
    bad, good = entries(tmp_path, [row() | changes, row(question_id="q2")])

    assert str(bad) == f"source.json:1: {reason}"
    assert good.question.id == "q2"


@pytest.mark.parametrize("field", list(row()))
def test_a_missing_field_is_named(tmp_path, field):
    """Without haystack and id the record is taken for a plain session, which lacks its turns."""
    record = row()
    del record[field]

    (bad,) = entries(tmp_path, [record])

    assert f"{field} is missing" in bad.reason


def test_the_same_session_twice_is_kept_twice(tmp_path):
    """LME-04: same id and text under two dates are two occurrences with two keys."""
    tides = [{"role": "user", "content": "Explain tides."}]
    changes = {
        "haystack_session_ids": ["f9", "f9"],
        "haystack_sessions": [tides, tides],
        "haystack_dates": ["2023/06/10 (Sat) 10:00", "2023/06/17 (Sat) 18:30"],
    }

    (entry,) = entries(tmp_path, [row(**changes)])

    assert [s.external_id for s in entry.sessions] == ["f9", "f9"]
    assert len({s.key for s in entry.sessions}) == 2


def test_one_id_with_a_date_for_each_question(tmp_path):
    """LME-05: nothing is keyed on the session's id."""
    train = {"haystack_session_ids": ["f1"], "haystack_sessions": [[{"role": "user", "content": "My train was late yesterday."}]]}
    rows = [
        row(question_id="qA", haystack_dates=["2023/05/20 (Sat) 09:00"], **train),
        row(question_id="qB", haystack_dates=["2023/03/02 (Thu) 07:15"], **train),
    ]

    first, second = entries(tmp_path, rows)

    assert first.sessions[0].key != second.sessions[0].key
    assert [e.sessions[0].date.month for e in (first, second)] == [5, 3]


def test_a_session_after_the_question_is_read(tmp_path):
    """LME-07: reading hides nothing; what is visible is decided at recall."""
    (entry,) = entries(tmp_path, [row(question_date="2023/06/12 (Mon) 08:00")])

    assert [s.date > entry.question.date for s in entry.sessions] == [False, True]


@pytest.mark.parametrize(("question_id", "abstention"), [("q77_abs", True), ("q_absinthe_1", False), ("_abs_q", False), ("abs", False)])
def test_abstention_is_the_end_of_the_id(tmp_path, question_id, abstention):
    """LME-08."""
    (entry,) = entries(tmp_path, [row(question_id=question_id)])

    assert (entry.gold.abstention, entry.gold.kind) == (abstention, "single-session-user")


def test_order_and_roles_are_kept(tmp_path):
    """LME-10: assistant first, two users in a row, roles that nobody knows."""
    roles = ["assistant", "user", "user", "system", "tool", "Narrator"]
    turns = [{"role": role, "content": f"t{n}"} for n, role in enumerate(roles)]

    (entry,) = entries(tmp_path, [plain("", turns=turns)])

    assert [t.role for t in entry.sessions[0].turns] == roles
    assert texts(entry) == ["t0", "t1", "t2", "t3", "t4", "t5"]


def test_empty_sessions_and_blank_turns(tmp_path):
    """LME-11: they stay, and say that they are empty; null is blank."""
    sessions = [
        [],
        [{"role": "user", "content": "  \n\t"}, {"role": "assistant", "content": ""}],
        [{"role": "user", "content": "I bought a kite."}, {"role": "assistant", "content": None}],
    ]
    changes = {"haystack_session_ids": ["a", "b", "c"], "haystack_dates": ["2023/06/10"] * 3, "haystack_sessions": sessions}

    (entry,) = entries(tmp_path, [row(**changes)])

    assert [s.empty for s in entry.sessions] == [True, True, False]
    assert texts(entry)[-1] == ""


def test_gold_stands_nowhere_but_in_gold(tmp_path):
    """LME-13: no label, no prefix, no list of evidence in what a reader may see."""
    (entry,) = entries(tmp_path, [row()])

    seen = repr((entry.sessions, entry.question))
    assert not [word for word in ("has_answer", "answer_", "single-session-user", "evidence") if word in seen]
    assert [s.external_id for s in entry.sessions] == ["f1", "t1"]


def test_a_question_id_may_stand_once(tmp_path):
    first, second = entries(tmp_path, [row(), row(answer="Pom")])

    assert isinstance(first, Entry)
    assert str(second) == 'source.json:2: question_id appears twice: "q1"'


# ------------------------------------------------------------------------------------------------------- files


def test_byte_order_mark_windows_lines_and_blank_lines(tmp_path):
    """FIL-01; records are numbered as an editor numbers lines."""
    line = b'{"id":"%d","messages":[{"role":"user","content":"%s"}]}\r\n'
    content = b"\xef\xbb\xbf" + line % (1, b"one") + b"\r\n" + line % (2, b"two\\r\\nlines\\r\\n") + b"\r\n\r\n"

    first, second = entries(tmp_path, content)

    assert texts(first) + texts(second) == ["one", "two\nlines\n"]
    assert (first.record, second.record) == (1, 3)


@pytest.mark.parametrize(
    ("char", "escaped"),
    [*((c, False) for c in "\u2028\u2029\x85"), *((c, True) for c in "\u2028\u2029\x85\v\f\x1c")],
)
def test_only_a_newline_ends_a_line(tmp_path, char, escaped):
    """FIL-02. The control characters among them may stand in JSON only escaped."""
    lines = [json.dumps(plain(f"a{char}b"), ensure_ascii=escaped), json.dumps(plain("c"))]

    first, second = entries(tmp_path, "\n".join(lines).encode())

    assert (texts(first), texts(second)) == ([f"a{char}b"], ["c"])


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_torn_last_line(tmp_path, cut):
    """FIL-05: what stands before it is used, and one line says so."""
    line = json.dumps(plain("kept")).encode()

    kept, torn = entries(tmp_path, line + b"\n" + line[:cut])

    assert texts(kept) == ["kept"]
    assert str(torn).startswith("source.json:2: broken JSON")


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_torn_array(tmp_path, cut):
    """Wherever the end is missing: whole records are used, one line says that the end is missing."""
    content = json.dumps([plain("one"), plain("two")]).encode()[:-cut]

    *kept, torn = entries(tmp_path, content)

    assert [texts(e) for e in kept] == ([["one"], ["two"]] if cut == 1 else [["one"]])
    assert (torn.record, "cut off" in torn.reason) == (len(kept) + 1, True)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b'{"id": "x" "turns": []}', "broken JSON"),
        (b'{"id": "x",}', "broken JSON"),
        (b'{"id": "\xff", "turns": []}', "not UTF-8"),
        (b'{"id": NaN, "turns": []}', "NaN"),
        (b"[" * 5000 + b"]" * 5000, "nested too deeply"),
        (b'{"id": ' + b"9" * 5000 + b', "turns": []}', "too long"),
        (b"17", "the record is a number, not an object"),
        (b"null", "the record is null, not an object"),
        (b'{"id": "x"}', "turns is missing"),
        (b'{"turns": 3}', "turns is a number, not a list"),
        (b'{"turns": [{"role": "user"}]}', "turns[0].content is missing"),
        (b'{"turns": ["hi"]}', "turns[0] is text, not an object"),
        (b'{"turns": [{"role": "user", "content": {"a": 1}}]}', "turns[0].content is an object, not text"),
        (b'{"id": {}, "turns": []}', "id is an object"),
        (b'{"date": "soon", "turns": []}', 'date not readable: "soon"'),
        (b'{"date": true, "turns": []}', "date not readable: true"),
        (b'{"date": 1e300, "turns": []}', "date not readable"),
    ],
)
@pytest.mark.parametrize("layout", ["array", "jsonl"])
def test_a_bad_record_in_the_middle_costs_itself_alone(tmp_path, broken, reason, layout):
    good = json.dumps(plain("fine")).encode()
    content = b"[%s, %s, %s]" if layout == "array" else b"%s\n%s\n%s\n"
    first, bad, last = entries(tmp_path, content % (good, broken, good))

    assert texts(first) == texts(last) == ["fine"]
    assert isinstance(bad, Rejected)
    assert (bad.record, reason in bad.reason) == (2, True)


def test_chat_text_never_stands_in_a_reason(tmp_path):
    said = "the eagle lands at noon"
    records = [
        {"turns": [{"role": "user", "content": {"note": said}}]},
        {"turns": [{"role": "user", "content": [7, said]}]},
        {"turns": [said]},
        row(haystack_sessions=[said, said]),
        {"messages": said},
    ]

    found = entries(tmp_path, records)

    assert len(found) == 5
    assert all(isinstance(r, Rejected) and "eagle" not in str(r) for r in found)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf \n\n", "empty"),
        (b"\x00\x01\x02\x03nothing known", "binary"),
        ("[]".encode("utf-16"), "UTF-16"),
        (b"Dear diary, today was fine.", "not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_at_all(tmp_path, content, words):
    """An error at the call, naming the file, before any record is asked for."""
    with pytest.raises(DataError, match=words) as caught:
        read(written(tmp_path, content))

    assert str(caught.value).startswith("source.json")


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.json cannot be read"):
        read(tmp_path / "nowhere.json")
    with pytest.raises(DataError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        file_digest(tmp_path / "nowhere.json")


def test_brackets_and_quotes_inside_strings_mean_nothing(tmp_path):
    nasty = 'a "quoted] \\" {brace} , [ \\'

    assert [texts(e) for e in entries(tmp_path, [plain(nasty), plain("next")])] == [[nasty], ["next"]]


def test_text_after_an_array_is_reported(tmp_path):
    kept, rest = entries(tmp_path, json.dumps([plain("one")]).encode() + b'\n{"id": 2}')

    assert texts(kept) == ["one"]
    assert "after the end of the array" in rest.reason


# ------------------------------------------------------------------------------------------------------- text and ids


@pytest.mark.parametrize("layout", ["array", "jsonl"])
def test_half_surrogates(tmp_path, layout):
    """TXT-01: a pair is one character, a half is U+FFFD with one note; an escaped backslash before a u is neither."""
    record = r'{"id":"1","messages":[{"role":"user","content":"half \ud83d, low \ude00, pair \ud83d\ude00, text \\ud83d"}]}'
    content = f"[{record}]" if layout == "array" else record + "\n"

    (entry,) = entries(tmp_path, content.encode())

    assert texts(entry) == ["half \ufffd, low \ufffd, pair 😀, text \\ud83d"]
    assert entry.notes == ("source.json:1: 2 half surrogates replaced by U+FFFD",)
    assert entries(tmp_path, content.encode())[0].sessions[0].key == entry.sessions[0].key


def test_awkward_ids_are_data(tmp_path):
    """TXT-10: kept as text for people; control characters become visible, so that a list stays one line an item."""
    given = ["../../outside", "/etc/x", "C:\\x\\y", 7, "a\nb", "O'Brien"]

    found = entries(tmp_path, [plain(str(n), id=i) for n, i in enumerate(given)])

    assert [e.sessions[0].external_id for e in found] == ["../../outside", "/etc/x", "C:\\x\\y", "7", "a␊b", "O'Brien"]


@pytest.mark.parametrize("fields", [{"id": ""}, {"id": None}, {"id": "answer_"}])
def test_without_an_id_the_text_gives_one(tmp_path, fields):
    first, same, other = entries(tmp_path, [plain("d", **fields), plain("d", **fields), plain("e", **fields)])

    assert first.sessions[0].external_id == same.sessions[0].external_id
    assert first.sessions[0].external_id.startswith("text-")
    assert first.sessions[0].external_id != other.sessions[0].external_id


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        (None, None),
        ("", None),
        (1686596700, EVENING),
        (1686596700000, EVENING),
        ("2023-06-12", datetime.fromisoformat("2023-06-12")),
    ],
)
def test_dates_of_plain_sessions(tmp_path, date, expected):
    """No date is allowed and stays none; a number is seconds or milliseconds since 1970."""
    (entry,) = entries(tmp_path, [plain("x", date=date)])

    assert entry.sessions[0].date == expected


def test_content_in_parts(tmp_path):
    """Text parts are joined; what is no text is left out with a note."""
    parts = [{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {}}, "two"]

    (entry,) = entries(tmp_path, [plain(parts)])

    assert texts(entry) == ["one\ntwo"]
    assert entry.notes == ("source.json:1: turns[0].content: 1 of 3 parts hold no text and were left out",)


def test_digest_is_of_the_bytes(tmp_path):
    path = written(tmp_path, b"abc")

    assert file_digest(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


# ------------------------------------------------------------------------------------------------------- memory

PEAK = """
import resource, sys
from pathlib import Path
from dualtrace_local.corpus import read
count = sum(1 for _ in read(Path(sys.argv[1])))
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def peak(path):
    """Records and megabytes of a fresh process that reads ``path``."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent
    )
    records, megabytes = map(int, done.stdout.split())
    return records, megabytes


@pytest.mark.parametrize("layout", ["array", "jsonl"])
def test_memory_does_not_grow_with_the_file(tmp_path, layout):
    """RUN-08: 2 MB against 270 MB, less than 50 MB apart."""
    turns = [{"role": "user", "content": 'word "quoted" ' + "long plain words " * 3000}] * 10
    record = json.dumps(plain("", turns=turns)).encode()
    between = b",\n" if layout == "array" else b"\n"
    sizes = {}
    for name, megabytes in (("small", 2), ("large", 270)):
        count = megabytes * 1_000_000 // len(record) + 1
        path = tmp_path / name
        with path.open("wb") as file:
            file.write(b"[" if layout == "array" else b"")
            for n in range(count):
                file.write(between + record if n else record)
            file.write(b"]" if layout == "array" else b"\n")
        records, sizes[name] = peak(path)
        assert records == count
        path.unlink()

    assert sizes["large"] - sizes["small"] < 50


def raw(tmp_path, text):
    path = tmp_path / "source.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_number_beyond_all_bounds_is_refused(tmp_path):
    found = list(read(raw(tmp_path, '{"id": "a", "turns": [], "x": 1e999}\n{"id": "b", "turns": []}\n')))
    assert [type(f) for f in found] == [Rejected, Entry]
    assert found[0].reason == "holds a number that is too large"


def test_a_torn_first_line_costs_itself_alone(tmp_path):
    good = '  {"id": "%s", "turns": [{"role": "user", "content": "I own hens."}]}\n'
    found = list(read(raw(tmp_path, '{"id": "torn", "tur\n' + good % "a" + good % "b" + good % "c")))
    assert [type(f) for f in found] == [Rejected, Entry, Entry, Entry]


@pytest.mark.parametrize("record", ['{"conversation": {"messages": []}}', '{"conversation": {"Session_1": []}}'])
def test_a_conversation_without_sessions_is_no_empty_success(tmp_path, record):
    (found,) = read(raw(tmp_path, record))
    assert isinstance(found, Rejected)


def test_a_chat_beside_a_list_called_qa_is_a_chat(tmp_path):
    (found,) = read(raw(tmp_path, '{"id": "a", "turns": [{"role": "user", "content": "I own hens."}], "qa": []}'))
    assert len(found.sessions) == 1
