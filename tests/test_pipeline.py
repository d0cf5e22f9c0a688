"""The pipeline's own work: private files, run folders and their fingerprints, teaching, and whole experiments on the scripted engine."""

import json
import os
import stat
import subprocess
from datetime import datetime
from functools import cache
from pathlib import Path

import kit
import pytest

from dualtrace_local import Memory
from dualtrace_local.config import BATCH, Conditions, GateWay, Models, Role, TeachSettings, read_conditions, read_models
from dualtrace_local.engines import EngineDiedError
from dualtrace_local.engines.rules import reply
from dualtrace_local.engines.scripted import ScriptedEngine
from dualtrace_local.errors import ConfigError, DataError, EngineError, RunError, StoreBusyError, StoreError
from dualtrace_local.pipeline import experiment
from dualtrace_local.pipeline.demo import story
from dualtrace_local.pipeline.files import JsonLines, write_json
from dualtrace_local.pipeline.folder import RunFolder
from dualtrace_local.pipeline.parts import Listener, Parts, has_gpu
from dualtrace_local.records import ABSTENTION, Completion, Finish, Scope, State, Tier
from dualtrace_local.store import Selection, Store

ROOT = Path(__file__).resolve().parents[1]


class Told(Listener):
    """Keeps the lines that a person would have seen."""

    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


def scripted(**roles):
    """The shipped models with the rule-made one in every role; ``other`` is the same under another name."""
    models = read_models()
    named = {**models.models, "other": models.spec("scripted")}
    return Models(roles=models.roles, models=named).with_roles(**{"encode": "scripted", "read": "scripted", "judge": "scripted", **roles})


class Ours(Parts):
    """Parts with the embedding model of all tests, and with one given engine for every role if there is one."""

    def __init__(self, models=None, listener=None, *, seed=0, engine=None):
        super().__init__(models or scripted(), listener, seed=seed)
        self.given = engine

    @property
    def embedder(self):
        return loaded()

    def engine(self, role):
        return self.given or super().engine(role)


@cache
def loaded():
    return Parts(scripted()).embedder


def changed(conditions, **update):
    """The shipped conditions with some of c6 changed."""
    c6 = conditions.get("c6").model_copy(update=update)
    return Conditions(conditions={**conditions.conditions, "c6": c6})


class JudgeIsOff(ScriptedEngine):
    """Reads and writes, and is gone when it has to judge."""

    def submit(self, ticket, request, priority):
        if request.kind == "judge":
            raise EngineDiedError("gone")
        super().submit(ticket, request, priority)


ASKED = ("q_boat", "q_sister", "q_shift", "q_cat_abs", "q_apart")


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def benchmark(tmp_path):
    return kit.rows(tmp_path / "bench.json", kit.small_benchmark())


def run(benchmark, out, told=None, *, engine=None, models=None, views=None, seed=0, **plan):
    plan.setdefault("conditions", ("c6", "c7", "vanilla"))
    with Ours(models, told, seed=seed, engine=engine) as parts:
        return experiment.run(experiment.Plan(benchmark, **plan), out, parts, views or read_conditions())


def lines(path):
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]


def answers(out, condition="c6"):
    return {a["question_id"]: a for a in lines(out / "answers" / f"{condition}.jsonl")}


# ---------------------------------------------------------------------------------------------------------- files


def test_json_lines_keep_what_is_written_and_stay_private(tmp_path, told):
    file = JsonLines(tmp_path / "a.jsonl", told.say)
    objects = [{"text": "a\u2028b\x85c\x0bd"}, {"text": "half \ud83d"}, {"n": None}]

    file.append(objects[:1])
    file.append(objects[1:])

    assert list(file.read()) == objects
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert not told.lines


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_torn_end_is_dropped_with_one_note_and_the_next_line_is_whole(tmp_path, told, cut):
    file = JsonLines(tmp_path / "a.jsonl", told.say)
    file.append([{"key": "k1"}, {"key": "kü2"}])
    file.path.write_bytes(file.path.read_bytes()[:-cut])

    assert list(file.read()) == [{"key": "k1"}]
    file.append([{"key": "k3"}])

    assert lines(file.path) == [{"key": "k1"}, {"key": "k3"}]
    assert set(told.lines) == {"a.jsonl: the last line was cut off by an interruption and is dropped; what it held is done again"}


def test_reading_never_changes_a_file(tmp_path, told):
    file = JsonLines(tmp_path / "a.jsonl", told.say)
    file.path.write_bytes(b'{"a":1}\n{"b":')

    list(file.read())

    assert file.path.read_bytes() == b'{"a":1}\n{"b":'


@pytest.mark.parametrize("bad", [b"\xff\xfe", b"{", b"[1]", b"7", b'{"b":1}'], ids=repr)
def test_a_bad_line_in_the_middle_is_told_by_number_and_later_lines_count(tmp_path, told, bad):
    file = JsonLines(tmp_path / "a.jsonl", told.say)
    file.path.write_bytes(b'{"a":1}\n' + bad + b'\n{"a":3}\n')

    assert list(file.records(lambda line: line["a"])) == [1, 3]
    assert len(told.lines) == 1
    assert told.lines[0].startswith("a.jsonl:2: ")


