package rdma

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

const hook = Hook("/dev/shm/divvy/divvy-cover")

func cardsOf(t *testing.T, h *Host) []Card {
	t.Helper()
	cards, _ := h.Choose(Choice{Names: []string{"mlx5_0", "mlx5_1", "mlx5_2"}}, nil)
	if len(cards) != 3 {
		t.Fatalf("%d cards", len(cards))
	}
	return cards
}

func TestAccess(t *testing.T) {
	h := read(t, map[string]string{"proc/self/limits": "Max locked memory         8388608              8388608              bytes\n"})
	cards := cardsOf(t, h)
	a, err := h.Access([]Part{{cards[1], 2}, {cards[0], 1}, {cards[2], 0}, {cards[1], 1}}, Limits{Handles: 8, Objects: 100}, hook)
	if err != nil {
		t.Fatal(err)
	}
	node := func(name string, major, minor uint32) edits.Device {
		return edits.Device{Path: "/dev/infiniband/" + name, Source: "/dev/infiniband/" + name, Major: major, Minor: minor}
	}
	want := edits.Edits{
		Devices: []edits.Device{node("uverbs1", 231, 193), node("uverbs0", 231, 192), node("uverbs2", 231, 194), node("rdma_cm", 10, 58)},
		Hooks: []edits.Hook{{Path: string(hook), Outside: true, Args: []string{
			"divvy-cover", "--rdma", "mlx5_1 hca_handle=24 hca_object=300", "mlx5_0 hca_handle=8 hca_object=100",
		}}},
		Env: []edits.Env{{Name: "NCCL_IB_HCA", Value: "=mlx5_1,mlx5_0,mlx5_2"}},
	}
	if !reflect.DeepEqual(a.Edits, want) {
		t.Errorf("got  %+v\nwant %+v", a.Edits, want)
	}
	told := strings.Join(a.Told, "\n")
	for _, part := range []string{"mlx5_1: uverbs1, shared, at most 24 handles and 300 objects", "mlx5_2: uverbs2, alone", "lock 8192 KiB of memory"} {
		if !strings.Contains(told, part) {
			t.Errorf("no %q in\n%s", part, told)
		}
	}
}

// The kernel counts in 31 bits, and its largest number is no limit.
func TestAccessBeyondWhatTheKernelCounts(t *testing.T) {
	h := read(t, nil)
	a, err := h.Access([]Part{{cardsOf(t, h)[0], 1000}}, Limits{Handles: 1000, Objects: 1_000_000_000}, hook)
	if err != nil || len(a.Edits.Hooks) != 1 || !slices.Contains(a.Edits.Hooks[0].Args, "mlx5_0 hca_handle=1000000 hca_object=2147483646") {
		t.Errorf("%+v, %v", a.Edits.Hooks, err)
	}
}

// What does not hold is told.
func TestAccessTellsWhatDoesNotHold(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
		hooks int
	}{
		"no controller":         {map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu\n"}, "no cgroup controller rdma", 0},
		"no connection manager": {map[string]string{"sys/class/misc/rdma_cm/dev": "-"}, "no rdma_cm", 1},
		"one namespace each":    {map[string]string{"sys/module/ib_core/parameters/netns_mode": "N\n"}, "one network namespace alone", 1},
	} {
		h := read(t, test.files)
		a, err := h.Access([]Part{{cardsOf(t, h)[0], 1}}, Limits{8, 100}, hook)
		if err != nil || len(a.Edits.Hooks) != test.hooks || !strings.Contains(strings.Join(a.Told, "\n"), test.want) {
			t.Errorf("%s: %q, %d hooks, %v", name, a.Told, len(a.Edits.Hooks), err)
		}
	}
	h := read(t, map[string]string{"proc/self/limits": "Max locked memory  unlimited  unlimited  bytes\n"})
	if a, err := h.Access([]Part{{cardsOf(t, h)[0], 1}}, Limits{8, 100}, hook); err != nil || len(a.Told) != 1 {
		t.Errorf("%q, %v", a.Told, err)
	}
}

