"""Where wrong answers went wrong, what is known beside the tables, the costs, and the page of each question."""

import json
import re
from html.parser import HTMLParser

import kit
import pytest

from dualtrace_local.records import ABSTENTION, Answer, Gold, Source, State, Usage, Verdict
from dualtrace_local.report import Header, ModelUse, RunData, TeachTotals, build, write
from dualtrace_local.report.details import Observed, Step, Trace
from dualtrace_local.report.questions import LONGEST, EvidenceSession, Page, Reading
from dualtrace_local.report.steps import failed_step, families

MINE = "The secret word is quokka."


def gold(key, *, abstention=False, kind="multi-session"):
    return Gold(key, "quokka", kind, abstention, evidence=(0,))


def answer(key, condition="c6", *, abstained=False, **more):
    return Answer(key, "What is the word?", condition, State.A, ABSTENTION if abstained else MINE, abstained, context_tokens=10, **more)


def data(golds, *, wrong=(), conditions=("c6",), **more):
    header = more.pop("header", Header("invented.json", "ab" * 32, "pooled", models=(ModelUse("read", "r"), ModelUse("judge", "j"))))
    answers = {c: tuple(answer(g.question_id, c) for g in golds) for c in conditions}
    verdicts = {c: tuple(Verdict(g.question_id, c, g.question_id not in wrong, "j") for g in golds) for c in conditions}
    return RunData(header, tuple(golds), answers, verdicts, **more)


def section(report, tmp_path, title):
    return write(report, tmp_path).markdown.read_text().split(f"## {title}\n")[1].split("\n## ")[0]


# ----------------------------------------------------------------------------------------------------------- steps


@pytest.mark.parametrize(
    ("trace", "step"),
    [
        (Trace((False,), (0,)), Step.GATE),
        (Trace((True, False), (1, 0)), Step.GATE),
        (Trace((True, False), (0, 0)), Step.GATE),
        (Trace((True,), (0,)), Step.SEARCH),
        (Trace((True, True), (1, 0), abstained=True), Step.SEARCH),
        (Trace((True,), (3,)), Step.READING),
        (Trace((False,), (3,)), Step.READING),
        (Trace((True,), (3,), abstained=True), Step.SILENT),
        (Trace((), ()), Step.UNMARKED),
        (None, Step.UNMARKED),
    ],
)
def test_the_first_step_that_failed(trace, step):
    assert failed_step(gold("q"), trace) is step


def test_an_abstention_question_that_is_answered_is_invented():
    assert failed_step(gold("q_abs", abstention=True), Trace((False,), (0,))) is Step.INVENTED


def test_every_wrong_answer_has_one_step_and_no_other_has(tmp_path):
    traces = {"c6": {"q0": Trace((False,), (0,)), "q1": Trace((True,), (0,)), "q2": Trace((True,), (2,)), "q3": Trace((True,), (1,))}}
    report = build(data([gold(f"q{n}") for n in range(4)], wrong=("q0", "q1", "q2"), observed=Observed(traces=traces)))

    (steps,) = report.details.steps
    assert (steps.wrong, sum(steps.counts.values())) == (3, 3)
    assert report.details.question_steps == {"c6": {"q0": "not kept", "q1": "kept, but not found", "q2": "found, but misread"}}
    assert "| c6 | 3 | 1 | 1 | 0 | 1 | 0 | 0 |" in section(report, tmp_path, "Where wrong answers went wrong")


def test_reach_is_by_place_and_only_where_there_are_places():
    traces = {
        "c6": {"q0": Trace((True, True), (1, 4)), "q1": Trace((True,), (0,)), "q2_abs": Trace((True,), (1,))},
        "c7": {"q0": Trace((True, True), (1, 2), ranked=False), "q1": Trace((True,), (0,))},
    }
    golds = [gold("q0"), gold("q1"), gold("q2_abs", abstention=True)]
    report = build(data(golds, conditions=("c6", "c7"), observed=Observed(traces=traces)))

    assert [(r.condition, r.k, r.any_found.value, r.all_found.value, r.any_found.n) for r in report.details.reach] == [
        ("c6", 1, 0.5, 0.0, 2),
        ("c6", 3, 0.5, 0.0, 2),
        ("c6", 5, 0.5, 0.5, 2),
        ("c6", 10, 0.5, 0.5, 2),
    ]


# ------------------------------------------------------------------------------------------- judges, families, faults


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Qwen/Qwen3-4B-FP8", "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF, q4_k_m", True),
        ("RedHatAI/gemma-4-31B-it-FP8-dynamic", "google/gemma-4-12B-it-qat-w4a16-ct", True),
        ("openai/gpt-oss-20b", "gpt-4o-2024-08-06", True),
        ("mistralai/Ministral-3-14B-Instruct-2512", "Qwen/Qwen3.5-4B", False),
        ("RedHatAI/gemma-4-31B-it-FP8-dynamic", "RedHatAI/Qwen3-8B-FP8", False),
        ("openai/gpt-oss-20b", "Qwen/Qwen3.5-4B", False),
    ],
)
def test_families(one, other, same):
    assert bool(families(one) & families(other)) is same


