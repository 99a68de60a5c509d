#!/usr/bin/env bash
# The one system library that vLLM's CPU build loads and does not bring along. Without it the engine
# `vllm` does not start; everything else does, so where it cannot be installed this only says so.
set -euo pipefail

[ "$(uname -s)" = Linux ] || exit 0
PATH=$PATH:/sbin:/usr/sbin
case "$(ldconfig -p 2>/dev/null)" in *'libnuma.so.1 '*) exit 0 ;; esac
by_apt() {
    apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libnuma1
}
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "install: libnuma1 (apt-get), which vLLM's CPU build loads"
    if by_apt; then exit 0; fi
fi
echo "install: libnuma.so.1 is not here, so the engine vllm will not start; install it with" \
    "'sudo apt-get install libnuma1' (Debian, Ubuntu) or 'sudo dnf install numactl-libs' (Fedora," \
    "RHEL). The engine hf needs nothing." >&2