def test_a_document_is_replaced_whole_and_private(tmp_path):
    write_json(tmp_path / "run.json", {"a": "é"})
    write_json(tmp_path / "run.json", {"b": 2})

    assert json.loads((tmp_path / "run.json").read_text()) == {"b": 2}
    assert stat.S_IMODE((tmp_path / "run.json").stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


def test_what_cannot_be_written_is_one_sentence(tmp_path, told):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(RunError, match="cannot be written"):
        JsonLines(tmp_path / "file" / "a.jsonl", told.say).append([{"a": 1}])


# ------------------------------------------------------------------------------------------------------ run folder


def test_a_folder_without_a_run_is_refused(tmp_path, told):
    with pytest.raises(RunError, match=r"not a run folder .*run\.json"):
        RunFolder(tmp_path, told.say)
    with pytest.raises(RunError, match="not a run folder"), RunFolder.written(tmp_path / "none", told.say):
        pass


def test_a_folder_of_somebody_else_is_refused_untouched(tmp_path, told, benchmark):
    out = tmp_path / "photos"
    out.mkdir(mode=0o755)
    (out / "beach.jpg").write_text("x")

    with pytest.raises(RunError, match=r"holds other files \(beach\.jpg"):
        run(benchmark, out, told)

    assert [p.name for p in out.iterdir()] == ["beach.jpg"]
    assert stat.S_IMODE(out.stat().st_mode) == 0o755


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 99}'])
def test_a_manifest_that_is_not_ours_is_refused(tmp_path, told, content):
    (tmp_path / "run.json").write_text(content)

    with pytest.raises(RunError, match=r"run\.json is "):
        RunFolder(tmp_path, told.say)


def test_a_run_folder_has_one_writer(tmp_path, told):
    with RunFolder.written(tmp_path / "run", told.say, create=True) as first:
        first.started()
        with pytest.raises(StoreBusyError, match=r"in use by process \d+"), RunFolder.written(tmp_path / "run", told.say):
            pass

    with RunFolder.written(tmp_path / "run", told.say) as again:
        assert len(again.manifest["starts"]) == 1


def test_a_fingerprint_refuses_its_own_stage_and_names_what_changed(tmp_path, told):
    with RunFolder.written(tmp_path / "run", told.say, create=True) as folder:
        folder.guard("teach", {"model": {"name": "a"}, "seed": 0})
        folder.guard("teach", {"model": {"name": "a"}, "seed": 0})

        with pytest.raises(RunError, match=r"teach was run with another model\.name \(a, now b\); use another --out"):
            folder.guard("teach", {"model": {"name": "b"}, "seed": 0})
        folder.guard("recall c6", {"model": {"name": "b"}})


def test_names_from_files_never_form_a_path(tmp_path, benchmark):
    """A condition and a model may be called anything; their files stay inside the run folder."""
    views = Conditions(conditions={"../../up/c9": read_conditions().get("c7")})
    models = scripted()
    named = {**models.models, "org/judge": models.spec("scripted")}
    models = Models(roles=models.roles, models=named).with_roles(judge="org/judge")

    result = run(benchmark, tmp_path / "run", models=models, views=views, conditions=("../../up/c9",))

    assert result.failed == result.unscored == 0
    assert {p.name for p in tmp_path.iterdir()} == {"bench.json", "run"}
    assert len(list((tmp_path / "run" / "answers").iterdir())) == 2


# ----------------------------------------------------------------------------------------------------------- teach


def memory_of(tmp_path, engine=None, told=None):
    return Memory(tmp_path / "store", Ours(None, told, engine=engine), Scope())


