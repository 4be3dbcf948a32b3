#!/bin/sh
# debian.sh SCRATCH: makes the Debian source package of this tree in the folder SCRATCH, and builds it. Version and licence are
# read from the tree. Skipped, with exit status 77, where there is no debhelper or what it is built with.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$1
command -v dh >/dev/null && command -v dpkg-buildpackage >/dev/null || {
    echo "dpkg-dev or debhelper is not installed"
    exit 77
}
version=$(sed -n 's/.*library_version = "\(.*\)".*/\1/p' "$root/include/heddle/base/version.hpp")
tree=$scratch/heddle-$version
rm -rf "$scratch"
mkdir -p "$tree"
cp -R "$root/CMakeLists.txt" "$root/LICENSE" "$root/README.md" "$root/include" "$root/adapters" "$tree"
cp -R "$root/adapters/packages/debian" "$tree/debian"
sed 's/^$/./; s/^/ /' "$root/LICENSE" >>"$tree/debian/copyright"
cat >"$tree/debian/changelog" <<END
heddle ($version) unstable; urgency=medium

  * See docs/changelog.md in the repository.

 -- Heddle developers <heddle@localhost.localdomain>  Thu, 01 Jan 2026 00:00:00 +0000
END
cd "$tree"
dpkg-checkbuilddeps || exit 77
dpkg-buildpackage --unsigned-source --unsigned-changes
# Nobody has asked for it to be packaged, and nobody has an address for it.
if command -v lintian >/dev/null; then
    lintian --fail-on warning --suppress-tags initial-upload-closes-no-bugs,bogus-mail-host,bogus-mail-host-in-debian-changelog "../heddle_${version}_$(dpkg --print-architecture).changes"
fi
