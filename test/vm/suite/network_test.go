package suite

import (
	"fmt"
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// Two processes send to each other through a soft-RoCE adapter.
func TestTraffic(t *testing.T) {
	guest.Require(t)
	guest.Adapter(t, "soft", machine.RootedCard, "10.9.0.1")
	both := guest.End{Namespace: "", Adapter: "soft", Address: "10.9.0.1"}
	guest.Exchange(t, both, both)
}

// Two processes send to each other from network namespaces of their own: each with a macvlan device on one card, whose
// adapter they share, and each with a virtual function of its own.
func TestTrafficBetweenNamespaces(t *testing.T) {
	guest.Require(t)
	for name, ends := range map[string]func(t *testing.T) (one, other guest.End){"macvlan": shared, "moved": moved} {
		t.Run(name, func(t *testing.T) {
			one, other := ends(t)
			guest.Exchange(t, one, other)
		})
	}
}

func shared(t *testing.T) (one, other guest.End) {
	t.Helper()
	guest.Adapter(t, "shared", machine.RootedCard, "10.9.0.1")
	card := guest.Function(machine.RootedCard).Netdev(t)
	one, other = guest.End{Namespace: "one", Adapter: "shared", Address: "10.9.0.11"}, guest.End{Namespace: "other", Adapter: "shared", Address: "10.9.0.12"}
	for i, e := range []guest.End{one, other} {
		device := fmt.Sprintf("mac%d", i)
		guest.Namespace(t, e.Namespace)
		guest.Run(t, "ip", "link", "add", device, "link", card, "netns", e.Namespace, "type", "macvlan", "mode", "bridge")
		address(t, e, device)
	}
	return one, other
}

func moved(t *testing.T) (one, other guest.End) {
	t.Helper()
	one, other = guest.End{Namespace: "one", Adapter: "first", Address: "10.9.0.21"}, guest.End{Namespace: "other", Adapter: "second", Address: "10.9.0.22"}
	for card, e := range map[guest.Function]guest.End{machine.RootedCard: one, machine.SwitchedCard: other} {
		guest.Run(t, "ip", "link", "set", card.Netdev(t), "up")
		function := card.Enable(t, 1)[0]
		function.Bind(t, "igbvf")
		device := function.Netdev(t)
		guest.Namespace(t, e.Namespace)
		guest.Run(t, "ip", "link", "set", device, "netns", e.Namespace)
		address(t, e, device)
		// The adapter of a device ends when the device moves, so it is made where the device is.
		guest.Run(t, guest.In(e.Namespace, "rdma", "link", "add", e.Adapter, "type", "rxe", "netdev", device)...)
		t.Cleanup(func() { guest.Run(t, guest.In(e.Namespace, "rdma", "link", "delete", e.Adapter)...) })
	}
	return one, other
}

// address gives a device in a namespace its address.
func address(t *testing.T, e guest.End, device string) {
	t.Helper()
	guest.Run(t, "ip", "-n", e.Namespace, "address", "add", e.Address+"/24", "dev", device)
	guest.Run(t, "ip", "-n", e.Namespace, "link", "set", device, "up")
}

// The two cards are wired to each other: each gets a link.
func TestCardsAreWired(t *testing.T) {
	guest.Require(t)
	for _, card := range []guest.Function{machine.SwitchedCard, machine.RootedCard} {
		device := card.Netdev(t)
		guest.Run(t, "ip", "link", "set", device, "up")
		guest.WaitFor(t, device+" has a link", func() bool { return card.Read("net/"+device+"/carrier") == "1" })
	}
}

// A soft-RoCE adapter ends when its device goes to another namespace.
func TestAdapterEndsWithAMove(t *testing.T) {
	guest.Require(t)
	device := guest.Function(machine.RootedCard).Netdev(t)
	guest.Run(t, "rdma", "link", "add", "moved", "type", "rxe", "netdev", device)
	if _, err := os.Stat("/sys/class/infiniband/moved"); err != nil {
		t.Fatal(err)
	}
	guest.Run(t, "ip", "netns", "add", "other")
	guest.Run(t, "ip", "link", "set", device, "netns", "other")
	guest.WaitFor(t, "the adapter is gone", func() bool {
		_, err := os.Stat("/sys/class/infiniband/moved")
		return os.IsNotExist(err)
	})
	guest.Run(t, "ip", "-n", "other", "link", "set", device, "netns", "1")
	guest.Run(t, "ip", "netns", "del", "other")
	if got := guest.Function(machine.RootedCard).Netdev(t); got != device {
		t.Errorf("the card has the device %s, want %s", got, device)
	}
}
