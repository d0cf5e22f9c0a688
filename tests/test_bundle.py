"""Models carried as one file: what a bundle holds, and everything that unbundling must refuse. Bundles are real tars on disk."""

import io
import json
import shutil
import tarfile

import kit
import pytest

from dualtrace_local.config import Models, ModelSpec
from dualtrace_local.errors import ConfigError, WeightsError
from dualtrace_local.weights import bundle, check, located, ready, unbundle
from dualtrace_local.weights.folders import sha256
from dualtrace_local.weights.lock import FileDigest, Locked, put_in_lock, read_lock

FILES = {
    "config.json": json.dumps({"max_position_embeddings": 8192}).encode(),
    "tokenizer_config.json": json.dumps({"chat_template": "{{ messages }}"}).encode(),
    "model.safetensors": b"weights" * 3000,
    "a/deep/folder/with-a-name-that-is-longer-than-the-hundred-characters-which-the-oldest-tars-could-hold/config.json": b"{}",
}
COMMIT = "c" * 40


def spec(**more):
    return ModelSpec(engine="vllm", licence="Apache-2.0", sources=({"hub": "acme/tiny"},), **more)


def models(**specs):
    """A models file that knows ``tiny`` or the given models; roles are played by the rule-made model."""
    scripted = ModelSpec(engine="scripted", licence="Apache-2.0")
    return Models(roles={}, models={"scripted": scripted, **(specs or {"tiny": spec()})})


def locked(folder, commit=COMMIT):
    paths = [p for p in folder.rglob("*") if p.is_file() and p.name != "dualtrace.json"]
    files = {p.relative_to(folder).as_posix(): FileDigest(bytes=p.stat().st_size, sha256=sha256(p)) for p in paths}
    return Locked(hub="acme/tiny", revision="main", commit=commit, files=files)


