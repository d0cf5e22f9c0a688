"""Models from a hub: a real server on 127.0.0.1, the hub's own client, a lock file, and what must never come."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import hubkit
import pytest
import yaml

from dualtrace_local.config import OFF_SWITCHES, ModelSpec, lock_file, read_models
from dualtrace_local.embed import load_embedder
from dualtrace_local.errors import ConfigError, WeightsError
from dualtrace_local.weights import check, located, pull, read_lock
from dualtrace_local.weights.folders import read_marker

FETCHED = ["README.md", "config.json", "model.safetensors", "tokenizer_config.json"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with one tiny model, an empty cache, and nobody's token."""
    with hubkit.serving() as served:
        served.commit(hubkit.model_files())
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.delenv("DUALTRACE_MODELS", raising=False)
        yield served


def spec(**more):
    source = {"hub": "acme/tiny", **more.pop("source", {})}
    return ModelSpec(engine="vllm", licence="Apache-2.0", sources=(source, *more.pop("then", ())), **more)


def files(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name != "dualtrace.json")


# ------------------------------------------------------------------------------------------------------- pull, lock


def test_only_data_comes_and_the_lock_says_what_came(hub, tmp_path):
    said = []
    folder = pull("tiny", spec(), said.append)

    assert files(folder) == FETCHED
    assert sorted(set(hub.fetched())) == FETCHED, "code, pickles and other formats are not even asked for"
    assert check("tiny", spec()) == ()
    commit = hub.branches["main"]
    assert yaml.safe_load((tmp_path / "cache" / "models.lock.yaml").read_text()) == {
        "models": {
            "tiny": {
                "hub": "acme/tiny",
                "revision": "main",
                "commit": commit,
                "files": {
                    name: {"bytes": len(content), "sha256": hubkit.digest(content)}
                    for name, content in hubkit.model_files().items()
                    if name in FETCHED
                },
            }
        }
    }
    assert read_marker(folder).locked == read_lock(lock_file())["tiny"]
    assert any(commit in line for line in said)
    assert not list((tmp_path / "cache").rglob("*.incomplete"))
    assert not (tmp_path / "cache" / "models" / ".partial" / "tiny").exists()


def test_no_token_and_no_report_goes_out(hub, tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text("hf_from_a_login")
    pull("tiny", spec(), print)

    assert {path.split("/")[1] for _, path, _ in hub.asked} == {"api", "acme"}
    assert not [headers for _, _, headers in hub.asked if "authorization" in headers]
    agents = {headers["user-agent"] for _, _, headers in hub.asked}
    assert not [agent for agent in agents if "torch/" in agent or "agent/" in agent]


def test_the_offline_switches_stay_set_outside_the_child(hub, monkeypatch):
    for name, value in OFF_SWITCHES.items():
        monkeypatch.setenv(name, value)
    pull("tiny", spec(), print)

    assert all(os.environ[name] == value for name, value in OFF_SWITCHES.items())
    assert "HF_HUB_OFFLINE" in OFF_SWITCHES
    assert hub.asked, "the child looked things up all the same"


def test_a_second_pull_asks_nothing(hub):
    pull("tiny", spec(), print)
    hub.asked.clear()
    said = []
    pull("tiny", spec(), said.append)

    assert hub.asked == []
    assert "already complete" in said[0]


def test_a_lost_lock_file_is_written_again_without_the_hub(hub):
    pull("tiny", spec(), print)
    first = lock_file().read_text()
    lock_file().unlink()
    hub.asked.clear()
    pull("tiny", spec(), print)

    assert (lock_file().read_text(), hub.asked) == (first, [])


def test_the_locked_commit_is_fetched_though_the_branch_moved(hub, tmp_path, monkeypatch):
    pull("tiny", spec(), print)
    first = hub.branches["main"]
    lock = tmp_path / "mine" / "models.lock.yaml"
    lock.parent.mkdir()
    lock_file().rename(lock)
    hub.commit(hubkit.model_files(4, 5, 6))
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "another machine"))
    folder = pull("tiny", spec(), print, lock)

    assert (folder / "model.safetensors").read_bytes() == hubkit.safetensors(1, 2, 3)
    assert read_lock(lock)["tiny"].commit == first


