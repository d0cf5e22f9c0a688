# Shared by quickstart.sh and test.sh: steps with their times, and an environment that is set up once. Source it; it runs nothing.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"
STAMP="$VENV/dualtrace.stamp"

# Libraries are imported once below to see that they load: nothing may be reported or looked up while that happens.
export VLLM_NO_USAGE_STATS=1 VLLM_DO_NOT_TRACK=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1
export VLLM_LOGGING_LEVEL=ERROR PIP_DISABLE_PIP_VERSION_CHECK=1

# step TEXT COMMAND...: say what happens, do it, say how long it took. A command that fails ends the script.
step() {
    local text=$1 start=$SECONDS
    shift
    printf '==> %s\n' "$text"
    "$@" || stop "\"$text\" failed; the lines above say why"
    printf '    done in %d s\n' $((SECONDS - start))
}

stop() {
    printf '%s: %s\n' "$(basename "$0")" "$1" >&2
    exit 1
}

# 3.11 comes first: it is the version for which ready-made CPU builds of torch and vLLM are easiest to find. $PYTHON overrides.
# A name on the PATH may be a version manager's empty shim, so each candidate has to answer.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    stop 'no Python 3.11, 3.12 or 3.13 found; install one, or name it: PYTHON=/path/to/python3.11'
}

# The extra that fits this machine. The two engines install the same import package, so it is never both.
machine() {
    if [[ "$(nvidia-smi -L 2>/dev/null)" == GPU* ]]; then echo gpu; else echo cpu; fi
}

# model_options ARG...: MODEL_OPTIONS holds those arguments that choose models, for another command that takes the same ones.
model_options() {
    MODEL_OPTIONS=()
    while [[ $# -gt 0 ]]; do
        case $1 in
            --model | --encode-model | --read-model | --judge-model | --models | --server)
                [[ $# -gt 1 ]] || stop "$1 needs a value"
                MODEL_OPTIONS+=("$1" "$2")
                shift
                ;;
            --model=* | --encode-model=* | --read-model=* | --judge-model=* | --models=* | --server=*) MODEL_OPTIONS+=("$1") ;;
        esac
        shift
    done
}

digest() {
    "$1" -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$ROOT/pyproject.toml"
}

make_venv() {
    rm -rf "$VENV"
    "$1" -m venv "$VENV" || stop "$1 cannot make an environment; on Debian and Ubuntu install python3-venv"
}

# pip's complaints about places that it does not use are many and say nothing; everything else is shown.
pip_install() {
    if ! "$VENV/bin/python" -m pip install -q -e "$ROOT[$1]" 2>&1 | { grep -Ev '^WARNING: Location .* is ignored' || true; }; then
        [[ $1 != cpu* ]] || printf '%s\n' >&2 \
            'If torch==2.13.0+cpu was not found: that build is not on every index. Put its wheel into a folder and repeat with' \
            'PIP_FIND_LINKS=/that/folder, or name an index of CPU builds of torch with PIP_EXTRA_INDEX_URL.' \
            'If nothing fits this Python, repeat with PYTHON=python3.11.'
        return 1
    fi
}

# vLLM pulls these in as CUDA builds; beside a CPU torch they fail to load, and transformers, which imports them when they are there,
# fails with them. Nothing here needs images or sound.
remove_cuda_builds() {
    "$VENV/bin/python" -m pip uninstall -q -y torchvision torchaudio torchcodec 2>&1 | { grep -Ev '^WARNING: ' || true; }
}

try_imports() {
    "$VENV/bin/python" -c 'import vllm, transformers, sentence_transformers, lancedb, outlines'
}

# set_up EXTRA...: .venv with the project and these extras, unless the stamp says that this very set-up is there already.
set_up() {
    local extras python hash='' have_hash='' have_extras='' extra missing=''
    extras="$(IFS=,; echo "$*")"
    if "$VENV/bin/python" -c '' 2>/dev/null; then
        hash="$(digest "$VENV/bin/python")"
        [[ ! -f $STAMP ]] || read -r have_hash have_extras <"$STAMP" || true
        for extra in "$@"; do
            [[ ",$have_extras," == *",$extra,"* ]] || missing=$extra
        done
        if [[ $hash == "$have_hash" && -z $missing ]]; then
            printf '==> .venv is set up already (%s)\n' "$have_extras"
            return
        fi
    fi
    # Another engine is never installed over the first one: both bring the package "vllm".
    if [[ -z $hash || ",$have_extras," != *",$1,"* ]]; then
        python="$(find_python)"
        step "making .venv with $("$python" --version)" make_venv "$python"
    fi
    rm -f "$STAMP"
    step "installing dualtrace-local[$extras] (gigabytes the first time, some minutes)" pip_install "$extras"
    if [[ $1 == cpu ]]; then
        step 'removing torchvision, torchaudio and torchcodec, CUDA builds that break transformers on a CPU' remove_cuda_builds
    fi
    step 'checking that vllm, transformers, sentence_transformers, lancedb and outlines load' try_imports
    printf '%s %s\n' "$(digest "$VENV/bin/python")" "$extras" >"$STAMP"
}

