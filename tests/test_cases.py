"""Awkward inputs from the field, end to end through the commands, each with the outcome that is right. Inputs are invented.

What concerns the words of a model (cases LME-13, 14, 15, OUT-02, 05) is in test_pipeline.py, kills and windows (RUN-01, 07) in test_cli.py,
exports (GPT, CLA) in test_imports.py, orders and control tokens (TXT-06, 07, 08, 11) in test_hostile.py and test_engines.py, the network
(RUN-06) in test_offline.py.
"""

import json
import re
import tracemalloc

import kit
import pytest

from dualtrace_local import Memory
from dualtrace_local.config import read_models
from dualtrace_local.domains import prompts
from dualtrace_local.engines.rules import reply
from dualtrace_local.engines.scripted import ScriptedEngine
from dualtrace_local.pipeline.parts import Parts
from dualtrace_local.pipeline.teach import readable
from dualtrace_local.records import Completion, Finish, Scope


def run(bench, out, *options, code=0):
    result = kit.dualtrace("run", bench, "--out", out, "--conditions", "c6", "--json", *options)
    assert result.exit_code == code, result.stderr
    return kit.document(result), result.stderr.splitlines()


def lines(path):
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]


def answers(out):
    return {a["question_id"]: a for a in lines(out / "answers" / "c6.jsonl")}


def ledger(store):
    rows = [json.loads(line) for line in kit.dump(store).splitlines()]
    return [row for row in rows if row["table"] == "sessions"]


def overall(found):
    return next(row for row in found["rows"] if row["kind"] == "overall")


class Watched(Parts):
    """Parts whose engine the test keeps, to look at its requests."""

    def __init__(self, answer=reply):
        super().__init__(read_models().with_roles(encode="scripted", read="scripted", judge="scripted"))
        self.watched = ScriptedEngine(answer)

    def engine(self, role):
        del role
        return self.watched


def watched(store, answer=reply):
    return Memory(store, Watched(answer), Scope())


# ------------------------------------------------------------------------------------------------------- benchmark


def test_lme_01_a_gold_answer_may_be_a_number(tmp_path):
    bench = [
        kit.row("q_int", "How many metres long is my boat?", 7, [kit.BOAT]),
        kit.row("q_str", "How many metres long is my boat?", "7", [kit.BOAT]),
    ]
    found, _ = run(kit.rows(tmp_path / "b.json", bench), tmp_path / "run")

    assert (overall(found)["n"], overall(found)["correct"]) == (2, 2)
    assert [g["answer"] for g in lines(tmp_path / "run" / "gold.jsonl")] == [7, "7"]


def test_lme_02_dates_in_every_spelling_and_never_today(tmp_path):
    spellings = ("2024/07/09 (Tue) 21:05", "2024/07/09 21:05", "2024-07-09T21:05", "9th of July")
    bench = [kit.row(f"q{n}", "What did I name my boat?", "Marigold", [kit.BOAT], asked=s) for n, s in enumerate(spellings)]
    found, told = run(kit.rows(tmp_path / "b.json", bench), tmp_path / "run", code=3)

    assert {a["asked_on"] for a in answers(tmp_path / "run").values()} == {"2024-07-09 21:05"}
    assert [line for line in told if line.startswith("b.json:")] == ['b.json:4: question_date not readable: "9th of July"']
    assert (overall(found)["n"], found["failed"], found["teach"]["failed"]) == (3, 1, 1)


def test_lme_04_the_same_words_on_two_days_are_two_sessions(tmp_path):
    twice = [("f9", "2024/03/21 (Thu) 10:00", kit.TIDES[2]), ("f9", "2024/03/27 (Wed) 18:30", kit.TIDES[2])]
    bench = kit.rows(tmp_path / "b.json", [kit.row("q", "What did I name my boat?", "Marigold", [kit.BOAT, *twice])])
    found, _ = run(bench, tmp_path / "run")
    before = kit.dump(tmp_path / "run" / "store")
    again, _ = run(bench, tmp_path / "run")

    assert (found["teach"]["read"], again["teach"]["unchanged"]) == (3, 3)
    assert sorted(row["date"] for row in ledger(tmp_path / "run" / "store") if row["external_id"] == "f9") == [
        "2024-03-21T10:00:00",
        "2024-03-27T18:30:00",
    ]
    assert re.search(r"2 distinct, 3 occurrences", (tmp_path / "run" / "report" / "report.md").read_text())
    assert kit.dump(tmp_path / "run" / "store") == before


