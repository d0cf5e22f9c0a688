"""The judge measured: labels in halves, planted answers, what is kept, and verdicts that were made elsewhere."""

import json
from functools import cache

import kit
import pytest

from dualtrace_local.config import Role, read_models
from dualtrace_local.engines.rules import reply
from dualtrace_local.engines.scripted import ScriptedEngine
from dualtrace_local.errors import DataError, RunError
from dualtrace_local.judge import shaped_by
from dualtrace_local.pipeline.calibrate import Label, calibrate, half, import_results, judge_key, keep, kept, probes, read_labels
from dualtrace_local.pipeline.folder import RunFolder
from dualtrace_local.pipeline.parts import Parts
from dualtrace_local.records import ABSTENTION, Answer, Gold, State

WORDS = ("kayak", "violin", "greenhouse", "typewriter", "telescope", "loom", "sidecar", "lantern", "anvil", "harp", "sundial", "bellows")


def label_line(n, *, right=True, kind="multi-session", given=None, **more):
    said = given or (f"It is the {WORDS[n]}." if right else "It is something else.")
    line = {"question_id": f"q{n}", "question_type": kind, "question": f"What stands in shed {n}?", "answer": f"the {WORDS[n]}"}
    return line | {"hypothesis": said, "label": right, "judge_model": "a person"} | more


def labelled(tmp_path, *lines):
    return kit.jsonl(tmp_path / "labels.jsonl", lines or [label_line(n, right=n % 2 == 0) for n in range(12)])


class Given(Parts):
    """Parts whose judge is one given engine."""

    def __init__(self, script, seed=0):
        super().__init__(read_models().with_roles(encode="scripted", read="scripted", judge="scripted"), seed=seed)
        self.given = ScriptedEngine(script)

    def engine(self, role):
        return self.given if role is Role.JUDGE else super().engine(role)


def measured(path, script=reply, split="all", **options):
    with Given(script) as parts:
        return calibrate(read_labels(path, split), parts, **options), parts.given


# ---------------------------------------------------------------------------------------------------------- labels


def test_a_judge_that_is_always_right_agrees_with_everything(tmp_path):
    found, engine = measured(labelled(tmp_path))

    assert (found.overall.n, found.overall.unscored, found.overall.agreement.value, found.overall.kappa) == (12, 0, 1.0, 1.0)
    assert (found.overall.false_positives.n, found.overall.false_negatives.n) == (6, 6)
    assert {p.name: (p.planted, p.passed.value) for p in found.probes} == {
        "wrong": (12, 0.0),
        "vague": (12, 0.0),
        "abstention": (12, 0.0),
    }
    assert found.labelled_by == ("a person",)
    assert len(engine.requests) == 48
    assert not any("q3" in r.system + r.user for r in engine.requests)


@pytest.mark.parametrize(("verdict", "agreed", "false_positive", "false_negative"), [("correct", 0.5, 1.0, 0.0), ("wrong", 0.5, 0.0, 1.0)])
def test_a_judge_that_always_says_the_same_is_shown_up(tmp_path, verdict, agreed, false_positive, false_negative):
    found, _ = measured(labelled(tmp_path), {"judge": json.dumps({"verdict": verdict})})
    whole = found.overall

    assert (whole.agreement.value, whole.kappa) == (agreed, 0.0)
    assert (whole.false_positives.value, whole.false_negatives.value) == (false_positive, false_negative)
    assert {p.passed.value for p in found.probes} == {1.0 if verdict == "correct" else 0.0}


def test_no_verdict_is_unscored_and_in_no_rate(tmp_path):
    found, _ = measured(labelled(tmp_path), {"judge": "INCORRECT"})

    assert (found.overall.unscored, found.overall.agreement.n, found.overall.agreement.value, found.overall.kappa) == (12, 0, None, None)
    assert all((p.unscored, p.passed.value) == (p.planted, None) for p in found.probes)


