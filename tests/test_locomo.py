"""LoCoMo conversations: two people, both of whom are remembered, and questions of five kinds."""

import json
import os
import subprocess
import sys
from datetime import datetime

import kit
import pytest

from dualtrace_local.corpus import locomo, read
from dualtrace_local.records import Entry, Rejected


def turn(number, speaker, text, **more):
    return {"speaker": speaker, "dia_id": number, "text": text} | more


def conversation(**changes):
    """Nia and Tom, three sessions whose numbers are not in the order of their dates."""
    return {
        "sample_id": "talk-7",
        "conversation": {
            "speaker_a": "Nia",
            "speaker_b": "Tom",
            "session_1_date_time": "12:20 am on 3 September, 2022",
            "session_1": [turn("D1:1", "Nia", "I adopted a ferret yesterday."), turn("D1:2", "Tom", "I built a canoe of 4 metres.")],
            "session_2_date_time": "12:05 pm on 9 August, 2022",
            "session_2": [turn("D2:1", "Tom", "I sold my drum kit to Ada.")],
            "session_10_date_time": "7:45 pm on 3 September, 2022",
            "session_10": [turn("D10:1", "Nia", "I named the ferret Biscuit."), turn("D10:2", "Tom", "Cute!")],
            "session_11_date_time": "1:00 pm on 1 October, 2022",
        },
        "qa": [
            {"question": "What is Nia's ferret called?", "answer": "Biscuit", "evidence": ["D10:1"], "category": 4},
            {"question": "How long is Tom's canoe in metres?", "answer": 4, "evidence": ["D1:2"], "category": 2},
            {"question": "What did Nia sell to Ada?", "adversarial_answer": "a drum kit", "evidence": ["D2:1"], "category": 5},
        ],
        "event_summary": {"events_session_1": {"Nia": ["Nia adopts a unicorn"]}},
        "session_summary": {"session_1_summary": "A unicorn was adopted."},
    } | changes


def source(tmp_path, content):
    path = tmp_path / "talks.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def entries(tmp_path, content):
    return list(read(source(tmp_path, content)))


def talk(*turns, qa=(), date="9:00 am on 1 May, 2022"):
    return {"conversation": {"speaker_a": "Nia", "speaker_b": "Tom", "session_1_date_time": date, "session_1": list(turns)}, "qa": list(qa)}


def asked(**changes):
    return {"question": "What did Nia say?", "answer": "x", "evidence": ["D1:1"], "category": 1} | changes


# ------------------------------------------------------------------------------------------------------- sessions


@pytest.mark.parametrize("layout", ["array", "one object", "one object over lines", "lines"])
def test_one_entry_a_question_over_the_same_sessions(tmp_path, layout):
    content = {
        "array": json.dumps([conversation()]),
        "one object": json.dumps(conversation()),
        "one object over lines": json.dumps(conversation(), indent=1),
        "lines": json.dumps(conversation()) + "\n" + json.dumps(conversation(sample_id="talk-8")) + "\n",
    }[layout]

    found = entries(tmp_path, content)

    assert [e.question.id for e in found[:3]] == ["talk-7_q1", "talk-7_q2", "talk-7_q3"]
    assert len(found) == (6 if layout == "lines" else 3)
    assert found[0].sessions is found[1].sessions is found[2].sessions
    assert [(s.external_id, str(s.date)) for s in found[0].sessions] == [
        ("talk-7_session_2", "2022-08-09 12:05:00"),
        ("talk-7_session_1", "2022-09-03 00:20:00"),
        ("talk-7_session_10", "2022-09-03 19:45:00"),
    ]
    assert {str(e.question.date) for e in found} == {"2022-09-03 19:45:00"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12:09 am on 13 September, 2023", "2023-09-13T00:09"),
        ("12:00 pm on 1 May, 2023", "2023-05-01T12:00"),
        ("1:56 PM on 8 May 2023", "2023-05-08T13:56"),
        ("9:05 a.m. on 08 Dec, 2022", "2022-12-08T09:05"),
        ("2023-05-08 13:56", "2023-05-08T13:56"),
        ("13:56 pm on 8 May, 2023", None),
        ("1:56 pm on 31 April, 2023", None),
        ("1:56 pm on 8 Mai, 2023", None),
        ("yesterday", None),
    ],
)
def test_spoken_dates(text, expected):
    assert locomo.parse_spoken_date(text) == (datetime.fromisoformat(expected) if expected else None)


READ = """
import locale, sys
from pathlib import Path
try:
    locale.setlocale(locale.LC_ALL, "")
except locale.Error:
    pass  # not installed here
from dualtrace_local.corpus import read
print([(s.day_and_time, s.key) for s in next(read(Path(sys.argv[1]))).sessions])
"""


