// Package vgpu is what NVIDIA's host driver offers of vGPUs on a GPU and its virtual functions: types, how many more of each
// there can be, and what was made. It is read anew each time from the root of a file system that the caller gives, because
// others make vGPUs too and each one made shrinks what is left.
//
// It changes nothing. Names and numbers in sysfs are foreign: what cannot be right is left out and told, nothing is followed
// as a path but names of types, UUIDs and addresses that were checked, and names for people are cut.
package vgpu

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// The errors of choosing a type.
var (
	// ErrType marks a type that no function of the GPU offers now or has.
	ErrType = errors.New("no such vGPU type")
	// ErrDriver says that the host has no driver that makes vGPUs of the GPU, ErrFunctions that the GPU has no virtual functions yet.
	ErrDriver    = errors.New("no driver makes vGPUs of it")
	ErrFunctions = errors.New("it has no virtual functions yet, of which its driver makes vGPUs")
	// ErrFull says that a type that there is has none left.
	ErrFull = errors.New("no vGPU of the type is left")
	// ErrAmbiguous marks a name that several types have.
	ErrAmbiguous = errors.New("several vGPU types have this name")
)

// Interface is the way in which a function offers vGPUs.
type Interface string

// The interfaces.
const (
	// Mediated makes mediated devices, which have a UUID and a group of their own.
	Mediated Interface = "mdev"
	// Vendor gives a virtual function a type; the function stays with its driver and is opened itself.
	Vendor Interface = "vendor-vfio"
)

// Type is a type of vGPU that a function offers.
type Type struct {
	// ID is its name in sysfs: nvidia-471 by mdev, 471 otherwise.
	ID string
	// Name is the driver's for people, at most [longest] bytes of whatever it wrote.
	Name string
	// Free is how many more the function can have now. It is 0 or 1 for a virtual function.
	Free int
	// Most is how many a GPU can have in all and MiB the memory of each, both 0 where that is not told.
	Most, MiB int
}

// Made is a mediated device.
type Made struct {
	UUID, Type string
}

// Function is a PCI function that offers vGPUs: a GPU or a virtual function of it.
type Function struct {
	Address pci.Address
	// Folder is its folder below /sys.
	Folder    string
	Driver    string
	Interface Interface
	// Group is the IOMMU group's number, -1 without one.
	Group int
	// Types are those that it offers now, ordered by ID. By [Vendor] a function that has a type offers none.
	Types []Type
	// Made are its mediated devices, whoever made them. Current is its type by [Vendor], "" for none.
	Made    []Made
	Current string
	// Instance is what its file of GPU instances says. HasInstance is false where there is no such file.
	Instance    string
	HasInstance bool
}

// GPU is a GPU with the functions that offer vGPUs.
type GPU struct {
	Address pci.Address
	// Folder is its folder below /sys.
	Folder string
	Driver string
	// FunctionsTotal is how many virtual functions it can have, and Functions how many it has.
	FunctionsTotal, FunctionsNow int
	// Probed is what the kernel says of whether drivers take virtual functions as they appear: "1", "0", or "".
	Probed string
	// Functions are those that offer vGPUs: the GPU itself, or its virtual functions by number. Virtual are all virtual ones.
	Functions, Virtual []Function
	// Unread are files and folders that are not as the driver makes them, below /sys.
	Unread []string
}

// Choice is a type as the whole GPU has it.
type Choice struct {
	ID, Name string
	// Free is how many more there can be at most: functions do not tell of each other.
	Free      int
	Most, MiB int
	Interface Interface
}

// Choices sums the types of all functions, ordered by ID. A type that nothing is left of is not told by [Vendor].
func (g *GPU) Choices() []Choice {
	var all []Choice
	made := map[string]int{}
	for _, f := range g.Functions {
		for _, m := range f.Made {
			made[m.Type]++
		}
		for _, t := range f.Types {
			at := slices.IndexFunc(all, func(o Choice) bool { return o.ID == t.ID && o.Interface == f.Interface })
			if at < 0 {
				all = append(all, Choice{ID: t.ID, Name: t.Name, Most: t.Most, MiB: t.MiB, Interface: f.Interface})
				at = len(all) - 1
			}
			all[at].Free += t.Free
		}
	}
	for i := range all {
		if o := &all[i]; o.Most > 0 {
			o.Free = min(o.Free, max(0, o.Most-made[o.ID]))
		}
	}
	slices.SortFunc(all, func(a, b Choice) int { return compareID(a.ID, b.ID) })
	return all
}

