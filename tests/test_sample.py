"""The shipped sample: valid LongMemEval rows, generated from its source, with gold answers that follow from the evidence."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from dualtrace_local import sample

DEVELOPMENT_DATA = Path(__file__).parents[2] / "shared" / "data"
FIRST_PERSON = re.compile(r"\b(I|[Mm]e|[Mm]y|[Mm]yself|[Mm]ine|[Ww]e|[Uu]s|[Oo]urs?)\b")
WEEKDAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]

ROWS = json.loads(sample.sample_path().read_text(encoding="utf-8"))
SOURCE = sample.load_source()
SESSIONS = dict(zip(ROWS[0]["haystack_session_ids"], ROWS[0]["haystack_sessions"], strict=True))
QUESTIONS = {row["question_id"]: row for row in ROWS}


def words_of(turns, role="user"):
    return [turn["content"] for turn in turns if turn["role"] == role]


def moment(stamp):
    return datetime.strptime(re.sub(r" \(\w+\)", "", stamp), "%Y/%m/%d %H:%M")


def evidence(question_id):
    """The user turns marked as evidence in that row, in haystack order."""
    return [turn["content"] for turns in QUESTIONS[question_id]["haystack_sessions"] for turn in turns if turn.get("has_answer")]


def day_in(text, month):
    (day,) = re.findall(rf"\b(\d{{1,2}}) {month}\b", text)
    return datetime.strptime(f"{day} {month} 2024", "%d %B %Y")


def test_the_file_is_what_its_source_builds():
    assert sample.render(sample.build(SOURCE)) == sample.SAMPLE.read_text(encoding="utf-8")


def test_write_makes_the_same_bytes(tmp_path):
    sample.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == sample.SAMPLE.read_bytes()


def test_a_question_about_an_unknown_session_is_refused():
    question = SOURCE["questions"][0] | {"evidence": {"answer_nowhere": [0]}}
    with pytest.raises(KeyError, match="answer_nowhere"):
        sample.build(SOURCE | {"questions": [question]})


def test_the_file_stays_small():
    assert sample.SAMPLE.stat().st_size < 350_000


@pytest.mark.parametrize("row", ROWS, ids=QUESTIONS)
def test_every_row_is_a_full_longmemeval_record(row):
    assert set(row) == set(sample.Row.__annotations__)
    assert len(row["haystack_dates"]) == len(row["haystack_session_ids"]) == len(row["haystack_sessions"]) == 16
    assert isinstance(row["answer"], str | int)
    assert row["answer_session_ids"]
    for turns in row["haystack_sessions"]:
        assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2)
        assert all(turn["content"].strip() == turn["content"] for turn in turns)
        assert all(turn.get("has_answer", True) is True for turn in turns)


def test_ids_are_unique_and_every_row_shares_the_same_dated_sessions():
    assert len(QUESTIONS) == len(ROWS) == 12
    assert len(SESSIONS) == 16
    for row in ROWS:
        assert row["haystack_session_ids"] == ROWS[0]["haystack_session_ids"]
        assert row["haystack_dates"] == ROWS[0]["haystack_dates"]
        assert [[t["content"] for t in s] for s in row["haystack_sessions"]] == [[t["content"] for t in s] for s in SESSIONS.values()]


def test_weekdays_are_right_and_sessions_run_over_months_before_the_questions():
    for stamp in [*ROWS[0]["haystack_dates"], *(row["question_date"] for row in ROWS)]:
        assert re.fullmatch(r"2024/\d\d/\d\d \(\w{3}\) \d\d:\d\d", stamp)
        assert f"({WEEKDAYS[moment(stamp).weekday()]})" in stamp
    dates = [moment(stamp) for stamp in ROWS[0]["haystack_dates"]]
    assert dates == sorted(dates)
    assert (dates[-1] - dates[0]).days > 120
    assert all(moment(row["question_date"]) > dates[-1] for row in ROWS)


def test_spoken_weekdays_agree_with_the_calendar():
    spoken = re.findall(r"(\w+day),? (\d{1,2} [A-Z][a-z]+)", " ".join(" ".join(words_of(turns)) for turns in SESSIONS.values()))
    assert len(spoken) >= 3
    for weekday, day in spoken:
        assert WEEKDAYS[datetime.strptime(f"{day} 2024", "%d %B %Y").weekday()] == weekday[:3]


def test_half_of_the_sessions_hold_nothing_personal():
    personal = {name: turns for name, turns in SESSIONS.items() if name.startswith("answer_")}
    tasks = {name: turns for name, turns in SESSIONS.items() if name not in personal}
    assert len(personal) == len(tasks) == 8
    for name, turns in tasks.items():
        assert not [text for text in words_of(turns) if FIRST_PERSON.search(text)], name
    for name, turns in personal.items():
        told = " ".join(words_of(turns))
        assert FIRST_PERSON.search(told), name
        assert re.search(r"\d", told), name


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_are_short_enough_for_a_demo(name):
    turns = SESSIONS[name]
    assert len(turns) in {4, 6}
    assert 250 <= sum(map(len, words_of(turns))) <= 600
    assert all(200 <= len(text) <= 500 for text in words_of(turns, "assistant"))


def test_question_kinds():
    kinds = Counter("abstention" if row["question_id"].endswith("_abs") else row["question_type"] for row in ROWS)
    assert kinds == {
        "single-session-user": 3,
        "multi-session": 3,
        "knowledge-update": 2,
        "temporal-reasoning": 2,
        "abstention": 2,
    }


@pytest.mark.parametrize("row", ROWS, ids=QUESTIONS)
def test_evidence_lies_in_the_haystack_and_only_in_the_named_sessions(row):
    assert all(name.startswith("answer_") for name in row["answer_session_ids"])
    marked = {
        name
        for name, turns in zip(row["haystack_session_ids"], row["haystack_sessions"], strict=True)
        if any("has_answer" in turn for turn in turns)
    }
    assert marked == set(row["answer_session_ids"])
    assert all(turn["role"] == "user" for turns in row["haystack_sessions"] for turn in turns if "has_answer" in turn)
    if row["question_type"] in {"multi-session", "knowledge-update"}:
        assert len(marked) >= 2


def test_every_personal_session_is_evidence_for_some_question():
    assert {name for row in ROWS for name in row["answer_session_ids"]} == {name for name in SESSIONS if name.startswith("answer_")}


@pytest.mark.parametrize(
    ("question_id", "key_words"),
    [
        ("sample-01", ["3961"]),
        ("sample-03", ["five"]),
        ("sample-06", ["Dr. Amsel", "Dr. Varga"]),
        ("sample-07", ["Greta Lindholm"]),
        ("sample-09", ["Mondays", "Thursdays"]),
        ("sample-11", ["10:40"]),
    ],
)
def test_literal_answers_stand_in_the_evidence(question_id, key_words):
    for word in key_words:
        assert word in QUESTIONS[question_id]["answer"]
        assert word in " ".join(evidence(question_id))


def test_the_total_is_the_sum_of_all_prices_paid_for_letterpress():
    prices = [int(price) for text in evidence("sample-02") for price in re.findall(r"for (\d+) euros", text)]
    assert len(prices) == 3
    assert QUESTIONS["sample-02"]["answer"] == f"{sum(prices)} euros"
    everywhere = [text for turns in SESSIONS.values() for text in words_of(turns) if "euros" in text]
    assert [text for text in everywhere if "letterpress" in text] == evidence("sample-02")


def test_the_count_is_the_number_of_times_the_user_says_they_joined():
    joined = [text for turns in SESSIONS.values() for text in words_of(turns) if re.search(r"\bI joined\b", text)]
    assert joined == evidence("sample-08")
    assert QUESTIONS["sample-08"]["answer"] == len(joined)


@pytest.mark.parametrize(
    ("question_id", "old", "new"),
    [
        ("sample-03", ["three cases"], ["five cases", "instead of three"]),
        ("sample-09", ["Tuesdays and Fridays"], ["Mondays and Thursdays", "instead"]),
    ],
)
def test_updates_say_the_old_value_first_and_the_new_one_later(question_id, old, new):
    before, after = evidence(question_id)
    assert all(word in before for word in old)
    assert not any(word in before for word in new)
    assert all(word in after for word in new)


def test_the_sequence_follows_from_the_two_dates():
    adopted, joined = evidence("sample-04")
    assert "adopted" in adopted
    assert "joined" in joined
    assert day_in(adopted, "February") < day_in(joined, "March")
    assert QUESTIONS["sample-04"]["answer"] == "adopting the tortoise"


def test_the_days_between_follow_from_the_two_dates():
    moved, raced = evidence("sample-10")
    assert QUESTIONS["sample-10"]["answer"] == f"{(day_in(raced, 'June') - day_in(moved, 'April')).days} days"


def test_what_an_abstention_asks_for_is_nowhere_in_the_sessions():
    corpus = json.dumps(ROWS[0]["haystack_sessions"]).lower()
    asked = {q["id"]: q["absent"] for q in SOURCE["questions"] if "absent" in q}
    assert set(asked) == {row["question_id"] for row in ROWS if row["question_id"].endswith("_abs")}
    for question_id, words in asked.items():
        assert words[0] in QUESTIONS[question_id]["question"]
        assert not [word for word in words if word in corpus]


def test_nothing_looks_like_a_credential():
    corpus = json.dumps(ROWS[0]["haystack_sessions"]).lower()
    assert not re.search(r"password|passcode|\bpin\b|token|api key|iban|card number|\d{12,}", corpus)


@pytest.mark.skipif(not DEVELOPMENT_DATA.is_dir(), reason="the development data is not beside this checkout")
def test_no_line_of_the_benchmark_occurs():
    """Lines of 25 characters and more; shorter ones are greetings and list heads that anybody writes."""

    def strings(value):
        if isinstance(value, str):
            yield from value.splitlines()
        elif isinstance(value, dict | list):
            for part in value.values() if isinstance(value, dict) else value:
                yield from strings(part)

    lines = set()
    for path in sorted(DEVELOPMENT_DATA.glob("*.json*")):
        text = path.read_text(encoding="utf-8")
        records = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)
        lines |= {line.strip() for line in strings(records) if len(line.strip()) >= 25}
    assert len(lines) > 1000
    corpus = "\n".join(strings([ROWS[0]["haystack_sessions"], [[row["question"], row["answer"]] for row in ROWS]]))
    assert not [line for line in lines if line in corpus]
    sentences = {s for s in re.split(r"(?<=[.?!])\s+|\n", corpus) if len(s) >= 25}
    benchmark = "\n".join(lines)
    assert not [sentence for sentence in sentences if sentence in benchmark]
