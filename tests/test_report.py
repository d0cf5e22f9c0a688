"""The report: every question is accounted for in every table, in whatever state a run is, and the files say the same."""

import json
import re
import subprocess
import sys

import pytest

from dualtrace_local.records import Answer, Gold, State, Usage, Verdict
from dualtrace_local.report import (
    Failed,
    Header,
    ModelUse,
    RunData,
    Share,
    TeachTotals,
    build,
    read_published,
    summary_table,
    write,
)
from dualtrace_local.stats import Agreement

KINDS = ("single-session-user", "multi-session", "knowledge-update", "temporal-reasoning")


def gold(key, kind="multi-session", *, abstention=False):
    return Gold(question_id=key, answer="a kayak", kind=kind, abstention=abstention, evidence=(0,))


def answer(key, condition="c6", *, state=State.A, abstained=False, tokens=100):
    return Answer(key, "What floats?", condition, state, "a kayak", abstained, context_tokens=tokens)


def verdict(key, correct, condition="c6", by="judge-model"):
    return Verdict(key, condition, correct, by, "" if correct is not None else "no verdict")


def header(**changes):
    models = tuple(ModelUse(role, f"{role}-model", digest="ab" * 32, engine="scripted") for role in ("encode", "read", "judge", "embed"))
    facts = {
        "dataset": "invented.json",
        "dataset_sha256": "cd" * 32,
        "protocol": "official",
        "later_questions": 2,
        "distinct_sessions": 40,
        "session_occurrences": 60,
        "models": models,
        "gate": "facts-first",
        "versions": {"engine": "1.2.3"},
        "prompts": {"facts": "0123abcd"},
        "seconds": {"teach": 12.5},
        "window": 8,
    }
    return Header(**(facts | changes))


def run(golds, answers=None, verdicts=None, **more):
    return RunData(more.pop("header", header()), tuple(golds), answers or {}, verdicts or {}, **more)


def paper_run(**more):
    """99 questions with the paper's 2x2 table: 51 both, 24 neither, 22 only c6, 2 only c7."""
    golds = [gold(f"q{i}", KINDS[i % 4]) for i in range(99)]
    right = {"c6": range(73), "c7": [*range(51), 73, 74]}
    answers = {c: tuple(answer(g.question_id, c) for g in golds) for c in right}
    verdicts = {c: tuple(verdict(f"q{i}", i in right[c], c) for i in range(99)) for c in right}
    return run(golds, answers, verdicts, **more)


def adds_up(report):
    for row in (*report.rows, *report.groups):
        assert row.n == row.scored + row.unscored + row.failed + row.missing
        assert 0 <= row.correct <= row.scored
        assert (row.judged.n, row.everything.n) == (row.scored, row.n)
    for condition in report.conditions:
        for rows in (report.rows, report.groups):
            mine = [r for r in rows if r.condition == condition]
            assert mine[-1].kind == "overall"
            assert mine[-1].n == report.questions == sum(r.n for r in mine[:-1])
            assert mine[-1].correct == sum(r.correct for r in mine[:-1])
        overall = report.row(condition, "overall")
        assert sum(s.n for s in report.states if s.condition == condition) == overall.scored + overall.unscored
    return report


def strict(text):
    def refuse(name):
        pytest.fail(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_errors_duplicates_and_strangers_stay_in_the_count(tmp_path):
    """LME-16: 4 questions; one twice, one failed, one never answered, one answer to an unknown question."""
    golds = [gold("q1"), gold("q2"), gold("q3", "temporal-reasoning"), gold("q4", "knowledge-update")]
    answers = {"c6": (answer("q1"), answer("q1"), answer("q9"), answer("q4"))}
    verdicts = {"c6": (verdict("q1", True), verdict("q1", False), verdict("q9", True), verdict("q4", False))}
    report = adds_up(build(run(golds, answers, verdicts, failures=(Failed("recall", "q2", "no completion for 300 s", "c6"),))))

    overall = report.row("c6", "overall")
    assert (overall.n, overall.correct, overall.scored, overall.unscored, overall.failed, overall.missing) == (4, 1, 2, 0, 1, 1)
    assert (overall.judged.value, overall.everything.value) == (0.5, 0.25)
    assert sum("answer q1" in line for line in report.problems) == 1
    assert sum("answer q9" in line for line in report.problems) == 1
    assert any("verdicts of one question differ" in line for line in report.problems)

    page = write(report, tmp_path).markdown.read_text()
    assert "| temporal-reasoning | c6 | 1 | 0 | 0 | 0 | 0 | 1 | n=0 | - | - |" in page
    assert "1 x); not counted" in page
    assert "recall c6, q2: no completion for 300 s" in page
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)
    for over in ("| c6 | all questions | 4 | 25.0 % | [", "| c6 | judged answers | 2 | 50.0 % | ["):
        assert over in page