def test_lme_05_one_id_with_another_date_in_another_haystack(tmp_path):
    late = ["My train to Ghent was late yesterday."]
    bench = [
        kit.row("qA", "When was my train to Ghent late?", "x", [("f1", "2024/05/20 (Mon) 09:00", late)]),
        kit.row("qB", "When was my train to Ghent late?", "x", [("f1", "2024/03/02 (Sat) 07:15", late)]),
    ]
    run(kit.rows(tmp_path / "b.json", bench), tmp_path / "run")
    days = {m["id"]: m["components"][0]["events"][0]["day"] for m in kit.memories(tmp_path / "run" / "store")}
    found = answers(tmp_path / "run")

    assert [days[i] for i in found["qA"]["delivered"]] == ["2024-05-19"]
    assert [days[i] for i in found["qB"]["delivered"]] == ["2024-03-01"]


def test_lme_07_a_session_after_the_question(tmp_path):
    cactus = ("s2", "2024/06/30 (Sun) 21:10", ["I bought a cactus named Spike too."])
    bench = kit.rows(tmp_path / "b.json", [kit.row("q", "What is my cactus named?", "Spike", [kit.TIDES, cactus])])
    run(bench, tmp_path / "shown")
    run(bench, tmp_path / "hidden", "--hide-later")

    assert "Spike" in answers(tmp_path / "shown")["q"]["text"]
    assert answers(tmp_path / "hidden")["q"]["state"] == "C"
    assert "visible; 1 questions" in (tmp_path / "shown" / "report" / "report.md").read_text()
    assert "hidden (--hide-later); 1 questions" in (tmp_path / "hidden" / "report" / "report.md").read_text()


def test_lme_08_abstention_is_the_end_of_the_id(tmp_path):
    bench = [
        kit.row("q77_abs", "What is my hamster's dentist called?", "Not stated.", [kit.BOAT]),
        kit.row("q_absinthe_1", "What did I name my boat?", "Marigold", [kit.BOAT], kind="multi-session"),
    ]
    found, _ = run(kit.rows(tmp_path / "b.json", bench), tmp_path / "run")
    by_kind = {row["kind"]: (row["correct"], row["n"]) for row in found["rows"]}

    assert by_kind["abstention"] == (1, 1)
    assert by_kind["multi-session"] == (1, 1)
    assert "single-session-user" not in by_kind


def test_lme_10_any_order_of_any_roles(tmp_path):
    said = [
        ("assistant", "Welcome back."),
        ("user", "Hi."),
        ("user", "I sold my bicycle to Omar."),
        ("system", "(reminder)"),
        ("tool", '{"ok":true}'),
    ]
    memory = watched(tmp_path / "store")
    totals = memory.teach(kit.jsonl(tmp_path / "c.jsonl", [kit.session("s", "2024-02-01", *said)]))
    prompt = next(r.user for r in memory.parts.watched.requests if r.kind == "facts")
    rows = [json.loads(line) for line in kit.dump(tmp_path / "store").splitlines()]

    assert totals.taught == 1
    shown = ["user: Hi.", "user: I sold my bicycle to Omar.", "system: (reminder)", 'tool: {"ok":true}']
    places = [prompt.index(text) for text in shown]
    assert places == sorted(places)
    kept = [r for r in rows if r["table"] == "rounds"]
    assert sorted((r["ordinal"], r["said"], r["answered"]) for r in kept) == [
        (0, "", "Welcome back."),
        (1, "Hi.", ""),
        (2, "I sold my bicycle to Omar.", 'system: (reminder)\ntool: {"ok":true}'),
    ]


def test_lme_11_empty_sessions_are_counted_once_and_never_sent(tmp_path):
    sessions = [
        {"id": "s0", "date": "2024-05-18", "turns": []},
        kit.session("s1", "2024-05-19", "   \n\t", ""),
        kit.session("s2", "2024-05-20", "I bought three ferns.", None),
    ]
    source = kit.jsonl(tmp_path / "c.jsonl", sessions)
    memory = watched(tmp_path / "store")
    totals = memory.teach(source)

    assert (totals.read, totals.taught, totals.empty) == (3, 1, 2)
    assert sum(r.kind == "facts" for r in memory.parts.watched.requests) == 1
    assert kit.teach(tmp_path / "store", source)["unchanged"] == 3
    assert len(kit.memories(tmp_path / "store")) == 1


