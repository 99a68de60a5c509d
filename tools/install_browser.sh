#!/usr/bin/env bash
# Install the browser in which tests open the report and the view, on Debian and Ubuntu.
set -euo pipefail

command -v chromium >/dev/null && exit 0
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
$sudo apt-get update -qq
$sudo apt-get install -y -qq --no-install-recommends chromium
