package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/internal/sysfs/sysfstest"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

const cardFolder = "sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0"

// oneCard is a node with one card, mlx5_0.
func oneCard() fstest.MapFS {
	return sysfstest.Tree(map[string]string{
		"sys/bus/pci/devices/0000:11:00.0": "->../../../" + strings.TrimPrefix(cardFolder, "sys/"),
		cardFolder + "/class":              "0x020000\n", cardFolder + "/vendor": "0x15b3\n", cardFolder + "/device": "0x1021\n",
		"sys/class/infiniband/mlx5_0":                        "->../../" + strings.TrimPrefix(cardFolder, "sys/") + "/infiniband/mlx5_0",
		cardFolder + "/infiniband/mlx5_0/ports/1/state":      "4: ACTIVE\n",
		cardFolder + "/infiniband/mlx5_0/ports/1/link_layer": "Ethernet\n",
		cardFolder + "/net/ens1/address":                     "\n",
		"sys/class/infiniband_verbs/uverbs0/ibdev":           "mlx5_0\n",
		"sys/class/infiniband_verbs/uverbs0/dev":             "231:192\n",
		"sys/fs/cgroup/cgroup.controllers":                   "rdma\n",
	})
}

func cardsIn(root fs.FS, config string, cover func() (string, error)) *cards {
	rules, err := agentconfig.Parse("agent.yaml", []byte("apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\n"+config), nil)
	if err != nil {
		panic(err)
	}
	return newCards(context.Background(), cardConfig{
		root: root, nics: rules.NICs(), cover: cover, ask: func(context.Context) (others, error) { return others{}, nil }, note: func(string) {}, clock: time.Now, log: slog.New(slog.DiscardHandler),
	})
}

func covered() (string, error) { return "/dev/shm/divvy/divvy-cover", nil }