def test_kinds_are_told_apart_and_abstention_is_one_of_its_own(tmp_path):
    lines = [
        label_line(0),
        label_line(1, kind="temporal-reasoning"),
        label_line(2, question_id="q2_abs", answer="Not said.", given="No idea."),
    ]
    found, engine = measured(labelled(tmp_path, *lines), planted=False)

    assert [(r.kind, r.n) for r in found.rows] == [("multi-session", 1), ("temporal-reasoning", 1), ("abstention", 1), ("overall", 3)]
    assert found.probes == ()
    assert len(engine.requests) == 3


def test_the_halves_are_two_fixed_parts_of_the_whole(tmp_path):
    path = labelled(tmp_path)
    ids = {split: [r.gold.question_id for r in read_labels(path, split).rows] for split in ("dev", "held", "all")}

    assert sorted(ids["dev"] + ids["held"]) == sorted(ids["all"])
    assert ids["dev"]
    assert ids["held"]
    assert [half(q) for q in ("q0", "q1", "q2", "q3", "q4", "q5")] == [half(f"q{n}_abs") for n in range(6)]
    assert 0.4 < sum(half(f"question {n}") == "dev" for n in range(1000)) / 1000 < 0.6


def test_lines_that_are_no_labels_are_told_and_never_guessed(tmp_path):
    path = labelled(
        tmp_path, label_line(0), label_line(1, label="true"), label_line(2, label=None), {"question_id": "q3"}, label_line(4, label=1)
    )
    path.write_text(path.read_text() + "{no\n[1]\n")
    found = read_labels(path)

    assert [r.gold.question_id for r in found.rows] == ["q0"]
    assert [line.split(":")[1] for line in found.rejected] == ["2", "3", "4", "5", "6", "7"]
    assert not any("shed" in line for line in found.rejected)
    with pytest.raises(DataError, match=r"labels.jsonl holds no labelled answer \(labels.jsonl:1: "):
        read_labels(labelled(tmp_path, {"label": True}))
    with pytest.raises(DataError, match="No such file"):
        read_labels(tmp_path / "nothing.jsonl")


def test_a_number_as_right_answer_stays_one(tmp_path):
    (row,) = read_labels(labelled(tmp_path, label_line(0, answer=15))).rows

    assert row.gold.answer == 15


# ---------------------------------------------------------------------------------------------------------- probes


def row(key, answer, *, kind="multi-session", question="What stands in the shed?"):
    return Label(Gold(key, answer, kind, key.endswith("_abs")), question, "x", correct=True)


def test_a_foreign_answer_shares_nothing_with_the_right_one():
    rows = [
        row("q1", "3 weeks", kind="temporal-reasoning"),
        row("q2", "4 weeks", kind="temporal-reasoning"),
        row("q3", 4),
        row("q4", "Yes."),
        row("q5", "a red canoe"),
        row("q6_abs", "You did not say."),
    ]
    planted = {p.row.gold.question_id: p.text for p in probes(rows) if p.name == "wrong"}

    assert [planted[q] for q in ("q1", "q2", "q3")] == ["a red canoe"] * 3
    assert planted["q4"] == "a red canoe"
    assert planted["q5"] == "4"
    assert planted["q6_abs"] == "4"


def test_every_probe_is_wrong_by_its_making():
    rows = [row("q1", "a red canoe"), row("q1", "a red canoe"), row("q2_abs", "You did not say.", question="Who is my dentist?")]
    made = [(p.name, p.row.gold.question_id, p.text) for p in probes(rows)]

    assert [(name, key) for name, key, _ in made] == [("vague", "q1"), ("abstention", "q1"), ("wrong", "q2_abs"), ("vague", "q2_abs")]
    assert made[1][2] == ABSTENTION
    assert "dentist" in made[3][2]
    assert "canoe" not in made[0][2]


# ------------------------------------------------------------------------------------------------------------ kept


def test_a_calibration_is_found_again_by_its_judge_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "cache"))
    path = labelled(tmp_path)
    whole, _ = measured(path)
    dev, _ = measured(path, split="dev", planted=False)
    for found in (whole, dev):
        keep(found)
    keep(dev, tmp_path / "run" / "calibration")
    told = []

    assert kept(whole.key, tmp_path / "run", told.append) == (dev, whole)
    assert kept("0" * 16, tmp_path / "run", told.append) == ()
    file = keep(whole)
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("{}")
    assert kept(whole.key, tmp_path / "elsewhere", told.append) == (dev,)
    assert len(told) == 1
    assert not any("shed" in p.read_text() for p in (tmp_path / "run" / "calibration").iterdir())


