#!/usr/bin/env bash
# A real Apptainer on Debian 12, which has no package of it: the one of Debian's unstable suite,
# with the C library that it needs in a folder of its own. The system's own libraries stay as they
# are. Run as root; again does nothing.
set -euo pipefail

prefix=/opt/apptainer
[ "$(id -u)" = 0 ] || { echo "install_apptainer.sh: needs root" >&2; exit 64; }
if /usr/local/bin/apptainer --version 2>/dev/null; then exit 0; fi

apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    ca-certificates debootstrap fuse-overlayfs patchelf squashfs-tools squashfuse uidmap

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

# Fetch packages of another suite with lists and cache of their own: nothing gets installed.
fetch() {
    local suite=$1
    shift
    mkdir -p "$work/$suite"/{lists/partial,cache/archives/partial,packages}
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
        "http://deb.debian.org/debian $suite main" >"$work/$suite/sources.list"
    local options=(-qq -o "Dir::Etc::sourcelist=$work/$suite/sources.list"
        -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/$suite/lists"
        -o "Dir::Cache=$work/$suite/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd "$work/$suite/packages" && apt-get "${options[@]}" download "$@")
}

fetch sid apptainer
fetch trixie libc6 libseccomp2 libsqlite3-0 libsubid5

mkdir -p "$work/unpacked" "$work/libraries" "$prefix/lib"
dpkg -x "$work"/sid/packages/apptainer_*.deb "$work/unpacked"
for package in "$work"/trixie/packages/*.deb; do dpkg -x "$package" "$work/libraries"; done
find "$work/libraries" -name '*.so*' -path '*x86_64-linux-gnu*' \
    -exec cp -a -t "$prefix/lib" {} +

# The package's own folders, where it was built to look for them.
cp -a "$work/unpacked/etc/." /etc/
cp -a "$work/unpacked/usr/." /usr/
mkdir -p /var/lib/apptainer/mnt/session /var/lib/apptainer/mnt/final
loader=$(find "$prefix/lib" -name 'ld-linux-x86-64.so.2' | head -n 1)
find /usr/bin/apptainer /usr/lib/x86_64-linux-gnu/apptainer -type f \
    -perm -u+x | while read -r program; do
    patchelf --print-interpreter "$program" >/dev/null 2>&1 || continue
    patchelf --set-interpreter "$loader" --force-rpath \
        --set-rpath "$prefix/lib:/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu" "$program"
done
ln -sf /usr/bin/apptainer /usr/local/bin/apptainer
[ -c /dev/fuse ] && chmod 666 /dev/fuse
apptainer --version
