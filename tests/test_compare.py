"""Results side by side: the paper's tables come out of outcomes, runs are compared, and what may not be compared stands apart."""

import json
import shutil

import pytest
from kit import document, dualtrace, jsonl, rows, small_benchmark

from dualtrace_local.records import Answer, Gold, State, Verdict
from dualtrace_local.report import Header, ModelUse, RunData, build, read_published
from dualtrace_local.report.beside import compared_sections
from dualtrace_local.report.compare import Run, compare_runs

PAPER = {
    "single-session": ("single-session-user", 14, 4, 1, 1),
    "multi-session": ("multi-session", 4, 10, 6, 0),
    "knowledge-update": ("knowledge-update", 11, 4, 5, 0),
    "temporal": ("temporal-reasoning", 4, 6, 9, 1),
    "abstention": ("multi-session", 18, 0, 1, 0),
}
"""Of each kind: both right, neither, only c6, only c7. Together they give the accuracies of table 1 and the 22 against 2 of table 2."""


def paper_outcomes():
    """99 questions: id, question_type, right under c6, right under c7."""
    for name, (kind, both, neither, first, second) in PAPER.items():
        cells = [(True, True)] * both + [(False, False)] * neither + [(True, False)] * first + [(False, True)] * second
        for n, (six, seven) in enumerate(cells):
            yield f"{name}-{n}" + ("_abs" if name == "abstention" else ""), kind, six, seven


def paper_report(header=None, flip=()):
    """A report with the paper's outcomes; questions in ``flip`` come out the other way under c6."""
    marks = list(paper_outcomes())
    golds = tuple(Gold(q, "a kite", kind, q.endswith("_abs")) for q, kind, _, _ in marks)
    answers, verdicts = {}, {}
    for condition in ("c6", "c7"):
        answers[condition] = tuple(Answer(q, "What flies?", condition, State.A, "a kite", abstained=False) for q, _, _, _ in marks)
        right = {q: (six if condition == "c6" else seven) ^ (condition == "c6" and q in flip) for q, _, six, seven in marks}
        verdicts[condition] = tuple(Verdict(q, condition, right[q], "judge-model") for q in right)
    return build(RunData(header or a_header(), golds, answers, verdicts))


def a_header(**changes):
    facts = {"dataset": "invented.json", "dataset_sha256": "ab" * 32, "protocol": "pooled", "gate": "facts-first"}
    models = tuple(ModelUse(role, f"{role}-model") for role in ("encode", "read", "judge", "embed"))
    return Header(**(facts | {"models": models} | changes))


def text_of(sections):
    return "\n".join(
        "\n".join((s.title, *s.notes, *(" | ".join(row) for t in s.tables for row in (t.heads, *t.rows)), *s.lines)) for s in sections
    )


# ---------------------------------------------------------------------------------------------------- the paper's tables


def test_outcomes_of_the_papers_tables_give_its_table_2():
    """Differences, intervals within a point and a half, p, chi-squared, and where the discordant questions lie."""
    paper = read_published().comparison
    pair = paper_report().pairs[0]
    found = pair.result

    assert (pair.first, pair.second, found.agreement.n, paper.n) == ("c6", "c7", 99, 99)
    assert 100 * found.difference.value == pytest.approx(paper.difference, abs=0.05)
    assert 100 * found.difference.low == pytest.approx(paper.low, abs=1.5)
    assert 100 * found.difference.high == pytest.approx(paper.high, abs=1.5)
    assert round(found.mcnemar.chi_squared, 2) == paper.chi_squared == 15.04
    assert found.p_one_sided < paper.p_below + 1e-6
    assert [k.kind for k in pair.kinds] == list(paper.kinds)
    for kind in pair.kinds:
        theirs, ours = paper.kinds[kind.kind], kind.result
        assert 100 * ours.difference.value == pytest.approx(theirs.difference, abs=0.3)
        assert ours.p_one_sided == pytest.approx(theirs.p_one_sided, abs=0.012)
        assert ours.agreement.only_first == theirs.only_first
        if theirs.low is not None:
            assert 100 * ours.difference.low == pytest.approx(theirs.low, abs=1.5)
            assert 100 * ours.difference.high == pytest.approx(theirs.high, abs=1.5)