def test_update_moves_to_what_the_branch_means_now(hub):
    pull("tiny", spec(), print)
    moved = hub.commit(hubkit.model_files(4, 5, 6))
    assert check("tiny", spec(), read_lock(lock_file())["tiny"]) == ()
    folder = pull("tiny", spec(), print, update=True)

    assert (folder / "model.safetensors").read_bytes() == hubkit.safetensors(4, 5, 6)
    assert read_lock(lock_file())["tiny"].commit == moved
    assert check("tiny", spec(), read_lock(lock_file())["tiny"]) == ()


def test_update_fetches_only_what_is_new(hub):
    pull("tiny", spec(), print)
    hub.asked.clear()
    pull("tiny", spec(), print, update=True)
    assert hub.fetched() == [], "the branch means the same commit"

    card = hubkit.CARD + b"Another word.\n"
    hub.commit(hubkit.model_files(**{"README.md": card}))
    folder = pull("tiny", spec(), print, update=True)
    assert "model.safetensors" not in hub.fetched(), "the weights are the same"
    assert (folder / "README.md").read_bytes() == card
    assert check("tiny", spec()) == ()


def test_a_folder_of_another_commit_than_the_lock_is_told_and_replaced(hub):
    pull("tiny", spec(), print)
    first = read_lock(lock_file())
    hub.commit(hubkit.model_files(4, 5, 6))
    pull("tiny", spec(), print, update=True)
    lock_file().write_text(yaml.safe_dump({"models": {"tiny": first["tiny"].model_dump()}}))

    assert "lock file says" in check("tiny", spec(), first["tiny"])[0]
    folder = pull("tiny", spec(), print)
    assert (folder / "model.safetensors").read_bytes() == hubkit.safetensors(1, 2, 3)


@pytest.mark.usefixtures("hub")
def test_the_lock_keeps_the_entries_of_other_models_sorted():
    for name in ("zebra", "ant"):
        pull(name, spec(), print)

    text = lock_file().read_text()
    assert list(yaml.safe_load(text)["models"]) == ["ant", "zebra"]
    assert text.startswith("# Written by")


def test_the_lock_lies_beside_the_users_models_file(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("DUALTRACE_MODELS", str(tmp_path / "mine.yaml"))
    pull("tiny", spec(), print)

    assert read_lock(tmp_path / "mine.lock.yaml")["tiny"].commit == hub.branches["main"]


@pytest.mark.usefixtures("hub")
def test_a_damaged_lock_file_is_one_line():
    lock_file().parent.mkdir(parents=True)
    lock_file().write_text("models: {tiny: {hub: acme/tiny, revision: main, commit: abc, files: {}}}\n")
    with pytest.raises(ConfigError, match=r"models.lock.yaml: models.tiny.commit"):
        pull("tiny", spec(), print)


def test_another_repository_than_the_locked_one_needs_update(hub):
    pull("tiny", spec(), print)
    hub.commit(hubkit.model_files(7), branch="v2")
    other = spec(source={"revision": "v2"})
    assert located("tiny", other) is None
    with pytest.raises(WeightsError, match=r"locked to acme/tiny main.*pull --update tiny"):
        pull("tiny", other, print)
    pull("tiny", other, print, update=True)

    assert read_lock(lock_file())["tiny"].revision == "v2"


# -------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_other_bytes_than_the_locked_ones_are_refused(hub, name, tmp_path, monkeypatch):
    pull("tiny", spec(), print)
    lock = lock_file().rename(tmp_path / "kept.yaml")
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "another machine"))
    hub.sent[name] = hubkit.model_files()[name].swapcase()
    with pytest.raises(WeightsError, match=f"{name} (has|came with) SHA-256"):
        pull("tiny", spec(), print, lock)

    assert located("tiny", spec()) is None
    assert not list((tmp_path / "another machine").rglob(name)), "nothing of it is kept"