def test_nothing_is_made_when_no_source_can_be_read(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")

    for source in (tmp_path / "nowhere.jsonl", tmp_path / "empty.jsonl", tmp_path):
        with pytest.raises(DataError):
            memory_of(tmp_path).teach(source)

    assert not (tmp_path / "store").exists()


def test_a_source_that_cannot_be_read_does_not_stop_the_others(tmp_path, told):
    good = kit.jsonl(tmp_path / "good.jsonl", kit.small_sessions(3))
    totals = memory_of(tmp_path, told=told).teach(tmp_path / "nowhere.jsonl", good)

    assert (totals.read, totals.failed, totals.taught + totals.dropped) == (4, 1, 3)
    assert any("nowhere.jsonl" in line for line in told.lines)


def test_a_failed_session_is_told_kept_out_and_tried_again(tmp_path, told):
    """Case OUT-02: what was cut off is never parsed; its raw text lies in the private file and nowhere else."""
    source = kit.jsonl(tmp_path / "chats.jsonl", kit.small_sessions(5))

    def cut(request):
        if request.kind == "facts" and "violin" in request.user:
            return Completion('{"facts":["The user RAWSENTINEL', Finish.LENGTH)
        return reply(request)

    engine = ScriptedEngine(cut)
    totals = memory_of(tmp_path, engine, told).teach(source)

    assert (totals.read, totals.failed) == (5, 1)
    assert sum("violin" in r.user for r in engine.requests if r.kind == "facts") == 3
    (failure,) = lines(tmp_path / "store" / "failures.jsonl")
    assert failure["record"] == 2
    assert "RAWSENTINEL" in failure["raw"]
    assert [line for line in told.lines if line.startswith("chats.jsonl:2: facts: cut off")]
    assert not any("RAWSENTINEL" in line for line in told.lines)

    again = memory_of(tmp_path, ScriptedEngine(reply)).teach(source)
    assert (again.unchanged, again.dropped, again.failed) == (4, 1, 0)


def test_a_failed_session_that_comes_again_is_tried_once_a_start(tmp_path):
    """It counts as failed once and as unchanged after that, and moves the bar once."""
    chats = list(kit.small_sessions(40))
    source = kit.jsonl(tmp_path / "chats.jsonl", [*chats, *chats])

    class Bar(Listener):
        total = done = 0

        def stage(self, name, total):
            del name
            self.total = total

        def advance(self, done=1):
            self.done += done

    def cut(request):
        return Completion("{", Finish.LENGTH) if request.kind == "facts" and "Case 1." in request.user else reply(request)

    engine, bar = ScriptedEngine(cut), Bar()
    totals = memory_of(tmp_path, engine, bar).teach(source)

    assert (totals.read, totals.failed, totals.unchanged) == (80, 1, 40)
    assert bar.done == bar.total == 40
    assert sum("Case 1." in r.user for r in engine.requests if r.kind == "facts") == 3
    assert memory_of(tmp_path, ScriptedEngine(reply)).teach(source).unchanged == 79


def test_the_seed_reaches_the_writer(tmp_path):
    engine = ScriptedEngine(reply)
    with Memory(tmp_path / "store", Ours(engine=engine, seed=7), Scope()) as memory:
        memory.teach(kit.jsonl(tmp_path / "chats.jsonl", kit.small_sessions(1)))

    assert {r.seed for r in engine.requests} == {7}


def test_a_dead_engine_stops_the_teach_and_the_next_one_goes_on(tmp_path, told):
    source = kit.jsonl(tmp_path / "chats.jsonl", kit.small_sessions(30))
    with pytest.raises(EngineError, match="died twice"):
        memory_of(tmp_path, ScriptedEngine(reply, die_at=range(40, 1000))).teach(source)

    totals = memory_of(tmp_path, ScriptedEngine(reply), told).teach(source)

    assert totals.unchanged >= BATCH
    assert totals.unchanged + totals.taught + totals.dropped == 30
    assert [line for line in told.lines if line.startswith("resumed: an earlier teach was interrupted")]


def test_an_interrupted_teach_keeps_what_was_finished(tmp_path):
    """Ctrl-C between two sessions: everything finished is stored, and only flows in flight are read again."""
    source = kit.jsonl(tmp_path / "chats.jsonl", kit.small_sessions(40))

    class Impatient(Listener):
        finished = 0

        def advance(self, done=1):
            self.finished += done
            if self.finished == 21:
                raise KeyboardInterrupt

    first, second = ScriptedEngine(reply), ScriptedEngine(reply)
    with pytest.raises(KeyboardInterrupt):
        memory_of(tmp_path, first, Impatient()).teach(source)
    totals = memory_of(tmp_path, second).teach(source)

    assert totals.unchanged == 21
    read_twice = sum(r.kind == "facts" for r in (*first.requests, *second.requests)) - 40
    assert read_twice <= scripted().spec("scripted").window


def test_another_model_leaves_what_was_taught_and_says_so(tmp_path, told):
    source = kit.jsonl(tmp_path / "chats.jsonl", kit.small_sessions(3))
    memory_of(tmp_path).teach(source)
    totals = memory_of(tmp_path, told=told).teach(source, settings=TeachSettings(assistant_chars=50))

    assert totals.unchanged == 3
    assert any("3 sessions were taught earlier with another model, prompt or setting" in line for line in told.lines)


# -------------------------------------------------------------------------------------------------------- remember


SAID, ON = "The allotment gate sticks. My spare key hangs behind the clock.", datetime(2024, 5, 1, 8, 15)
WRITTEN = {
    "anchor": '{"topic":"spare-key"}',
    "scene": '{"moment":"The user stands in a hallway and reaches behind an old clock."}',
}


def facts(*written):
    return {"facts": json.dumps({"facts": written}), **WRITTEN}


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (
            ("The user's spare key hangs behind the clock.",),
            ("The user's spare key hangs behind the clock.", 'The user said: "The allotment gate sticks."'),
        ),
        ((), tuple(f'The user said: "{s}"' for s in ("The allotment gate sticks.", "My spare key hangs behind the clock."))),
        (
            ("The user's spare key is under 12 stones in Vienna.",),
            tuple(f'The user said: "{s}"' for s in ("The allotment gate sticks.", "My spare key hangs behind the clock.")),
        ),
    ],
    ids=["written", "nothing written", "invented"],
)
def test_what_the_model_does_not_write_is_kept_in_the_owners_words(tmp_path, written, kept):
    with memory_of(tmp_path, ScriptedEngine(facts(*written))) as memory:
        found = memory.remember(SAID, as_of=ON)

    assert sorted(c.text for m in found.memories for c in m.components) == sorted(kept)
    assert all(c.quote in SAID for m in found.memories for c in m.components)
    assert {(m.tier, m.evidence.override, bool(m.scene)) for m in found.memories} == {(Tier.FULL, "remember", True)}