def test_lme_13_marks_of_the_evidence_reach_nothing(tmp_path):
    bench = kit.rows(tmp_path / "b.json", [kit.row("q1", "What did I name my boat?", "Marigold", [kit.BOAT], evidence=["answer_boat_1"])])
    run(bench, tmp_path / "run")

    assert "answer_boat" not in kit.dump(tmp_path / "run" / "store")
    files = [p for p in (tmp_path / "run").rglob("*") if p.is_file()]
    assert not [p for p in files if b"answer_boat" in p.read_bytes() or b"has_answer" in p.read_bytes()]


def test_p11_lme_16_every_question_has_one_outcome(tmp_path):
    """Answers twice, for nobody's question, and missing: all add up to the questions of the data set, and each oddity is one line."""
    bench = [kit.row(f"q{n}", "What did I name my boat?", "Marigold", [kit.BOAT], kind=k) for n, k in enumerate(("a", "a", "b", "c"))]
    run(kit.rows(tmp_path / "b.json", bench), tmp_path / "run")
    file = tmp_path / "run" / "answers" / "c6.jsonl"
    given = {a["question_id"]: a for a in lines(file)}
    kept = [given["q0"], given["q0"] | {"text": "Daisy."}, given["q1"] | {"text": "Error: timeout"}, given["q0"] | {"question_id": "q9"}]
    file.write_text("".join(json.dumps(a) + "\n" for a in kept))
    for verdicts in (tmp_path / "run" / "verdicts").iterdir():
        verdicts.unlink()
    result = kit.dualtrace("judge", tmp_path / "run", "--json")
    found = kit.document(result)

    assert result.exit_code == 3
    row = overall(found)
    assert (row["correct"], row["scored"], row["unscored"], row["failed"], row["missing"], row["n"]) == (1, 2, 0, 0, 2, 4)
    assert len([p for p in found["problems"] if "q0" in p]) == 1
    assert len([p for p in found["problems"] if "q9" in p]) == 1
    by_kind = {r["kind"]: r for r in found["rows"]}
    assert (by_kind["b"]["n"], by_kind["b"]["scored"], by_kind["b"]["accuracy"]) == (1, 0, None)
    report = (tmp_path / "run" / "report" / "report.md").read_text()
    assert "n=0" in report
    assert "nan" not in report.lower().split()


# ----------------------------------------------------------------------------------------------------------- files


def test_fil_01_byte_order_mark_and_windows_line_ends(tmp_path):
    source = tmp_path / "c.jsonl"
    one, two = (json.dumps(kit.session(n, "2024-01-05", f"I own {n} kayaks.")).encode() for n in ("two", "nine"))
    source.write_bytes(b"\xef\xbb\xbf" + one + b"\r\n" + two + b"\r\n\r\n")

    assert kit.teach(tmp_path / "store", source)["taught"] == 2
    assert "\\r" not in kit.dump(tmp_path / "store")


def test_fil_02_only_line_feeds_end_a_line(tmp_path):
    said = "I own a kayak\u2028and a canoe\x85and a raft."
    source = kit.jsonl(tmp_path / "c.jsonl", [kit.session("1", "2024-01-05", said), {"id": "2", "date": "2024-01-06", "messages": []}])

    totals = kit.teach(tmp_path / "store", source)
    assert (totals["read"], totals["taught"], totals["empty"]) == (2, 1, 1)
    rounds = [row for row in map(json.loads, kit.dump(tmp_path / "store").split("\n")[:-1]) if row["table"] == "rounds"]
    assert rounds[0]["said"] == said


def test_fil_05_a_source_that_is_cut_off(tmp_path):
    source = kit.jsonl(tmp_path / "c.jsonl", kit.small_sessions(3))
    source.write_bytes(source.read_bytes()[:-30])
    result = kit.dualtrace("teach", source, "--store", tmp_path / "store", "--json")

    assert result.exit_code == 3
    assert [line.split(" ")[0] for line in result.stderr.splitlines() if line.startswith("c.jsonl")] == ["c.jsonl:3:"]
    totals = kit.document(result)
    assert (totals["read"], totals["failed"]) == (3, 1)
    kit.jsonl(source, kit.small_sessions(3))
    assert kit.teach(tmp_path / "store", source)["unchanged"] == 2


# ------------------------------------------------------------------------------------------------------------ text


