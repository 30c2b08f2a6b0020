package vmtest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Kernel is a model of what the kernel does with the drivers of PCI functions when somebody writes below /sys. Several
// goroutines may use it.
type Kernel struct {
	mu        sync.Mutex
	functions map[pci.Address]*function
	drivers   map[string]bool
	resets    map[pci.Address]int
	held      map[pci.Address]chan struct{}
}

// function is a PCI function; home is the driver that takes it where nothing else is said. A function that can have virtual ones
// has them.
type function struct {
	driver, override, home string
	virtual                *virtual
	// of is what the physical function has, for a virtual one that was enabled.
	of *virtual
}

// NewKernel is the kernel of a host.
func NewKernel(host *facts.Host) *Kernel {
	k := &Kernel{functions: map[pci.Address]*function{}, drivers: map[string]bool{binding.Driver: true}, resets: map[pci.Address]int{}, held: map[pci.Address]chan struct{}{}}
	for _, d := range host.Devices {
		f := &function{driver: d.Driver, override: d.Override, home: d.Driver}
		if d.Override != "" {
			f.home = ""
		}
		if d.VFsTotal > 0 {
			f.virtual = &virtual{total: d.VFsTotal, now: d.VFs, probed: true}
		}
		k.functions[d.Address] = f
		if d.Driver != "" {
			k.drivers[d.Driver] = true
		}
	}
	return k
}

// Snapshot tells driver and override of each function, in one line each.
func (k *Kernel) Snapshot() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var w strings.Builder
	for _, at := range slices.SortedFunc(maps.Keys(k.functions), pci.Address.Compare) {
		f := k.functions[at]
		fmt.Fprintf(&w, "%s driver=%q override=%q%s\n", at, f.driver, f.override, f.virtual)
	}
	return w.String()
}

// Resets is how often a function was reset.
func (k *Kernel) Resets(at pci.Address) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.resets[at]
}

// Hold has whoever takes a function from its driver wait until release is called.
func (k *Kernel) Hold(at pci.Address) (release func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	free := make(chan struct{})
	k.held[at] = free
	return sync.OnceFunc(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.held, at)
		close(free)
	})
}

// Remove takes a function away, as unplugging does.
func (k *Kernel) Remove(at pci.Address) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.functions, at)
}

// Unload takes a driver away.
func (k *Kernel) Unload(driver string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.drivers, driver)
}

// Exists tells whether there is a folder or file below /sys.
func (k *Kernel) Exists(path string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if name, found := strings.CutPrefix(path, "bus/pci/drivers/"); found {
		return k.drivers[name]
	}
	at, _, err := k.place(path)
	return err == nil && k.functions[at] != nil
}

// State is what a file or link tells.
func (k *Kernel) State(s binding.State) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, file, err := k.place(s.Path)
	if err != nil {
		return "", err
	}
	f := k.functions[at]
	switch {
	case f == nil:
		return "", nil
	case s.Link && file == "driver":
		return f.driver, nil
	case !s.Link && file == "driver_override":
		return f.override, nil
	case f.virtual != nil:
		return f.virtual.state(s.Path, file)
	}
	return "", fmt.Errorf("read %s: %w", s.Path, fs.ErrNotExist)
}

func (k *Kernel) place(path string) (at pci.Address, file string, err error) {
	rest, found := strings.CutPrefix(path, "bus/pci/devices/")
	if !found {
		return at, "", fmt.Errorf("read %s: %w", path, fs.ErrNotExist)
	}
	name, file, _ := strings.Cut(rest, "/")
	at, err = pci.ParseAddress(name)
	return at, file, err
}

// Write does what the kernel does for a write. It returns when the kernel would.
func (k *Kernel) Write(w binding.Write) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if rest, found := strings.CutPrefix(w.Path, "bus/pci/drivers/"); found {
		driver, what, _ := strings.Cut(rest, "/")
		return k.driverWrite(driver, what, w.Value)
	}
	if w.Path == "bus/pci/drivers_probe" {
		f, err := k.named(w.Value)
		if err != nil {
			return err
		}
		return k.probe(f)
	}
	at, file, err := k.place(w.Path)
	if err != nil {
		return err
	}
	f := k.functions[at]
	switch {
	case f == nil:
		return syscall.ENOENT
	case file == "driver_override":
		f.override = strings.TrimSuffix(w.Value, "\n")
		return nil
	case file == "reset" && w.Value == "1":
		k.resets[at]++
		return nil
	case f.virtual != nil:
		return k.virtualWrite(at, f, file, w.Value)
	}
	return syscall.ENOENT
}

func (k *Kernel) named(address string) (*function, error) {
	at, err := pci.ParseAddress(address)
	if err != nil || k.functions[at] == nil {
		return nil, syscall.ENODEV
	}
	return k.functions[at], nil
}

func (k *Kernel) driverWrite(driver, what, address string) error {
	if !k.drivers[driver] {
		return syscall.ENOENT
	}
	f, err := k.named(address)
	if err != nil {
		return err
	}
	switch what {
	case "unbind":
		if f.driver != driver {
			return syscall.ENODEV
		}
		f.driver = "" // before the driver lets go
		at, _ := pci.ParseAddress(address)
		if free := k.held[at]; free != nil {
			k.mu.Unlock()
			<-free
			k.mu.Lock()
		}
		return nil
	case "bind":
		// A driver knows the devices that it had at first, and whichever it is told by driver_override.
		if f.driver != "" || f.override != driver && (f.override != "" || f.home != driver) {
			return syscall.ENODEV
		}
		f.driver = driver
		return nil
	}
	return syscall.ENOENT
}

func (k *Kernel) probe(f *function) error {
	wanted := f.home
	if f.override != "" {
		wanted = f.override
	}
	if f.driver != "" {
		return nil
	}
	if wanted == "" || f.override == "" && f.of != nil && !f.of.probed {
		return nil // nobody takes it
	}
	if !k.drivers[wanted] {
		return syscall.EINVAL
	}
	f.driver = wanted
	return nil
}

// ErrNotMade says that a step did not do what it should.
var ErrNotMade = errors.New("the step does not hold")

// Do makes a step, and sees that it holds.
func (k *Kernel) Do(s binding.Step) error { return k.make(s, s.Do, s.Before, s.After) }

// Undo undoes a step, and sees that it is undone.
func (k *Kernel) Undo(s binding.Step) error { return k.make(s, s.Undo, s.After, s.Before) }

func (k *Kernel) make(s binding.Step, w binding.Write, before, after string) error {
	if err := k.expect(s, before); err != nil {
		return err
	}
	if w.Path != "" {
		if err := k.Write(w); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return k.expect(s, after)
}

func (k *Kernel) expect(s binding.Step, want string) error {
	if s.State.Path == "" {
		return nil
	}
	if got, err := k.State(s.State); err != nil || got != want {
		return fmt.Errorf("%s: %w: %s has %q, %w; want %q", s, ErrNotMade, s.State.Path, got, err, want)
	}
	return nil
}
