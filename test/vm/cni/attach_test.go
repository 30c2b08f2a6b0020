package cni

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	types "github.com/containernetworking/cni/pkg/types/100"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// plugins is where the guest has them, from the root of the source tree.
const plugins = "build/vm/cni"

// attached is a namespace that is added to a network, by the name net1.
type attached struct {
	t       *testing.T
	name    string
	network *libcni.NetworkConfigList
	runner  *libcni.CNIConfig
	tried   bool
}

// pod is a namespace that can be added to a network.
func pod(t *testing.T, namespace string, plugin map[string]any) *attached {
	t.Helper()
	text, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "rail", "plugins": []any{plugin}})
	if err != nil {
		t.Fatal(err)
	}
	network, err := libcni.ConfListFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	runner := libcni.NewCNIConfigWithCacheDir([]string{installtest.Root(t) + "/" + plugins}, "/run/cni-results", nil)
	return &attached{t: t, name: namespace, network: network, runner: runner}
}

// runtime is what a container runtime tells plugins of a pod.
func (a *attached) runtime() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: a.name, NetNS: "/run/netns/" + a.name, IfName: "net1",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", a.name}},
	}
}

// joining is how it went: the namespace's address in the network, or why it has none.
type joining struct {
	pod     *attached
	address string
	err     error
}

func (a *attached) join() joining {
	j := joining{pod: a}
	a.tried = true
	answer, err := a.runner.AddNetworkList(a.t.Context(), a.network, a.runtime())
	if err != nil {
		j.err = err
		return j
	}
	given, err := types.GetResult(answer)
	if err != nil || len(given.IPs) != 1 {
		j.err = fmt.Errorf("it gets %v, %w; want one address", answer, err)
		return j
	}
	j.address = given.IPs[0].Address.IP.String()
	return j
}

// leave takes the namespace from its network, also where it did not come to be in one, as runtimes do.
func (a *attached) leave() {
	if !a.tried {
		return
	}
	a.tried = false
	// The test's own context may have ended.
	if err := a.runner.DelNetworkList(context.WithoutCancel(a.t.Context()), a.network, a.runtime()); err != nil {
		a.t.Errorf("detach %s: %v", a.name, err)
	}
}

// attach adds a namespace to a network until the test ends, with an address of host-local. It returns the address.
func attach(t *testing.T, namespace string, plugin map[string]any) string {
	t.Helper()
	plugin["ipam"] = map[string]any{"type": "host-local", "subnet": "10.9.0.0/24", "rangeStart": "10.9.0.50", "dataDir": "/run/cni"}
	a := pod(t, namespace, plugin)
	j := a.join()
	t.Cleanup(a.leave)
	if j.err != nil {
		t.Fatalf("attach %s by %s: %v", namespace, plugin["type"], j.err)
	}
	return j.address
}

// Processes in two network namespaces send to each other: each with a macvlan device on one card, whose adapter they share,
// and each with a virtual function that was moved to it.
func TestTraffic(t *testing.T) {
	guest.Require(t)
	ways := []struct {
		name string
		ends func(t *testing.T) (one, other guest.End)
	}{{"macvlan on a shared card", shared}, {"moved virtual functions", moved}}
	var passed []string
	for _, way := range ways {
		if t.Run(way.name, func(t *testing.T) {
			one, other := way.ends(t)
			guest.Exchange(t, one, other)
		}) {
			passed = append(passed, way.name)
		}
	}
	figure.Tell(t, figure.Figure{
		ID: "nic.traffic", Values: []float64{float64(len(passed))},
		Note: fmt.Sprintf("of %d: %s; attached by CNI's plugins 1.9.1, soft-RoCE made to work in namespaces by a module of ours", len(ways), strings.Join(passed, ", ")),
	})
}

func shared(t *testing.T) (one, other guest.End) {
	t.Helper()
	guest.Adapter(t, "shared", machine.RootedCard, "10.9.0.1")
	card := guest.Function(machine.RootedCard).Netdev(t)
	ends := []guest.End{{Namespace: "one", Adapter: "shared"}, {Namespace: "other", Adapter: "shared"}}
	for i := range ends {
		guest.Namespace(t, ends[i].Namespace)
		ends[i].Address = attach(t, ends[i].Namespace, map[string]any{"type": "macvlan", "master": card, "mode": "bridge"})
	}
	return ends[0], ends[1]
}

func moved(t *testing.T) (one, other guest.End) {
	t.Helper()
	ends := []guest.End{{Namespace: "one", Adapter: "first"}, {Namespace: "other", Adapter: "second"}}
	for i, card := range []guest.Function{machine.RootedCard, machine.SwitchedCard} {
		e := &ends[i]
		guest.Run(t, "ip", "link", "set", card.Netdev(t), "up")
		function := card.Enable(t, 1)[0]
		function.Bind(t, "igbvf")
		guest.Namespace(t, e.Namespace)
		e.Address = attach(t, e.Namespace, map[string]any{"type": "host-device", "pciBusID": string(function)})
		// The adapter of a device ends when the device moves, so it is made where the device is.
		guest.Run(t, guest.In(e.Namespace, "rdma", "link", "add", e.Adapter, "type", "rxe", "netdev", "net1")...)
		t.Cleanup(func() { guest.Run(t, guest.In(e.Namespace, "rdma", "link", "delete", e.Adapter)...) })
	}
	return ends[0], ends[1]
}

// An ipvlan device has its card's address on the wire and one of its own above that.
func TestIPVLAN(t *testing.T) {
	guest.Require(t)
	card := guest.Function(machine.RootedCard).Netdev(t)
	guest.Run(t, "ip", "link", "set", card, "up")
	guest.Namespace(t, "one")
	address := attach(t, "one", map[string]any{"type": "ipvlan", "master": card})
	if shown := guest.Run(t, "ip", "-n", "one", "address", "show", "dev", "net1"); !strings.Contains(shown, "inet "+address+"/24") {
		t.Errorf("the namespace has\n%s, want %s", shown, address)
	}
	if _, err := os.Stat("/sys/class/net/" + card); err != nil {
		t.Errorf("the card has left the first namespace: %v", err)
	}
}