def test_other_bytes_than_the_hub_lists_are_refused(hub):
    hub.sent["model.safetensors"] = hubkit.safetensors(1, 2, 4)
    with pytest.raises(WeightsError, match=r"model.safetensors came with SHA-256 .* not what the hub lists"):
        pull("tiny", spec(), print)

    assert not lock_file().exists()


def test_settings_that_name_code_are_refused_before_the_weights_come(hub):
    config = json.dumps({"auto_map": {"AutoModel": "modeling_tiny.Tiny"}}).encode()
    hub.commit(hubkit.model_files(**{"config.json": config}))
    with pytest.raises(WeightsError, match=r"config\.json has auto_map"):
        pull("tiny", spec(), print)

    assert "model.safetensors" not in hub.fetched()
    assert "modeling_tiny.py" not in hub.fetched()
    assert located("tiny", spec()) is None


@pytest.mark.usefixtures("hub")
def test_globs_of_the_user_never_fetch_code():
    folder = pull("tiny", spec(source={"files": ["*"]}), print)

    assert files(folder) == FETCHED


def test_a_repository_without_safetensors_is_one_line(hub):
    hub.commit(hubkit.model_files(**{"model.safetensors": None}))
    with pytest.raises(WeightsError, match="no weights as safetensors"):
        pull("tiny", spec(), print)
    assert hub.fetched() == []


def test_a_gated_repository_says_what_to_do_and_takes_the_users_token(hub, monkeypatch):
    hub.gated = True
    with pytest.raises(WeightsError, match=r"gated: accept its terms .* HF_TOKEN") as problem:
        pull("tiny", spec(), print)
    assert "\n" not in str(problem.value)

    monkeypatch.setenv("HF_TOKEN", "let-me-in")
    assert check("tiny", spec()) == ("not fetched yet",)
    pull("tiny", spec(), print)
    assert check("tiny", spec()) == ()


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("source", "reason"),
    [({"hub": "acme/none"}, "no such repository"), ({"revision": "v9"}, "no revision v9")],
)
def test_what_is_not_there_is_one_line(source, reason):
    with pytest.raises(WeightsError, match=reason) as problem:
        pull("tiny", spec(source=source), print)
    assert "\n" not in str(problem.value)


@pytest.mark.usefixtures("hub")
def test_a_hub_that_cannot_be_reached_gives_way_and_every_reason_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    then = [{"packages": "acme-none", "version": "1.0", "folder": "*/model"}]
    said = []
    with pytest.raises(WeightsError) as problem:
        pull("tiny", spec(then=then), said.append)

    assert "acme/tiny: the hub cannot be reached" in str(problem.value)
    assert "pip could not fetch acme-none==1.0" in str(problem.value)
    assert "\n" not in str(problem.value)
    assert any("trying the next source" in line for line in said)


# ---------------------------------------------------------------------------------------------------- interruptions


def test_a_broken_connection_goes_on_inside_the_file(hub):
    big = hubkit.safetensors(*[0] * 6_000_000)
    hub.commit(hubkit.model_files(**{"model.safetensors": big}))
    hub.cut["model.safetensors"] = 1
    folder = pull("tiny", spec(), print)

    assert check("tiny", spec()) == ()
    assert (folder / "model.safetensors").read_bytes() == big
    assert len(hub.ranges()) == 1


def test_a_killed_pull_goes_on_with_the_files_that_are_whole(hub, tmp_path):
    shards = {f"model-{n}.safetensors": hubkit.safetensors(*range(n, n + 50)) for n in (1, 2, 3)}
    hub.commit(hubkit.model_files(**shards, **{"model.safetensors": None}))
    hub.hold["model-2.safetensors"] = threading.Event()
    (tmp_path / "m.yaml").write_text(yaml.safe_dump({"models": {"tiny": spec().model_dump(mode="json", exclude_defaults=True)}}))
    run = "from dualtrace_local.cli import main; main()"
    command = [sys.executable, "-c", run, "models", "pull", "tiny", "--models", str(tmp_path / "m.yaml")]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while "model-2.safetensors" not in hub.fetched() and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    hub.hold.pop("model-2.safetensors").set()
    assert located("tiny", spec()) is None
    hub.asked.clear()
    folder = pull("tiny", spec(), print)

    assert sorted(hub.fetched()) == ["model-2.safetensors", "model-3.safetensors"]
    assert {name: (folder / name).read_bytes() for name in shards} == shards
    assert check("tiny", spec()) == ()