// compareID orders the numbers in names of types as numbers.
func compareID(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// Resolve finds the type that somebody means: by its ID, its number, its name, or the name without the words before the last.
// A number means the same type by either interface.
func (g *GPU) Resolve(wanted string) (Choice, error) {
	choices := g.Choices()
	var found []Choice
	for _, o := range choices {
		if o.ID == wanted || NumberOf(o.ID) == wanted && wanted != "" {
			return o, nil
		}
		if o.Name != "" && (strings.EqualFold(o.Name, wanted) || strings.EqualFold(lastWord(o.Name), wanted)) {
			found = append(found, o)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Choice{}, g.without(wanted, choices)
	}
	return Choice{}, fmt.Errorf("%w: %q: name one by its number: %s", ErrAmbiguous, wanted, listed(found))
}

// NumberOf is that of a type's ID: 471 of nvidia-471, or of 471.
func NumberOf(id string) string { return id[strings.LastIndexByte(id, '-')+1:] }

// Driver is the host's driver that makes vGPUs. It has to have the virtual functions of its GPUs itself.
const Driver = "nvidia"

// Offers returns why the GPU can have no vGPUs of any type, and what helps; nil where it can.
func (g *GPU) Offers() error {
	const host = "NVIDIA's host driver for vGPU, which comes with its vGPU software, has to have it"
	switch {
	case len(g.Functions) > 0:
		return nil
	case g.Driver == "":
		return fmt.Errorf("%s: %w: it has no driver: %s", g.Address, ErrDriver, host)
	case g.Driver != Driver:
		return fmt.Errorf("%s: %w: driver %s has it: %s", g.Address, ErrDriver, g.Driver, host)
	case g.FunctionsNow > 0:
		return fmt.Errorf("%s: %w: of its %d virtual functions none offers any: they need driver %s too, and it the host driver for vGPU; "+
			"`divvy vm functions %s --count 0` and then `--count all` makes them anew", g.Address, ErrDriver, g.FunctionsNow, Driver, g.Address)
	case g.FunctionsTotal > 0:
		return fmt.Errorf("%s: %w: `divvy vm functions %s --count all` enables them", g.Address, ErrFunctions, g.Address)
	}
	return fmt.Errorf("%s: %w: its driver %s is not the host driver for vGPU, or the GPU can have none", g.Address, ErrDriver, g.Driver)
}

// without says why the GPU has no type of a name now, and what helps.
func (g *GPU) without(wanted string, choices []Choice) error {
	if err := g.Offers(); err != nil {
		return err
	}
	made := 0
	for _, f := range g.Functions {
		made += len(f.Made)
		if f.Current != "" {
			made++
		}
	}
	const release = "release one first: `divvy vm ls` lists those of Divvy's"
	switch {
	case len(choices) == 0 && made > 0:
		return fmt.Errorf("%w: %q: the GPU is full, vGPUs on it: %d: %s", ErrFull, wanted, made, release)
	case slices.ContainsFunc(g.Functions, func(f Function) bool { return f.Current != "" && f.Current == wanted }):
		return fmt.Errorf("%w: %q: %s; or %s", ErrFull, wanted, listed(choices), release)
	case made > 0:
		return fmt.Errorf("%w: %q: %s; with no vGPUs on it the GPU may offer more", ErrType, wanted, listed(choices))
	}
	return fmt.Errorf("%w: %q: %s", ErrType, wanted, listed(choices))
}

func lastWord(name string) string { return name[strings.LastIndexByte(name, ' ')+1:] }

// listed names types for people in one line.
func listed(choices []Choice) string {
	if len(choices) == 0 {
		return "the GPU offers none now"
	}
	texts := make([]string, len(choices))
	for i, o := range choices {
		texts[i] = fmt.Sprintf("%s (%+q, %d left)", o.ID, o.Name, o.Free)
	}
	return "the GPU offers " + strings.Join(texts, ", ")
}

// backed is the end of a name of a type that is backed by a GPU instance: slices, gigabytes and the series. Only the C series
// has one vGPU for each instance, so that the name tells the instance's profile.
var backed = regexp.MustCompile(`^[A-Za-z0-9]+-([1-7])-([1-9][0-9]{0,2})C(ME)?$`)

// Profile is the MIG profile of the GPU instance that a type needs, "" for a type that needs none, by the type's name as NVIDIA
// makes them: A100-1-5C needs 1g.5gb, A100-1-5CME needs 1g.5gb+me.
func Profile(name string) string {
	parts := backed.FindStringSubmatch(strings.ToUpper(lastWord(name)))
	if parts == nil {
		return ""
	}
	profile := parts[1] + "g." + parts[2] + "gb"
	if parts[3] != "" {
		profile += "+me"
	}
	return profile
}
