#!/usr/bin/env bash
# Unpacks the types of Grafana's dashboards and TypeScript, which compares the chart's dashboards with them, below a folder:
# grafana.sh FOLDER. Installs nothing. Where they cannot be had it says so, and the test that needs them says it again.
set -euo pipefail
. "$(dirname "$0")/npm.sh"
folder=$1
wanted=$(cat "$0" "$(dirname "$0")/npm.sh" | sha256sum)
[ "$(cat "$folder/.complete" 2>/dev/null)" != "$wanted" ] || exit 0
rm -rf "$folder"
npm_unpack "$folder/node_modules/@grafana/schema" @grafana/schema 13.2.3 \
    sha512-rk8FEO7yuFfRTK/JD39747SZFQ+iCTQbpm6Mh2OjnqGx/g/uQQFx56t64eCLXWEyoR68ru4cigcGKrXk+ozrLg== &&
    npm_unpack "$folder/node_modules/typescript" typescript 5.9.3 \
        sha512-jl1vZzPDinLr9eUt3J/t7V6FgNEw9QjvBPdysz9KfQDD41fQrC2Y4vKQdiaUpFT4bXlb1RHhLpp8wtm6M5TgSw== &&
    echo "$wanted" >"$folder/.complete" || echo "Grafana's types cannot be had" >&2
