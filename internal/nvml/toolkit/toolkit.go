// Package toolkit asks NVIDIA's container toolkit which files and device nodes
// of the driver containers need. It only reads a driver's files: no GPU, no NVML
// and none of the toolkit's programs have to be there.
package toolkit

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Common returns what every container with a GPU needs of the driver of that
// version below root, with the paths that this process sees. The toolkit's
// hooks are all left out: they would have to be installed on the host, the one
// that enables CUDA's compatibility libraries would put another driver first,
// and the others only name links and a linker's cache that Divvy does without.
func Common(root, version string) (*specs.ContainerEdits, error) {
	found, err := nvcdi.New(
		nvcdi.WithLogger(silent{}),
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithDriverRoot(root),
		nvcdi.WithDevRoot(root),
		nvcdi.WithNvmlLib(driver{version: version}),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils, nvcdi.FeatureDisableIPCDiscoverer),
		nvcdi.WithDisabledHooks(nvcdi.AllHooks),
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

// driver stands for NVML, of which the toolkit asks the version alone here: NVML
// itself may be in use by this process, under rules of its own.
type driver struct {
	nvml.Interface
	version string
}

func (driver) Init() nvml.Return { return nvml.SUCCESS }

func (driver) Shutdown() nvml.Return { return nvml.SUCCESS }

func (d driver) SystemGetDriverVersion() (string, nvml.Return) { return d.version, nvml.SUCCESS }

// silent drops what the toolkit tells: it warns of every file that some driver
// might have had.
type silent struct{}

func (silent) Debugf(string, ...any)   {}
func (silent) Errorf(string, ...any)   {}
func (silent) Infof(string, ...any)    {}
func (silent) Warningf(string, ...any) {}
func (silent) Tracef(string, ...any)   {}