def test_outcomes_of_the_papers_tables_give_its_table_1():
    """Accuracies with the 20 questions that have an answer as denominator, abstention apart, 73 and 53 of 99."""
    report, paper = paper_report(), read_published()

    for condition in ("c6", "c7"):
        for kind in (*paper.kinds, "overall"):
            row = report.row(condition, kind, grouped=True)
            assert row.n == {"abstention": 19, "overall": 99}.get(kind, 20)
            assert 100 * row.judged.value == pytest.approx(paper.value(condition, kind), abs=0.3)


def test_holm_is_over_the_kinds_of_a_pair():
    """The smallest p of five is multiplied by five, and no corrected p is below its own."""
    kinds = paper_report().pairs[0].kinds
    smallest = min(kinds, key=lambda k: k.result.p_one_sided)

    assert smallest.p_holm == pytest.approx(5 * smallest.result.p_one_sided)
    assert all(k.p_holm >= k.result.p_one_sided and k.p_exact_holm >= k.result.mcnemar.p_exact for k in kinds)


def test_all_eight_rows_of_table_1_are_there_and_nothing_is_invented():
    paper = read_published()

    assert set(paper.conditions) == {"vanilla", "c1", "c2", "c3", "c4", "c5-fs", "c6", "c7"}
    assert [paper.value(c, "overall") for c in ("c1", "c2", "c3", "c5-fs")] == [None] * 4
    page = text_of(compared_sections(compare_runs([run := Run("one", paper_report())], paper), [run]))
    for condition in paper.conditions:
        assert f"the paper | {condition} | " in page
    assert "the paper | c5-fs | not known | not known" in page
    for note in paper.notes:
        assert note in page


# --------------------------------------------------------------------------------------------------------------- runs


def test_runs_that_may_share_a_table_do_and_are_compared():
    """Two models over the same questions: each one's scene gain, its distance from 73 of 99, and one against the other."""
    other = tuple(ModelUse(role, f"{role}-other") for role in ("encode", "read", "judge", "embed"))
    weaker = paper_report(a_header(models=other), flip={f"temporal-{n}" for n in range(4)})
    runs = [Run("big", paper_report()), Run("small", weaker)]
    found = compare_runs(runs, read_published())

    (group,) = found.groups
    assert found.apart == ()
    assert [round(100 * g.pair.result.difference.value, 1) for g in group.gains] == [20.2, 16.2]
    against = {(a.run, a.condition): a for a in group.against}
    assert (against["big", "c6"].correct, against["big", "c6"].n) == (73, 99)
    assert against["big", "c6"].result.difference.value == 0
    assert against["small", "c6"].result.difference.value == pytest.approx(-4 / 99)
    assert {a.condition: a.pair.result.agreement.only_first for a in group.across} == {"c6": 4, "c7": 0}
    assert group.repeated == ()
    page = text_of(compared_sections(found, runs))
    for words in ("+20.2 [+12.1, +29.3]", "73 of 99", "read-other", "judge-other", "pooled protocol", "ab" * 8):
        assert words in page


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"protocol": "official"}, "protocol pooled and official"),
        ({"dataset_sha256": "cd" * 32}, "with other digests"),
        ({"hide_later": True}, "sessions after the question hidden"),
    ],
)
def test_what_may_not_be_compared_stands_in_tables_of_its_own(change, why):
    """Another protocol, other data: two groups, a line that says why, and no pair across them."""
    runs = [Run("one", paper_report()), Run("two", paper_report(a_header(**change)))]
    found = compare_runs(runs, read_published())

    assert [group.runs for group in found.groups] == [("one",), ("two",)]
    assert len(found.apart) == 1
    assert why in found.apart[0]
    assert all(group.across == () for group in found.groups)


def test_the_papers_rows_are_in_no_table_of_another_protocol():
    run = Run("one", paper_report(a_header(protocol="official")))
    sections = compared_sections(compare_runs([run], read_published()), [run])

    for section in sections:
        for table in section.tables:
            names = {row[0] for row in table.rows}
            assert not {"one", "the paper"} <= names, section.title
    page = text_of(sections)
    assert "another experiment" in page
    assert "c5-fs | not known" in page