def test_a_judge_of_the_readers_family_is_flagged(tmp_path):
    origins = {"read": "Qwen/Qwen3-4B-FP8", "judge": "Qwen/Qwen3.5-9B"}
    assert "(j and r) are the same model or of one family" in section(
        build(data([], observed=Observed(origins=origins))), tmp_path, "Judge"
    )
    origins["judge"] = "openai/gpt-oss-20b"
    assert "one family" not in section(build(data([], observed=Observed(origins=origins))), tmp_path, "Judge")


def test_two_judges_of_the_same_answers_are_compared():
    opinions = {"c6": {"j": {"q0": True, "q1": False, "q2": True}, "k": {"q0": True, "q1": True, "q3": False}}}
    (found,) = build(data([gold("q0")], observed=Observed(opinions=opinions))).details.judges

    assert (found.first, found.second, found.table.n, found.agreement.value) == ("j", "k", 2, 0.5)


def test_with_and_without_known_faults(tmp_path):
    report = build(data([gold("370a8ff4"), gold("q1"), gold("q2")], wrong=("370a8ff4",)))

    (found,) = report.details.faultless
    assert (found.with_all.value, found.with_all.n, found.without.value, found.without.n, found.left_out) == (2 / 3, 3, 1.0, 2, 1)
    assert report.row("c6", "overall").n == 3
    page = section(report, tmp_path, "Known faults of the data")
    assert "370a8ff4: wrong answer: 15 weeks" in page
    assert "| c6 | 3 | 66.7 % |" in page


def test_a_fault_that_the_release_has_repaired_is_none():
    cleaned = "d6f21ea9d60a0d56f34a05b609c79c88a451d2ae03597821ea3d5a9678c3a442"
    golds = [gold("a3332713"), gold("q1")]

    assert [f.question_id for f in build(data(golds)).details.faults] == ["a3332713"]
    assert build(data(golds, header=Header("s.json", cleaned, "official"))).details.faults == ()


# ----------------------------------------------------------------------------------------------------------- costs


def test_the_cost_of_facts_alone_is_told_apart_from_that_of_scenes(tmp_path):
    usage = {"gate": Usage(4, 400, 0, 40), "facts": Usage(4, 800, 300, 80), "anchor": Usage(2, 20, 0, 2), "scene": Usage(2, 180, 0, 38)}
    report = build(
        data(
            [gold("q0"), gold("q1")],
            teach=TeachTotals(read=5, taught=2, dropped=2, empty=1, memories=4, with_scene=3, usage=usage, seconds=8.0),
            recall_usage={"c6": {"read": Usage(2, 1000, 100, 60)}},
            observed=Observed(seconds={"recall": {"c6": 4.0}}),
        )
    )
    page = section(report, tmp_path, "Tokens and cost")

    assert "| gate and facts (c7) | 2.00 | 300 | 75 | 30 |" in page
    assert "| all (c6) | 3.00 | 350 | 75 | 40 |" in page
    assert "| c6 | 2 | 1.00 | 500 | 50 | 30 | 2.0 | 10 | 10 | 10 |" in page
    assert "| c6, ours | 350 + 40 = 390 | 500 + 30 = 530 | 50.0 % | 4 | 75.0 % |" in page
    assert "| c6, paper | 155,800 + 631 = 156,431 | 243,911 + 474 = 244,385 | 54.8 % | 2,726 | 92.0 % |" in page
    assert "| c7, paper | 158,935 + 275 = 159,210 | 252,466 + 284 = 252,750 | 57.4 % | - | - |" in page
    assert "8.0 s" not in page
    assert "2.00 s a session" in page


def test_the_cost_figure_can_be_drawn_of_anything(tmp_path):
    for report in (
        build(data([])),
        build(data([gold("q0")], teach=TeachTotals(tiers={"FULL": 3, "DROP": 1}, usage={"facts": Usage(1, 9, 3, 2)}))),
    ):
        written = write(report, tmp_path)
        assert written.costs_png.stat().st_size > 5000
        assert written.costs_svg.read_text().startswith("<?xml")


# ----------------------------------------------------------------------------------------------------------- pages


class Strict(HTMLParser):
    """Fails on tags that do not close in order, and collects ids, addresses and text."""

    OPEN = ("meta", "img", "input", "br")

    def __init__(self, text):
        super().__init__()
        self.stack, self.ids, self.links, self.said = [], [], [], []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if "href" in found else []
        if tag not in self.OPEN:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, text):
        self.said.append(text)


