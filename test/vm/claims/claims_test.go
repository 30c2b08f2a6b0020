package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// program is divvy, which the guest has by -with build/vm/bin.
const program = "/source/build/vm/bin/divvy"

// agent starts an agent and waits until it answers. It ends with the test.
func agent(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, append([]string{"agent", "--vm-only", "--metrics-address", "none"}, arguments...)...) //nolint:gosec,noctx // it ends with the test
	log, err := os.CreateTemp(t.TempDir(), "agent")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the agent said:\n%s", said)
		}
	})
	for {
		if _, err := divvy("vm", "ls"); err == nil {
			return cmd
		}
		select {
		case <-ended:
			t.Fatal("the agent ended before it served")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// killed ends an agent that was not asked to end, and returns once it has: the next one is refused beside it.
func killed(t *testing.T, agent *exec.Cmd) {
	t.Helper()
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	guest.WaitFor(t, "the agent has ended", func() bool { return errors.Is(agent.Process.Signal(syscall.Signal(0)), os.ErrProcessDone) })
}

func divvy(arguments ...string) (string, error) {
	cmd := exec.Command(program, arguments...) //nolint:noctx // it answers
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("divvy %s: %w: %s", strings.Join(arguments, " "), err, &said)
	}
	return string(out), err
}

// settled is divvy, again and again while a change that nobody holds up has not ended: on a slow machine each takes the kernel
// longer than the agent waits.
func settled(arguments ...string) (string, error) {
	for again := false; ; again = true {
		out, err := divvy(arguments...)
		if again && err != nil && arguments[1] == "release" && strings.Contains(err.Error(), "there is no such claim") {
			return out, nil // it ended in between
		}
		if err == nil || !slices.ContainsFunc(unsettled, func(text string) bool { return strings.Contains(err.Error(), text) }) {
			return out, err
		}
	}
}

var unsettled = []string{"cannot be read now", "the kernel does not answer now", "their number changes just now", "nobody that can be seen holds it", "the kernel is still at work", "it is being made or put back just now"}

// claim is what `divvy vm claim -o json` prints, as far as a virtual machine needs it.
type claim struct {
	Claim struct {
		Nodes   []string
		Members []string
	}
	Arguments []string
}

// drivers is the state of a group's functions: what must be as before when a claim has ended.
func drivers(members []guest.Function) string {
	var b strings.Builder
	for _, m := range members {
		fmt.Fprintf(&b, "%s driver %q override %q\n", m, m.Driver(), m.Read("driver_override"))
	}
	return b.String()
}

func owner(t *testing.T, node string) uint32 {
	t.Helper()
	info, err := os.Stat(node)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// The group of the stand-in for a vendor's driver goes to the QEMU of a plain user and comes back, over the end of an agent
// that was not asked to end.
func TestClaim(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.Accelerator)
	gpu.Bind(t, "nvidia")
	group := gpu.Members()
	before := drivers(group)
	first := agent(t)

	out, err := settled("vm", "claim", "train", "--pci", string(gpu), "--form", "passthrough", "--user", strconv.Itoa(guest.User), "--memory", fmt.Sprintf("%dMi", guest.Memory), "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = divvy("vm", "release", "train") }) // where the test failed before
	var c claim
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(c.Claim.Members) < 2 || len(c.Claim.Nodes) != 1 {
		t.Fatalf("the claim has functions %v and nodes %v, want the whole group and its node", c.Claim.Members, c.Claim.Nodes)
	}
	for _, m := range c.Claim.Members {
		if got := guest.Function(m).Driver(); got != "vfio-pci" {
			t.Errorf("%s is bound to %q", m, got)
		}
	}
	node := c.Claim.Nodes[0]
	if got := owner(t, node); got != guest.User {
		t.Errorf("%s belongs to user %d", node, got)
	}
	if _, err := divvy("vm", "claim", "other", "--pci", string(gpu), "--form", "passthrough"); err == nil || !strings.Contains(err.Error(), "claim train") {
		t.Errorf("a second claim of the device: %v", err)
	}

	vm := started(t, c.Arguments, gpu)
	killed(t, first)
	agent(t)
	if list, err := divvy("vm", "ls"); err != nil || !strings.Contains(list, "held") || !strings.Contains(list, "train") {
		t.Errorf("after the agent started again the list is: %v\n%s", err, list)
	}
	if got := owner(t, node); got != guest.User {
		t.Errorf("after the agent started again %s belongs to user %d", node, got)
	}
	if _, err := settled("vm", "release", "train"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", vm.Pid())) {
		t.Errorf("a release while the virtual machine runs: %v, want its process %d named", err, vm.Pid())
	}
	vm.Stop()
	if _, err := settled("vm", "release", "train"); err != nil {
		t.Fatal(err)
	}
	if after := drivers(group); after != before {
		t.Errorf("after the release there is\n%swant\n%s", after, before)
	}
	if _, err := os.Stat(node); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", node, err)
	}
	if list, err := divvy("vm", "ls"); err != nil || strings.Contains(list, "train") {
		t.Errorf("after the release the list is: %v\n%s", err, list)
	}
}

// started has the plain user start a QEMU with what was printed, which must show the GPU on its bus.
func started(t *testing.T, arguments []string, gpu guest.Function) *guest.VM {
	t.Helper()
	arguments = append([]string{"-nodefaults", "-no-user-config", "-display", "none", "-S", "-qmp", "stdio"}, arguments...)
	vm, err := guest.StartQEMU(t, 4*guest.Memory<<20, arguments...)
	if err != nil {
		t.Fatalf("%v with %q", err, arguments)
	}
	tree, err := vm.Tree()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("host = %q", string(gpu)),
		fmt.Sprintf("pci id %s:%s", strings.TrimPrefix(gpu.Read("vendor"), "0x"), strings.TrimPrefix(gpu.Read("device"), "0x")),
	} {
		if !strings.Contains(tree, want) {
			t.Errorf("the virtual machine does not have %s:\n%s", want, tree)
		}
	}
	return vm
}