def test_no_verdict_is_unscored_and_never_wrong():
    """A verdict of None, and an answer that nobody has judged, leave the accuracy of judged answers alone."""
    golds = [gold(f"q{i}") for i in range(4)]
    answers = {"c6": tuple(answer(g.question_id) for g in golds)}
    verdicts = {"c6": (verdict("q0", True), verdict("q1", None), verdict("q2", True))}
    row = adds_up(build(run(golds, answers, verdicts))).row("c6", "overall")

    assert (row.scored, row.correct, row.unscored) == (2, 2, 2)
    assert (row.judged.value, row.everything.value) == (1.0, 0.5)


def test_verdict_without_answer_is_named_and_not_counted():
    """A verdict alone proves no answer."""
    report = adds_up(build(run([gold("q1")], {"c6": ()}, {"c6": (verdict("q1", True),)})))

    assert report.row("c6", "overall").missing == 1
    assert any("verdict q1: no answer belongs to it" in line for line in report.problems)


def test_question_that_failed_once_and_was_answered_later_is_answered():
    """A failure of an earlier start does not outweigh the answer that is there."""
    failed = (Failed("recall", "q1", "stopped", "c6"),)
    row = adds_up(build(run([gold("q1")], {"c6": (answer("q1"),)}, {"c6": (verdict("q1", True),)}, failures=failed))).row("c6", "overall")

    assert (row.correct, row.failed) == (1, 0)


def test_condition_in_which_everything_failed_is_shown():
    """No answer at all is a row of failures, not an absent condition."""
    failed = tuple(Failed("recall", f"q{i}", "engine died", "c7") for i in range(3))
    report = adds_up(build(run([gold(f"q{i}") for i in range(3)], failures=failed)))

    row = report.row("c7", "overall")
    assert (row.n, row.failed, row.judged.value, row.everything.value) == (3, 3, None, 0.0)


def test_duplicate_question_in_the_dataset_counts_once():
    """Two gold records of one id are one question, said so."""
    report = adds_up(build(run([gold("q1"), gold("q1")], {"c6": (answer("q1"),)}, {"c6": (verdict("q1", True),)})))

    assert report.questions == 1
    assert "dataset: question q1: occurs 2 times; the first counts" in report.problems


def test_abstention_is_apart_from_the_kinds():
    """An abstention question of kind multi-session counts in the abstention row and nowhere else but overall."""
    golds = [gold("q1"), gold("q2_abs", abstention=True), gold("q3", "a-new-kind")]
    answers = {"c6": tuple(answer(g.question_id) for g in golds)}
    verdicts = {"c6": (verdict("q1", True), verdict("q2_abs", False), verdict("q3", True))}
    report = adds_up(build(run(golds, answers, verdicts)))

    assert [(r.kind, r.n) for r in report.rows] == [("multi-session", 1), ("a-new-kind", 1), ("abstention", 1), ("overall", 3)]
    assert report.summaries[0].task_averaged.value == 1.0
    assert [r.kind for r in report.groups][-3:] == ["a-new-kind", "abstention", "overall"]


def test_raw_kinds_are_grouped_only_beside_the_paper():
    """The three single-session kinds stay apart in our table and are one in the side-by-side."""
    golds = [gold(f"q{i}", f"single-session-{k}") for i, k in enumerate(("user", "assistant", "preference"))]
    answers = {"c6": tuple(answer(g.question_id) for g in golds)}
    verdicts = {"c6": (verdict("q0", True), verdict("q1", True), verdict("q2", False))}
    report = adds_up(build(run(golds, answers, verdicts)))

    assert [r.n for r in report.rows] == [1, 1, 1, 0, 3]
    single = report.row("c6", "single-session", grouped=True)
    assert (single.correct, single.n) == (2, 3)


def test_paper_table_comes_out_of_records(tmp_path):
    """The paper's 2x2 table, through records, tables and Markdown, c6 first whatever the order of the run."""
    report = adds_up(build(paper_run()))
    found = report.pairs[0]

    assert (found.first, found.second) == ("c6", "c7")
    assert found.result.agreement == Agreement(51, 24, 22, 2)
    page = write(report, tmp_path).markdown.read_text()
    assert re.search(r"\| c6 - c7 \| 99 \| 0 \| \+20\.2 \[\+1[12]\.\d, \+2[89]\.\d\] \| \S+ ?\S* \| 15\.04 \|", page)
    assert "| c6 - c7 | 51 | 24 | 22 | 2 |" in page