// A card that changes is published as it is then, and one that does not wakes nobody.
func TestCardsFollowTheNode(t *testing.T) {
	root := oneCard()
	c := cardsIn(root, "nicShares: {slots: 3, handles: 5, objects: 7}", covered)
	published := func() (found []string, changed <-chan struct{}) {
		t.Helper()
		resources, err := pool.Resources("n1", nil)
		if err == nil {
			changed, err = c.add(resources, "n1")
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, slice := range resources.Pools["n1"].Slices {
			for _, d := range slice.Devices {
				text := d.Name
				if netdev := d.Attributes["netdev"].StringValue; netdev != nil {
					text += " " + *netdev
				}
				for _, taint := range d.Taints {
					text += " " + taint.Value
				}
				found = append(found, text)
			}
		}
		return found, changed
	}
	is := func(want string, change func()) {
		t.Helper()
		_, changed := published()
		change()
		c.look(t.Context())
		select {
		case <-changed:
		default:
			t.Errorf("nobody is woken for %q", want)
		}
		if got, _ := published(); strings.Join(got, ",") != want {
			t.Errorf("published is %q, want %q", got, want)
		}
	}
	const device = "nic-0000-11-00-0-shared"
	is(device+" ens1 port-down", func() { sysfstest.Set(root, cardFolder+"/infiniband/mlx5_0/ports/1/state", "1: DOWN\n") })
	is(device+" ens1", func() { sysfstest.Set(root, cardFolder+"/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n") })
	is(device+" lan0", func() {
		delete(root, cardFolder+"/net/ens1/address")
		sysfstest.Set(root, cardFolder+"/net/lan0/address", "\n")
	})
	is(device, func() {
		delete(root, cardFolder+"/net/lan0/address")
		sysfstest.Set(root, cardFolder+"/net/a b\nc/address", "\n")
	})
	is(device+" netdev-away", func() { delete(root, cardFolder+"/net/a b\nc/address") })
	_, changed := published()
	c.look(t.Context())
	select {
	case <-changed:
		t.Error("somebody is woken for nothing")
	default:
	}
	access, err := c.Access([]dra.CardPart{{Device: device, Slots: 2}})
	if err != nil || len(access.Edits.Hooks) != 1 || access.Edits.Hooks[0].Path != "/dev/shm/divvy/divvy-cover" || access.Edits.Hooks[0].Args[2] != "mlx5_0 hca_handle=10 hca_object=14" {
		t.Errorf("%+v, %v", access, err)
	}
	sysfstest.Set(root, "sys/class/infiniband_verbs/uverbs0/dev", "231:200\n")
	c.Refresh(t.Context())
	if access, err = c.Access([]dra.CardPart{{Device: device, Slots: 2}}); err != nil || access.Edits.Devices[0].Minor != 200 {
		t.Errorf("numbered anew: %+v, %v", access, err)
	}
	is("", func() { delete(root, "sys/class/infiniband/mlx5_0") })
	if _, err := c.Access([]dra.CardPart{{Device: device, Slots: 2}}); !errors.Is(err, rdma.ErrGone) {
		t.Errorf("a card that is gone: %v", err)
	}
}

// cutOff is a node of which one process was not looked through.
type cutOff struct {
	fstest.MapFS
	pid int
}

func (c cutOff) Openers([]string) ([]facts.Opener, []string, error) {
	return []facts.Opener{{PID: c.pid}}, []string{"a process could not be looked through in time"}, nil
}

// A part of a card keeps virtual machines from its function, and one of a virtual function from its card's as well.
func TestFunctionsOfCards(t *testing.T) {
	root := oneCard()
	function := strings.TrimSuffix(cardFolder, "0") + "1"
	for name, content := range map[string]string{
		"sys/bus/pci/devices/0000:11:00.1": "->../../../" + strings.TrimPrefix(function, "sys/"),
		function + "/class":                "0x020000\n", function + "/vendor": "0x15b3\n", function + "/device": "0x1022\n", function + "/physfn": "->../0000:11:00.0",
		"sys/class/infiniband/mlx5_1":                       "->../../" + strings.TrimPrefix(function, "sys/") + "/infiniband/mlx5_1",
		function + "/infiniband/mlx5_1/ports/1/state":       "4: ACTIVE\n",
		"sys/class/infiniband_verbs/uverbs1/ibdev":          "mlx5_1\n",
		"sys/class/infiniband_verbs/uverbs1/dev":            "231:193\n",
		"sys/class/infiniband/rxe0":                         "->../../devices/virtual/infiniband/rxe0",
		"sys/devices/virtual/infiniband/rxe0/parent":        "ens1\n",
		"sys/class/net/ens1":                                "->../../" + strings.TrimPrefix(cardFolder, "sys/") + "/net/ens1",
		"sys/class/infiniband_verbs/uverbs2/ibdev":          "rxe0\n",
		"sys/class/infiniband_verbs/uverbs2/dev":            "231:194\n",
		"sys/devices/virtual/infiniband/rxe0/ports/1/state": "4: ACTIVE\n",
	} {
		sysfstest.Set(root, name, content)
	}
	c := cardsIn(root, "", covered)
	for device, want := range map[string]string{
		"nic-0000-11-00-0-shared": "[0000:11:00.0]", "nic-0000-11-00-1-vf": "[0000:11:00.0 0000:11:00.1]", "nic-soft-rxe0-shared": "[0000:11:00.0]",
	} {
		if got, err := c.Functions([]dra.CardPart{{Device: device}}); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v, want %s", device, got, err, want)
		}
	}
	if _, err := c.Functions([]dra.CardPart{{Device: "nic-0000-12-00-0-shared"}}); !errors.Is(err, rdma.ErrGone) {
		t.Errorf("a card that is gone: %v", err)
	}
	openers := func(want string, parts ...dra.CardPart) {
		t.Helper()
		if got, err := c.Openers(parts); err != nil || fmt.Sprint(got) != want {
			t.Errorf("openers of %v are %v, %v, want %s", parts, got, err, want)
		}
	}
	for name, content := range map[string]string{
		"sys/dev/char/231:193": "->../../" + strings.TrimPrefix(function, "sys/") + "/infiniband_verbs/uverbs1", function + "/infiniband_verbs/uverbs1/uevent": "DEVNAME=infiniband/uverbs1\n",
		"sys/dev/char/231:192": "->../../" + strings.TrimPrefix(cardFolder, "sys/") + "/infiniband_verbs/uverbs0", cardFolder + "/infiniband_verbs/uverbs0/uevent": "DEVNAME=infiniband/uverbs0\n",
		"proc/812/fd/4": "->/dev/infiniband/uverbs1", "proc/812/comm": "ib_write_bw\n", "proc/812/cgroup": "0::/docker/" + strings.Repeat("ab", 32) + "\n",
		"proc/813/fd/4": "->/dev/infiniband/uverbs1", "proc/813/comm": "ibacm\n", "proc/813/cgroup": "0::/system.slice\n",
		"proc/814/fd/4": "->/dev/infiniband/uverbs0", "proc/814/comm": "python\n", "proc/814/cgroup": "0::/docker/" + strings.Repeat("cd", 32) + "\n",
	} {
		sysfstest.Set(root, name, content)
	}
	openers("[{812 ib_write_bw infiniband/uverbs1 abababababab}]", dra.CardPart{Device: "nic-0000-12-00-0-vf"}, dra.CardPart{Device: "nic-0000-11-00-1-vf"})
	openers("[]", dra.CardPart{Device: "nic-0000-11-00-0-shared", Slots: 1}, dra.CardPart{Device: "nic-0000-12-00-0-vf"})
	part := []dra.CardPart{{Device: "nic-0000-11-00-1-vf"}}
	for pid, kept := range map[int]bool{812: true, 813: false, 999: false} { // one in a container, a daemon and one that has ended
		if got, err := cardsIn(cutOff{root, pid}, "", covered).Openers(part); len(got) > 0 || (err != nil) != kept || kept && !strings.Contains(err.Error(), "process 812 (ib_write_bw) in container abababababab") {
			t.Errorf("process %d was not looked through: %v, %v", pid, got, err)
		}
	}
	limited := func(want string, parts ...dra.CardPart) {
		t.Helper()
		if got, err := c.Limited(parts); err != nil || fmt.Sprint(got) != want {
			t.Errorf("limited are %v, %v, want %s", got, err, want)
		}
	}
	shared, alone := dra.CardPart{Device: "nic-soft-rxe0-shared", Slots: 1}, dra.CardPart{Device: "nic-0000-11-00-1-vf"}
	limited("[0000:11:00.0]", shared, alone)
	limited("[]", alone)
	c.host.Limits = facts.No // then there is no hook
	limited("[]", shared)
}

// Cards are left to others, or taken by name; a program that cannot be installed gives nobody a card without its limits.
func TestCardsByConfiguration(t *testing.T) {
	if c := cardsIn(oneCard(), "nics: off", covered); c != nil {
		t.Error("cards are not left to others")
	}
	count := func(c *cards) int {
		resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}
		if _, err := c.add(resources, "n1"); err != nil {
			t.Fatal(err)
		}
		return len(resources.Pools["n1"].Slices)
	}
	if got := count(cardsIn(oneCard(), "nics: [mlx5_7]", covered)); got != 0 {
		t.Errorf("%d slices of another card", got)
	}
	broken := errors.New("no room")
	c := cardsIn(oneCard(), "nics: [ens1]", func() (string, error) { return "", broken })
	if got := count(c); got != 1 {
		t.Errorf("%d slices", got)
	}
	if _, err := c.Access([]dra.CardPart{{Device: "nic-0000-11-00-0-shared", Slots: 1}}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