def test_runs_that_differ_in_the_seed_alone_are_repeats():
    """Mean, spread and a value for each seed; they are not set against each other as if they were models."""
    runs = [Run(f"seed-{n}", paper_report(a_header(seed=n, settings={"seed": str(n)}), flip={f"temporal-{n}"})) for n in range(3)]
    (group,) = compare_runs(runs, read_published()).groups

    rows = {row.what: row for row in group.repeated}
    assert rows["c6"].seeds == (0, 1, 2)
    assert rows["c6"].values == (72 / 99,) * 3
    assert rows["c6"].together.deviation == pytest.approx(0)
    assert rows["c6 - c7"].together.mean == pytest.approx(19 / 99)
    assert group.across == ()


def test_reconstructions_are_labelled():
    """A condition that the paper describes in part only is never shown without the word."""
    report = paper_report(a_header(reconstructed=("c7",)))
    page = text_of(compared_sections(compare_runs([run := Run("one", report)], read_published()), [run]))

    assert "one | c7 (reconstruction) | " in page
    assert "one | c7 | " not in page


# ------------------------------------------------------------------------------------------------------- command line


def test_compare_command_sets_run_folders_side_by_side(tmp_path):
    data = rows(tmp_path / "lme.json", small_benchmark())
    for name, protocol in (("one", "official"), ("pool", "pooled")):
        assert dualtrace("run", data, "--out", tmp_path / name, "--protocol", protocol).exit_code in (0, 3)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    result = dualtrace("compare", tmp_path / "one", tmp_path / "two", tmp_path / "pool")
    assert result.exit_code == 0, result.stderr
    assert "stand apart" in result.stdout
    found = document(dualtrace("compare", tmp_path / "one", tmp_path / "two", tmp_path / "pool", "--json"))
    assert [group["runs"] for group in found["groups"]] == [["one", "two"], ["pool"]]
    assert found["published"]["comparison"]["difference"] == 20.2
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_compare_command_refuses_what_is_no_run(tmp_path):
    result = dualtrace("compare", tmp_path)

    assert result.exit_code == 1
    assert "seed-*" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_seeds_are_runs_of_their_own_and_compared(tmp_path):
    data = rows(tmp_path / "lme.json", small_benchmark())
    result = dualtrace("run", data, "--out", tmp_path / "runs", "--seeds", "0,1", "--json")

    assert result.exit_code in (0, 3), result.stderr
    (group,) = document(result)["groups"]
    assert group["runs"] == ["seed-0", "seed-1"]
    assert {row["what"]: row["seeds"] for row in group["repeated"]} == {name: [0, 1] for name in ("c6", "c7", "c6 - c7")}
    assert json.loads((tmp_path / "runs" / "seed-1" / "run.json").read_text())["seed"] == 1
    assert document(dualtrace("compare", tmp_path / "runs", "--json"))["groups"][0]["runs"] == ["seed-0", "seed-1"]


@pytest.mark.parametrize("value", ["0,0", "a", "", "1,,2", "-1"])
def test_seeds_must_be_different_numbers(tmp_path, value):
    result = dualtrace("run", tmp_path / "x.json", "--out", tmp_path / "r", "--seeds", value)

    assert result.exit_code == 2


def marks(path, name):
    column = {"c6": 2, "c7": 3}[name]
    return jsonl(path / f"{name}.jsonl", ({"question_id": m[0], "question_type": m[1], "correct": m[column]} for m in paper_outcomes()))


def test_marked_answers_of_any_system_give_the_same_tables(tmp_path):
    first, second = marks(tmp_path, "c6"), marks(tmp_path, "c7")
    result = dualtrace("stats", "compare", first, second)
    assert result.exit_code == 0, result.stderr
    for words in ("15.04", "+20.2 [+11.1, +29.3]", "73.7 %", "c6 minus c7"):
        assert words in result.stdout
    found = document(dualtrace("stats", "compare", first, second, "--json"))

    ours, theirs = found["pair"], paper_report().pairs[0]
    assert ours["result"]["difference"]["low"] == theirs.result.difference.low
    assert [k["kind"] for k in ours["kinds"]] == [k.kind for k in theirs.kinds]