def test_pairs_are_over_questions_judged_under_both():
    """A question unscored under one condition is left out of the pair and counted as such; vanilla is subtracted, c6 leads."""
    golds = [gold(f"q{i}") for i in range(3)]
    answers = {c: tuple(answer(g.question_id, c) for g in golds) for c in ("vanilla", "c7", "c6")}
    verdicts = {
        "vanilla": tuple(verdict(f"q{i}", False, "vanilla") for i in range(3)),
        "c7": (verdict("q0", True, "c7"), verdict("q1", None, "c7"), verdict("q2", False, "c7")),
        "c6": tuple(verdict(f"q{i}", True) for i in range(3)),
    }
    report = adds_up(build(run(golds, answers, verdicts)))

    assert [(p.first, p.second) for p in report.pairs] == [("c6", "c7"), ("c6", "vanilla"), ("c7", "vanilla")]
    assert (report.pairs[0].left_out, report.pairs[0].result.agreement) == (1, Agreement(1, 0, 1, 0))


def test_state_and_coverage():
    """Answers by state and correctness; coverage is over all questions, its accuracy over spoken answers."""
    golds = [gold(f"q{i}") for i in range(4)]
    answers = {"c6": (answer("q0"), answer("q1", state=State.B), answer("q2", state=State.C, abstained=True))}
    verdicts = {"c6": (verdict("q0", True), verdict("q1", False), verdict("q2", False, by="rule"))}
    report = adds_up(build(run(golds, answers, verdicts)))

    assert [(s.state, s.n, s.correct, s.wrong, s.abstained) for s in report.states] == [
        ("A", 1, 1, 0, 0),
        ("B", 1, 0, 1, 0),
        ("C", 1, 0, 1, 1),
    ]
    summary = report.summaries[0]
    assert (summary.coverage.value, summary.selective.value) == (0.5, 0.5)
    assert summary.judged_by == {"judge-model": 2, "rule": 1}
    assert summary.context_tokens.n == 3


def test_retrieval_gate_and_judge_only_where_measured(tmp_path):
    """Measured values are shares with their n; what was not measured is said so, never a 0."""
    golds = [gold("q1"), gold("q2"), gold("q3_abs", abstention=True)]
    answers = {"c6": tuple(answer(g.question_id) for g in golds)}
    bare = build(run(golds, answers))
    assert (bare.retrieval, bare.details.calibrations, bare.gate.evidence_dropped.value) == ((), (), None)
    page = write(bare, tmp_path).markdown.read_text()
    assert "Not measured in this run." in page
    assert "Evidence sessions dropped by the gate: not measured in this run" in page
    assert "This judge has no calibration" in page

    full = build(
        run(
            golds,
            answers,
            retrieval={"c6": {"q1": Share(1, 2), "q2": Share(0, 1), "q3_abs": Share(1, 1), "q9": Share(1, 1)}},
            evidence_kept=Share(3, 4),
        )
    )
    assert (full.retrieval[0].any_delivered.value, full.retrieval[0].all_delivered.value) == (0.5, 0.0)
    assert (full.gate.evidence_dropped.value, full.gate.evidence_dropped.n) == (0.25, 4)


def test_teach_counts_must_balance():
    """read = taught + dropped + empty + unchanged + forgotten + failed, or a line says that it is not so."""
    good, bad = TeachTotals(read=5, taught=2, dropped=2, failed=1), TeachTotals(read=6, taught=2, dropped=2, failed=1)

    assert build(run([], teach=good)).problems == ()
    assert build(run([], teach=bad)).problems == ("teach: 6 sessions read, but 5 accounted for",)
    assert build(run([], teach=good)).gate.coverage.value == 0.5


def test_token_table_has_every_stage_and_kind(tmp_path):
    """Calls, prompt, cached and completion tokens by stage, condition and kind of request."""
    usage = Usage(3, 1000, 400, 50)
    data = run(
        [gold("q1")],
        {"c6": (answer("q1"),)},
        teach=TeachTotals(usage={"facts": usage, "scene": usage}),
        recall_usage={"c6": {"read": usage}},
        judge_usage={"c6": {"judge": usage}},
    )
    report = build(data)

    assert [(t.stage, t.condition, t.kind) for t in report.tokens] == [
        ("teach", "", "facts"),
        ("teach", "", "scene"),
        ("recall", "c6", "read"),
        ("judge", "c6", "judge"),
    ]
    assert "| teach | - | scene | 3 | 1,000 | 400 | 50 |" in write(report, tmp_path).markdown.read_text()


