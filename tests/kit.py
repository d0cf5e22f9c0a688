"""What the end-to-end tests share: the command line in this process or in a child, and invented inputs."""

import json
import multiprocessing
import os
import random
import signal
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from click.testing import CliRunner, Result

from dualtrace_local.cli import main

HEAVY = ("torch", "sentence_transformers", "dateparser", "scipy.cluster.hierarchy")
"""Imported once in the server that children are forked from, so that a child starts in a moment. None of them starts a thread."""

SESSION_COUNTS = ("taught", "dropped", "empty", "unchanged", "forgotten", "failed")


def dualtrace(*arguments, model="scripted") -> Result:
    """One command in this process, with the rule-made model unless another or none is named. A bug (any traceback) fails the test."""
    chosen = [str(a) for a in arguments] + (["--model", model] if model else [])
    result = CliRunner().invoke(main, chosen, prog_name="dualtrace")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def document(result: Result):
    """The one JSON document on stdout, read strictly."""

    def refuse(constant):
        msg = f"{constant} is no JSON"
        raise ValueError(msg)

    return json.loads(result.stdout, parse_constant=refuse)


def teach(store, *sources, code=0, **options):
    """``teach --json``; returns its totals, which must add up."""
    result = dualtrace("teach", *sources, "--store", store, "--json", *flags(options))
    assert result.exit_code == code, result.stderr
    totals = document(result)
    assert totals["read"] == sum(totals[name] for name in SESSION_COUNTS)
    return totals


def ask(store, question, **options):
    result = dualtrace("ask", question, "--store", store, "--json", *flags(options))
    assert result.exit_code == 0, result.stderr
    return document(result)


def memories(store, **options):
    return document(dualtrace("memory", "list", "--store", store, "--json", *flags(options)))["memories"]


def dump(store):
    result = dualtrace("store", "dump", "--store", store)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def lines(path):
    """The lines of a file of answers or verdicts, by question."""
    return {line["question_id"]: line for line in map(json.loads, path.read_text().splitlines())}


def outcome(run):
    """All that a run with both stores leaves that is no clock: sorted dumps, answers, verdicts."""
    answers = {p.name: lines(p) for p in (run / "answers").glob("*.jsonl")}
    verdicts = {p.name: lines(p) for p in (run / "verdicts").glob("*.jsonl")}
    return dump(run / "store"), dump(run / "store-joint"), answers, verdicts


def flags(options):
    return [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]


# ------------------------------------------------------------------------------------------------------- children


@dataclass
class Child:
    """A ``dualtrace`` command in a process of its own."""

    process: multiprocessing.Process
    stdout: Path
    stderr: Path

    @property
    def pid(self):
        return self.process.pid

    def ended(self, within=120):
        """The exit status, negative for a signal."""
        self.process.join(within)
        assert self.process.exitcode is not None, "the command does not end"
        return self.process.exitcode


def child(folder: Path, *arguments, environment=None) -> Child:
    """Start a command as its own process; its streams go to files in ``folder``."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(HEAVY))
    out, err = folder / "child.out", folder / "child.err"
    process = context.Process(target=_run, args=([str(a) for a in arguments], str(out), str(err), dict(environment or {})))
    process.start()
    return Child(process, out, err)


def _run(arguments, out, err, environment):
    """In the child: the console script's entry with real streams."""
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite started in the background inherits it ignored
    for name, number in ((out, 1), (err, 2)):
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
    sys.argv = ["dualtrace", *arguments]
    main()


# --------------------------------------------------------------------------------------------------------- inputs


def session(name, date, *turns):
    """A plain session; turns are texts of user and assistant in turn, or (role, text)."""
    said = [t if isinstance(t, tuple) else (("user", "assistant")[n % 2], t) for n, t in enumerate(turns)]
    return {"id": name, "date": date, "turns": [{"role": role, "content": text} for role, text in said]}


def jsonl(path: Path, records) -> Path:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), encoding="utf-8")
    return path


def small_sessions(count):
    """``count`` sessions; one of three tells something, since what is kept has to be embedded."""
    things = ("kayak", "violin", "greenhouse", "typewriter", "telescope", "loom", "sidecar")
    for n in range(count):
        text = f"I bought a {things[n % 7]} for {40 + n} euros." if n % 3 == 0 else f"How does a {things[n % 7]} work? Case {n}."
        yield session(f"s{n}", f"2024-0{1 + n % 9}-1{n % 10} 0{n % 10}:30", text, "I see.")


