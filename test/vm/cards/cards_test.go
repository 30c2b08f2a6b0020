package cards

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// adapters are those of these tests, in the order of their rails: two on cards, two on devices that are on none.
var adapters = []string{"soft0", "soft1", "soft2", "soft3"}

// cover is the program that limits a container, where the guest has it.
const cover = "/source/build/libexec/divvy/divvy-cover"

// longest bounds every wait for something that takes a moment, on a busy machine.
const longest = time.Minute

// waitFor waits for a condition, and fails the test if it does not come.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(longest); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after %s: %s", longest, what)
		}
	}
}

// fourAdapters makes them, and returns the host as the agent reads it, with its cards.
func fourAdapters(t *testing.T) (*rdma.Host, []rdma.Card) {
	t.Helper()
	guest.Run(t, "ip", "link", "add", "left", "type", "veth", "peer", "name", "right")
	t.Cleanup(func() { guest.Run(t, "ip", "link", "delete", "left") })
	netdevs := []string{guest.Function(machine.SwitchedCard).Netdev(t), guest.Function(machine.RootedCard).Netdev(t), "left", "right"}
	for i, netdev := range netdevs {
		guest.Run(t, "ip", "link", "set", netdev, "up")
		guest.Run(t, "rdma", "link", "add", adapters[i], "type", "rxe", "netdev", netdev)
		t.Cleanup(func() { guest.Run(t, "rdma", "link", "delete", adapters[i]) })
	}
	host, cards := look(t)
	if len(cards) != len(adapters) {
		t.Fatalf("the cards are %+v of %+v", cards, host)
	}
	for i, c := range cards {
		if c.Name != adapters[i] || c.Rail != i || !c.Soft || c.Netdev() != netdevs[i] || c.OnPCI != (i < 2) {
			t.Errorf("card %d is %+v", i, c)
		}
	}
	if at := cards[1].PCI.Address.String(); at != machine.RootedCard {
		t.Errorf("%s is on %s, want the card of its network device", cards[1].Name, at)
	}
	return host, cards
}

func look(t *testing.T) (*rdma.Host, []rdma.Card) {
	t.Helper()
	root := os.DirFS("/")
	devices, err := facts.ReadUsed(root)
	if err != nil {
		t.Fatal(err)
	}
	host := rdma.Read(root, devices)
	cards, _ := host.Choose(rdma.Choice{Names: adapters}, nil)
	return host, cards
}

// A container opens the adapter that it has, and none of the others: neither by their nodes, nor by nodes that it makes itself.
func TestContainerOpensItsOwnAdapter(t *testing.T) {
	guest.Require(t)
	host, cards := fourAdapters(t)
	most := 0
	for i, card := range cards {
		c := start(t, fmt.Sprint("exact", i), given(t, host, []rdma.Part{{Card: card, Slots: 1}}, rdma.Limits{Handles: 4, Objects: 64}))
		var got []string
		for _, other := range cards {
			if c.ask("open", other.Verbs.Name) == "yes" {
				got = append(got, other.Name)
			}
			if answer := c.ask("make", fmt.Sprint(other.Verbs.Major), fmt.Sprint(other.Verbs.Minor)); answer != "operation not permitted" {
				t.Errorf("a container with %s makes a node of %s: %s", card.Name, other.Name, answer)
			}
		}
		if !slices.Equal(got, []string{card.Name}) {
			t.Errorf("a container with %s opens %v", card.Name, got)
		}
		most = max(most, len(got))
		if nodes := c.ask("nodes"); nodes != "rdma_cm "+card.Verbs.Name {
			t.Errorf("a container with %s has the nodes %s", card.Name, nodes)
		}
		c.end()
	}
	figure.Tell(t, figure.Figure{ID: "nic.exact", Values: []float64{float64(most)}, Note: "adapters that a container opened, of 4, the most of 4 containers with one each"})
}

