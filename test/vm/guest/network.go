package guest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Run runs a program of the guest and returns what it prints. It fails the test where the program fails.
func Run(t testing.TB, arguments ...string) string {
	t.Helper()
	text, err := exec.Command(arguments[0], arguments[1:]...).CombinedOutput() //nolint:gosec,noctx // it ends with the guest at the latest
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(arguments, " "), err, text)
	}
	return string(text)
}

// Netdev returns the network device of a card.
func (f Function) Netdev(t testing.TB) string {
	t.Helper()
	entries, err := os.ReadDir(f.Path("net"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("%s has %d network devices, %v; want 1", f, len(entries), err)
	}
	return entries[0].Name()
}

// Adapter makes a soft-RoCE adapter of a card, with one address. It ends with the test: before, everything that has it
// open must have ended, because the kernel waits for that beyond any signal.
func Adapter(t testing.TB, name string, card Function, address string) {
	t.Helper()
	device := card.Netdev(t)
	Run(t, "ip", "address", "add", address+"/24", "dev", device)
	t.Cleanup(func() { Run(t, "ip", "address", "del", address+"/24", "dev", device) })
	Run(t, "ip", "link", "set", device, "up")
	Run(t, "rdma", "link", "add", name, "type", "rxe", "netdev", device)
	t.Cleanup(func() { Run(t, "rdma", "link", "delete", name) })
}

// Namespace makes a network namespace, which ends with the test.
func Namespace(t testing.TB, name string) {
	t.Helper()
	Run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { Run(t, "ip", "netns", "del", name) })
}

// In returns a command that runs in a network namespace, of which "" is the first.
func In(namespace string, arguments ...string) []string {
	if namespace == "" {
		return arguments
	}
	return append([]string{"ip", "netns", "exec", namespace}, arguments...)
}

// GID returns the index of an adapter's GID that stands for an IPv4 address, as a namespace shows it, or an error while there
// is none.
func GID(namespace, adapter, address string) (string, error) {
	list := In(namespace, "ibv_devinfo", "-v", "-d", adapter)
	text, err := exec.Command(list[0], list[1:]...).CombinedOutput() //nolint:gosec,noctx // it ends in a moment
	if err != nil {
		return "", fmt.Errorf("list the GIDs of %s: %w: %s", adapter, err, text)
	}
	for line := range strings.Lines(string(text)) {
		head, gid, found := strings.Cut(strings.TrimSpace(line), ":\t")
		index, is := strings.CutPrefix(head, "GID[")
		if found && is && strings.HasPrefix(strings.TrimSpace(gid), "::ffff:"+address+",") {
			return strings.TrimSpace(strings.TrimSuffix(index, "]")), nil
		}
	}
	return "", fmt.Errorf("%s has no GID for %s:\n%s", adapter, address, text)
}
