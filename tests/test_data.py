"""``dualtrace data check``: what a file holds, said before anything is done with it."""

import gzip
import hashlib
import json

import kit
import pytest

from dualtrace_local.corpus import known
from dualtrace_local.corpus.check import QUESTIONS, check
from dualtrace_local.errors import DataError

FILLER = ("share_1", "2024/03/05 (Tue) 10:00", ["How do tides work?", "The moon pulls the sea."])


def checked(*files, code=0):
    result = kit.dualtrace("data", "check", *files, "--json", model=None)
    assert result.exit_code == code, result.stderr
    return kit.document(result), result.stderr.splitlines()


def haystack(size, evidence="boat"):
    """``size`` sessions; the first is the evidence."""
    return [(evidence, "2024/03/02 (Sat) 09:00", ["I named my boat Marigold."])] + [
        (f"f{n}", f"2024/03/{3 + n % 20:02} (Sun) 10:00", [f"What is {n} squared?", str(n * n)]) for n in range(size - 1)
    ]


def bench(tmp_path, *haystacks):
    rows = [kit.row(f"q{n}", "What did I name my boat?", "Marigold", sessions, evidence=["boat"]) for n, sessions in enumerate(haystacks)]
    return kit.rows(tmp_path / "bench.json", rows)


def test_the_whole_of_a_benchmark(tmp_path):
    rows = [
        kit.row("q1", "What did I name my boat?", "Marigold", [kit.BOAT, FILLER, FILLER], evidence=["answer_boat_1"]),
        kit.row("q2_abs", "Who is my dentist?", "Not said.", [kit.BOAT, ("e", "2024/07/09 (Tue) 09:00", [])], kind="multi-session"),
        kit.row("q1", "What did I name my boat?", "Marigold", [kit.BOAT]),
        kit.row("q3", "What did I name my boat?", "Marigold", [kit.BOAT], asked="soon"),
    ]
    path = kit.rows(tmp_path / "b.json", rows)
    document, told = checked(path, code=3)
    (found,) = document["files"]

    content = path.read_bytes()
    assert (found["file"], found["bytes"], found["sha256"]) == ("b.json", len(content), hashlib.sha256(content).hexdigest())
    assert found["formats"] == {"longmemeval": 2}
    assert (found["records"], found["good"], found["bad"], found["failed"]) == (4, 2, 2, 2)
    assert found["bad_lines"] == ['b.json:3: question_id appears twice: "q1"', 'b.json:4: question_date not readable: "soon"']
    assert [line for line in told if line.startswith("b.json:")] == found["bad_lines"]
    assert (found["questions"], found["by_kind"], found["abstention"]) == (2, {"multi-session": 1, "single-session-user": 1}, 1)
    assert (found["occurrences"], found["distinct_sessions"], found["distinct_texts"]) == (5, 3, 3)
    assert (found["twice_in_a_haystack"], found["empty"], found["undated"], found["later_questions"]) == (1, 1, 0, 1)
    assert found["turns"] == {"user": 4, "assistant": 4}
    assert (found["first_day"], found["last_day"]) == ("2024-03-02", "2024-07-09")
    assert found["uses"] == ["teach", "run"]


@pytest.mark.parametrize(
    ("sizes", "variant", "because"),
    [
        ((1, 1), "oracle", "every session is marked as evidence"),
        ((38, 62), "s", "38 to 62 sessions a question"),
        ((450, 502), "m", "450 to 502 sessions a question"),
        ((12, 12), "", "12 sessions a question: neither s (30 to 80) nor m (300 to 700)"),
        ((40, 500), "", "40 to 500 sessions a question: neither"),
    ],
)
def test_the_variant_is_told_by_the_sessions_or_not_at_all(tmp_path, sizes, variant, because):
    found = check(bench(tmp_path, *map(haystack, sizes)))

    assert found.variant == variant
    assert because in found.because
    assert f"2 of {QUESTIONS} questions" in found.because
    assert found.release == ""
    assert ("reading, not finding" in found.uses[-1]) is (variant == "oracle")


def test_a_variant_that_is_not_known_is_said_so(tmp_path):
    result = kit.dualtrace("data", "check", bench(tmp_path, haystack(12)), model=None)

    assert "not known (1 of 500 questions; 12 sessions a question: neither" in " ".join(result.stdout.split())
    assert "release not known" in " ".join(result.stdout.split())


