package webhook

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

// awayFor is how long the size of a GPU counts that is published no more. An agent that starts anew, and a node that
// does, publish theirs again within it.
const awayFor = time.Hour

// fleet knows what is published and which device classes select it.
type fleet struct {
	now func() time.Time

	mu      sync.Mutex // guards changes
	slices  map[string]publishedSlice
	said    map[string]string // by nodes, in mode slots
	classes map[string]deviceClass
	// away holds the sizes that nothing published has any more, and until when they count.
	away map[uint64]time.Time
	cel  *dracel.Cache // nil until a class needs it

	known atomic.Pointer[inventory]
}

// inventory is the fleet at one moment. It does not change.
type inventory struct {
	sizes        *dialect.Sizes
	translations dialect.Inventory
	// swaps is true where shares can leave their GPUs.
	swaps bool
}

// publishedSlice is what is kept of a resource slice.
type publishedSlice struct {
	dialect.Published
	// devices is the part of the slice that selectors read, in the API's binary form: it is read again only when a device
	// class comes or changes.
	devices []byte
}

// deviceClass is one that is not ours, and which of our devices it has selected so far. What it once selected it goes on
// selecting while its devices are away.
type deviceClass struct {
	expressions []string
	forms       dialect.Forms
}

func newFleet(now func() time.Time) *fleet {
	f := &fleet{now: now, slices: make(map[string]publishedSlice), said: make(map[string]string), classes: make(map[string]deviceClass), away: make(map[uint64]time.Time)}
	f.publish()
	return f
}

func (f *fleet) inventory() *inventory { return f.known.Load() }

func (f *fleet) sizes() *dialect.Sizes { return f.known.Load().sizes }

// sliceStore returns where resource slices are put.
func (f *fleet) sliceStore() *store[publishedSlice] {
	return &store[publishedSlice]{
		read: func(object metav1.Object) (publishedSlice, error) {
			slice, err := as[*resourcev1.ResourceSlice](object)
			if err != nil {
				return publishedSlice{}, err
			}
			devices, err := packDevices(slice)
			return publishedSlice{dialect.PublishedOf(slice), devices}, err
		},
		put: func(s brief[publishedSlice]) {
			if !f.has(s) {
				f.change(func() { f.put(s) })
			}
		},
		drop: func(s brief[publishedSlice]) {
			f.change(func() { delete(f.slices, s.name) })
		},
		replace: func(all []brief[publishedSlice]) {
			f.change(func() {
				clear(f.slices)
				for _, s := range all {
					f.put(s)
				}
			})
		},
	}
}

// classStore returns where device classes are put.
func (f *fleet) classStore() *store[[]string] {
	return &store[[]string]{
		read: func(object metav1.Object) ([]string, error) {
			class, err := as[*resourcev1.DeviceClass](object)
			if err != nil {
				return nil, err
			}
			var expressions []string
			for _, s := range class.Spec.Selectors {
				if s.CEL != nil {
					expressions = append(expressions, s.CEL.Expression)
				}
			}
			return expressions, nil
		},
		put: func(c brief[[]string]) {
			f.change(func() { f.putClass(c) })
		},
		drop: func(c brief[[]string]) {
			f.change(func() { delete(f.classes, c.name) })
		},
		replace: func(all []brief[[]string]) {
			f.change(func() {
				before := f.classes
				f.classes = make(map[string]deviceClass)
				for _, c := range all {
					if old, ok := before[c.name]; ok {
						f.classes[c.name] = old
					}
					f.putClass(c)
				}
			})
		},
	}
}

// has reports whether a slice is known as it is: most changes of slices are of taints, which nobody reads here.
func (f *fleet) has(s brief[publishedSlice]) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.slices[s.name]
	return ok && reflect.DeepEqual(known, s.of)
}

// change changes what is known of slices or classes, and publishes it.
func (f *fleet) change(apply func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.present()
	apply()
	after := f.present()
	until := f.now().Add(awayFor)
	for size := range before {
		if !after[size] {
			f.away[size] = until
		}
	}
	maps.DeleteFunc(f.away, func(size uint64, until time.Time) bool { return after[size] || f.now().After(until) })
	f.publish()
}