def test_marks_without_kinds_and_with_ids_in_one_file_only(tmp_path):
    """Ids that one file lacks are counted and told, and left out of the comparison; no verdict is none."""
    first = jsonl(tmp_path / "a.jsonl", [{"question_id": f"q{n}", "correct": n < 3} for n in range(5)])
    second = jsonl(tmp_path / "b.jsonl", [{"question_id": f"q{n}", "correct": None if n == 2 else n > 2} for n in range(2, 9)])
    result = dualtrace("stats", "compare", first, second, "--json")

    assert result.exit_code == 0
    found = document(result)
    assert (found["shared"], found["only"], found["pair"]["left_out"]) == (3, {"a": 2, "b": 4}, 7)
    assert found["pair"]["result"]["agreement"] == {"both": 0, "neither": 0, "only_first": 0, "only_second": 2}
    overall = {r["condition"]: r for r in found["rows"] if r["kind"] == "overall"}
    assert [(overall[s]["n"], overall[s]["scored"], overall[s]["unscored"], overall[s]["missing"]) for s in "ab"] == [
        (9, 5, 0, 4),
        (9, 6, 1, 2),
    ]


BAD = (
    ('{"question_id": "q2"}', "correct is missing"),
    ('{"question_id": "q2", "correct": "yes"}', "correct is text, not true, false or null"),
    ('{"question_id": "q2", "correct": 1}', "correct is a number"),
    ('{"question_id": "q1", "correct": false}', 'question_id appears twice: "q1"'),
    ('{"question_id": " ", "correct": true}', "question_id is blank"),
    ("[1]", "the record is a list, not an object"),
    ('{"question_id": "q2", "corr', "broken JSON"),
    ('{"question_id": "q2", "correct": true, "question_type": 7}', "question_type is a number"),
)


@pytest.mark.parametrize(("line", "reason"), BAD)
def test_bad_marks_are_told_by_record_and_the_rest_is_compared(tmp_path, line, reason):
    good = '{"question_id": "q1", "correct": true}\n'
    (tmp_path / "a.jsonl").write_text(good + line + "\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(good, encoding="utf-8")
    result = dualtrace("stats", "compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--json")

    assert result.exit_code == 3
    assert result.stderr.startswith(f"a.jsonl:2: {reason}")
    found = document(result)
    assert (found["bad_records"], found["pair"]["result"]["agreement"]["both"]) == (1, 1)


@pytest.mark.parametrize("content", ["", "\n", '{"question_id": "q1", "answer": "x"}\n', "not json\n"])
def test_a_file_without_marks_is_one_line(tmp_path, content):
    (tmp_path / "a.jsonl").write_text(content, encoding="utf-8")
    jsonl(tmp_path / "b.jsonl", [{"question_id": "q1", "correct": True}])
    result = dualtrace("stats", "compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl")

    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "a.jsonl" in result.stderr


def test_kinds_that_the_files_disagree_on_are_told(tmp_path):
    jsonl(tmp_path / "a.jsonl", [{"question_id": "q1", "correct": True, "question_type": "multi-session"}])
    jsonl(tmp_path / "b.jsonl", [{"question_id": "q1", "correct": True, "question_type": "knowledge-update"}])
    result = dualtrace("stats", "compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl")

    assert result.exit_code == 0
    assert "b.jsonl: question_type of q1 is knowledge-update, before it was multi-session" in result.stderr


def test_verdicts_of_a_run_are_marks_too(tmp_path):
    """A verdict that was given later takes the place of none."""
    lines = [{"question_id": "q1", "condition": "c6", "correct": mark, "by": "m", "reason": ""} for mark in (None, True)]
    jsonl(tmp_path / "c6.m.jsonl", lines)
    jsonl(tmp_path / "c7.m.jsonl", lines[:1])
    found = document(dualtrace("stats", "compare", tmp_path / "c6.m.jsonl", tmp_path / "c7.m.jsonl", "--json"))

    assert found["systems"] == ["c6.m", "c7.m"]
    assert {r["condition"]: r["unscored"] for r in found["rows"] if r["kind"] == "overall"} == {"c6.m": 0, "c7.m": 1}
