#!/usr/bin/env bash
# A whole study in minutes: train, sample, score, compact, report. Killed at any moment, the same
# command goes on; what is there already takes seconds. With --no-train as the first word, models
# that were trained before and lie beside the study are compared. Other arguments are handed to the
# verbs that read the study: tools/quickstart.sh --set seed=1 --set output=runs/another
set -euo pipefail
cd "$(dirname "$0")/.."
# A shell that has activated no environment gets that of `make install`.
command -v rlbhpc > /dev/null || PATH="$PWD/.venv/bin:$PATH"

study=configs/quickstart.yaml
run=runs/quickstart
if [ "${1-}" = --no-train ]; then
    study=configs/quickstart-no-train.yaml run=runs/quickstart-no-train
    shift
fi
for word in "$@"; do
    case $word in output=* | --set=output=*) run=${word##*output=} ;; esac
done

step() {
    local begun=$SECONDS code=0
    echo
    echo "\$ rlbhpc $*"
    rlbhpc "$@" || code=$?
    # Exit code 4 says that there was nothing to do: on the second run everything is there.
    [ $code -eq 0 ] || [ $code -eq 4 ] || exit $code
    echo "($((SECONDS - begun)) s, $SECONDS s since the start)"
}

step check $study "$@" --set output="$run"
step train $study "$@" --set output="$run"
step sample $study "$@" --set output="$run"
step score $study "$@" --set output="$run"
step compact "$run"
step report "$run" --terminal -o "$run/report"
