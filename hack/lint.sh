#!/usr/bin/env bash
# Lints Go (golangci-lint, pinned, built into .cache/) and C (clang-format, clang-tidy), and checks the size rules.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

version=v2.15.0
bin=$PWD/.cache/golangci-lint-$version
if [ ! -x "$bin/golangci-lint" ]; then
    GOBIN=$bin GOFLAGS=-mod=mod go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
fi
status=0
"$bin/golangci-lint" run ./... || status=1
(cd cmd/divvy-scheduler && CGO_ENABLED=0 "$bin/golangci-lint" run --config ../../.golangci.yml ./...) || status=1
for module in test/chart test/vm/cni test/vm/kubevirt test/web; do
    (cd $module && "$bin/golangci-lint" run --config "$root/.golangci.yml" ./...) || status=1
done

hack/clang-format.sh --check || status=1
command -v clang-tidy >/dev/null || { echo "clang-tidy is missing: run make test-deps" >&2; exit 1; }
mapfile -t units < <(git ls-files 'lib/*.c' 'examples/*.c' 'test/gpu/*.c' | grep -v /test/)
arch=$([ "$(uname -m)" = x86_64 ] && echo -mcx16 || true)
printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -I{} clang-tidy --quiet '--warnings-as-errors=*' {} \
    -- -std=gnu11 -D_GNU_SOURCE= -Ilib -I. $arch 2>/dev/null || status=1

while read -r lines file; do
    if [ "$lines" -gt 400 ]; then
        echo "$file: $lines lines, the rule is 400"
        status=1
    fi
done < <(git ls-files '*.go' '*.c' '*.h' | grep -v -e _generated -e /generated/ -e abi/testdata/ | xargs wc -l | grep -v ' total$')
# Programs and downloads that slipped in: the largest file that belongs here, a trace, has 115 KB.
large=$(git ls-files -z | xargs -0 stat --format '%s %n' | awk '$1 > 524288')
if [ -n "$large" ]; then
    echo "files of more than 512 KiB: $large"
    status=1
fi
make --silent c >/dev/null && go run ./hack/circles || status=1
hack/words.sh --test && hack/words.sh || status=1
exit $status
