#!/usr/bin/env bash
# From a fresh checkout to a finished demo: environment, models, `dualtrace demo`. Arguments go to the demo; a model named there
# (--model NAME and its kin, --models FILE) is fetched first. May be started from anywhere and as often as you like; what is done
# already is not done again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

model_options "$@"
set_up "$(machine)"
step 'fetching and checking the models that have a role' "$VENV/bin/dualtrace" models pull "${MODEL_OPTIONS[@]}"
if [[ "$(machine)" == gpu ]]; then
    printf '==> models for the card of this machine, best first; to use one: %s --model NAME\n' "$0"
    "$VENV/bin/dualtrace" models list --fits || true
fi
step 'dualtrace demo' "$VENV/bin/dualtrace" demo "$@"
printf 'All of it took %d s. Next: %s --help\n' "$SECONDS" "$VENV/bin/dualtrace"
