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

// attach adds a namespace to a network, by the name net1, until the test ends. It returns the namespace's address there.
func attach(t *testing.T, namespace string, plugin map[string]any) string {
	t.Helper()
	plugin["ipam"] = map[string]any{"type": "host-local", "subnet": "10.9.0.0/24", "rangeStart": "10.9.0.50", "dataDir": "/run/cni"}
	text, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "rail", "plugins": []any{plugin}})
	if err != nil {
		t.Fatal(err)
	}
	network, err := libcni.ConfListFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	runner := libcni.NewCNIConfigWithCacheDir([]string{installtest.Root(t) + "/" + plugins}, "/run/cni-results", nil)
	pod := &libcni.RuntimeConf{ContainerID: namespace, NetNS: "/run/netns/" + namespace, IfName: "net1"}
	answer, err := runner.AddNetworkList(t.Context(), network, pod)
	if err != nil {
		t.Fatalf("attach %s by %s: %v", namespace, plugin["type"], err)
	}
	t.Cleanup(func() {
		// The test's own context has ended by then.
		if err := runner.DelNetworkList(context.WithoutCancel(t.Context()), network, pod); err != nil {
			t.Errorf("detach %s: %v", namespace, err)
		}
	})
	given, err := types.GetResult(answer)
	if err != nil || len(given.IPs) != 1 {
		t.Fatalf("%s gets %v, %v; want one address", namespace, answer, err)
	}
	return given.IPs[0].Address.IP.String()
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
