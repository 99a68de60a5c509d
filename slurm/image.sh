#!/usr/bin/env bash
# A real Apptainer, and the image that the cluster's tests run in. Kept when the cluster goes down:
# building it takes two minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
image=${RLBHPC_TEST_IMAGE:-/var/cache/rlbhpc/bare.sif}
tools/install_apptainer.sh
[ -f "$image" ] && exit 0
mkdir -p "$(dirname "$image")"
# The mirror of the machine's own packages, as rlbhpc/launch/container.py finds it.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' |
    awk '/\/debian\/*$/ && !own { own = $0 } END { print own ? own : "http://deb.debian.org/debian" }')
apptainer build --force --build-arg "mirror=$mirror" "$image.partial" containers/bare.def
chmod 644 "$image.partial"
mv "$image.partial" "$image"