def test_another_model_or_another_prompt_is_another_judge():
    model = {"name": "a", "digest": "1"}
    keys = {judge_key(m, p) for m in (model, model | {"digest": "2"}) for p in (shaped_by(), shaped_by() | {"request": "x"})}

    assert len(keys) == 4
    assert judge_key(model, shaped_by()) in keys


# ---------------------------------------------------------------------------------------------------------- import


@pytest.fixture
def run_folder(tmp_path):
    """A run with answers to three questions under two conditions, and no verdict."""
    with RunFolder.written(tmp_path / "run", print, create=True) as folder:
        for condition in ("c6", "c7"):
            answers = [Answer(f"q{n}", f"Question {n}?", condition, State.B, f"{condition} says {n}.", abstained=False) for n in range(3)]
            folder.add_answers(condition, answers)
            folder.export_hypotheses(condition)
        folder.save(conditions=["c6", "c7"], models={})
        yield folder


def results(folder, *labels, name="c6.hypotheses.jsonl.eval-results-a-judge", condition="c6", model="a-judge-2024"):
    """A result file about the condition's hypotheses; ``labels`` are (question number, label)."""
    lines = [json.loads(x) for x in (folder.path / "answers" / f"{condition}.hypotheses.jsonl").read_text().splitlines()]
    made = [{**lines[n], "autoeval_label": {"model": model, "label": label}} for n, label in labels]
    return kit.jsonl(folder.path / name, made)


def test_labels_become_verdicts(run_folder):
    found = import_results(run_folder, results(run_folder, (0, True), (2, False)), "official")

    assert (found.condition, found.model, found.lines, found.new, found.missing, found.left_out) == ("c6", "a-judge-2024", 2, 2, 1, 0)
    assert {v.question_id: (v.correct, v.by) for v in run_folder.verdicts("c6", "official")} == {
        "q0": (True, "official"),
        "q2": (False, "official"),
    }
    assert run_folder.manifest["judge"] == "official"
    again = import_results(run_folder, results(run_folder, (0, True), (1, True)), "official")
    assert (again.new, again.known, again.missing) == (1, 1, 0)


def test_every_line_is_accounted_for_and_nothing_is_filled_in(run_folder):
    path = results(run_folder, (0, True), (0, True), (1, True), (1, False), (2, "yes"), (2, None))
    text = path.read_text()
    stranger = {"question_id": "q9", "hypothesis": "x", "autoeval_label": {"model": "a-judge-2024", "label": True}}
    stale = {"question_id": "q2", "hypothesis": "an older answer", "autoeval_label": {"model": "a-judge-2024", "label": True}}
    path.write_text(text + json.dumps(stranger) + "\n" + json.dumps(stale) + "\nnot JSON\n")
    found = import_results(run_folder, path, "official")

    assert (found.new, found.repeated, found.disputed, found.unreadable, found.unknown, found.other_answer) == (1, 1, 2, 3, 1, 1)
    assert found.lines == 9 == found.new + found.known + found.repeated + found.left_out
    assert found.missing == 2
    assert [v.question_id for v in run_folder.verdicts("c6", "official")] == ["q0"]
    assert not any("says" in line or "older" in line for line in found.told)


def test_whose_answers_were_judged_is_never_guessed(run_folder):
    unnamed = results(run_folder, (0, True), name="results.jsonl")
    with pytest.raises(DataError, match="say --condition NAME; conditions of the run: c6, c7"):
        import_results(run_folder, unnamed, "official")
    with pytest.raises(DataError, match="no answers under 'c8'"):
        import_results(run_folder, unnamed, "official", "c8")
    with pytest.raises(DataError, match="the text that was judged is not c7's answer"):
        import_results(run_folder, unnamed, "official", "c7")
    assert import_results(run_folder, unnamed, "official", "c6").new == 1