def test_loc_01_dates_are_the_same_under_every_locale_and_zone(tmp_path):
    """12:20 am is twenty past midnight; the sessions go by date and not by number."""
    path = source(tmp_path, [conversation()])
    settings = (
        {"TZ": "Asia/Tokyo", "LC_ALL": "ja_JP.UTF-8"},
        {"TZ": "America/Lima", "LC_ALL": "de_DE.UTF-8"},
        {"TZ": "UTC", "LC_ALL": "C"},
    )
    found = {
        subprocess.run([sys.executable, "-c", READ, path], env=os.environ | s, capture_output=True, text=True, check=True).stdout
        for s in settings
    }

    assert len(found) == 1
    assert "2022-09-03 00:20" in found.pop()


def test_both_speakers_are_users_and_named(tmp_path):
    """Each tells of themselves; who it was stands in the words."""
    (first, *_) = entries(tmp_path, [conversation()])

    assert {t.role for s in first.sessions for t in s.turns} == {"user"}
    assert [(t.name, t.text) for t in first.sessions[1].turns] == [
        ("Nia", "Nia: I adopted a ferret yesterday."),
        ("Tom", "Tom: I built a canoe of 4 metres."),
    ]
    assert "unicorn" not in repr(first)


def test_sessions_without_a_date_are_undated_and_named(tmp_path):
    given = conversation()
    del given["conversation"]["session_2_date_time"]
    given["conversation"]["session_10_date_time"] = "soon"

    first, second, _ = entries(tmp_path, [given])

    assert [s.external_id[-2:] for s in first.sessions] == ["_2", "10", "_1"]
    assert [s.date is None for s in first.sessions] == [True, True, False]
    assert first.notes == (
        "talks.json:1: session_2_date_time is missing; the session is read as undated",
        'talks.json:1: session_10_date_time not readable: "soon"; the session is read as undated',
    )
    assert second.notes == ()
    assert str(first.question.date) == "2022-09-03 00:20:00"


def test_loc_05_captions_are_read_and_addresses_are_not(tmp_path):
    """And keys that nobody knows are named once a file."""
    photo = turn("D1:1", "Nia", "My boat!", img_url=["https://example.invalid/b.jpg"], blip_caption="a blue canoe on a lake", query="canoe")
    silent = turn("D1:2", "Tom", None, blip_caption="a drum", blip_captions="x", mood="glad")
    blank = turn("D1:3", "Tom", "", **{"re-download": True})
    first, second = entries(tmp_path, [talk(photo, silent, blank), talk(silent)])

    assert [t.text for t in first.sessions[0].turns] == [
        "Nia: My boat! [image: a blue canoe on a lake]",
        "Tom: [image: a drum]",
        "",
    ]
    assert "example.invalid" not in repr(first)
    assert first.notes == ("talks.json:1: unknown turn keys: blip_captions, mood; not read",)
    assert second.notes == ()


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"conversation": []}, "conversation is a list, not an object"),
        ({"conversation": {"session_3": {}}}, "session_3 is an object, not a list"),
        ({"conversation": {"session_3": ["hi"]}}, "session_3[0] is text, not an object"),
        ({"conversation": {"session_3": [{"text": "hi"}]}}, "session_3[0].speaker is missing"),
        ({"conversation": {"session_3": [{"speaker": "Nia", "text": 7}]}}, "session_3[0].text is a number, not text"),
        ({"conversation": {}, "qa": {}}, "qa is an object, not a list"),
    ],
)
def test_a_broken_conversation_costs_itself_alone(tmp_path, broken, reason):
    bad, good = entries(tmp_path, [{"qa": []} | broken, talk(turn("D1:1", "Nia", "Hi."))])

    assert str(bad) == f"talks.json:1: {reason}"
    assert good.question is None
    assert len(good.sessions) == 1


# ------------------------------------------------------------------------------------------------------- questions


def test_kinds_answers_and_evidence(tmp_path):
    one, two, three = entries(tmp_path, [conversation()])

    assert [(e.gold.kind, e.gold.answer, e.gold.abstention) for e in (one, two)] == [
        ("single-hop", "Biscuit", False),
        ("temporal", 4, False),
    ]
    assert (one.gold.evidence, one.gold.evidence_turns) == ((2,), ((2, 0),))
    assert (two.gold.evidence, two.gold.evidence_turns) == ((1,), ((1, 1),))
    assert (three.gold.kind, three.gold.abstention) == ("adversarial", True)
    assert "Biscuit" not in repr((one.question, two.question))


def test_loc_02_the_trap_is_no_gold(tmp_path):
    """No answer of its own, with one, with a trap that says nothing: it is always not in memory. The file needs no conversation."""
    qa = [
        {"question": "What did Tom adopt?", "adversarial_answer": "a ferret", "evidence": ["D1:1"], "category": 5},
        {"question": "Is it Tom's ferret?", "adversarial_answer": "Yes", "answer": "No", "evidence": ["D1:1"], "category": 5},
        {"question": "What is Tom's ferret called?", "adversarial_answer": "Not mentioned", "evidence": ["D1:1"], "category": 5},
        {"question": "What did Tom eat?", "evidence": [], "category": 5},
        {"question": "Where does Nia live?", "answer": "on a boat", "evidence": ["D1:1"], "category": 1},
    ]
    found = entries(tmp_path, {"qa": qa})

    assert [e.gold.answer for e in found] == [
        'Not in memory: the conversations do not say this. "a ferret" is wrong.',
        'Not in memory: the conversations do not say this. "Yes" is wrong.',
        "Not in memory: the conversations do not say this.",
        "Not in memory: the conversations do not say this.",
        "on a boat",
    ]
    assert [e.gold.abstention for e in found] == [True] * 4 + [False]
    assert [e.question.date for e in found] == [None] * 5
    assert "ferret" not in repr([e.question for e in found[:1]])