// What cannot be is refused before anything changes, and says why.
func TestRefused(t *testing.T) {
	guest.Require(t)
	gpu := guest.Function(machine.Accelerator)
	gpu.Bind(t, "nvidia")
	before := drivers(gpu.Members())
	agent(t)
	for name, c := range map[string]struct {
		arguments []string
		want      string
	}{
		"a control sequence": {[]string{"a\x1b[2J", "--pci", string(gpu), "--form", "passthrough"}, `name "a\x1b[2J"`},
		"no function":        {[]string{"a", "--pci", string(gpu), "--form", "vf"}, "no virtual function"},
		"not there":          {[]string{"a", "--pci", "0000:ff:1f.7", "--form", "passthrough"}, "no such PCI function"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := divvy(append([]string{"vm", "claim"}, c.arguments...)...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v %s, want %q", err, out, c.want)
			}
		})
	}
	if after := drivers(gpu.Members()); after != before {
		t.Errorf("refusals left\n%swant\n%s", after, before)
	}
	if list, err := divvy("vm", "ls"); err != nil || !strings.Contains(list, nothing) {
		t.Errorf("refusals left: %v\n%s", err, list)
	}
	if left, _ := filepath.Glob("/dev/vfio/[0-9]*"); len(left) > 0 {
		t.Errorf("there are the nodes %v", left)
	}
}

// nothing is what a list says without claims.
const nothing = "No virtual machine has a device"

// A device that a process has open is refused with the process, and nothing changes; another one is claimed meanwhile.
func TestHeld(t *testing.T) {
	guest.Require(t)
	gpu, other := guest.Function(machine.Accelerator), guest.Function(machine.RootedCard)
	gpu.Bind(t, "nvidia")
	group := append(gpu.Members(), other)
	before := drivers(group)
	agent(t)
	held, err := os.Open("/dev/nvidia0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := settled("vm", "claim", "first", "--pci", string(gpu), "--form", "passthrough"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("a device that is held: %v, want process %d named", err, os.Getpid())
	}
	if _, err := settled("vm", "claim", "second", "--pci", string(other), "--form", "passthrough"); err != nil {
		t.Errorf("another device meanwhile: %v", err)
	}
	if _, err := settled("vm", "release", "second"); err != nil {
		t.Error(err)
	}
	if after := drivers(group); after != before {
		t.Errorf("there is\n%swant\n%s", after, before)
	}
	if list, err := divvy("vm", "ls"); err != nil || !strings.Contains(list, nothing) {
		t.Errorf("the list is: %v\n%s", err, list)
	}
}
