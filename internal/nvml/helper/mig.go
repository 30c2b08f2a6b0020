package helper

import "github.com/divvy-gpu/divvy/internal/nvml"

// migReader is what tells about MIG.
type migReader interface {
	MIGMode(index int) (nvml.MIGMode, error)
	MIGProfiles(index int) ([]nvml.MIGProfile, error)
	MIGInstances(index int) ([]nvml.MIGInstance, error)
	InstanceMemory(index int) ([]nvml.InstanceMemory, error)
}

// migMaker is what changes the MIG mode and instances.
type migMaker interface {
	SetMIGMode(index int, on bool) error
	CreateMIGInstance(index, profile int, at nvml.MIGPlacement) (int, error)
	DestroyMIGInstance(index, instance int) error
	CreateMIGCompute(index, instance int) (nvml.MIGCompute, error)
	DestroyMIGCompute(index, instance, compute int) error
}

// consultMIG asks the library about MIG.
func consultMIG(l library, one item) (*migResult, error) {
	var r migResult
	var err error
	switch m := one.MIG; one.Kind {
	case askMIGMode:
		r.Mode, err = l.MIGMode(one.Index)
	case setMIGMode:
		err = l.SetMIGMode(one.Index, m.On)
	case askMIGProfiles:
		r.Profiles, err = l.MIGProfiles(one.Index)
	case askMIGInstances:
		r.Instances, err = l.MIGInstances(one.Index)
	case createMIGInstance:
		r.Made, err = l.CreateMIGInstance(one.Index, m.Profile, m.At)
	case destroyMIGInstance:
		err = l.DestroyMIGInstance(one.Index, m.Instance)
	case createMIGCompute:
		r.Compute, err = l.CreateMIGCompute(one.Index, m.Instance)
	case destroyMIGCompute:
		err = l.DestroyMIGCompute(one.Index, m.Instance, m.Compute)
	}
	return &r, err
}

// MIGMode is [nvml.Library.MIGMode].
func (d *Driver) MIGMode(gpu int) (nvml.MIGMode, error) {
	r, err := d.askMIG(gpu, askMIGMode)
	return r.Mode, err
}

// MIGProfiles is [nvml.Library.MIGProfiles].
func (d *Driver) MIGProfiles(gpu int) ([]nvml.MIGProfile, error) {
	r, err := d.askMIG(gpu, askMIGProfiles)
	return r.Profiles, err
}

// MIGInstances is [nvml.Library.MIGInstances].
func (d *Driver) MIGInstances(gpu int) ([]nvml.MIGInstance, error) {
	r, err := d.askMIG(gpu, askMIGInstances)
	return r.Instances, err
}

// askMIG asks a helper that serves the GPU.
func (d *Driver) askMIG(gpu int, about kind) (migResult, error) {
	return migOf(d.ask([]item{{Kind: about, Index: gpu}})[0])
}

func migOf(t told) (migResult, error) {
	if t.MIG == nil {
		return migResult{}, t.err
	}
	return *t.MIG, t.err
}

// CreateMIGInstance is [nvml.Library.CreateMIGInstance]. A GPU that does not answer in time may still make the instance
// afterwards, and so on for the other changes.
func (d *Driver) CreateMIGInstance(gpu, profile int, at nvml.MIGPlacement) (int, error) {
	r, err := d.changeMIG(gpu, createMIGInstance, migItem{Profile: profile, At: at})
	return r.Made, err
}

// DestroyMIGInstance is [nvml.Library.DestroyMIGInstance].
func (d *Driver) DestroyMIGInstance(gpu, instance int) error {
	_, err := d.changeMIG(gpu, destroyMIGInstance, migItem{Instance: instance})
	return err
}

// CreateMIGCompute is [nvml.Library.CreateMIGCompute].
func (d *Driver) CreateMIGCompute(gpu, instance int) (nvml.MIGCompute, error) {
	r, err := d.changeMIG(gpu, createMIGCompute, migItem{Instance: instance})
	return r.Compute, err
}

// DestroyMIGCompute is [nvml.Library.DestroyMIGCompute].
func (d *Driver) DestroyMIGCompute(gpu, instance, compute int) error {
	_, err := d.changeMIG(gpu, destroyMIGCompute, migItem{Instance: instance, Compute: compute})
	return err
}

// changeMIG asks the process that changes the GPU.
func (d *Driver) changeMIG(gpu int, what kind, m migItem) (migResult, error) {
	return migOf(d.change(item{Kind: what, Index: gpu, MIG: m}))
}