def test_evidence_that_is_written_in_other_ways(tmp_path):
    said = [turn(f"D1:{n}", "Nia", f"Thing {n}.") for n in range(1, 13)]
    qa = [
        asked(evidence=["D1:2; D1:4", "D:1:11"]),
        asked(evidence=["D1:03 D1:5 D1:3"]),
        asked(evidence="D1:7,D1:8"),
        asked(evidence=["D1:1", "D", "D9:9", 4]),
        asked(evidence=[]),
        {k: v for k, v in asked().items() if k != "evidence"},
    ]
    found = entries(tmp_path, [talk(*said, qa=qa)])

    turns = [[t for _, t in e.gold.evidence_turns] for e in found]
    assert turns == [[1, 3, 10], [2, 4], [6, 7], [0], [], []]
    assert found[0].notes == (
        'talks.json:1: evidence of conversation-1_q4 names no turn: "D9:9", 4, 1 that are no turn ids',
        "talks.json:1: conversation-1_q5 names no evidence",
        "talks.json:1: conversation-1_q6 names no evidence",
    )


def test_evidence_that_quotes_the_talk_is_not_repeated(tmp_path):
    said = [turn("D1:1", "Nia", "I moved because of my divorce.")]
    (found,) = entries(tmp_path, [talk(*said, qa=[asked(evidence=["I moved because of my divorce."])])])
    assert found.notes == ("talks.json:1: evidence of conversation-1_q1 names no turn: 6 that are no turn ids",)


def test_a_turn_without_a_number_is_known_by_its_place(tmp_path):
    first = {"speaker": "Nia", "text": "One."}
    (found,) = entries(tmp_path, [talk(first, first | {"dia_id": "?"}, qa=[asked(evidence=["D1:2"])])])

    assert found.gold.evidence_turns == ((0, 1),)


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("What?", "the question is text, not an object"),
        (asked(question=None), "question is missing"),
        (asked(question=" "), "question is blank"),
        (asked(answer=None), "answer is missing"),
        (asked(category=6), "category is not 1 to 5: 6"),
        (asked(category=None), "category is not 1 to 5: null"),
        (asked(category="4"), 'category is not 1 to 5: "4"'),
    ],
)
def test_a_bad_question_costs_itself_alone(tmp_path, question, reason):
    good, bad, last = entries(tmp_path, [talk(turn("D1:1", "Nia", "Hi."), qa=[asked(), question, asked()])])

    assert str(bad) == f"talks.json:1: qa[1]: {reason}"
    assert [good.question.id, last.question.id] == ["conversation-1_q1", "conversation-1_q3"]


def test_a_conversation_whose_questions_are_all_bad_is_still_taught(tmp_path):
    sessions, bad = entries(tmp_path, [talk(turn("D1:1", "Nia", "Hi."), qa=[7])])

    assert (isinstance(sessions, Entry), isinstance(bad, Rejected)) == (True, True)
    assert sessions.question is None


def test_one_conversation_twice_is_asked_once(tmp_path):
    found = entries(tmp_path, [conversation(), conversation()])

    assert [str(e) for e in found[3:]] == [f'talks.json:2: question_id appears twice: "talk-7_q{n}"' for n in (1, 2, 3)]


# ------------------------------------------------------------------------------------------------------- end to end


def test_a_run_names_the_people_and_asks_of_both(tmp_path):
    """Facts name who told them, so that a question about a person finds that person's memory; every session is taught once."""
    result = kit.dualtrace("run", source(tmp_path, [conversation()]), "--out", tmp_path / "run", "--conditions", "c6", "--json")
    found = kit.document(result)
    facts = [m["fact"] for m in kit.memories(tmp_path / "run" / "store")]
    answers = [json.loads(line) for line in (tmp_path / "run" / "answers" / "c6.jsonl").read_text().splitlines()]

    assert result.exit_code == 0, result.stderr
    assert (found["teach"]["read"], found["teach"]["taught"]) == (3, 3)
    assert any("Nia" in f and "ferret" in f for f in facts)
    assert any("Tom" in f and "drum" in f for f in facts)
    assert not any("user" in f.lower() for f in facts)
    assert [a["asked_on"] for a in answers] == ["2022-09-03 19:45"] * 3
    again = kit.document(kit.dualtrace("run", tmp_path / "talks.json", "--out", tmp_path / "run", "--conditions", "c6", "--json"))
    assert (again["teach"]["read"], again["teach"]["unchanged"]) == (3, 3)