def row(question_id, question, answer, sessions, *, kind="single-session-user", asked="2024/06/30 (Sun) 12:00", evidence=()):
    """A LongMemEval row; ``sessions`` are (id, date, turns) with turns as in ``session`` or dicts."""
    return {
        "question_id": question_id,
        "question_type": kind,
        "question": question,
        "question_date": asked,
        "answer": answer,
        "answer_session_ids": list(evidence),
        "haystack_session_ids": [s[0] for s in sessions],
        "haystack_dates": [s[1] for s in sessions],
        "haystack_sessions": [[t if isinstance(t, dict) else turn(n, t) for n, t in enumerate(s[2])] for s in sessions],
    }


def turn(n, text):
    return {"role": ("user", "assistant")[n % 2], "content": text}


def rows(path: Path, records) -> Path:
    path.write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")
    return path


BOAT = ("answer_boat_1", "2024/03/02 (Sat) 09:00", ["I named my boat Marigold and it is 7 metres long.", "A lovely name."])
TIDES = ("ultra_7", "2024/03/05 (Tue) 10:00", ["Explain tides.", "The moon pulls the sea."])
SISTER = ("answer_sis_2", "2024/04/09 (Tue) 18:20", ["My sister Ada moved to Lisbon yesterday.", "That is a big step."])
SHIFT = ("answer_shift_3", "2024/05/01 (Wed) 07:45", ["I now start my shift at the bakery at 4:30.", "Early!"])


GUESTHOUSE = ("Recommend a quiet guesthouse in Ghent.", "You could stay at Guesthouse Oriel by the Leie. It has six rooms.")
WHICH_GUESTHOUSE = "Which guesthouse in Ghent did you recommend?"
"""Only an assistant said it, so it is in no fact of the user."""


def small_benchmark():
    """Five questions over four sessions: three kinds, one without an answer, one whose haystack lacks the evidence."""
    everything = [BOAT, TIDES, SISTER, SHIFT]
    return [
        row("q_boat", "What did I name my boat?", "Marigold", everything, evidence=["answer_boat_1"]),
        row("q_sister", "Where did my sister Ada move?", "Lisbon", everything, kind="multi-session", evidence=["answer_sis_2"]),
        row("q_shift", "When do I start my shift at the bakery?", "4:30", everything, kind="knowledge-update", evidence=["answer_shift_3"]),
        row("q_cat_abs", "What is the name of my hamster's dentist?", "Not said.", everything, kind="multi-session"),
        row("q_apart", "What did I name my boat?", "Marigold", [TIDES, SISTER], kind="single-session-user"),
    ]


THINGS = ("kayak", "violin", "greenhouse", "typewriter", "telescope", "loom", "sidecar", "accordion", "beehive", "canoe", "kiln", "anvil")
TOWNS = ("Hull", "Ghent", "Lisbon", "Bergen", "Porto", "Graz", "Malmo", "Turin", "Cork", "Bremen")
KINDS = ("single-session-user", "multi-session", "knowledge-update", "temporal-reasoning", "single-session-preference")


def made_up(questions, sessions, seed=0):
    """A benchmark of any size: ``sessions`` different sessions in the haystacks of ``questions``, one of them the evidence of each.

    Of the others a third tells something. Every fifth question asks for what nobody said.
    """
    dice = random.Random(seed)  # noqa: S311 - invented data, no secret
    haystacks = [[] for _ in range(questions)]
    towns = [dice.choice(TOWNS) for _ in range(sessions)]
    for n, town in enumerate(towns):
        thing, day = THINGS[n % len(THINGS)], datetime(2024, 3, 1, 9) + timedelta(hours=3 * n)
        said = [f"How does a {thing} work? Case {n}.", f"It has parts. A book of {town} explains it."]
        if n < questions:
            said = [f"I bought a {thing} number {n} in {town} for {100 + n} euros.", "A fine buy."]
        elif n % 3 == 0:
            said = [f"My {thing} was repaired in {town} on day {n}.", "Good to hear."]
        haystacks[n % questions].append((f"{'answer' if n < questions else 'ultra'}_{n}", f"{day:%Y/%m/%d (%a) %H:%M}", said))
    asked_on = f"{datetime(2024, 3, 1, 9) + timedelta(hours=3 * sessions):%Y/%m/%d (%a) %H:%M}"
    for n, talks in enumerate(haystacks):
        absent = n % 5 == 4
        asked = f"What did I pay for my zeppelin {n}?" if absent else f"Where did I buy {THINGS[n % len(THINGS)]} number {n}?"
        options = {"kind": KINDS[n % 5], "asked": asked_on, "evidence": [f"answer_{n}"]}
        yield row(f"q{n}_abs" if absent else f"q{n}", asked, "Not said." if absent else towns[n], talks, **options)