def test_a_bigger_models_gate_does_not_overrule_the_owner(tmp_path):
    models = scripted()
    spec = models.spec("scripted").model_copy(update={"gate": GateWay.SCORED})
    models = Models(roles=models.roles, models={**models.models, "scripted": spec})
    nothing = {
        "gate": '{"disclosed":"","relevance":0,"specificity":0,"explicitness":0}',
        "facts": '{"groups":[]}',
        "anchor": WRITTEN["anchor"],
        "scene": '{"picture":"Picture: the user pulls at a wooden gate that does not move in the morning rain."}',
    }
    with Memory(tmp_path / "store", Ours(models, engine=ScriptedEngine(nothing)), Scope()) as memory:
        found = memory.remember("The allotment gate sticks.", as_of=ON)

    assert found.memories[0].fact == 'The user said: "The allotment gate sticks."'
    assert found.memories[0].scene.startswith("Picture:")


def test_a_statement_that_fails_is_one_error_and_can_be_said_again(tmp_path):
    cut = memory_of(tmp_path, ScriptedEngine({"facts": Completion('{"facts":["RAWSENTINEL', Finish.LENGTH)}))
    with pytest.raises(EngineError, match=r"scripted wrote nothing whole \(facts: cut off .*nothing is stored") as problem:
        cut.remember(SAID, as_of=ON)
    assert "RAWSENTINEL" not in str(problem.value)
    assert memory_of(tmp_path, ScriptedEngine(facts())).remember(SAID, as_of=ON).status == "taught"


def test_a_statement_needs_no_model_where_there_is_nothing_to_write(tmp_path):
    memory_of(tmp_path).remember(SAID, as_of=ON)
    engine = ScriptedEngine(facts())
    with memory_of(tmp_path, engine) as memory:
        assert memory.remember(SAID, as_of=ON).status == "unchanged"
        assert memory.remember("My key is lost, do not remember this.", as_of=ON).status == "refused"

    assert engine.requests == []
    assert len(Store.open(tmp_path / "store", None).sessions()) == 1


def test_remembering_does_not_end_an_interrupted_teach(tmp_path, told):
    source = kit.jsonl(tmp_path / "chats.jsonl", kit.small_sessions(30))
    with pytest.raises(EngineError, match="died twice"):
        memory_of(tmp_path, ScriptedEngine(reply, die_at=range(40, 1000))).teach(source)
    memory_of(tmp_path, told=told).remember(SAID, as_of=ON)
    assert not any("resumed" in line for line in told.lines)

    memory_of(tmp_path, told=told).teach(source)
    assert any("resumed: an earlier teach was interrupted" in line for line in told.lines)


# ---------------------------------------------------------------------------------------------------------- rounds


class Stages(Told):
    """Also keeps the stages, and how much of each was done."""

    def __init__(self):
        super().__init__()
        self.stages, self.done = {}, 0

    def stage(self, name, total):
        self.stages[name], self.done = total, 0

    def advance(self, done=1):
        self.done += done


def lacking(store):
    with Store.open(store, loaded()) as reader:
        return reader.lacking(Selection(Scope()), "round")


def test_rounds_are_embedded_once_and_with_progress_where_there_are_many(tmp_path):
    source = kit.jsonl(tmp_path / "chats.jsonl", kit.small_sessions(300))
    memory_of(tmp_path).teach(source)
    assert lacking(tmp_path / "store") == 300
    told = Stages()
    memory_of(tmp_path, told=told).search("What did I buy?")
    assert told.stages == {}

    found = memory_of(tmp_path, told=told).search("How does a kayak work?", condition="history")
    assert (told.stages, told.done) == ({"embed rounds": 300}, 300)
    assert "kayak" in found.items[0].turns[0].text
    assert lacking(tmp_path / "store") == 0
    again = Stages()
    assert memory_of(tmp_path, told=again).search("How does a kayak work?", condition="history") == found
    assert again.stages == {}


def test_rounds_of_a_store_that_is_being_written_are_found_and_left(tmp_path, told):
    memory_of(tmp_path).teach(kit.jsonl(tmp_path / "chats.jsonl", [kit.session("g1", "2024-05-20 09:00", *kit.GUESTHOUSE)]))
    with Store.open(tmp_path / "store", loaded(), write=True):
        found = memory_of(tmp_path, told=told).search(kit.WHICH_GUESTHOUSE, condition="history")
        assert lacking(tmp_path / "store") == 1

    assert "Oriel" in found.items[0].turns[1].text
    assert [line for line in told.lines if "being written to by another process; the vectors of 1 rounds" in line]


