#!/usr/bin/env bash
# From a fresh checkout to a finished demo: environment, models, `dualtrace demo`. Arguments go to the demo.
# May be started from anywhere and as often as you like; what is done already is not done again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

set_up "$(machine)"
step 'fetching and checking the models that have a role in models.yaml' "$VENV/bin/dualtrace" models pull
step 'dualtrace demo' "$VENV/bin/dualtrace" demo "$@"
printf 'All of it took %d s. Next: %s --help\n' "$SECONDS" "$VENV/bin/dualtrace"
