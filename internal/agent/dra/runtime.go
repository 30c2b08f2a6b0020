package dra

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// runtimeAge is how long an answer about the container runtime is used.
const runtimeAge = 5 * time.Minute

// leastRuntime is the first version of each runtime that takes CDI devices from
// the kubelet without being told to. containerd 1.7 has them behind enable_cdi,
// which is off by default, and drops them without a word; CRI-O takes the
// kubelet's field since 1.28 (release notes of both).
var leastRuntime = map[string][2]int{
	"containerd": {2, 0},
	"cri-o":      {1, 28},
}

// checkRuntime refuses runtimes that would silently start a container without its
// share. version is as nodes report it: containerd://2.1.4.
func checkRuntime(version string) error {
	name, number, ok := strings.Cut(version, "://")
	least, known := leastRuntime[name]
	if !ok || !known {
		return fault("container runtime %q is not known to apply the CDI devices that the kubelet names: use containerd 2.0 or CRI-O 1.28 or newer", version)
	}
	major, minor, ok := majorMinor(number)
	if !ok {
		return fault("the version of container runtime %q cannot be read: use containerd 2.0 or CRI-O 1.28 or newer", version)
	}
	if major < least[0] || major == least[0] && minor < least[1] {
		return fault("%s %s would silently start containers without their shares: use %s %d.%d or newer", name, number, name, least[0], least[1])
	}
	return nil
}

// majorMinor reads the first two numbers of a version such as v2.1.4-rc.1.
func majorMinor(version string) (major, minor int, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return 0, 0, false
	}
	major, majorErr := strconv.Atoi(parts[0])
	minor, minorErr := strconv.Atoi(parts[1])
	return major, minor, majorErr == nil && minorErr == nil
}

// runtimeGate asks the node object which runtime the node has.
type runtimeGate struct {
	client kubernetes.Interface
	node   string

	mu      sync.Mutex
	version string
	asked   time.Time
}

// check returns why nothing can be prepared on this node, or nil.
func (g *runtimeGate) check(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := checkRuntime(g.version)
	if err == nil && time.Since(g.asked) < runtimeAge {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	node, readErr := g.client.CoreV1().Nodes().Get(ctx, g.node, metav1.GetOptions{})
	switch {
	case readErr == nil:
		g.version, g.asked = node.Status.NodeInfo.ContainerRuntimeVersion, time.Now()
		return checkRuntime(g.version)
	case g.version == "":
		return fmt.Errorf("read which container runtime node %s has: %w", g.node, readErr)
	}
	return err
}