// A container gets as many handles and objects of an adapter as it has slots for, and no more; its neighbour on the same adapter gets
// all of its own while the first one is at its limit.
func TestHandlesBeyondTheLimitAreRefused(t *testing.T) {
	guest.Require(t)
	host, cards := fourAdapters(t)
	if host.Limits != facts.Yes {
		t.Fatalf("the controller is %q", host.Limits)
	}
	each := rdma.Limits{Handles: 3, Objects: 5}
	one := start(t, "quota1", given(t, host, []rdma.Part{{Card: cards[1], Slots: 1}}, each))
	two := start(t, "quota2", given(t, host, []rdma.Part{{Card: cards[1], Slots: 2}, {Card: cards[0], Slots: 1}}, each))
	var refused, hurt int
	for _, step := range []struct {
		who        *container
		card, want int
	}{{one, 1, 3}, {two, 1, 6}, {two, 0, 3}} {
		name := cards[step.card].Verbs.Name
		if got := step.who.number("handles", name, "20"); got != step.want {
			t.Errorf("%s has %d handles of %s, want %d", step.who.id, got, name, step.want)
			hurt += max(0, step.want-got)
		} else {
			refused += 20 - got
		}
	}
	if got := one.number("objects", cards[1].Verbs.Name, "20"); got != 5 {
		t.Errorf("the first has %d objects, want 5", got)
	}
	if got := two.number("objects", cards[1].Verbs.Name, "20"); got != 10 {
		t.Errorf("the second has %d objects, want 10", got)
		hurt += 10 - got
	}
	// What a container lets go it may have again, and what ended is nobody's any more.
	if got := one.ask("close"); got != "yes" {
		t.Error(got)
	}
	if got := one.number("handles", cards[1].Verbs.Name, "20"); got != 3 {
		t.Errorf("the first has %d handles anew, want 3", got)
	}
	one.end()
	two.end()
	if hurt == 0 && refused != 17+14+17 {
		t.Errorf("%d handles were refused", refused)
	}
	figure.Tell(t, figure.Figure{ID: "nic.quota", Case: "refused", Values: []float64{float64(refused)}, Note: "handles beyond the limits, of 60 asked for by two containers on three parts of cards with 12"})
	figure.Tell(t, figure.Figure{ID: "nic.quota", Case: "neighbours hurt", Values: []float64{float64(hurt)}, Note: "handles and objects within a container's own limit that it did not get beside a neighbour at its limit"})
}

// A container without a limit of its own cannot be limited, and does not start.
func TestContainerThatCannotBeLimitedDoesNotStart(t *testing.T) {
	guest.Require(t)
	host, cards := fourAdapters(t)
	spec := given(t, host, []rdma.Part{{Card: cards[2], Slots: 1}}, rdma.Limits{Handles: 1, Objects: 1})
	for name, test := range map[string]struct{ state, fault string }{
		"no cgroup of its own": {`{"id": "none", "pid": 1}`, "has no cgroup of its own"},
		"no process":           {`{"id": "none"}`, "names no id or no process"},
		"a process that ended": {`{"id": "none", "pid": 4194304}`, "open /proc/4194304/cgroup"},
	} {
		if text, err := hook(spec, test.state); err == nil || !contains(text, test.fault) {
			t.Errorf("%s: %v: %s", name, err, text)
		}
	}
	gone := cards[2]
	gone.Name = "absent"
	c := enterIn(t, filepath.Join(pods, podUID("unknown")), "unknown")
	if text, err := hook(given(t, host, []rdma.Part{{Card: gone, Slots: 1}}, rdma.Limits{Handles: 1, Objects: 1}), c.state()); err == nil || !contains(text, "absent hca_handle=1 hca_object=1") {
		t.Errorf("an adapter that is gone: %v: %s", err, text)
	}
	c.end()
	apart := enterIn(t, filepath.Join(pods, "alone"), "apart")
	if text, err := hook(spec, apart.state()); err == nil || !contains(text, "is not in one of a pod") {
		t.Errorf("a container outside of any pod: %v: %s", err, text)
	}
	apart.end()
}

// A soft adapter is gone when its network device moves, and the card with it; a device that is down is told, and one that is renamed
// is the same card.
func TestNetdevThatChanges(t *testing.T) {
	guest.Require(t)
	_, before := fourAdapters(t)
	guest.Run(t, "ip", "link", "set", "left", "down")
	waitFor(t, "the card is told to be down", func() bool {
		_, now := look(t)
		return len(now) == 4 && now[2].Fault == "port-down"
	})
	guest.Run(t, "ip", "link", "set", "left", "name", "renamed")
	_, now := look(t)
	if now[2].Netdev() != "renamed" || now[2].Key() != before[2].Key() || *now[2].Verbs != *before[2].Verbs {
		t.Errorf("renamed it is %+v, was %+v", now[2], before[2])
	}
	guest.Run(t, "ip", "link", "set", "renamed", "name", "left")
	guest.Run(t, "ip", "netns", "add", "away")
	guest.Run(t, "ip", "link", "set", "left", "netns", "away")
	waitFor(t, "the card is gone", func() bool {
		_, now := look(t)
		return len(now) == 3
	})
	guest.Run(t, "ip", "-n", "away", "link", "set", "left", "netns", "1")
	guest.Run(t, "ip", "netns", "delete", "away")
	waitFor(t, "the device is back", func() bool {
		_, err := os.Stat("/sys/class/net/left")
		return err == nil
	})
	// So that there is one to delete at the end.
	guest.Run(t, "ip", "link", "set", "left", "up")
	guest.Run(t, "rdma", "link", "add", adapters[2], "type", "rxe", "netdev", "left")
}