def test_published_numbers_are_the_papers():
    """As printed in the paper, and consistent with its own counts."""
    paper = read_published()

    assert [paper.value(c, "overall") for c in ("c6", "c7", "vanilla")] == [73.7, 53.5, 20.0]
    assert [paper.value("c7", k) for k in paper.kinds] == [75, 20, 55, 25, 95]
    assert [paper.value("c6", k) for k in paper.kinds] == [75, 50, 80, 65, 100]
    assert paper.value("c8", "overall") is None
    c = paper.comparison
    n = c.both + c.neither + c.only_first + c.only_second
    assert round(100 * (c.both + c.only_first) / n, 1) == 73.7
    assert round(100 * (c.both + c.only_second) / n, 1) == 53.5


@pytest.mark.parametrize(("protocol", "shared"), [("official", False), ("pooled", True)])
def test_different_protocols_never_share_a_table(tmp_path, protocol, shared):
    """Under the official protocol the paper's numbers stand in their own table, with a warning and their conditions."""
    page = write(build(paper_run(header=header(protocol=protocol))), tmp_path).markdown.read_text()

    section = page.split("## Beside the published numbers")[1].split("\n## ")[0]
    heads = [line for line in section.splitlines() if line.startswith("| condition |")]
    assert len(heads) == (1 if shared else 2)
    assert ("Not comparable" in section) is not shared
    for word in ("Claude Sonnet 4.6", "GPT-4o", "pooled protocol", "100 questions", "73.7 %", "53.5 %", "20.0 %", "read-model"):
        assert word in section
    assert re.search(r"\| c6, ours \|.* \| n=0 \| 73.7 % \(73/99\) \|", section)
    assert "| c5-fs, paper | not known |" in section


def test_pairs_by_kind_say_where_the_discordant_questions_lie(tmp_path):
    """The 22 and 2 add up over the kinds, and p is corrected for their number; other pairs are whole only."""
    report = build(paper_run())
    pair = report.pairs[0]

    assert [k.kind for k in pair.kinds] == ["single-session", "multi-session", "knowledge-update", "temporal"]
    assert (sum(k.result.agreement.only_first for k in pair.kinds), sum(k.result.agreement.only_second for k in pair.kinds)) == (22, 2)
    page = write(report, tmp_path).markdown.read_text()
    assert "| c6 - c7 | n | points, 95 % bootstrap | only first | only second | one-sided p | Holm | exact p | exact, Holm |" in page


def test_data_is_named_with_release_sample_and_dates(tmp_path):
    """Which release, which draw, which single-session kinds, and evidence dated after the question; what is not known is said so."""
    kinds = ("single-session-user", "single-session-user", "single-session-preference", "multi-session")
    golds = [gold(f"q{i}", kind) for i, kind in enumerate(kinds)]
    told = header(release="a.json, cleaned", sample="paper, seed 3", later_evidence=1)
    page = write(build(run(golds, header=told)), tmp_path / "a").markdown.read_text()
    for line in (
        "| release of the data | a.json, cleaned |",
        "| sample | paper, seed 3 |",
        "| single-session kinds counted | 2 single-session-user, 1 single-session-preference |",
        "| evidence dated after the question | 1 of 4 questions |",
    ):
        assert line in page

    page = write(build(run(golds)), tmp_path / "b").markdown.read_text()
    assert "| release of the data | not known" in page
    assert "| evidence dated after the question | not known |" in page


def test_conditions_of_the_run_are_printed(tmp_path):
    """Dataset and its digest, protocol, models by role with digests, prompts, versions, dates, times, label."""
    page = write(build(paper_run(header=header(development=True))), tmp_path).markdown.read_text()

    for text in (
        "# invented.json, read-model, 99 questions",
        "cd" * 32,
        "| model, encode | encode-model, scripted, " + "ab" * 32,
        "| sessions dated after the question | visible; 2 questions have one |",
        "| sessions | 40 distinct, 60 occurrences |",
        "| prompt, facts | 0123abcd |",
        "| version, engine | 1.2.3 |",
        "| wall time, teach | 12.5 s |",
        "development: prompts or thresholds were tuned on these rows",
    ):
        assert text in page


def test_same_judge_and_reader_is_said(tmp_path):
    """A model that judges its own answers is named as a weakness."""
    models = (ModelUse("read", "one"), ModelUse("judge", "one"))

    page = write(build(paper_run(header=header(models=models))), tmp_path).markdown.read_text()
    assert "(one and one) are the same model or of one family" in page