def test_what_an_assistant_said_is_answered_from_the_history(tmp_path):
    """Case LME-09: it is no fact of the user, so c6 has nothing; the verbatim rounds have it, and say who said it."""
    talk = ("answer_g1", "2024/05/20 (Mon) 09:00", [{**kit.turn(n, text), "has_answer": n == 1} for n, text in enumerate(kit.GUESTHOUSE)])
    asked = {"kind": "single-session-assistant", "evidence": ["answer_g1"]}
    stay = kit.row("q_stay", kit.WHICH_GUESTHOUSE, "Guesthouse Oriel", [kit.BOAT, talk, kit.TIDES], **asked)
    boat = kit.row("q_boat", "What did I name my boat?", "Marigold", [kit.BOAT, kit.TIDES], evidence=["answer_boat_1"])
    bench = kit.rows(tmp_path / "bench.json", [stay, boat])
    engine = ScriptedEngine(reply)
    result = run(bench, tmp_path / "run", engine=engine, conditions=("c6", "history"))

    overall = {row.condition: row.correct for row in result.report.rows if row.kind == "overall"}
    assert (result.failed, overall) == (0, {"c6": 1, "history": 2})
    assert answers(tmp_path / "run")["q_stay"]["text"] == ABSTENTION
    found = answers(tmp_path / "run", "history")
    assert "Guesthouse Oriel" in found["q_stay"]["text"]
    assert found["q_stay"]["state"] == "B"
    assert [(s["session_id"], s["said_by"]) for s in found["q_stay"]["sources"]] == [("g1", "assistant")]
    assert [s["said_by"] for s in found["q_boat"]["sources"]] == ["user"]
    assert lacking(tmp_path / "run" / "store") == 0
    shown = "".join(r.user for r in engine.requests)
    assert "has_answer" not in shown
    assert "answer_g1" not in shown


# ------------------------------------------------------------------------------------------------------ experiment


def test_a_run_answers_judges_and_reports(tmp_path, benchmark, told):
    out = tmp_path / "run"
    result = run(benchmark, out, told)

    found = answers(out)
    assert sorted(found) == sorted(ASKED)
    assert "Marigold" in found["q_boat"]["text"]
    assert found["q_boat"]["state"] == "A"
    assert {s["session_id"] for s in found["q_boat"]["sources"]} == {"boat_1"}
    assert answers(out, "c7")["q_boat"]["state"] == "B"
    assert all(a["text"] == ABSTENTION and a["state"] == "C" for a in answers(out, "vanilla").values())
    assert {row.n for row in result.report.rows if row.kind == "overall"} == {5}
    assert {row.kind for row in result.report.rows} >= {"single-session-user", "multi-session", "knowledge-update", "abstention"}
    assert (result.failed, result.unscored) == (0, 0)
    for name in ("report.md", "report.json", "report.html", "accuracy.png", "accuracy.svg"):
        assert (out / "report" / name).stat().st_size > 0
    hypotheses = lines(out / "answers" / "c6.hypotheses.jsonl")
    assert hypotheses == [{"question_id": q, "hypothesis": a["text"]} for q, a in found.items()]


def test_a_secret_in_a_question_is_masked(tmp_path):
    bench = kit.rows(tmp_path / "bench.json", [kit.row("q", "My PIN is 4921, right?", "Yes", [kit.BOAT])])
    run(bench, tmp_path / "run")

    assert [q["text"] for q in lines(tmp_path / "run" / "questions.jsonl")] == ["My PIN is [masked], right?"]


def test_the_same_run_again_does_nothing_twice(tmp_path, benchmark, told):
    out = tmp_path / "run"
    first = run(benchmark, out)
    before = {p: p.read_bytes() for folder in ("answers", "verdicts") for p in (out / folder).iterdir()}
    engine = ScriptedEngine(reply)
    again = run(benchmark, out, told, engine=engine)

    assert not engine.requests
    assert again.teach.unchanged == again.teach.read == 18
    assert before == {p: p.read_bytes() for p in before}
    assert again.report.rows == first.report.rows
    assert len(json.loads((out / "run.json").read_text())["starts"]) == 2


def test_an_interrupted_recall_goes_on_with_the_rest(tmp_path, benchmark, told):
    """Case LME-14: after the interruption every prompt still names the day of the question."""
    out = tmp_path / "run"

    class Impatient(Told):
        def advance(self, done=1):
            del done
            if any(line.startswith("stage recall c7") for line in self.lines):
                raise KeyboardInterrupt

        def stage(self, name, total):
            self.lines.append(f"stage {name} {total}")

    with pytest.raises(KeyboardInterrupt):
        run(benchmark, out, Impatient())
    kept = len(answers(out, "c7"))
    engine = ScriptedEngine(reply)
    result = run(benchmark, out, told, engine=engine)

    assert 0 < kept < 5
    assert f"resumed: recall c7: {kept} of 5 are there already and stay" in told.lines
    reads = [r for r in engine.requests if r.kind == "read"]
    assert reads
    assert all("2024-06-30" in r.user for r in reads)
    assert result.failed == result.unscored == 0
    assert [a["question_id"] for a in lines(out / "answers" / "c7.jsonl")].count("q_boat") == 1
    assert all(a["asked_on"] == "2024-06-30 12:00" for a in answers(out, "c7").values())