def test_txt_01_half_a_surrogate_pair(tmp_path):
    source = tmp_path / "c.jsonl"
    half = '{"id":"1","date":"2024-01-05","messages":[{"role":"user","content":"I own a \\ud83d kayak."},'
    second = json.dumps(kit.session("2", "2024-01-06", "Fine."))
    source.write_text(half + '{"role":"assistant","content":"A \\ud83d\\ude00 kayak"}]}\n' + second + "\n")
    result = kit.dualtrace("teach", source, "--store", tmp_path / "store", "--json")

    assert result.exit_code == 0
    assert [line for line in result.stderr.splitlines() if line.startswith("c.jsonl:")] == [
        "c.jsonl:1: 1 half surrogate replaced by U+FFFD"
    ]
    text = kit.dump(tmp_path / "store")
    assert "I own a \ufffd kayak." in text
    assert "A \U0001f600 kayak" in text
    assert kit.teach(tmp_path / "store", source)["unchanged"] == 2


def test_p09_txt_03_a_very_long_turn_is_read_to_its_end(tmp_path):
    """200,000 characters of other things; the code at the end can be recalled, and the short session beside it is taught."""
    long = "palaver " * 25_000 + "My locker code is 5538."
    source = kit.jsonl(tmp_path / "c.jsonl", [kit.session("big", "2024-01-05", long), kit.session("small", "2024-01-06", "I own a kayak.")])
    totals = kit.teach(tmp_path / "store", source)

    assert (totals["taught"], totals["failed"]) == (2, 0)
    assert "5538" in kit.ask(tmp_path / "store", "What is my locker code?")["answer"]
    assert totals["usage"]["facts"]["calls"] > 10


def test_p21_txt_10_ids_never_become_paths(tmp_path):
    ids = ["../../outside", "/etc/x", "C:\\x\\y", "", 7, "a\nb"]
    work = tmp_path / "deep" / "er"
    work.mkdir(parents=True)
    sessions = [{**kit.session("", "2024-01-05", f"I own {40 + n} kayaks."), "id": name} for n, name in enumerate(ids)]
    source = kit.jsonl(work / "c.jsonl", sessions)

    assert kit.teach(work / "store", source)["taught"] == 6
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]
    assert {p.name for p in work.iterdir()} == {"c.jsonl", "store"}
    kept = {row["external_id"] for row in ledger(work / "store")}
    assert {"../../outside", "/etc/x", "C:\\x\\y", "7"} < kept
    assert len(kept) == 6
    assert any(name.startswith("text-") for name in kept)


# ---------------------------------------------------------------------------------------------------- model output


@pytest.mark.parametrize(
    "written",
    [
        Completion('{"facts":[' + "\n " * 400, Finish.LENGTH),
        Completion('{"facts":["The user owns a kayak by the ri', Finish.LENGTH),
        Completion('{"facts":["The user owns", "The user owns", ', Finish.REPETITION),
        '{"facts":"The user owns a kayak."}',
        '{"facts":["The user owns a kayak."],"more":1}',
        "",
    ],
    ids=["white space", "cut off", "repetition", "wrong type", "more fields", "nothing"],
)
def test_p10_out_01_and_02_what_is_not_whole_is_never_stored(tmp_path, written):
    sessions = [kit.session("s", "2024-01-05", "I own a kayak."), kit.session("t", "2024-01-06", "I own a loom.")]
    source = kit.jsonl(tmp_path / "c.jsonl", sessions)
    memory = watched(tmp_path / "store", lambda r: written if "kayak" in r.user and r.kind == "facts" else reply(r))
    totals = memory.teach(source)

    assert (totals.taught, totals.failed) == (1, 1)
    tries = [r for r in memory.parts.watched.requests if r.kind == "facts" and "kayak" in r.user]
    assert [r.temperature for r in tries] == [0.0, 0.0, 0.3]
    assert "kayak" not in kit.dump(tmp_path / "store")
    (failure,) = lines(tmp_path / "store" / "failures.jsonl")
    assert (failure["source"], failure["record"]) == ("c.jsonl", 1)
    assert failure["raw"] == (written if isinstance(written, str) else written.text)


