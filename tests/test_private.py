"""Credentials through every path in, and no file, line or answer that holds one afterwards. All of them are made up."""

import json

import kit
import pytest

from dualtrace_local import Memory
from dualtrace_local.config import read_models
from dualtrace_local.engines.rules import reply
from dualtrace_local.engines.scripted import ScriptedEngine
from dualtrace_local.masking import MASK
from dualtrace_local.pipeline.parts import Parts
from dualtrace_local.records import Completion, Finish, Scope

SECRETS = {
    "password": ("my router password is {}", "Quor7!vexil"),
    "passphrase": ("the wifi password is {}", "seven damp otters juggle"),
    "token": ("use {} for the upload", "ghp_9Zt3kQw8LmNb5Vc2Xr7Yd1Hf6Js4Pa0Ge3U"),
    "key": ("export OPENAI_API_KEY={}", "sk-zq81mmvu20dk4hx97bat"),
    "address": ("postgres://ada:{}@db.invalid/main", "tr0ub4dor9"),
    "card": ("my card is {}", "4556 7375 8689 9855"),
    "iban": ("pay to {} please", "GB33BUKB20201555555555"),
    "pin": ("my PIN is {}", "739154"),
    "ssn": ("my SSN is {}", "536-22-8745"),
}
SAID = {name: words.format(secret) for name, (words, secret) in SECRETS.items()}
ALL = ". ".join(SAID.values())
CONTROL = "marigoldine"
"""A word that is stored, so that a scan which finds nothing is known to see."""


def holds(content, word):
    """Whether bytes hold ``word`` in any case of letters, as UTF-8 or UTF-16."""
    low = content.lower()
    return any(word.lower().encode(code) in low for code in ("utf-8", "utf-16-le", "utf-16-be"))


def leaks(*places):
    """(where, which) for each credential in files below folders and in texts."""
    found = []
    for place in places:
        contents = (
            {str(f): f.read_bytes() for f in place.rglob("*") if f.is_file()} if hasattr(place, "rglob") else {"text": place.encode()}
        )
        found += [(where, name) for where, content in contents.items() for name, (_, s) in SECRETS.items() if holds(content, s)]
    return found


def seen(folder):
    return any(holds(f.read_bytes(), CONTROL) for f in folder.rglob("*") if f.is_file())


def talk(name="s"):
    """A session with every credential said by both sides, and one in each other field that is text."""
    turns = [
        ("user", f"I named my boat {CONTROL} in 2019. {ALL}."),
        ("assistant", f"Noted: {ALL}."),
        (f"bot, {SAID['pin']}", "Hello."),
    ]
    return kit.session(f"{name}, {SAID['password']}", "2024-03-02 09:00", *turns)


def output(result):
    return result.stdout + result.stderr


class Watched(Parts):
    """Parts with an engine of the test's own."""

    def __init__(self, answer):
        super().__init__(read_models().with_roles(encode="scripted", read="scripted", judge="scripted"))
        self.watched = ScriptedEngine(answer)

    def engine(self, role):
        del role
        return self.watched


def test_credentials_are_in_no_file_of_a_store_and_in_no_output(tmp_path):
    """Taught, remembered, asked with, listed, shown, dumped; a record and a file that cannot be read."""
    broken = [{"id": "b", "date": SAID["password"], "turns": []}, {"id": "c", "turns": [{"role": "user", "content": {"pin": ALL}}]}]
    source = kit.jsonl(tmp_path / "chats.jsonl", [talk(), *broken])
    store = tmp_path / "store"
    told = [
        kit.dualtrace("teach", source, "--store", store),
        kit.dualtrace("data", "check", source, "--json", model=None),
        kit.dualtrace("data", "check", source, model=None),
        kit.dualtrace("remember", f"I note this: {ALL}.", "--store", store, "--json"),
        kit.dualtrace("ask", f"What did I name my boat? {ALL}", "--store", store, "--json"),
        kit.dualtrace("ask", f"What is my router password? {ALL}", "--store", store, "--condition", "history", "--json"),
        kit.dualtrace("memory", "list", "--store", store, "--json"),
        kit.dualtrace("store", "dump", "--store", store),
    ]
    ids = [m["id"] for m in json.loads(told[-2].stdout)["memories"]]
    shown = [
        *(kit.dualtrace("memory", "show", i, "--store", store) for i in ids),
        kit.dualtrace("memory", "edit", ids[0], "--fact", f"The user notes {ALL}.", "--by", SAID["password"], "--store", store, "--json"),
        kit.dualtrace("memory", "history", "--store", store),
        kit.dualtrace("memory", "export", tmp_path / "archive.jsonl", "--store", store),
        kit.dualtrace("memory", "export", tmp_path / "markdown", "--format", "markdown", "--store", store),
    ]

    assert told[0].exit_code == told[1].exit_code == 3
    assert all(result.exit_code in (0, 3) for result in told + shown), [output(r) for r in told if r.exit_code not in (0, 3)]
    assert leaks(store, tmp_path / "archive.jsonl", tmp_path / "markdown", *map(output, told + shown)) == []
    assert seen(store)
    assert CONTROL in output(told[-1])
    assert f'date not readable: "my router password is {MASK}' in told[0].stderr


