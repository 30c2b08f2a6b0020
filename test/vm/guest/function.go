package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Function is a PCI function by its address, such as 0000:81:00.0.
type Function string

// Path returns a file of the function's in sysfs.
func (f Function) Path(name string) string {
	return filepath.Join("/sys/bus/pci/devices", string(f), name)
}

// Read returns a file of the function's without space around it, or "" where there is none.
func (f Function) Read(name string) string {
	text, _ := os.ReadFile(f.Path(name))
	return strings.TrimSpace(string(text))
}

// Write writes a file of the function's.
func (f Function) Write(name, text string) error {
	return Write(f.Path(name), text)
}

// Write writes a file of sysfs at once, and makes none.
func Write(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0) //nolint:gosec // sysfs of the guest
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

// Driver returns the name of the driver that the function is bound to, or "".
func (f Function) Driver() string {
	return f.link("driver")
}

// Group returns the number of the function's group, or "".
func (f Function) Group() string {
	return f.link("iommu_group")
}

func (f Function) link(name string) string {
	target, err := os.Readlink(f.Path(name))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// Members returns the functions of the function's group, itself among them.
func (f Function) Members() []Function {
	entries, _ := os.ReadDir(f.Path("iommu_group/devices"))
	members := make([]Function, 0, len(entries))
	for _, entry := range entries {
		members = append(members, Function(entry.Name()))
	}
	return members
}

// Virtual returns the virtual functions that are enabled, in their order.
func (f Function) Virtual() []Function {
	links, _ := filepath.Glob(f.Path("virtfn*"))
	functions := make([]Function, 0, len(links))
	for i := range links {
		functions = append(functions, Function(f.link(fmt.Sprintf("virtfn%d", i))))
	}
	return functions
}

// Bind gives the function to a driver, and back to whom it belongs when the test ends.
func (f Function) Bind(t testing.TB, driver string) {
	t.Helper()
	if err := f.override(driver); err != nil {
		t.Fatalf("bind %s to %s: %v", f, driver, err)
	}
	if got := f.Driver(); got != driver {
		t.Fatalf("%s is bound to %q, want %q", f, got, driver)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(f.Path("")); err != nil {
			return // a virtual function that is gone
		}
		if err := f.override("\n"); err != nil {
			t.Errorf("give %s back: %v", f, err)
		}
	})
}

func (f Function) override(driver string) error {
	if err := f.Write("driver_override", driver); err != nil {
		return err
	}
	if f.Driver() != "" {
		if err := f.Write("driver/unbind", string(f)); err != nil {
			return err
		}
	}
	return Write("/sys/bus/pci/drivers_probe", string(f))
}

// Enable gives the function virtual ones, without drivers, until the test ends.
func (f Function) Enable(t testing.TB, count int) []Function {
	t.Helper()
	if err := f.Write("sriov_drivers_autoprobe", "0"); err != nil {
		t.Fatal(err)
	}
	if err := f.Write("sriov_numvfs", fmt.Sprint(count)); err != nil {
		t.Fatalf("enable %d virtual functions of %s: %v", count, f, err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.Write("sriov_numvfs", "0"), f.Write("sriov_drivers_autoprobe", "1")); err != nil {
			t.Errorf("disable the virtual functions of %s: %v", f, err)
		}
	})
	functions := f.Virtual()
	if len(functions) != count {
		t.Fatalf("%s has the virtual functions %v, want %d", f, functions, count)
	}
	return functions
}

// Parameter sets a parameter of the stand-in for the vendor's host driver until the test ends.
func Parameter(t testing.TB, name string, on bool) {
	t.Helper()
	path := "/sys/module/host_driver/parameters/" + name
	before, err := os.ReadFile(path) //nolint:gosec // sysfs of the guest
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(path, map[bool]string{true: "Y", false: "N"}[on]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Write(path, string(before)); err != nil {
			t.Errorf("set %s back: %v", name, err)
		}
	})
}

// Nodes returns the vendor's device nodes that there are.
func Nodes() []string {
	nodes, _ := filepath.Glob("/dev/nvidia[0-9]*")
	slices.Sort(nodes)
	return nodes
}
