#!/usr/bin/env bash
# The whole check of a checkout: environment, the two small models, ruff, mypy, pytest. Arguments go to pytest.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

set_up "$(machine)" dev
cd "$ROOT"
step 'fetching and checking the models of the tests' "$VENV/bin/dualtrace" models pull smollm2-135m all-minilm-l6-v2

# A finding here fails the whole check, but never hides what the tests say.
findings=()
lint() {
    printf '==> %s\n' "$*"
    "$VENV/bin/python" -m "$@" || findings+=("$1 $2")
}
lint ruff check .
lint ruff format --check .
lint mypy

printf '==> pytest %s\n' "$*"
status=0
"$VENV/bin/python" -m pytest "$@" || status=$?
if [[ ${#findings[@]} -gt 0 && $status -eq 0 ]]; then
    stop "the tests passed, but there are findings above: ${findings[*]}"
fi
exit "$status"