def test_known_faults_are_named_with_their_source(tmp_path):
    """Those of sampled sessions are no faults where there are none."""
    ids = [d.question_id for d in known.DEFECTS if d.benchmark == "longmemeval"]
    s_rows = [kit.row(i, "What did I name my boat?", "Marigold", haystack(40), evidence=["boat"]) for i in ids]
    oracle = [kit.row(i, "What did I name my boat?", "Marigold", haystack(1), evidence=["boat"]) for i in ids]

    assert [d.question_id for d in check(kit.rows(tmp_path / "s.json", s_rows)).defects] == ids
    found = check(kit.rows(tmp_path / "o.json", oracle)).defects
    assert {d.question_id for d in found} == {"370a8ff4", "gpt4_88806d6e", "eac54add"}
    assert all(d.source.count("#") == 1 for d in found)
    assert check(bench(tmp_path, haystack(1))).defects == ()


def test_the_table_of_releases():
    assert all(len(digest) == 64 and set(digest) <= set("0123456789abcdef") for digest in known.RELEASES)
    assert {d.repaired_in for d in known.DEFECTS} - {""} <= {r.release for r in known.RELEASES.values()}


def test_a_locomo_file(tmp_path):
    talks = [
        {
            "sample_id": name,
            "conversation": {
                "speaker_a": "Nia",
                "speaker_b": "Tom",
                "session_1_date_time": "9:00 am on 1 May, 2022",
                "session_1": [{"speaker": "Nia", "dia_id": "D1:1", "text": "I keep bees."}],
            },
            "qa": [
                {"question": "What does Nia keep?", "answer": "bees", "evidence": ["D1:1"], "category": 4},
                {"question": "What does Tom keep?", "adversarial_answer": "bees", "evidence": [], "category": 5},
                {"question": "What?", "category": 9},
            ],
        }
        for name in ("one", "two")
    ]
    found = check(kit.rows(tmp_path / "talks.json", talks))

    assert (found.formats, found.variant) == ({"locomo": 2}, "")
    assert (found.records, found.good, found.bad, found.failed) == (2, 2, 0, 2)
    assert (found.questions, found.by_kind, found.abstention, found.without_evidence) == (4, {"adversarial": 2, "single-hop": 2}, 2, 2)
    assert (found.occurrences, found.distinct_texts) == (2, 1)
    assert (found.twice_in_a_haystack, found.notes) == (0, 2)
    assert len(found.defects) == 2


def test_chats_packed_with_gzip(tmp_path):
    chats = json.dumps([{"id": n, "conversations": [{"from": "human", "value": f"I own {n} looms."}]} for n in range(3)]).encode()
    (tmp_path / "chats.bin").write_bytes(gzip.compress(chats))
    found = check(tmp_path / "chats.bin")

    assert (found.formats, found.packed, found.undated, found.uses) == ({"sharegpt": 3}, True, 3, ("teach",))
    assert found.content_sha256 == hashlib.sha256(chats).hexdigest()
    assert found.sha256 == hashlib.sha256((tmp_path / "chats.bin").read_bytes()).hexdigest()


def test_several_files_and_one_that_cannot_be_read(tmp_path):
    good = kit.jsonl(tmp_path / "good.jsonl", kit.small_sessions(4))
    (tmp_path / "page.html").write_text("<html>")
    document, told = checked(good, tmp_path / "page.html", code=3)

    assert [f["file"] for f in document["files"]] == ["good.jsonl"]
    assert document["refused"] == ["page.html is a web page; save the data itself, not the page that shows it."]
    assert document["refused"][0] in told
    result = kit.dualtrace("data", "check", tmp_path / "page.html", tmp_path / "nowhere.json", model=None)
    assert (result.exit_code, result.stdout) == (1, "")
    with pytest.raises(DataError):
        check(tmp_path / "page.html")


def test_a_file_with_nothing_in_it(tmp_path):
    (tmp_path / "none.json").write_text("[]")
    found = check(tmp_path / "none.json")

    assert (found.records, found.uses, found.first_day) == (0, (), "")
    assert kit.dualtrace("data", "check", tmp_path / "none.json", model=None).exit_code == 0
