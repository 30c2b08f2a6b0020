package daemon

import (
	"errors"
	"path/filepath"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/mig"
	"github.com/divvy-gpu/divvy/internal/backend/mps"
	"github.com/divvy-gpu/divvy/internal/backend/registry"
	"github.com/divvy-gpu/divvy/internal/backend/remote"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/backend/timeslice"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/driver"
	migbook "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/modes"
	"github.com/divvy-gpu/divvy/internal/process"
)

// FormsFile has which forms GPUs were given by hand, in the agent's directory.
const FormsFile = "forms.json"

// MIGFile has which MIG instances are Divvy's, in the agent's directory.
const MIGFile = "mig.json"

// openForms opens what says which forms GPUs have and what was changed of GPUs for that.
func (s *service) openForms(found *driver.Driver) error {
	dir := s.options.Endpoint.Dir()
	err := s.readOrSetAside(filepath.Join(dir, FormsFile), func(path string) (err error) {
		s.forms, err = agent.OpenForms(path, s.rules)
		return err
	})
	if err != nil {
		return err
	}
	s.modes = &modes.Machine{Index: s.index, NVML: s.library, Tool: s.options.tool(found)}
	if !s.options.shared() {
		return nil // it changes no modes and makes no instances
	}
	err = s.readOrSetAside(filepath.Join(dir, MIGFile), func(path string) (err error) {
		s.instances, err = migbook.Open(path, s.byUUID())
		return err
	})
	if err != nil {
		return err
	}
	return s.readOrSetAside(filepath.Join(dir, modes.FileName), func(path string) (err error) {
		s.book, err = modes.Open(path, s.modes, s.options.Step)
		return err
	})
}

// readOrSetAside reads a file of the last agent. One that cannot be understood is set aside, and the agent goes on
// without it: shares are worth more than modes.
func (s *service) readOrSetAside(path string, read func(path string) error) error {
	err := read(path)
	if !errors.Is(err, checkpoint.ErrDamaged) && !errors.Is(err, checkpoint.ErrVersion) {
		return err
	}
	aside, asideErr := checkpoint.NewFile[struct{}](path, "", 0).SetAside()
	s.options.Log.Error("cannot read "+filepath.Base(path)+" of the last agent, and goes on without it", "error", err, "kept", aside)
	if asideErr != nil {
		return errors.Join(err, asideErr)
	}
	return read(path)
}

// tool is the driver's nvidia-smi. It loads the driver's library by its name.
func (o Options) tool(found *driver.Driver) modes.Tool {
	if found == nil {
		return modes.Tool{}
	}
	if dir := o.simgpu(); dir != "" {
		return modes.Tool{Folders: []string{dir}}
	}
	library := filepath.Dir(found.Chosen[driver.NVML])
	return modes.Tool{Folders: modes.ToolFolders(o.DriverRoot, library), Environment: []string{"LD_LIBRARY_PATH=" + library}}
}

// index is that of a GPU, -1 if it is not there.
func (s *service) index(uuid string) int {
	gpus, err := s.library.GPUs()
	if err != nil {
		return -1
	}
	for _, gpu := range gpus {
		if gpu.UUID == uuid {
			return gpu.Index
		}
	}
	return -1
}

// byUUID is the driver's library for who knows GPUs by their UUIDs.
func (s *service) byUUID() migbook.Library {
	l := migbook.Library{NVML: s.library, Index: map[string]int{}}
	gpus, _ := s.library.GPUs() // a helper's list has no error
	for _, gpu := range gpus {
		l.Index[gpu.UUID] = gpu.Index
	}
	return l
}

// divided is the backend of MIG instances.
func (s *service) divided(made *slice.Backend) *mig.Backend {
	o := mig.Options{
		Book: s.instances, Reader: s.byUUID(), Log: s.options.Log,
		Capable: func(gpu backend.GPU) bool { return s.library.MIGCapable(gpu.Index) },
	}
	if s.instances != nil {
		o.Switcher = mig.Lone{Driver: s.library, Holding: s.finder.Holding}
	}
	return mig.New(made, o)
}

// backends are those of the machine. The others stand on the first one, which makes the tenants' directories.
func (s *service) backends(made *slice.Backend) *registry.Registry {
	o := s.options
	sliced := timeslice.Options{Log: o.Log, Slice: s.forms.Slice}
	beside := mps.Options{
		Maker: made, Dir: filepath.Join(o.Endpoint.Dir(), "mps"), Log: o.Log,
		Driver: func() string { return s.library.Version().Driver },
		Program: func() (string, []string, error) {
			path, err := mps.Program(s.modes.Tool.Folders)
			return path, s.modes.Tool.Environment, err
		},
		Capability: func(gpu backend.GPU) string { return s.library.Capability(gpu.Index) },
		MultiUser: func(gpu backend.GPU) bool {
			form, _ := s.forms.Of(gpu)
			return form.MultiUser
		},
	}
	if o.Face != nil {
		beside.Apart = leaveContainer
	}
	if s.book != nil {
		sliced.Modes, beside.Modes = s.book.Of(modes.TimeSlice), s.book.Of(modes.ComputeMode)
	}
	served, divided := mps.New(beside), s.divided(made)
	s.closers = append(s.closers, served.Close, divided.Close)
	return registry.New(
		registry.Kind{Name: v1alpha1.BackendSlice, Backend: made},
		registry.Kind{Name: v1alpha1.BackendTimeslice, Backend: timeslice.New(made, sliced)},
		registry.Kind{Name: v1alpha1.BackendMPS, Backend: served},
		registry.Kind{Name: v1alpha1.BackendMIG, Backend: divided},
		registry.Kind{Name: v1alpha1.BackendRemote, Backend: remote.New(made, remote.Options{
			Tenants: s.tenants, Tree: o.Tree, Shared: o.shared(), Finder: s.finder,
			CUDA: func() int { return s.library.Version().CUDA },
		})},
	)
}

// listed are the modes of GPUs for listings.
func (s *service) listed() agent.Modes {
	if s.book == nil {
		return unchanged{s.modes}
	}
	return s.book
}

// unchanged are the modes of GPUs for an agent that changes none.
type unchanged struct{ *modes.Machine }

// Changes are none.
func (unchanged) Changes() []modes.Change { return nil }

// leaveContainer keeps a process alive when the agent's container is replaced. The container sees the machine's
// processes, so the first one shows the machine's cgroups.
func leaveContainer(id process.ID) error { return id.LeaveGroups("/proc/1/root") }