// present returns the sizes that are published.
func (f *fleet) present() map[uint64]bool {
	present := make(map[uint64]bool)
	for _, s := range f.slices {
		for _, size := range s.Sizes {
			present[size] = true
		}
	}
	return present
}

// publish makes what is known now what reviews see.
func (f *fleet) publish() {
	published := func(yield func(dialect.Published) bool) {
		for _, s := range f.slices {
			if !yield(s.Published) {
				return
			}
		}
	}
	classes := make(map[string]dialect.Forms)
	for name, class := range f.classes {
		classes[name] = class.forms
	}
	next := &inventory{sizes: dialect.NewSizes(published, slices.Collect(maps.Keys(f.away)), classes)}
	for _, s := range f.slices {
		next.swaps = next.swaps || s.Swaps
		next.translations.Sizes = append(next.translations.Sizes, s.Inventory.Sizes...)
	}
	slices.Sort(next.translations.Sizes)
	next.translations.Sizes = slices.Compact(next.translations.Sizes)
	f.known.Store(next)
}

// put notes a slice, and which classes select its devices.
func (f *fleet) put(s brief[publishedSlice]) {
	f.slices[s.name] = s.of
	for name, class := range f.classes {
		class.forms = f.selected(class, s.of.devices)
		f.classes[name] = class
	}
}

// putClass notes a class, and whether it selects our devices.
func (f *fleet) putClass(c brief[[]string]) {
	if (dialect.Classes{}).Ours(c.name) {
		return
	}
	class, known := f.classes[c.name]
	if known && slices.Equal(class.expressions, c.of) {
		return
	}
	class = deviceClass{expressions: c.of}
	for _, s := range f.slices {
		class.forms = f.selected(class, s.devices)
	}
	f.classes[c.name] = class
}

// selected returns the forms that a class is known to select, those of a slice among them.
func (f *fleet) selected(class deviceClass, packed []byte) dialect.Forms {
	forms := class.forms
	if forms == (dialect.Forms{Shared: true, Whole: true, Instances: true}) {
		return forms
	}
	var slice resourcev1.ResourceSlice
	if err := slice.Unmarshal(packed); err != nil {
		return forms // we wrote it ourselves
	}
	for i := range slice.Spec.Devices {
		device := &slice.Spec.Devices[i]
		if more := forms.And(dialect.FormsOf(device)); more != forms && f.matches(class.expressions, device) {
			forms = more
		}
	}
	return forms
}

// matches reports whether all expressions are true of a device. One that cannot be evaluated selects nothing: the
// scheduler allocates nothing by it either.
func (f *fleet) matches(expressions []string, device *resourcev1.Device) bool {
	if f.cel == nil {
		f.cel = dracel.NewCache(64, dracel.Features{EnableConsumableCapacity: true})
	}
	for _, expression := range expressions {
		program := f.cel.GetOrCompile(expression)
		if program.Error != nil {
			return false
		}
		found, _, err := program.DeviceMatches(context.Background(), dracel.Device{
			Driver: v1alpha1.Driver, AllowMultipleAllocations: device.AllowMultipleAllocations,
			Attributes: device.Attributes, Capacity: device.Capacity,
		})
		if err != nil || !found {
			return false
		}
	}
	return true
}

// packDevices writes what selectors read of a slice's devices.
func packDevices(slice *resourcev1.ResourceSlice) ([]byte, error) {
	var kept resourcev1.ResourceSlice
	for i := range slice.Spec.Devices {
		device := &slice.Spec.Devices[i]
		one := resourcev1.Device{
			Attributes: device.Attributes, AllowMultipleAllocations: device.AllowMultipleAllocations,
			Capacity: make(map[resourcev1.QualifiedName]resourcev1.DeviceCapacity, len(device.Capacity)),
		}
		for name, capacity := range device.Capacity {
			one.Capacity[name] = resourcev1.DeviceCapacity{Value: capacity.Value}
		}
		kept.Spec.Devices = append(kept.Spec.Devices, one)
	}
	packed, err := kept.Marshal()
	if err != nil {
		return nil, fmt.Errorf("keep the devices of resource slice %s: %w", slice.Name, err)
	}
	return packed, nil
}