def test_a_torn_answer_is_asked_again_and_a_bad_line_in_the_middle_too(tmp_path, benchmark, told):
    """Case FIL-05 on our own files."""
    out = tmp_path / "run"
    run(benchmark, out)
    file = out / "answers" / "c6.jsonl"
    whole = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join([whole[0], whole[1][:40], *whole[2:4], whole[4][:55]]))
    engine = ScriptedEngine(reply)
    run(benchmark, out, told, engine=engine)

    assert sum(line.startswith("c6.jsonl: the last line was cut off") for line in told.lines) == 1
    assert sum(line.startswith("c6.jsonl:2: ") for line in told.lines) == 1
    assert {a.question_id for a in RunFolder(out, told.say).answers("c6")} == set(ASKED)
    assert len(lines(out / "answers" / "c6.hypotheses.jsonl")) == 5
    assert {r.kind for r in engine.requests} <= {"read", "judge"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"models": scripted(encode="other")}, r"teach was run with another model\.name \(scripted, now other\)"),
        ({"settings": TeachSettings(assistant_chars=7)}, r"teach was run with another settings\.assistant_chars \(0, now 7\)"),
        ({"limit": 2}, r"teach was run with another limit"),
        ({"seed": 5}, r"recall was run with another seed"),
        ({"models": scripted(read="other")}, r"recall was run with another reader\.name"),
        ({"protocol": "pooled"}, r"recall was run with another protocol \(official, now pooled\)"),
        ({"hide_later": True}, r"recall was run with another hide_later"),
        ({"views": changed(read_conditions(), threshold=0.5)}, r"recall c6 was run with another threshold \(0\.2, now 0\.5\)"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_changed_refuses_its_stage_and_changes_nothing(finished, change, named):
    bench, out = finished
    manifest = json.loads((out / "run.json").read_text())

    with pytest.raises(RunError, match=named):
        run(bench, out, **change)

    assert json.loads((out / "run.json").read_text()) == manifest


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run that tests only read."""
    place = tmp_path_factory.mktemp("finished")
    bench = kit.rows(place / "bench.json", kit.small_benchmark())
    run(bench, place / "run")
    return bench, place / "run"


def test_another_dataset_is_another_experiment(tmp_path, finished):
    rows = kit.small_benchmark()
    rows[0]["answer"] = "Daisy"

    with pytest.raises(RunError, match="teach was run with another dataset"):
        run(kit.rows(tmp_path / "bench.json", rows), finished[1])


def test_a_description_may_change(finished):
    assert run(*finished, views=changed(read_conditions(), description="other words")).failed == 0


def test_another_judge_judges_beside_the_first(tmp_path, benchmark):
    out = tmp_path / "run"
    run(benchmark, out)
    first = {p.name: p.read_bytes() for p in (out / "verdicts").iterdir()}
    engine = ScriptedEngine({"judge": '{"verdict":"wrong"}'}, model="other")
    with Ours(scripted(judge="other"), engine=engine) as parts:
        result = experiment.judge_run(out, parts)

    assert {r.kind for r in engine.requests} == {"judge"}
    assert result.report.header.model("judge") == "other"
    # The rule decides about the fixed abstention: of five questions the one without an answer stays right.
    assert sum(row.correct for row in result.report.rows if row.kind == "overall" and row.condition == "c6") == 1
    assert first.items() <= {p.name: p.read_bytes() for p in (out / "verdicts").iterdir()}.items()
    assert experiment.report_run(out, print).report.header.model("judge") == "other"


def test_a_report_needs_the_folder_alone(tmp_path, benchmark):
    run(benchmark, tmp_path / "run")
    benchmark.unlink()
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    for file in (moved / "report").iterdir():
        file.unlink()

    result = experiment.report_run(moved, print)

    assert result.report.questions == 5
    assert (moved / "report" / "report.md").is_file()


def test_a_run_that_has_answered_nothing_yet_has_no_report(tmp_path, told, benchmark):
    out = tmp_path / "run"
    with pytest.raises(EngineError):
        run(benchmark, out, engine=ScriptedEngine(reply, die_at=range(1, 99)))

    for again in (lambda: experiment.report_run(out, told.say), lambda: experiment.judge_run(out, Ours())):
        with pytest.raises(RunError, match="nothing is answered yet"):
            again()


def test_an_unfinished_run_can_be_judged_and_counts_what_is_missing(tmp_path, benchmark):
    out = tmp_path / "run"
    with pytest.raises(EngineError):
        run(benchmark, out, engine=JudgeIsOff(reply))
    file = out / "answers" / "c6.jsonl"
    file.write_bytes(b"\n".join(file.read_bytes().split(b"\n")[:2]) + b"\n")

    with Ours() as parts:
        result = experiment.judge_run(out, parts)

    overall = {row.condition: row for row in result.report.rows if row.kind == "overall"}
    assert (overall["c6"].scored, overall["c6"].missing, overall["c6"].n) == (2, 3, 5)
    assert result.failed == 3


def test_a_failed_answer_is_data_and_is_tried_again(tmp_path, benchmark, told):
    out = tmp_path / "run"

    def broken(request):
        if request.kind == "read" and "sister" in request.user.rsplit("Question", 1)[-1]:
            return Completion('{"notes":"RAWSENTINEL', Finish.LENGTH)
        return reply(request)

    result = run(benchmark, out, told, engine=ScriptedEngine(broken))
    overall = {row.condition: row for row in result.report.rows if row.kind == "overall"}

    assert (overall["c6"].failed, overall["c6"].scored, overall["c6"].n) == (1, 4, 5)
    assert result.failed == 2
    assert any(line.startswith("recall c6:q_sister: read: cut off") for line in told.lines)
    assert not any("RAWSENTINEL" in p.read_text(errors="replace") for p in (out / "report").iterdir() if p.suffix != ".png")
    assert "RAWSENTINEL" in (out / "failures.jsonl").read_text()

    repaired = run(benchmark, out)
    assert repaired.failed == 0
    assert {row.scored for row in repaired.report.rows if row.kind == "overall"} == {5}


@pytest.mark.parametrize("said", ["INCORRECT", "Yes.", "", "thought\n{", '{"verdict":"partly"}', Completion('{"verdict":', Finish.LENGTH)])
def test_p12_no_verdict_is_counted_apart_and_given_later(tmp_path, benchmark, said):
    """Cases LME-15 and OUT-05: only the field counts; what has none is neither right nor wrong, and the run says so."""
    out = tmp_path / "run"
    result = run(benchmark, out, engine=ScriptedEngine(lambda r: said if r.kind == "judge" else reply(r)), conditions=("c6", "c7"), limit=3)
    overall = {row.condition: row for row in result.report.rows if row.kind == "overall"}

    assert (overall["c6"].unscored, overall["c6"].scored, overall["c6"].n) == (3, 0, 3)
    assert result.unscored == 6
    assert "NaN" not in (out / "report" / "report.json").read_text()

    assert run(benchmark, out, conditions=("c6", "c7"), limit=3).unscored == 0


def test_a_verdict_is_read_from_the_field_after_a_closed_thought(tmp_path, benchmark):
    result = run(
        benchmark,
        tmp_path / "run",
        engine=ScriptedEngine(lambda r: '<think>yes? no.</think>{"verdict":"wrong"}' if r.kind == "judge" else reply(r)),
        limit=3,
    )

    assert {row.correct for row in result.report.rows if row.kind == "overall"} == {0}
    assert result.unscored == 0


def test_gold_never_meets_a_model_that_writes_or_reads(tmp_path):
    """Case LME-13: labels, ids and gold of the benchmark are in no prompt; the judge alone sees the gold answer, and no ids."""
    boat = ("answer_zz_evidence", "2024/03/02 (Sat) 09:00", [{"role": "user", "content": kit.BOAT[2][0], "has_answer": True}])
    record = kit.row("qidsentinel_abs", "What did I name my boat?", "GOLDSENTINEL", [boat, kit.TIDES], kind="KINDSENTINEL")
    record["answer_session_ids"] = [boat[0]]
    engine = ScriptedEngine(reply)
    out = tmp_path / "run"
    run(kit.rows(tmp_path / "bench.json", [record]), out, engine=engine)

    assert {r.kind for r in engine.requests} >= {"facts", "anchor", "scene", "read", "judge"}
    for request in engine.requests:
        prompt = request.system + request.user + json.dumps(request.output.model_json_schema())
        for secret in ("qidsentinel", "KINDSENTINEL", "has_answer", "answer_zz", "zz_evidence"):
            assert secret not in prompt
        assert ("GOLDSENTINEL" in prompt) == (request.kind == "judge")
    assert "GOLDSENTINEL" not in kit.dump(out / "store")
    assert "answer_zz" not in kit.dump(out / "store")
    assert not [p for p in out.rglob("*") if "SENTINEL" in p.name or "answer_" in p.name or "qidsentinel" in p.name]


def test_official_sees_its_own_haystack_and_pooled_sees_all(tmp_path, benchmark):
    run(benchmark, tmp_path / "own")
    run(benchmark, tmp_path / "all", protocol="pooled")

    assert answers(tmp_path / "own")["q_apart"]["state"] == "C"
    assert "Marigold" in answers(tmp_path / "all")["q_apart"]["text"]
    assert "pooled" in (tmp_path / "all" / "report" / "report.md").read_text()


def test_later_sessions_are_visible_unless_hidden_and_the_report_says_which(tmp_path):
    """Case LME-07."""
    cactus = ("s2", "2024/06/30 (Sun) 21:10", ["I bought a cactus named Spike too."])
    bench = kit.rows(tmp_path / "b.json", [kit.row("q", "What is my cactus named?", "Spike", [kit.BOAT, cactus])])
    shown = run(bench, tmp_path / "shown")
    hidden = run(bench, tmp_path / "hidden", hide_later=True)

    assert "Spike" in answers(tmp_path / "shown")["q"]["text"]
    assert "Spike" not in answers(tmp_path / "hidden")["q"]["text"]
    assert shown.report.header.later_questions == hidden.report.header.later_questions == 1
    assert "visible; 1 questions have one" in (tmp_path / "shown" / "report" / "report.md").read_text()
    assert "hidden (--hide-later); 1 questions" in (tmp_path / "hidden" / "report" / "report.md").read_text()


def test_usage_adds_up_over_all_starts(tmp_path, benchmark):
    out = tmp_path / "run"
    first, second = ScriptedEngine(reply, die_at=range(12, 999)), ScriptedEngine(reply)
    with pytest.raises(EngineError):
        run(benchmark, out, engine=first)
    result = run(benchmark, out, engine=second)

    spent = {t.kind: 0 for t in result.report.tokens}
    for row in result.report.tokens:
        spent[row.kind] += row.usage.calls
    assert spent["judge"] == sum(r.kind == "judge" for r in second.requests)
    assert spent["read"] == sum(r.kind == "read" for r in second.requests)
    teach = result.report.teach
    assert teach.read == teach.accounted == 4
    assert teach.memories == 3
    assert sum(x["usage"][k]["prompt_tokens"] for x in lines(out / "usage.jsonl") for k in x["usage"]) == sum(
        row.usage.prompt_tokens for row in result.report.tokens
    )


def test_chats_without_questions_are_refused_before_anything_is_taught(tmp_path):
    source = kit.jsonl(tmp_path / "chats.jsonl", kit.small_sessions(3))

    with pytest.raises(DataError, match=r"chats\.jsonl holds no question .*dualtrace teach"):
        run(source, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_condition_is_refused_before_anything_is_made(tmp_path, benchmark):
    with pytest.raises(ConfigError, match="no condition named 'c99'; known: vanilla, "):
        run(benchmark, tmp_path / "run", conditions=("c6", "c99"))
    assert not (tmp_path / "run").exists()


def test_the_label_development_stays(tmp_path, benchmark):
    run(benchmark, tmp_path / "run", development=True)
    result = run(benchmark, tmp_path / "run")

    assert result.report.header.development


def test_everything_written_is_private(finished):
    _, out = finished
    modes = {(p.is_dir(), stat.S_IMODE(p.stat().st_mode)) for p in (out, *out.rglob("*"))}

    assert modes == {(True, 0o700), (False, 0o600)}


def test_no_chat_text_outside_the_files_that_hold_chats(finished):
    _, out = finished
    said = ("Marigold", "Lisbon", "bakery", "tides", "moon pulls")
    allowed = {"questions.jsonl", "gold.jsonl", "failures.jsonl", "questions.html"}
    files = [p for p in out.rglob("*") if p.is_file() and p.name not in allowed and p.relative_to(out).parts[0] not in {"store", "answers"}]

    assert {p.name for p in files} >= {"run.json", "sessions.jsonl", "usage.jsonl", "report.json", "report.md", "report.html"}
    assert [p.name for p in files if any(word.encode() in p.read_bytes() for word in said)] == []


# ------------------------------------------------------------------------------------------------------------ demo


def test_the_demo_tells_its_story_from_a_run_of_the_sample(tmp_path):
    with Ours() as parts:
        told = story(tmp_path / "demo", parts, read_conditions())

    assert told.kept < len(told.sessions)
    assert told.memory is not None
    assert told.memory.scene.startswith("Picture:")
    assert told.answer is not None
    assert told.answer.state is State.A
    assert told.memory.id in {s.memory_id for s in told.answer.sources}


# ---------------------------------------------------------------------------------------------------- small things


def test_models_by_role():
    parts = Parts(scripted(read="other"))

    assert (parts.name(Role.ENCODE), parts.name(Role.READ)) == ("scripted", "other")
    first = parts.engine(Role.ENCODE)
    assert parts.engine(Role.JUDGE) is first
    assert parts.engine(Role.READ) is not first
    assert parts.count(Role.READ)("three small words") == 3


@pytest.mark.parametrize(("listed", "there"), [("GPU 0: NVIDIA H200 (UUID: x)", True), ("No devices were found", False)])
def test_a_gpu_is_there_when_the_driver_lists_one(tmp_path, monkeypatch, listed, there):
    """By the same sign the set-up script chooses between GPU and CPU builds."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$1" = -L ] && echo "{listed}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script = subprocess.run(["bash", "-c", "source scripts/common.sh; machine"], cwd=ROOT, capture_output=True, text=True, check=True)

    assert has_gpu.__wrapped__() is there
    assert script.stdout == ("gpu\n" if there else "cpu\n")


def test_identity_holds_the_template_settings():
    models = scripted()
    thinking = models.spec("scripted").model_copy(update={"chat_template_kwargs": {"enable_thinking": True}})
    other = Models(roles=models.roles, models={**models.models, "scripted": thinking})

    assert Parts(models).identity(Role.READ) != Parts(other).identity(Role.READ)


def test_a_store_where_there_is_none_is_named(tmp_path):
    with pytest.raises(StoreError, match="there is no store in"):
        memory_of(tmp_path).ask("Anything?")
    assert not (tmp_path / "store").exists()
