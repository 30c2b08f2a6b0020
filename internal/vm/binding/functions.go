package binding

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// ErrFunctions says why no virtual functions are enabled. A [Refusal] has it.
var ErrFunctions = errors.New("its virtual functions stay as they are")

// FormFunctions are virtual functions that were enabled on request. It is given to no virtual machine.
const FormFunctions Form = "functions"

const (
	// Withhold keeps the host's drivers from functions that appear, unless a function's override names one.
	Withhold Kind = "withhold"
	// Enable gives a device virtual functions.
	Enable Kind = "enable"
)

// VGPUDriver is the host's driver that makes vGPUs. It has to have the virtual functions of its GPUs itself.
const VGPUDriver = vgpu.Driver

// EnableFunctions plans to give a device virtual functions, which it must not have yet: others may use those it has. Drivers of the
// host get them where they make vGPUs of them, and else not, because a driver that has one keeps it from a virtual machine.
func EnableFunctions(gpu *vgpu.GPU, count int) (Plan, error) {
	if count == pci.AllFunctions {
		count = gpu.FunctionsTotal
	}
	switch {
	case gpu.FunctionsTotal == 0:
		return Plan{}, refuseVGPU(gpu, ErrFunctions, "it can have none")
	case gpu.FunctionsNow > 0:
		return Plan{}, refuseVGPU(gpu, ErrFunctions, fmt.Sprintf("it has %d, and their number changes only from 0", gpu.FunctionsNow))
	case count < 1 || count > gpu.FunctionsTotal:
		return Plan{}, refuseVGPU(gpu, ErrFunctions, fmt.Sprintf("it can have 1 to %d, not %d", gpu.FunctionsTotal, count))
	}
	folder := DeviceFolder(gpu.Address)
	p := Plan{Form: FormFunctions, Device: gpu.Address, Group: facts.NoGroup}
	if gpu.Driver != VGPUDriver && gpu.Probed == "1" {
		p.Steps = append(p.Steps, alike(Withhold, gpu.Address, folder+"/sriov_drivers_autoprobe", "1", "0"))
	}
	p.Steps = append(p.Steps, alike(Enable, gpu.Address, folder+"/sriov_numvfs", "0", strconv.Itoa(count)))
	return p, nil
}

// Enabled is how many virtual functions a plan gives a device, 0 for a plan of another form.
func (p Plan) Enabled() int {
	for _, s := range p.Steps {
		if s.Kind == Enable {
			count, _ := strconv.Atoi(s.After) // this package wrote it
			return count
		}
	}
	return 0
}
