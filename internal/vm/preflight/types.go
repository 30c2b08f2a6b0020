package preflight

import (
	"slices"

	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// VGPUType is a type of vGPU that a device can have now, on itself or on its virtual functions together.
type VGPUType struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Interface is mdev or vendor-vfio, Functions the number of functions on which one more can be made.
	Interface string `json:"interface"`
	Functions int    `json:"functions"`
	// Free is how many more there can be at most: functions do not tell of each other. Most is how many the GPU can have in all, 0
	// where that is not told, as by vendor-vfio.
	Free int `json:"free"`
	Most int `json:"most,omitempty"`
}

// typesOf are the types of a device and its virtual functions, in the driver's order.
func typesOf(host *facts.Host, d facts.Device) []VGPUType {
	all, made := []VGPUType{}, map[string]int{}
	functions := []facts.Device{d}
	if !d.Virtual {
		functions = append(functions, host.VirtualOf(d.Address)...)
	}
	for _, f := range functions {
		if f.VGPU == nil {
			continue
		}
		for _, t := range f.VGPU.Types {
			at := slices.IndexFunc(all, func(o VGPUType) bool { return o.ID == t.ID && o.Interface == f.VGPU.Interface })
			if at < 0 {
				all = append(all, VGPUType{ID: t.ID, Name: t.Name, Interface: f.VGPU.Interface, Most: t.Most})
				at = len(all) - 1
			}
			free := t.Available
			if free < 0 { // the function can have one, because the type is in its list
				free = 1
			}
			if free > 0 {
				all[at].Functions++
			}
			all[at].Free += free
			made[t.ID] += t.Made
		}
	}
	for i := range all {
		if t := &all[i]; t.Most > 0 {
			t.Free = min(t.Free, max(0, t.Most-made[t.ID]))
		}
	}
	return all
}