def test_out_06_nothing_of_our_own_prompts_becomes_a_memory(tmp_path):
    """No date stands in a template, and an undated session gets none."""
    months = "January|February|March|April|May|June|July|August|September|October|November|December"
    for name in prompts.names():
        assert not re.search(rf"\b(?:19|20)\d\d\b|\b\d{{1,2}} (?:{months})\b|\b(?:{months}) \d", prompts.template(name)), name
    undated = {"id": "u", "turns": [{"role": "user", "content": "I fixed the gate."}]}
    kit.teach(tmp_path / "store", kit.jsonl(tmp_path / "c.jsonl", [undated]))
    (memory,) = kit.memories(tmp_path / "store")

    assert memory["date"] == ""
    assert [c["events"] for c in memory["components"]] == [[]]
    assert not re.search(r"\d{4}", memory["scene"] + memory["fact"])


# ----------------------------------------------------------------------------------------------------------- dates


def test_dat_01_old_talk_stays_old(tmp_path):
    memory = watched(tmp_path / "store")
    memory.teach(kit.jsonl(tmp_path / "c.jsonl", [kit.session("s", "2019/05/08 (Wed) 13:56", "I went to the fencing meetup yesterday.")]))
    (kept,) = kit.memories(tmp_path / "store")
    memory.ask("When was the fencing meetup?")
    requests = memory.parts.watched.requests

    assert [(e["spoken"], e["day"]) for c in kept["components"] for e in c["events"]] == [("yesterday", "2019-05-07")]
    assert all("2019-05-08" in r.user for r in requests if r.kind == "facts")
    assert all("2019-05-07" in r.user for r in requests if r.kind == "read")
    years = set(re.findall(r"\b20\d\d\b", "".join(r.system + r.user for r in requests) + json.dumps(kept)))
    assert years == {"2019"}


@pytest.mark.parametrize(
    ("said_on", "words", "day"),
    [
        ("2024/06/12 (Wed)", "I saw the dentist last Thursday.", "2024-06-06"),
        ("2024/06/11 (Tue)", "I met my cousin last Tuesday.", "2024-06-04"),
        ("2024/06/10 (Mon)", "I start my pottery course next Monday.", "2024-06-17"),
        ("2024/06/10 (Mon)", "I fly to Porto in two weeks.", "2024-06-24"),
        ("2024/06/10 (Mon)", "I lost my wallet the day before yesterday.", "2024-06-08"),
    ],
)
def test_dat_02_spoken_days(tmp_path, said_on, words, day):
    kit.teach(tmp_path / "store", kit.jsonl(tmp_path / "c.jsonl", [kit.session("s", said_on, words)]))
    (memory,) = kit.memories(tmp_path / "store")
    (event,) = memory["components"][0]["events"]

    assert event["day"] == day
    assert event["spoken"] in words


def test_dat_02_a_month_ago_is_about_that_day(tmp_path):
    kit.teach(tmp_path / "store", kit.jsonl(tmp_path / "c.jsonl", [kit.session("s", "2024/03/31 (Sun)", "I sold my harp a month ago.")]))
    (memory,) = kit.memories(tmp_path / "store")
    (event,) = memory["components"][0]["events"]

    assert (event["day"], event["approximate"]) == ("2024-02-29", True)


# --------------------------------------------------------------------------------------------------- store, memory


def test_run_02_a_torn_newest_version_costs_its_batch_alone(tmp_path):
    source = kit.jsonl(tmp_path / "c.jsonl", kit.small_sessions(24))
    kit.teach(tmp_path / "store", source)
    whole = kit.dump(tmp_path / "store")
    versions = tmp_path / "store" / "sessions.lance" / "_versions"
    newest = min(versions.glob("*.manifest"), key=lambda p: p.name)
    newest.write_bytes(b"")

    result = kit.dualtrace("memory", "list", "--store", tmp_path / "store", "--json")
    kept = kit.document(result)["memories"][0]
    said = [line for line in result.stderr.splitlines() if "newest version unreadable, moved to _damaged/" in line]
    assert len(said) == 1
    assert kit.ask(tmp_path / "store", kept["components"][0]["quote"])["state"] == "A"
    totals = kit.teach(tmp_path / "store", source)
    assert (totals["read"], totals["unchanged"]) == (24, 16)
    assert kit.dump(tmp_path / "store") == whole


def test_p24_run_08_memory_does_not_grow_with_the_file(tmp_path):
    def peak(count):
        source = tmp_path / f"{count}.json"
        with source.open("w") as file:
            file.write("[")
            for n in range(count):
                file.write(("," if n else "") + json.dumps({"id": str(n), "messages": [{"role": "user", "content": f"{n} " + "x" * 1000}]}))
            file.write("]")
        tracemalloc.start()
        assert readable([source]).sessions == count
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(20_000) - peak(200) < 20_000_000