def test_credentials_are_in_no_file_of_a_run_nor_of_its_report(tmp_path):
    """In sessions, a question, right answers of any JSON type, and ids; then judged anew, imported and reported."""
    said = [f"I named my boat {CONTROL} in 2019. {ALL}.", f"A fine name. {ALL}."]
    sessions = [(f"s {SAID['pin']}", "2024/03/02 (Sat) 09:00", said)]
    bench = [
        kit.row("q1", f"What did I name my boat? {ALL}", f"{CONTROL}, {ALL}", sessions),
        kit.row("q2", "What is my router password?", [ALL, {"pin": SAID["pin"]}], sessions),
        kit.row("q3", "When?", "x", sessions, asked=SAID["password"]),
    ]
    run = tmp_path / "run"
    told = [kit.dualtrace("run", kit.rows(tmp_path / "b.json", bench), "--out", run, "--conditions", "c6,history")]
    results = tmp_path / "c6.hypotheses.jsonl.eval-results"
    lines = (run / "answers" / "c6.hypotheses.jsonl").read_text().splitlines()
    verdicts = [json.loads(line) | {"autoeval_label": {"model": "m", "label": True}, "prompt": ALL} for line in lines]
    bad = {"question_id": f"q9 {SAID['password']}", "hypothesis": ALL, "autoeval_label": {"model": ALL, "label": False}}
    kit.jsonl(results, [*verdicts, bad, {"question_id": "q1", "hypothesis": ALL, "autoeval_label": ALL}])
    told += [
        kit.dualtrace("judge", "import", run, results, "--judge", "outside", "--condition", "c6"),
        kit.dualtrace("judge", "run", run),
        kit.dualtrace("report", run, "--json"),
    ]

    assert [r.exit_code for r in told] == [3] * 4, [output(r) for r in told]
    assert leaks(run, *map(output, told)) == []
    assert seen(run / "store")
    assert seen(run / "answers")


@pytest.mark.parametrize("kind", ["facts", "scene"])
def test_p10_what_a_model_left_unfinished_is_kept_without_credentials(tmp_path, kind):
    """Whatever the model writes, its own inventions included."""
    written = Completion(json.dumps([ALL])[:-2], Finish.LENGTH)
    memory = Memory(tmp_path / "store", Watched(lambda r: written if r.kind == kind else reply(r)), Scope())
    memory.teach(kit.jsonl(tmp_path / "c.jsonl", [kit.session("s", "2024-03-02", f"I named my boat {CONTROL} in 2019.")]))

    assert leaks(tmp_path / "store") == []
    if kind == "facts":
        assert MASK in (tmp_path / "store" / "failures.jsonl").read_text()


def test_p16_lines_on_stderr_hold_no_chat_text(tmp_path):
    """Whatever went wrong: records that cannot be read, a model that failed, a store that is not there."""
    said = f"I named my boat {CONTROL} in 2019."
    rows = [
        kit.session("s", "2024-03-02", said),
        {"id": "a", "turns": [{"role": "user", "content": {"text": said}}]},
        {"id": "b", "turns": said},
        {"id": "c", "turns": [{"content": said}]},
        {"mapping": {"x": {"parent": "y", "message": {"author": {"role": "user"}, "content": said}}}, "current_node": "x"},
        {"chat_messages": [{"sender": "human", "text": [said]}]},
    ]
    source = tmp_path / "c.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in rows) + f'{{"id": "d", "turns": [{{"role": "user", "content": "{said}\n')
    store = tmp_path / "store"
    told = [
        kit.dualtrace("teach", source, "--store", store),
        kit.dualtrace("data", "check", source, model=None),
        kit.dualtrace("ask", f"Where is {CONTROL}?", "--store", store),
        kit.dualtrace("ask", f"Where is {CONTROL}?", "--store", tmp_path / "nowhere"),
        kit.dualtrace("memory", "show", "abc", "--store", store),
    ]

    assert [r.exit_code for r in told] == [3, 3, 0, 1, 1]
    assert CONTROL in told[2].stdout.lower()
    assert [line for r in told for line in r.stderr.lower().splitlines() if CONTROL in line] == []
    assert len(told[0].stderr.splitlines()) >= 6


def test_what_a_reader_writes_is_masked(tmp_path):
    """Notes are free text: a model may put anything there."""

    def noting(request):
        if request.kind != "read":
            return reply(request)
        return json.dumps(json.loads(reply(request)) | {"notes": f"note that {SAID['password']}."})

    source = kit.jsonl(tmp_path / "c.jsonl", [kit.session("s", "2024-03-02", f"I named my boat {CONTROL} in 2019.")])
    memory = Memory(tmp_path / "store", Watched(noting), Scope())
    memory.teach(source)
    answer = memory.ask("What did I name my boat?")

    assert CONTROL in answer.text.lower()
    assert answer.notes == f"note that my router password is {MASK}."


@pytest.mark.parametrize("form", ["chatgpt", "claude", "text"])
def test_credentials_in_exports(tmp_path, form):
    """Titles and attachments too."""
    said = f"I named my boat {CONTROL} in 2019. {ALL}."
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": [said]}}
    content = {
        "chatgpt": json.dumps([{"title": ALL, "create_time": 1_709_539_200, "mapping": {"a": {"parent": None, "message": message}}}]),
        "claude": json.dumps([{"name": ALL, "uuid": "u", "created_at": "2024-03-02", "chat_messages": [
            {"sender": "human", "text": said, "attachments": [{"file_name": "a.txt", "extracted_content": ALL}]}]}]),
        "text": f"# 2024-03-02 {ALL}\n\nUser: {said}\n",
    }[form]  # fmt: skip
    (tmp_path / "export").write_text(content, encoding="utf-8")
    told = kit.dualtrace("teach", tmp_path / "export", "--store", tmp_path / "store")
    asked = kit.dualtrace("ask", "What did I name my boat?", "--store", tmp_path / "store")

    assert told.exit_code == asked.exit_code == 0
    assert leaks(tmp_path / "store", output(told), output(asked)) == []
    assert seen(tmp_path / "store")
