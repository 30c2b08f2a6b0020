package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// hide opens a node and has the descriptor on its way through a socket, where nobody sees who has the device open: so it is planned
// for, and then held until show is called.
func hide(t *testing.T, node string) (show func()) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	show = sync.OnceFunc(func() { _ = errors.Join(unix.Close(ends[0]), unix.Close(ends[1])) })
	t.Cleanup(show)
	file := opened(t, node)
	if err := unix.Sendmsg(ends[0], []byte{0}, unix.UnixRights(int(file.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	return show
}

func opened(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.Open(path) //nolint:gosec // a node of the guest
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// answer is what a command said, and how long that took.
type answer struct {
	err  error
	took time.Duration
}

func claiming(arguments ...string) <-chan answer {
	ended := make(chan answer, 1)
	begun := time.Now()
	go func() {
		_, err := divvy(append([]string{"vm", "claim"}, arguments...)...)
		ended <- answer{err, time.Since(begun)}
	}()
	return ended
}

// me is this process, as it is named where it holds a device.
var me = fmt.Sprintf("process %d", os.Getpid())

// stuck claims a GPU and opens its node meanwhile: the claim fails and says who holds it. It returns how long that took.
func stuck(t *testing.T, gpu guest.Function) (holder *os.File, took time.Duration) {
	t.Helper()
	show := hide(t, "/dev/nvidia0")
	claimed := claiming("first", "--pci", string(gpu), "--form", "passthrough")
	guest.WaitFor(t, "the kernel begins to take the GPU from its driver", func() bool { return gpu.Driver() == "" })
	holder = opened(t, "/dev/nvidia0")
	show()
	said := <-claimed
	if said.err == nil || !strings.Contains(said.err.Error(), "stuck") || !strings.Contains(said.err.Error(), me) {
		t.Errorf("a device that is held: %v, want that it is stuck by %s", said.err, me)
	}
	listed(t, "stuck", me)
	return holder, said.took
}

// listed sees that the list of claims has words.
func listed(t *testing.T, words ...string) {
	t.Helper()
	list, err := divvy("vm", "ls")
	for _, word := range words {
		if err != nil || !strings.Contains(list, word) {
			t.Errorf("the list has no %q: %v\n%s", word, err, list)
		}
	}
}

// returned waits until all is as before, and no claim is left.
func returned(t *testing.T, group []guest.Function, before string) {
	t.Helper()
	guest.WaitFor(t, "the device comes back", func() bool { return drivers(group) == before })
	guest.WaitFor(t, "its claim is gone", func() bool {
		list, err := divvy("vm", "ls")
		return err == nil && strings.Contains(list, nothing)
	})
}

// An agent is killed while a device is stuck. The next one serves all the same, names the holder, and notices the end.
func TestStuckOverAgents(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.Accelerator)
	gpu.Bind(t, "nvidia")
	before := drivers(gpu.Members())
	first := agent(t)
	holder, _ := stuck(t, gpu)
	killed(t, first)
	agent(t)
	listed(t, "stuck", me)
	_ = holder.Close()
	returned(t, gpu.Members(), before)
}

// Somebody opens a GPU's node after its claim was planned, so the kernel does not take it from its driver. The claim fails and names
// them, all else goes on, and the GPU comes back by itself once they close it.
func TestStuck(t *testing.T) {
	guest.Require(t)
	gpu, other := guest.Function(machine.Accelerator), guest.Function(machine.RootedCard)
	gpu.Bind(t, "nvidia")
	group := append(gpu.Members(), other)
	before := drivers(group)
	agent(t)
	holder, took := stuck(t, gpu)
	if _, err := divvy("vm", "claim", "again", "--pci", string(gpu), "--form", "passthrough"); err == nil {
		t.Error("a device that is stuck is given")
	}
	if _, err := settled("vm", "claim", "second", "--pci", string(other), "--form", "passthrough"); err != nil {
		t.Errorf("another device meanwhile: %v", err)
	}
	if _, err := settled("vm", "release", "second"); err != nil {
		t.Error(err)
	}
	_ = holder.Close()
	returned(t, group, before)
	if _, err := settled("vm", "claim", "third", "--pci", string(gpu), "--form", "passthrough"); err != nil {
		t.Errorf("a claim of the GPU that came back: %v", err)
	}
	if _, err := settled("vm", "release", "third"); err != nil {
		t.Error(err)
	}
	if after := drivers(group); after != before {
		t.Errorf("afterwards there is\n%swant\n%s", after, before)
	}
	figure.Tell(t, figure.Figure{
		ID: "vm.stuck_s", Case: "holder named by divvy vm claim", Values: []float64{took.Seconds()},
		Note: "from the start of divvy vm claim to its end, by the agent; in a guest without KVM",
	})
}

// isGone waits until the list says that a claim's device is gone.
func isGone(t *testing.T, device guest.Function) {
	t.Helper()
	listed(t, "train")
	guest.WaitFor(t, "the list says that the device is gone", func() bool {
		list, err := divvy("vm", "ls")
		return err == nil && strings.Contains(list, fmt.Sprintf("device %s is gone", device))
	})
}

// A device that is taken out of the machine while a claim has it leaves nothing behind, and is as it was once it is there again.
func TestVanishes(t *testing.T) {
	guest.Require(t)
	nvme := guest.Function(machine.RootedNVMe)
	before := drivers([]guest.Function{nvme})
	agent(t)
	if _, err := settled("vm", "claim", "train", "--pci", string(nvme), "--form", "passthrough"); err != nil {
		t.Fatal(err)
	}
	if got := nvme.Driver(); got != "vfio-pci" {
		t.Fatalf("it is bound to %q", got)
	}
	if err := nvme.Write("remove", "1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = guest.Write("/sys/bus/pci/rescan", "1") })
	isGone(t, nvme)
	if _, err := divvy("vm", "claim", "other", "--pci", string(nvme), "--form", "passthrough"); err == nil {
		t.Error("a device that is gone is given")
	}
	if _, err := settled("vm", "release", "train"); err != nil {
		t.Error(err)
	}
	listed(t, nothing)
	if err := guest.Write("/sys/bus/pci/rescan", "1"); err != nil {
		t.Fatal(err)
	}
	guest.WaitFor(t, "it is as it was", func() bool { return drivers([]guest.Function{nvme}) == before })
}

// A device that is taken out of the machine while a virtual machine has it open: the kernel waits for the virtual machine. A release is
// refused with its process meanwhile, and ends once the device is gone.
func TestVanishesUnderAVM(t *testing.T) {
	guest.Require(t)
	nvme := guest.Function(machine.RootedNVMe)
	before := drivers([]guest.Function{nvme})
	agent(t)
	out, err := settled("vm", "claim", "train", "--pci", string(nvme), "--form", "passthrough", "--user", strconv.Itoa(guest.User), "--memory", fmt.Sprintf("%dMi", guest.Memory), "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var c claim
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	vm := started(t, c.Arguments, nvme)
	removed := make(chan error, 1)
	go func() { removed <- nvme.Write("remove", "1") }()
	t.Cleanup(func() { _ = guest.Write("/sys/bus/pci/rescan", "1") })
	guest.WaitFor(t, "the kernel begins to take the device away", func() bool { return nvme.Driver() == "" })
	listed(t, "train")
	if _, err := divvy("vm", "release", "train"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", vm.Pid())) {
		t.Errorf("released under a VM, process %d: %v", vm.Pid(), err)
	}
	select {
	case err := <-removed:
		t.Errorf("the device is taken from the virtual machine: %v", err)
	default:
	}
	vm.Stop()
	if err := <-removed; err != nil {
		t.Errorf("taken out: %v", err)
	}
	if _, err := os.Stat(nvme.Path("")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	isGone(t, nvme)
	if _, err := settled("vm", "release", "train"); err != nil {
		t.Error(err)
	}
	listed(t, nothing)
	if err := guest.Write("/sys/bus/pci/rescan", "1"); err != nil {
		t.Fatal(err)
	}
	guest.WaitFor(t, "it is as it was", func() bool { return drivers([]guest.Function{nvme}) == before })
}

// An override that another tool has set is refused by its name; one that it sets meanwhile stays, and nothing is taken by it.
func TestOverrideOfAnotherTool(t *testing.T) {
	guest.Require(t)
	card := guest.Function(machine.RootedCard)
	before := drivers([]guest.Function{card})
	agent(t)
	override := func(text string) {
		t.Helper()
		if err := card.Write("driver_override", text); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		_ = card.Write("driver_override", "\n")
		_ = guest.Write("/sys/bus/pci/drivers_probe", string(card))
	})
	override("pci-stub\n")
	if _, err := settled("vm", "claim", "train", "--pci", string(card), "--form", "passthrough"); err == nil || !strings.Contains(err.Error(), "pci-stub") {
		t.Errorf("with another's override: %v, want it named", err)
	}
	override("\n")
	if after := drivers([]guest.Function{card}); after != before {
		t.Errorf("after it was refused there is\n%swant\n%s", after, before)
	}
	if _, err := settled("vm", "claim", "train", "--pci", string(card), "--form", "passthrough"); err != nil {
		t.Fatal(err)
	}
	override("pci-stub\n")
	if _, err := settled("vm", "release", "train"); err != nil {
		t.Error(err)
	}
	if got := card.Read("driver_override"); got != "pci-stub" || card.Driver() != "" {
		t.Errorf("after the release the override is %q and the driver %q, want the other's and none", got, card.Driver())
	}
	listed(t, nothing)
}
