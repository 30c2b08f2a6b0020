package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// calculator is a program that allocates, copies and launches, as a script has it do. The script asks at last for as
// many bytes as its argument says.
type calculator struct {
	Name   string
	script string
	// modules is the folder of its modules, and environment what it needs for its own sake.
	modules     string
	environment func(p *place) []string
	// refusal is in what it says of memory that it does not get.
	refusal string
}

const calculatorLimit = 2 << 30

var calculators = []calculator{
	{
		Name: "numba 0.56", script: "compute_numba.py", modules: debianNumba, environment: numba, refusal: "CUDA_ERROR_OUT_OF_MEMORY",
	},
	{
		Name: "numba 0.60", script: "compute_numba.py", modules: "numba-0.60", environment: numba, refusal: "CUDA_ERROR_OUT_OF_MEMORY",
	},
	{
		Name: "numba 0.61", script: "compute_numba.py", modules: "numba-0.61", environment: numba, refusal: "CUDA_ERROR_OUT_OF_MEMORY",
	},
	{
		Name: "cuda-bindings", script: "compute_bindings.py", modules: "clients", refusal: "CUDA_ERROR_OUT_OF_MEMORY",
	},
	{
		Name: "tinygrad", script: "compute_tinygrad.py", modules: "clients", environment: tinygrad, refusal: "MemoryError: Allocation of ",
	},
}

// numba compiles for the GPU's architecture when it is told it; to find it out it asks the runtime library.
func numba(p *place) []string {
	return []string{"CUDA_HOME=" + p.Folder + "/toolkit", "NUMBA_FORCE_CUDA_CC=" + p.model.GPU.ComputeCapability}
}

// tinygrad looks for the driver in folders, not with the dynamic linker: in that of the machine's driver, whose file our
// library covers in a namespace, and in those of LD_LIBRARY_PATH, in which the client's folder is where programs are kept away
// from the driver.
func tinygrad(p *place) []string {
	environment := []string{"DEV=CUDA", "CACHELEVEL=0"}
	if p.way != "env" && !isAway(p.way) {
		environment = append(environment, "CUDA_PATH="+p.instance.Dir)
	}
	return environment
}

// program is the calculator in places of its own.
func (c calculator) program() Program {
	return Program{Name: c.Name, machine: "a100-80g", limit: calculatorLimit, check: c.check}
}

// calculated is what the scripts print.
type calculated struct {
	Device string `json:"device"`
	Total  uint64 `json:"total"`
	// Copied tells whether data came back as it went, and Again the same after the refusal.
	Copied   bool   `json:"copied"`
	Again    bool   `json:"again"`
	Launched int    `json:"launched"`
	Refusal  string `json:"refusal"`
	// Held tells whether what it held on the GPU meanwhile was as it had been.
	Held bool `json:"held"`
}

func (c calculator) check(ctx context.Context, p *place) error {
	var environment []string
	if c.environment != nil {
		environment = c.environment(p)
	}
	argv := p.python(c.modules, p.script(c.script), strconv.Itoa(calculatorLimit))
	text, err := output(p.command(ctx, append(append([]string{"env"}, environment...), argv...)...))
	if err != nil {
		return err
	}
	var told calculated
	if err := json.Unmarshal([]byte(text), &told); err != nil {
		return fmt.Errorf("read %q: %w", text, err)
	}
	report, err := p.report(ctx)
	if err != nil {
		return err
	}
	return errors.Join(c.compare(p, told), launched(report, told.Launched))
}

// compare returns what is not as the place has it.
func (c calculator) compare(p *place, told calculated) error {
	var faults []error
	if told.Device != p.model.GPU.Name || told.Total != p.total() {
		faults = append(faults, fmt.Errorf("it sees %q with %d bytes, want %q with %d", told.Device, told.Total, p.model.GPU.Name, p.total()))
	}
	if !told.Copied || !told.Again {
		faults = append(faults, fmt.Errorf("results are right: %t, and after the last request: %t", told.Copied, told.Again))
	}
	if p.isNative() && told.Refusal != "" {
		faults = append(faults, fmt.Errorf("natively memory is refused: %s", told.Refusal))
	}
	if !p.isNative() && !strings.Contains(told.Refusal, c.refusal) {
		faults = append(faults, fmt.Errorf("past its limit it says %q, want %q", told.Refusal, c.refusal))
	}
	return errors.Join(faults...)
}