def page(key="q0", *, seen="", outcome="wrong", step=Step.READING.value, given=None, verdicts=()):
    given = given or answer(key, delivered=("m" * 32,), sources=(Source("m" * 32, "s1", "2024-01-02", "word"),))
    return Page(
        question_id=key,
        kind="multi-session",
        abstention=False,
        question="What is the <b>word</b>?",
        asked_on="2024-02-01 09:00 (Thursday)",
        gold="quokka & co",
        fault="",
        evidence=(EvidenceSession("s1", "2024-01-02 08:00", "taught, FULL", 5, 1),),
        evidence_items=frozenset({"m" * 32}),
        readings=(Reading("c6", outcome, step, given, seen, verdicts),),
    )


def test_a_page_shows_what_a_researcher_looks_for(tmp_path):
    seen = json.dumps({"id": "m1", "said": "2024-01-02", "fact": MINE, "dates": {"today": "2024-01-02"}})
    verdicts = (("j", Verdict("q0", "c6", False, "j")), ("k", Verdict("q0", "c6", None, "k", "no verdict came")))
    report = build(data([gold("q0")], wrong=("q0",)))
    text = write(report, tmp_path, [page(seen=seen, verdicts=verdicts)]).questions.read_text()

    found = Strict(text)
    said = " ".join(" ".join(found.said).split())
    for words in (
        "What is the <b>word</b>?",
        "quokka & co",
        "session s1, 2024-01-02 08:00: taught, FULL, total 5, 1 memory",
        "(found, but misread)",
        "m1, used, of an evidence session",
        MINE,
        "today: 2024-01-02",
        "no verdict (no verdict came)",
    ):
        assert words in said
    assert 'class="is-reading is-wrong"' in text
    assert "This file holds text of chats." in said


def test_report_and_pages_are_whole_and_their_addresses_lead_somewhere(tmp_path):
    golds = [gold("q0"), gold('odd"id<'), gold("q2")]
    written = write(build(data(golds, conditions=("c6", "c7"))), tmp_path, [page(g.question_id) for g in golds])
    report, questions = Strict(written.html.read_text()), Strict(written.questions.read_text())

    assert len(set(report.ids)) == len(report.ids)
    assert len(set(questions.ids)) == len(questions.ids)
    there = {"questions.html": questions, "": report}
    for link in report.links:
        file, _, place = link.partition("#")
        assert not place or place in there[file].ids, link
    assert all(link.removeprefix("#") in questions.ids for link in questions.links)
    assert sum(link.startswith("questions.html#") for link in report.links) == 3


def test_a_context_that_is_too_long_for_a_page_says_where_the_rest_is(tmp_path):
    line = json.dumps({"id": "r1", "user": "word " * 1000})
    text = write(build(data([gold("q0")])), tmp_path, [page(seen="\n".join([line] * 20))]).questions.read_text()

    assert text.count("word word") > 3
    assert len(text) < 3 * LONGEST
    assert f"{20 - LONGEST // len(line)} more items; all are in the run folder" in text


def test_a_question_without_an_answer_has_a_page_too(tmp_path):
    empty = Page("q0", "x", abstention=False, question="", asked_on="", gold="y", fault="", evidence=(), evidence_items=frozenset(),
                 readings=(Reading("c6", "failed", "", None, "", ()),))  # fmt: skip

    assert "No answer: failed." in write(build(data([gold("q0")])), tmp_path, [empty]).questions.read_text()


def test_a_run_keeps_what_its_reader_saw_and_shows_it(tmp_path):
    bench = kit.rows(tmp_path / "bench.json", kit.small_benchmark())
    out = tmp_path / "run"
    assert kit.dualtrace("run", bench, "--out", out, "--conditions", "c6,vanilla,history").exit_code == 0

    kept = {a["question_id"]: a for a in map(json.loads, (out / "answers" / "c6.jsonl").read_text().splitlines())}
    assert "Marigold" in kept["q_boat"]["seen"]
    assert all(set(a["ranked"]) == set(a["delivered_sessions"]) for a in kept.values())
    page = out / "report" / "questions.html"
    text = page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    Strict(text)
    assert "m1, used, of an evidence session" in text
    assert "7 metres long" in text
    assert "Marigold" not in (out / "report" / "report.html").read_text()
    report = json.loads((out / "report" / "report.json").read_text())["details"]
    assert {s["condition"]: s["counts"]["not kept"] for s in report["steps"]}["vanilla"] == 3
    assert not re.search(r"Marigold|Lisbon", json.dumps(report))
    text_of_md = (out / "report" / "report.md").read_text()
    assert "| view, c6 | stored facts+scenes" in text_of_md