// Where it is not known whether a part is limited nobody gets one; a function is a tenant's alone, and has no limits.
func TestAccessWithoutKnownLimits(t *testing.T) {
	h := read(t, map[string]string{"sys/fs/cgroup/cgroup.controllers": "-"})
	cards := cardsOf(t, h)
	if a, err := h.Access([]Part{{cards[2], 0}, {cards[0], 1}}, Limits{8, 100}, hook); err == nil || !strings.Contains(err.Error(), "cannot be read whether this node's kernel limits") || errors.Is(err, ErrGone) {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := h.Access([]Part{{cards[2], 0}}, Limits{8, 100}, hook); err != nil || len(a.Edits.Hooks) != 0 || len(a.Edits.Devices) != 2 {
		t.Errorf("%+v, %v", a, err)
	}
}

// However parts come, a container gets the nodes of its own adapters and the connection manager, each once, and never a node by
// which the fabric is administered.
func FuzzAccess(f *testing.F) {
	f.Add([]byte{0, 1, 2, 0x11, 0x20})
	f.Fuzz(func(t *testing.T, parts []byte) {
		h := read(t, map[string]string{"sys/class/infiniband_mad/umad0/ibdev": "mlx5_0\n", "sys/class/infiniband_mad/umad0/dev": "231:0\n", "sys/class/infiniband_mad/issm0/dev": "231:64\n"})
		cards := cardsOf(t, h)
		var asked []Part
		own := map[string]bool{"/dev/infiniband/rdma_cm": len(parts) > 0}
		for _, b := range parts {
			card := cards[int(b&15)%len(cards)]
			asked = append(asked, Part{card, int(b >> 4)})
			own["/dev/infiniband/"+card.Verbs.Name] = true
		}
		a, err := h.Access(asked, Limits{1, 1}, hook)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range a.Edits.Devices {
			if !own[d.Path] || d.Source != d.Path || slices.Contains(got, d.Path) {
				t.Errorf("%s is given", d.Path)
			}
			got = append(got, d.Path)
		}
		delete(own, "")
		if want := len(own); len(parts) > 0 && len(got) != want {
			t.Errorf("given are %v, want %d", got, want)
		}
	})
}

func TestAccessToNothing(t *testing.T) {
	h := read(t, nil)
	if a, err := h.Access(nil, Limits{1, 1}, hook); err != nil || !reflect.DeepEqual(a, Access{}) {
		t.Errorf("%+v, %v", a, err)
	}
	gone := cardsOf(t, h)[0]
	gone.Verbs = nil
	if _, err := h.Access([]Part{{gone, 1}}, Limits{1, 1}, hook); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	odd := cardsOf(t, h)[0]
	odd.Name = "a hca_handle=max"
	if _, err := h.Access([]Part{{odd, 1}}, Limits{1, 1}, hook); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
}

// Containers can have limits on cards and on what soft adapters are on, unless the kernel has no limits; virtual functions they have alone.
func TestLimitable(t *testing.T) {
	cards := []pci.Address{{Bus: 0x14}, {Bus: 0x81}}
	for name, test := range map[string]struct {
		files map[string]string
		want  []pci.Address
	}{
		"cards":         {nil, cards},
		"not known":     {map[string]string{"sys/fs/cgroup/cgroup.controllers": "-"}, cards},
		"no controller": {map[string]string{"sys/fs/cgroup/cgroup.controllers": "cpu\n"}, nil},
	} {
		if got := read(t, test.files).Limitable(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	h := read(t, nil)
	soft := h.find(t, "mlx5_2")
	soft.Soft = true
	if got := h.Limitable(); !slices.Equal(got, append(cards, pci.Address{Bus: 0x81, Function: 1})) {
		t.Errorf("with a soft adapter on a virtual function: %v", got)
	}
}

func TestLocked(t *testing.T) {
	for text, want := range map[string]int64{
		"Max locked memory  65536  65536  bytes\n": 65536, "Max locked memory  unlimited  unlimited  bytes\n": facts.Unlimited, "": -1, "Max locked memory\n": -1,
		"Max locked memory  -5  1  bytes\n": -1,
	} {
		if got := read(t, map[string]string{"proc/self/limits": text, "proc/self/status": "CapEff:\tffffffffffffffff\n"}).Locked; got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
