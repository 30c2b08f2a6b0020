#!/usr/bin/env bash
# Unpacks Debian's Chromium with what it needs into a folder, and axe-core of npm's registry beside it, for test/web:
# chromium.sh FOLDER. Installs nothing. Fails where they cannot be had.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/debian.sh"
. "$here/npm.sh"
unpack_begin "$1" "$0" "$here/debian.sh" "$here/npm.sh"
debian_unpack bookworm main "$folder/debian" chromium chromium-common fonts-dejavu-core fontconfig-config \
    libasound2 libatk-bridge2.0-0 libatk1.0-0 libatspi2.0-0 libcairo2 libcups2 libdav1d6 libdbus-1-3 libdouble-conversion3 \
    libexpat1 libflac12 libfontconfig1 libfreetype6 libgbm1 libglib2.0-0 libharfbuzz-subset0 libharfbuzz0b \
    libjpeg62-turbo liblcms2-2 libminizip1 libnspr4 libnss3 libopenh264-7 libopenjp2-7 libopus0 libpango-1.0-0 \
    libpulse0 libudev1 libx11-6 libxcb1 libxcomposite1 libxdamage1 libxext6 libxfixes3 libxkbcommon0 libxnvctrl0 \
    libxrandr2 libzstd1 zlib1g
npm_unpack "$folder/axe-core" axe-core 4.14.1 \
    sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==
unpack_end