@pytest.mark.usefixtures("hub")
def test_what_an_older_commit_left_is_not_mixed_in(tmp_path):
    left = tmp_path / "cache" / "models" / ".partial" / "tiny" / ("a" * 40)
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    pull("tiny", spec(), print)

    assert check("tiny", spec()) == ()
    assert not left.exists()


# -------------------------------------------------------------------------------------- what the folder says of itself


@pytest.mark.parametrize(
    ("more", "entry", "problem"),
    [
        ({"README.md": b"---\nlicense: mit\n---\n"}, {}, "its card says licence mit, models.yaml says Apache-2.0"),
        ({"README.md": b"---\nlicense: other\nlicense_name: Apache-2.0\n---\n"}, {}, None),
        ({"README.md": b"no fields"}, {}, None),
        ({"README.md": b"---\n[broken\n---\n"}, {}, None),
        ({"README.md": None}, {}, None),
        ({"tokenizer_config.json": b"{}"}, {}, "has no chat template"),
        ({"tokenizer_config.json": b"{}", "chat_template.jinja": b"{{ messages }}"}, {}, None),
        ({}, {"context": 16384}, "reads at most 8192 tokens, but models.yaml gives it context 16384"),
        ({"config.json": b'{"text_config": {"max_position_embeddings": 1024}}'}, {}, "reads at most 1024 tokens"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "x-2.safetensors"}}'}, {}, "names x-2.safetensors, which is missing"),
    ],
)
def test_check_holds_the_folder_against_models_yaml(hub, more, entry, problem):
    hub.commit(hubkit.model_files(**more))
    said = []
    pull("tiny", spec(**entry), said.append)
    found = check("tiny", spec(**entry))

    assert len(found) == (problem is not None)
    assert problem is None or problem in found[0]
    assert problem is None or any(found[0] in line for line in said), "pull says it as a note"


def test_an_embedding_model_brings_its_numbered_folders_and_needs_no_template(hub):
    modules = [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    more = {
        "modules.json": json.dumps(modules).encode(),
        "1_Pooling/config.json": b"{}",
        "onnx/config.json": b"{}",
        "tokenizer_config.json": b"{}",
    }
    hub.commit(hubkit.model_files(**more))
    embedder = ModelSpec(engine="sentence-transformers", licence="Apache-2.0", sources=({"hub": "acme/tiny"},))
    folder = pull("e", embedder, print)

    assert files(folder) == sorted([*FETCHED, "modules.json", "1_Pooling/config.json"])
    assert check("e", embedder) == ()


@pytest.mark.model
def test_a_real_embedding_model_from_a_hub_gives_the_same_vectors(hub, embedder, tmp_path):
    """The files of the embedded model, served by the hub; the pinned file has the pinned digest whatever the way it came."""
    known = read_models().spec("all-minilm-l6-v2")
    served = {p.relative_to(embedder.folder).as_posix(): p.read_bytes() for p in embedder.folder.rglob("*") if p.is_file()}
    hub.commit({name: content for name, content in served.items() if name != "dualtrace.json"} | {"README.md": hubkit.CARD})
    found = known.model_copy(update={"sources": spec().sources})
    folder = pull("minilm", found, print)

    assert folder.is_relative_to(tmp_path)
    assert check("minilm", found) == ()
    fetched = load_embedder("minilm", folder, known.dimension)
    assert (fetched.encode(["a red kayak"]) == embedder.encode(["a red kayak"])).all()
