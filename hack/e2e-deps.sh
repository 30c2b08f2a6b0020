#!/usr/bin/env bash
# Installs and builds once what clusters of the tests are made of: runc, CNI plugins and iptables from the
# distribution (as root), Kubernetes, etcd, containerd and helm from their Go modules into .cache/e2e.
#
#   hack/e2e-deps.sh [KUBERNETES...]   minor versions such as v1.36; by default all in test/e2e/components
#   hack/e2e-deps.sh --kubernetes [KUBERNETES...]   Kubernetes and etcd alone, which need neither root nor packages
#   hack/e2e-deps.sh --containerd17   containerd 1.7 alone
#   hack/e2e-deps.sh --runtimes   runc, crun and conmon, containerd of both lines and CRI-O alone
#   hack/e2e-deps.sh --folder KUBERNETES   builds nothing: prints where that one is built
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/retried.sh
cache=$PWD/.cache/e2e
export CGO_ENABLED=0

declare -A package=(
    [runc]=runc [iptables]=iptables [ip]=iproute2 [dpkg-deb]=dpkg [sysctl]=procps
)
packages() {
    local missing=()
    for program in "${!package[@]}"; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || missing+=("${package[$program]}")
    done
    [ -x /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
    if [ ${#missing[@]} -gt 0 ]; then
        if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
            echo "missing: ${missing[*]}: install them with your package manager" >&2
            exit 1
        fi
        export DEBIAN_FRONTEND=noninteractive
        retried apt-get update -qq
        retried apt-get install -y -qq -o DPkg::Lock::Timeout=600 --no-install-recommends "${missing[@]}" >/dev/null
    elif [ "$(id -u)" -eq 0 ] && [ -z "$(ls "$cache"/packages/*.deb 2>/dev/null)" ]; then
        # The images' packages are fetched by what the lists say.
        retried apt-get update -qq
    fi
}

# current DIR SOURCES...: whether DIR was built from these sources; if not, its stamp is written by `built`.
stamp() { cat "$@" | sha256sum | cut -d' ' -f1; }
current() { [ "$(cat "$1/.stamp" 2>/dev/null)" = "$(stamp "${@:2}")" ]; }
built() { stamp "${@:2}" >"$1/.stamp"; }

version_of() { awk -v m="$2" '$1 == m || $2 == m { for (i = 1; i < NF; i++) if ($i == m) { print $(i + 1); exit } }' "$1/go.mod"; }

if [ "${1:-}" = --folder ]; then
    echo ".cache/e2e/kubernetes-$(version_of "test/e2e/components/$2" k8s.io/kubernetes)"
    exit
fi

kubernetes() {
    local source=test/e2e/components/$1 version minor out flags
    version=$(version_of "$source" k8s.io/kubernetes)
    minor=${1#v1.}
    out=$cache/kubernetes-$version
    current "$out" "$source"/{go.sum,main.go} && return
    echo "building Kubernetes $version: this takes minutes, once"
    mkdir -p "$out"
    # Without these the components call themselves a development version.
    flags="-s -w"
    for of in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags+=" -X $of.gitVersion=$version -X $of.gitMajor=1 -X $of.gitMinor=$minor -X $of.gitTreeState=clean"
        flags+=" -X $of.gitCommit=module -X $of.buildDate=2026-01-01T00:00:00Z"
    done
    retried go build -C "$source" -trimpath -ldflags "$flags" -o "$out/components" .
    for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
        ln -sfn components "$out/$name"
    done
    built "$out" "$source"/{go.sum,main.go}
}

# containerd SOURCE MODULE: one of its versions, into a folder of the source's name.
containerd() {
    local source=test/e2e/$1 version out=$cache/$1 module=$2
    current "$out" "$source/go.sum" && return
    version=$(version_of "$source" "$module")
    echo "building containerd $version"
    mkdir -p "$out"
    retried go build -C "$source" -trimpath -tags "no_btrfs no_devmapper no_zfs no_aufs" \
        -ldflags "-s -w -X $module/version.Version=$version" -o "$out/" "$module"/cmd/{containerd,containerd-shim-runc-v2,ctr}
    built "$out" "$source/go.sum"
}

# Without C its seccomp is left out, which nothing here needs.
crio() {
    local source=test/e2e/crio module=github.com/cri-o/cri-o out=$cache/crio
    current "$out" "$source"/{go.sum,load/main.go} && return
    echo "building CRI-O $(version_of "$source" $module): this takes minutes, once"
    mkdir -p "$out"
    retried go build -C "$source" -trimpath -tags "containers_image_ostree_stub containers_image_openpgp exclude_graphdriver_btrfs" \
        -ldflags "-s -w" -o "$out/" $module/cmd/crio ./load
    cc -std=c99 -Os -static -s -o "$out/pinns" "$(go list -C "$source" -m -f '{{.Dir}}' $module)"/pinns/src/*.c
    built "$out" "$source"/{go.sum,load/main.go}
}

helm() {
    local source=test/e2e/helm version out=$cache/helm
    current "$out" "$source/go.sum" && return
    version=$(version_of "$source" helm.sh/helm/v4)
    echo "building helm $version"
    mkdir -p "$out"
    retried go build -C "$source" -trimpath -ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=$version" \
        -o "$out/helm" helm.sh/helm/v4/cmd/helm
    built "$out" "$source/go.sum"
}

if [ "${1:-}" = --containerd17 ]; then
    containerd containerd17 github.com/containerd/containerd
    exit
elif [ "${1:-}" = --runtimes ]; then
    package+=([crun]=crun [conmon]=conmon)
    packages
    containerd containerd github.com/containerd/containerd/v2
    containerd containerd17 github.com/containerd/containerd
    crio
    exit
elif [ "${1:-}" = --kubernetes ]; then
    shift
else
    packages
    containerd containerd github.com/containerd/containerd/v2
    helm
fi
if [ $# -eq 0 ]; then
    mapfile -t versions < <(ls test/e2e/components | sort -V)
    set -- "${versions[@]}"
fi
for minor in "$@"; do
    kubernetes "$minor"
done