def in_cache(cache, name="tiny", commit=COMMIT, files=FILES):
    """A ready folder, as a pull leaves it."""
    folder = cache / "models" / name
    for file, content in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    entry = locked(folder, commit)
    marker = {"name": name, "source": f"acme/tiny@{commit}", "source_sha256": "", "versions": {}, "files": entry.model_dump()["files"]}
    (folder / "dualtrace.json").write_text(json.dumps(marker | {"locked": entry.model_dump()}))
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The machine with the network: one model."""
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "here"))
    monkeypatch.delenv("DUALTRACE_MODELS", raising=False)
    return in_cache(tmp_path / "here")


@pytest.fixture
def made(here, tmp_path, monkeypatch):
    """Its bundle; from here on the cache is that of a machine without anything."""
    assert here
    bundle({"tiny": spec()}, tmp_path / "b.tar", print)
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "there"))
    return tmp_path / "b.tar"


def open_up(file, tmp_path, known=None, **options):
    return unbundle(file, known or models(), tmp_path / "there" / "models.lock.yaml", print, **options)


def nothing_there(tmp_path):
    return not [p for p in (tmp_path / "there").rglob("*") if p.is_file() and p.suffix not in (".lock", ".guard")]


def test_a_bundle_makes_the_model_ready_elsewhere(made, tmp_path):
    folders = open_up(made, tmp_path)

    assert folders == {"tiny": tmp_path / "there" / "models" / "tiny"} == {"tiny": ready("tiny", spec())}
    assert {f: (folders["tiny"] / f).read_bytes() for f in FILES} == FILES
    held = read_lock(tmp_path / "there" / "models.lock.yaml")
    assert held["tiny"].commit == COMMIT
    assert check("tiny", spec(), held["tiny"]) == ()


def test_the_same_models_give_the_same_file_and_one_is_never_overwritten(made, tmp_path, monkeypatch):
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "here"))
    bundle({"tiny": spec()}, tmp_path / "again.tar", print)
    assert made.read_bytes() == (tmp_path / "again.tar").read_bytes()
    with pytest.raises(WeightsError, match=r"again.tar is there already"):
        bundle({"tiny": spec()}, tmp_path / "again.tar", print)


def test_a_bundle_is_a_plain_tar_with_a_manifest_first(made):
    with tarfile.open(made, "r:") as tar:
        names = tar.getnames()
        manifest = json.load(tar.extractfile(names[0]))

    assert names == ["manifest.json", *sorted(f"tiny/{f}" for f in FILES)]
    assert manifest["models"]["tiny"]["locked"]["commit"] == COMMIT


def test_several_models_and_a_second_time_nothing_changes(here, tmp_path, monkeypatch):
    in_cache(tmp_path / "here", "second", files=FILES | {"model.safetensors": b"other"})
    both = {"tiny": spec(), "second": spec()}
    bundle(both, tmp_path / "b.tar", print)
    assert here.is_dir()
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "there"))
    open_up(tmp_path / "b.tar", tmp_path, models(**both))
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "there" / "models").rglob("*.safetensors")}
    assert len(before) == 2
    said = []
    unbundle(tmp_path / "b.tar", models(**both), tmp_path / "there" / "models.lock.yaml", said.append)

    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "there" / "models").rglob("*.safetensors")}
    assert all("already complete" in line for line in said)


def test_what_a_killed_unbundle_left_is_removed_and_a_damaged_folder_replaced(made, tmp_path):
    left = tmp_path / "there" / "models" / ".pulling" / "tiny" / "x" / "model"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    open_up(made, tmp_path)
    assert not left.exists()
    (tmp_path / "there" / "models" / "tiny" / "model.safetensors").write_bytes(b"damaged")
    open_up(made, tmp_path)
    assert check("tiny", spec()) == ()


def test_a_folder_of_the_user_can_be_bundled(here, tmp_path, monkeypatch):
    mine = shutil.copytree(here, tmp_path / "mine")
    (mine / "dualtrace.json").unlink()
    own = spec().model_copy(update={"sources": (*ModelSpec(engine="vllm", licence="x", sources=({"folder": str(mine)},)).sources,)})
    bundle({"tiny": own}, tmp_path / "b.tar", print)
    shutil.rmtree(mine)
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "there"))
    open_up(tmp_path / "b.tar", tmp_path, models(tiny=own))
    assert check("tiny", own) == ()


def test_a_file_that_changed_since_the_pull_is_not_bundled(here, tmp_path):
    big = b"w" * (33 << 20)
    folder = in_cache(tmp_path / "here", files=FILES | {"model.safetensors": big})
    assert folder == here
    (here / "model.safetensors").write_bytes(big[:-1] + b"x")
    with pytest.raises(WeightsError, match=r"model\.safetensors has changed since it was fetched"):
        bundle({"tiny": spec()}, tmp_path / "b.tar", print)
    assert not list(tmp_path.glob("*.tar*"))


@pytest.mark.usefixtures("here")
def test_what_has_no_files_or_is_not_here_cannot_be_bundled(tmp_path):
    with pytest.raises(WeightsError, match="scripted has no files"):
        bundle({"scripted": models().spec("scripted")}, tmp_path / "b.tar", print)
    with pytest.raises(WeightsError, match="models pull absent"):
        bundle({"absent": spec()}, tmp_path / "b.tar", print)


# -------------------------------------------------------------------------------------------------------- refusals


def rewritten(made, change):
    """The bundle again, its members (head, content) changed by ``change``, a function from list to list."""
    with tarfile.open(made, "r:") as tar:
        members = [(head, tar.extractfile(head).read()) for head in tar]
    out = made.with_name("changed.tar")
    with tarfile.open(out, "w") as tar:
        for head, content in change(members):
            if head.isreg():
                head.size = len(content)
            tar.addfile(head, io.BytesIO(content) if head.isreg() else None)
    return out


def manifest_with(members, **changes):
    """Members with another manifest: for model ``tiny``, path -> digest entries put in, or taken out with None."""
    manifest = json.loads(members[0][1])
    files = manifest["models"]["tiny"]["files"]
    files.update(changes)
    manifest["models"]["tiny"]["files"] = {k: v for k, v in files.items() if v is not None}
    return [(members[0][0], json.dumps(manifest).encode()), *members[1:]]


def head(name, **more):
    made = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(made, key, value)
    return made


DIGEST = {"bytes": 0, "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: [*m, (head("tiny/extra.json"), b"{}")], "tiny/extra.json.*no file that its manifest lists"),
        (lambda m: [*m, (head("../../evil"), b"x")], "evil.*no file that its manifest lists"),
        (lambda m: [*m, (head("/tmp/evil"), b"x")], "evil.*no file that its manifest lists"),  # noqa: S108 - never written
        (lambda m: [*m, m[-1]], "there twice"),
        (lambda m: m[:-1], "lacks tiny/"),
        (lambda m: [(h, c[:-1]) for h, c in m[:1]] + m[1:], "manifest.json"),
        (lambda m: [(h, c if "weights" not in c.decode() else c.swapcase()) for h, c in m], "SHA-256 .* manifest says"),
        (lambda m: [(h, c if "weights" not in c.decode() else c + b"more") for h, c in m], "has 21004 bytes, its manifest says 21000"),
        (lambda m: m[1:], "does not begin with manifest.json"),
        (lambda m: [(head(h.name, type=tarfile.SYMTYPE, linkname="/etc/passwd") if h is m[-1][0] else h, c) for h, c in m], "no file"),
        (lambda m: [(head(h.name, type=tarfile.LNKTYPE, linkname="tiny/config.json") if h is m[-1][0] else h, c) for h, c in m], "no file"),
        (lambda m: [(head(h.name, type=tarfile.FIFOTYPE) if h is m[-1][0] else h, c) for h, c in m], "no file"),
        (lambda m: [(head(h.name, type=tarfile.CHRTYPE) if h is m[-1][0] else h, c) for h, c in m], "no file"),
        (lambda m: [m[0], (head("tiny", type=tarfile.DIRTYPE), b""), *m[1:]], "no file"),
        (lambda m: manifest_with(m, **{"../../up": DIGEST}), "may not be written"),
        (lambda m: manifest_with(m, **{"/etc/x": DIGEST}), "may not be written"),
        (lambda m: manifest_with(m, **{"a\\b": DIGEST}), "may not be written"),
        (lambda m: manifest_with(m, **{"dualtrace.json": DIGEST}), "may not be written"),
        (lambda m: [(m[0][0], m[0][1].replace(b'"tiny": {', b'"../up": {')), *m[1:]], "cannot name a model"),
        (lambda m: [(m[0][0], b'{"format": "other", "models": {}}')], "manifest.json: format"),
        (lambda m: [(m[0][0], b'{"models": {}}')], "holds no model"),
    ],
)
def test_a_bundle_that_is_not_what_it_says_leaves_nothing(made, tmp_path, change, reason):
    with pytest.raises(WeightsError, match=reason) as problem:
        open_up(rewritten(made, change), tmp_path)

    assert "\n" not in str(problem.value)
    assert nothing_there(tmp_path)
    assert not [p for p in tmp_path.rglob("*") if p.name in ("evil", "up")]


def test_code_in_a_bundle_is_refused_however_well_it_is_listed(here, tmp_path, monkeypatch):
    """Bundled by a program that does not look: the digests are right, and the file still may not be loaded."""
    (here / "run.py").write_bytes(b"raise SystemExit('run')")
    marker = json.loads((here / "dualtrace.json").read_text())
    marker["files"]["run.py"] = {"bytes": 23, "sha256": sha256(here / "run.py")}
    out = tmp_path / "b.tar"
    with tarfile.open(out, "w") as tar:
        listed = json.dumps({"models": {"tiny": marker}}).encode()
        for name, content in {"manifest.json": listed, **{f"tiny/{f}": (here / f).read_bytes() for f in marker["files"]}}.items():
            tar.addfile(head(name, size=len(content)), io.BytesIO(content))
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "there"))
    with pytest.raises(WeightsError, match=r"run\.py is a program"):
        open_up(out, tmp_path)
    assert nothing_there(tmp_path)


@pytest.mark.parametrize("left", [0, 1, 600, 5000, 20000])
def test_a_cut_off_bundle_leaves_nothing(made, tmp_path, left):
    made.write_bytes(made.read_bytes()[:left])
    with pytest.raises(WeightsError, match=r"b.tar"):
        open_up(made, tmp_path)
    assert nothing_there(tmp_path)


def test_bytes_after_the_end_are_refused(made, tmp_path):
    with made.open("ab") as stream:
        stream.write(b"something else")
    with pytest.raises(WeightsError, match="holds more than its manifest lists"):
        open_up(made, tmp_path)
    assert nothing_there(tmp_path)


def test_every_flipped_byte_is_found(made, tmp_path):
    """One bit anywhere: refused, or (in the padding of tar) without effect on what is written."""
    whole = made.read_bytes()
    for at in range(0, len(whole), 997):
        made.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            folder = open_up(made, tmp_path)["tiny"]
        except (WeightsError, ConfigError):
            assert located("tiny", spec()) is None, at
        else:
            assert {f: (folder / f).read_bytes() for f in FILES} == FILES, at
            shutil.rmtree(tmp_path / "there")


def test_models_yaml_and_the_lock_have_the_last_word(made, tmp_path):
    with pytest.raises(ConfigError, match="no model named 'tiny'"):
        open_up(made, tmp_path, models(other=spec()))
    with pytest.raises(WeightsError, match=r"pins a{64}"):
        open_up(made, tmp_path, models(tiny=spec(file="model.safetensors", sha256="a" * 64)))
    other = spec().model_copy(update={"sources": ()})
    with pytest.raises(WeightsError, match=r"acme/tiny main, which models.yaml does not name"):
        open_up(made, tmp_path, models(tiny=other))
    assert nothing_there(tmp_path)

    lock = tmp_path / "there" / "models.lock.yaml"
    put_in_lock(lock, {"tiny": locked(tmp_path / "here" / "models" / "tiny", "d" * 40)})
    with pytest.raises(WeightsError, match=r"is commit c{40}, but .* says d{40}.*--update"):
        open_up(made, tmp_path)
    open_up(made, tmp_path, update=True)
    assert read_lock(lock)["tiny"].commit == COMMIT


@pytest.mark.usefixtures("here")
def test_the_commands(tmp_path, monkeypatch):
    own = tmp_path / "m.yaml"
    own.write_text("models: {tiny: {engine: vllm, licence: Apache-2.0, sources: [{hub: acme/tiny}]}}\n")
    written = kit.dualtrace("models", "bundle", "tiny", "--out", tmp_path / "b.tar", "--models", own, "--json")
    assert written.exit_code == 0, written.stderr
    assert kit.document(written)["models"] == ["tiny"]
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "there"))
    read = kit.dualtrace("models", "unbundle", tmp_path / "b.tar", "--models", own, "--json")
    assert read.exit_code == 0, read.stderr
    assert (tmp_path / "m.lock.yaml").is_file()
    checked = kit.dualtrace("models", "check", "tiny", "--models", own, "--json")
    assert kit.document(checked) == {"models": {"tiny": {"good": True, "problems": []}}}
    assert kit.document(kit.dualtrace("models", "list", "--models", own, "--json"))["models"]["tiny"]["here"]
    missing = kit.dualtrace("models", "unbundle", tmp_path / "none.tar")
    assert (missing.exit_code, missing.stderr.count("\n")) == (1, 1)


@pytest.mark.model
def test_a_real_model_serves_after_unbundling(tmp_path, monkeypatch, embedder):
    """The embedding model, carried to an empty cache, gives the same vectors."""
    from dualtrace_local.config import read_models
    from dualtrace_local.embed import load_embedder

    name, known = "all-minilm-l6-v2", read_models()
    bundle({name: known.spec(name)}, tmp_path / "b.tar", print)
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "there"))
    folder = open_up(tmp_path / "b.tar", tmp_path, known)[name]
    assert check(name, known.spec(name)) == ()
    carried = load_embedder(name, folder, known.spec(name).dimension)
    assert (carried.encode(["a red kayak"]) == embedder.encode(["a red kayak"])).all()