def test_one_name_is_one_judge(run_folder):
    import_results(run_folder, results(run_folder, (0, True)), "official")
    with pytest.raises(RunError, match=r"model\.imported"):
        import_results(run_folder, results(run_folder, (1, True), model="another"), "official")
    mixed = results(run_folder, (0, True))
    mixed.write_text(mixed.read_text() + results(run_folder, (1, True), name="other", model="another").read_text())
    with pytest.raises(DataError, match="several models"):
        import_results(run_folder, mixed, "mixed")
    run_folder.guard("judge local", {"model": {"name": "local"}, "prompts": {}, "seed": 0})
    with pytest.raises(RunError):
        import_results(run_folder, results(run_folder, (0, True)), "local")


# ---------------------------------------------------------------------------------------------------- command line


@cache
def judged(folder):
    """A judged run of the small benchmark under two conditions."""
    bench = kit.rows(folder / "bench.json", kit.small_benchmark())
    result = kit.dualtrace("run", bench, "--out", folder / "run", "--conditions", "c6,history")
    assert result.exit_code == 0, result.stderr
    return folder / "run"


@pytest.fixture
def finished(tmp_path_factory):
    return judged(tmp_path_factory.getbasetemp())


def test_calibrate_on_the_command_line(tmp_path):
    path = labelled(tmp_path)
    result = kit.dualtrace("judge", "calibrate", path, "--out", tmp_path / "kept", "--json")

    found = kit.document(result)
    assert result.exit_code == 0
    assert found["rows"][-1]["agreement"]["value"] == 1.0
    assert (tmp_path / "kept").is_dir()
    assert json.loads((tmp_path / "kept" / found["kept"].rsplit("/", 1)[-1]).read_text())["key"] == found["key"]
    path.write_text(path.read_text() + "{\n")
    told = kit.dualtrace("judge", "calibrate", path, "--out", tmp_path / "kept", "--no-probes", "--split", "held")
    assert told.exit_code == 3
    assert "labels.jsonl:13: not JSON" in told.stderr
    assert "the half held back from tuning" in told.stdout


def test_a_report_names_its_judges_calibration(finished, tmp_path):
    kit.dualtrace("judge", "calibrate", labelled(tmp_path), "--out", finished / "calibration")
    kit.dualtrace("report", finished, model=None)

    page = (finished / "report" / "report.md").read_text()
    assert "This judge has no calibration" not in page
    assert "Calibration of scripted on labels.jsonl" in page
    assert "kappa 1.00" in page
    (calibration,) = json.loads((finished / "report" / "report.json").read_text())["details"]["calibrations"]
    assert calibration["rows"][-1]["n"] == 12


@pytest.mark.parametrize("words", [("judge",), ("judge", "run")])
def test_judge_with_a_folder_is_judge_run(finished, words):
    result = kit.dualtrace(*words, finished, "--json")

    assert result.exit_code == 0
    assert {r["condition"] for r in kit.document(result)["rows"]} == {"c6", "history"}
    assert kit.dualtrace(words[0], "--json", finished).exit_code == 0


def test_import_on_the_command_line_puts_both_judges_side_by_side(finished, tmp_path):
    lines = [json.loads(x) for x in (finished / "answers" / "c6.hypotheses.jsonl").read_text().splitlines()]
    path = tmp_path / "c6.hypotheses.jsonl.eval-results-elsewhere"
    kit.jsonl(path, [{**x, "autoeval_label": {"model": "elsewhere-1", "label": True}} for x in lines])
    result = kit.dualtrace("judge", "import", finished, path, "--judge", "elsewhere", "--json", model=None)

    found = kit.document(result)
    assert result.exit_code == 3  # the other condition has no verdict of this judge
    assert (found["import"]["new"], found["import"]["missing"]) == (5, 0)
    overall = {r["condition"]: r for r in found["rows"] if r["kind"] == "overall"}
    assert (overall["c6"]["correct"], overall["history"]["unscored"]) == (5, 5)
    page = (finished / "report" / "report.md").read_text()
    assert "Verdicts by elsewhere, made elsewhere." in page
    assert "| c6 | scripted | elsewhere | 5 |" in page
    assert kit.dualtrace("judge", finished, "--json").exit_code == 0
