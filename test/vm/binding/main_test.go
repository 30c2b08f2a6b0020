package binding

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// The agent that is killed is this program again: acting names the book, and last after which step it kills itself.
const (
	acting = "VM_AGENT"
	last   = "VM_LAST"
	pauses = "VM_PAUSE"
	holds  = "VM_HOLD"
)

func TestMain(m *testing.M) {
	status := 0
	switch {
	case len(os.Args) == 3 && os.Args[1] == vfio.Command:
		status = said(vfio.Main(os.Args[2]))
	case os.Getenv(holds) != "":
		status = said(hold(os.Getenv(holds)))
	case os.Getenv(acting) != "":
		status = said(act(os.Getenv(acting), os.Getenv(last)))
	default:
		status = m.Run()
	}
	os.Exit(status)
}

func said(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// hold opens a node, says so, and keeps it until its standard input ends.
func hold(node string) error {
	file, err := os.Open(node) //nolint:gosec // a node of the guest
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Println("held")
	_, err = new(bytes.Buffer).ReadFrom(os.Stdin)
	return err
}

// act is the life of an agent: it has the accelerator given, and puts it back.
func act(path, after string) error {
	limit, err := strconv.Atoi(after)
	if err != nil {
		return err
	}
	steps := 0
	b, err := book(path, func(string) {
		if steps++; steps > limit {
			_ = unix.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}, nil)
	if err != nil {
		return err
	}
	defer b.Close()
	plan, err := plan(machine.Accelerator)
	if err != nil {
		return err
	}
	if os.Getenv(pauses) != "" { // somebody opens the node meanwhile
		fmt.Println("planned")
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
			return err
		}
	}
	ctx := context.Background()
	err = b.Bind(ctx, "ada", plan)
	if stuck := (*vfio.StuckError)(nil); errors.As(err, &stuck) {
		fmt.Println("stuck")
		select {} // until it is killed
	}
	if err != nil {
		return err
	}
	_, err = b.Release(ctx, "ada")
	return err
}

// limits are an agent's, but that a write of which nobody is seen in the way may take as long as this machine needs.
var limits = vfio.Limits{Look: vfio.Usual.Look, Write: time.Minute}

// book opens a book of the guest's devices.
func book(path string, step func(string), late func(vfio.Entry, bool, []vfio.Foreign, error)) (*vfio.Book, error) {
	return vfio.Open(vfio.Config{
		Path: path, Limits: limits, Step: step, Late: late,
		Machine: vfio.Host{Root: "/", Program: "/proc/self/exe", Args: []string{vfio.Command}},
	})
}

func open(t *testing.T, path string, late func(vfio.Entry, bool, []vfio.Foreign, error)) *vfio.Book {
	t.Helper()
	b, err := book(path, nil, late)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// plan plans to give a function of the guest, by what the guest tells now.
func plan(device guest.Function) (binding.Plan, error) {
	host, err := facts.Read(vfio.Files("/"))
	if err != nil {
		return binding.Plan{}, err
	}
	at, err := pci.ParseAddress(string(device))
	if err != nil {
		return binding.Plan{}, err
	}
	if d, _ := host.Find(at); d.Virtual {
		return binding.Function(host, at)
	}
	return binding.Passthrough(host, at)
}

func planned(t *testing.T, device guest.Function) binding.Plan {
	t.Helper()
	p, err := plan(device)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// snapshot tells drivers and overrides of all functions of the guest, and the vendor's nodes.
func snapshot(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir("/sys/bus/pci/devices")
	must(t, err)
	var w strings.Builder
	for _, entry := range entries {
		f := guest.Function(entry.Name())
		fmt.Fprintf(&w, "%s %q %q\n", f, f.Driver(), f.Read("driver_override"))
	}
	fmt.Fprintln(&w, guest.Nodes())
	return w.String()
}

func fileName(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), vfio.FileName)
}
