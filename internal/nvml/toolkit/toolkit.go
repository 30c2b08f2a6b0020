// Package toolkit asks NVIDIA's container toolkit which of the driver's files
// containers need. It only reads these files, so it needs no GPU, no NVML and none
// of the toolkit's programs.
package toolkit

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Common returns what every container with a GPU needs of the driver of that
// version below root, with this process's paths. The driver's libraries are where the toolkit
// expects them, or in folders, if any are named. It leaves out all of the toolkit's
// hooks: they would have to be installed on the host, one of them would put CUDA's
// compatibility libraries before the driver's, and the others make links and a
// linker cache that Divvy does not need.
func Common(root, version string, folders ...string) (*specs.ContainerEdits, error) {
	found, err := nvcdi.New(
		nvcdi.WithLogger(silent{}),
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithDriverRoot(root),
		nvcdi.WithDevRoot(root),
		nvcdi.WithNvmlLib(driver{version: version}),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils, nvcdi.FeatureDisableIPCDiscoverer),
		nvcdi.WithDisabledHooks(nvcdi.AllHooks),
		nvcdi.WithLibrarySearchPaths(folders),
	)
	if err != nil {
		return nil, fmt.Errorf("look for the driver's files: %w", err)
	}
	common, err := found.GetCommonEdits()
	if err != nil {
		return nil, fmt.Errorf("look for the driver's files: %w", err)
	}
	if common == nil || common.ContainerEdits == nil {
		return &specs.ContainerEdits{}, nil
	}
	return common.ContainerEdits, nil
}

// driver replaces NVML, which the toolkit asks for the version only. The process may
// already have NVML open, and it can be open only once, see internal/nvml.
type driver struct {
	nvml.Interface
	version string
}

func (driver) Init() nvml.Return { return nvml.SUCCESS }

func (driver) Shutdown() nvml.Return { return nvml.SUCCESS }

func (d driver) SystemGetDriverVersion() (string, nvml.Return) { return d.version, nvml.SUCCESS }

// silent drops the toolkit's log: it warns about every file that some driver might
// have.
type silent struct{}

func (silent) Debugf(string, ...any)   {}
func (silent) Errorf(string, ...any)   {}
func (silent) Infof(string, ...any)    {}
func (silent) Warningf(string, ...any) {}
func (silent) Tracef(string, ...any)   {}