def test_json_is_strict_and_holds_every_outcome(tmp_path):
    """A reader that refuses NaN reads it back; counts and outcomes of single questions are in it; None is null."""
    data = run([gold("q1"), gold("q2", "temporal-reasoning")], {"c6": (answer("q1"),), "c7": ()}, {"c6": (verdict("q1", True),)})
    document = strict(write(adds_up(build(data)), tmp_path).json.read_text())

    assert document["format"] == 1
    assert document["outcomes"][1]["outcomes"] == {"c6": "missing", "c7": "missing"}
    row = next(r for r in document["rows"] if r["condition"] == "c7" and r["kind"] == "overall")
    assert (row["n"], row["scored"], row["missing"], row["judged"]["value"]) == (2, 0, 2, None)
    assert document["published"]["conditions"]["c6"]["overall"] == 73.7
    assert document["pairs"][0]["result"]["difference"] == {"n": 0, "value": None, "low": None, "high": None}


def test_empty_run_still_gives_a_report(tmp_path):
    """No questions, no conditions: all files, no division by zero."""
    written = write(build(run([])), tmp_path / "deep" / "report")

    assert strict(written.json.read_text())["questions"] == 0
    assert written.png.stat().st_size > 1000


def test_files_are_private_self_contained_and_repeatable(tmp_path):
    """Folder 0700, files 0600, HTML that loads nothing, and equal bytes the second time."""
    report = build(paper_run())
    first, second = write(report, tmp_path / "a"), write(report, tmp_path / "b")

    assert first.png.parent.stat().st_mode & 0o777 == 0o700
    for one, two in zip(vars(first).values(), vars(second).values(), strict=True):
        assert one.stat().st_mode & 0o777 == 0o600
        assert one.read_bytes() == two.read_bytes()
    for page in (first.html.read_text(), first.questions.read_text()):
        assert not re.search(r"""(src|href)=["'](?!data:|#|questions\.html)|url\(|@import|<script|<link""", page)
    assert "15.04" in first.html.read_text()


def test_figure_shows_bars_and_can_be_read(tmp_path):
    """1200 x 700, not blank, one colour a condition, and the SVG draws marks too."""
    import numpy as np
    from matplotlib.colors import to_rgb
    from matplotlib.image import imread

    from dualtrace_local.report.figure import COLOURS

    written = write(build(paper_run()), tmp_path)
    pixels = imread(written.png)[:, :, :3]

    assert pixels.shape[:2] == (700, 1200)
    shares = [np.all(np.abs(pixels - to_rgb(colour)) < 0.02, axis=2).mean() for colour in COLOURS[:3]]
    assert shares[0] > 0.02
    assert shares[1] > 0.02
    assert shares[2] < 0.001
    svg = written.svg.read_text()
    assert svg.startswith("<?xml")
    assert svg.count("<path") > 50


def test_names_from_files_cannot_break_the_pages(tmp_path):
    """Ids, kinds and names with pipes, markup and line breaks stay text inside their cell."""
    odd = "a|b<script>x</script>\n$y_{$"
    data = run(
        [gold(odd, odd)],
        {"c6": (answer(odd), answer(odd))},
        {"c6": (verdict(odd, True),)},
        header=header(dataset=odd),
        failures=(Failed("teach", odd, odd),),
    )
    written = write(adds_up(build(data)), tmp_path)

    assert "<script>" not in written.html.read_text()
    page = written.markdown.read_text()
    assert not re.search(r"(?<!\\)<script", page)
    tables = [block.splitlines() for block in page.split("\n\n") if block.startswith("| ")]
    assert sum(r"a\|b" in line for table in tables for line in table) > 2
    assert all(len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1 for table in tables)


def test_summary_table_for_the_terminal():
    """One frozen line for each kind and condition, with None where nothing is judged."""
    lines = summary_table(build(paper_run()))

    assert [(x.condition, x.kind) for x in lines[-2:]] == [("c6", "overall"), ("c7", "overall")]
    last = lines[-2]
    assert (last.n, last.scored, last.correct) == (99, 99, 73)
    assert last.low < last.accuracy < last.high
    empty = next(x for x in lines if x.kind == "abstention")
    assert (empty.n, empty.accuracy, empty.low) == (0, None, None)


def test_no_chat_text_in_the_report(tmp_path):
    """Answers, questions and gold answers stay in the run's own files."""
    written = write(build(paper_run()), tmp_path)

    for path in (written.markdown, written.json, written.html):
        assert "kayak" not in path.read_text()
        assert "What floats" not in path.read_text()


def test_importing_loads_no_matplotlib():
    """The figure's library waits until a figure is drawn."""
    code = "import sys, dualtrace_local.report; sys.exit('matplotlib' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
