package cli

import (
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/modes"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// migChecks tell what is to be known of how MIG divides GPUs, as an agent tells.
func migChecks(f *control.Forms) (checks []doctor.Check) {
	if f == nil {
		return nil
	}
	for _, g := range f.GPUs {
		checks = append(checks, modeChecks(g)...)
		if hasMIG(g) && g.MIG.Unknown == "" {
			checks = append(checks, emptyChecks(f.Info, g)...)
			checks = append(checks, instanceChecks(g)...)
		}
	}
	return checks
}

// nameOfMIG names the checks of a GPU.
func nameOfMIG(g control.Formed) string { return fmt.Sprintf("MIG of GPU %d", g.Index) }

// modeChecks compare a GPU's MIG mode with what it is given.
func modeChecks(g control.Formed) (checks []doctor.Check) {
	warn := func(id doctor.ID, next, format string, args ...any) {
		checks = append(checks, doctor.Check{ID: id, Name: nameOfMIG(g), Status: doctor.Warn, Found: fmt.Sprintf(format, args...), Next: next})
	}
	given := g.Given != control.GivenNone && g.Form == v1alpha1.BackendMIG
	switch {
	case g.MIG == nil && given:
		warn("mig.impossible", "as root, take the GPU out of backends in agent.yaml, and start the agent again", "it has no MIG, and is given form mig")
	case g.MIG == nil:
	case g.MIG.Unknown != "":
		warn("mig.unknown", "`nvidia-smi mig -lgi` may tell more", "how MIG divides it is not known: %s", g.MIG.Unknown)
	case g.MIG.On != g.MIG.Pending:
		warn("mig.pending", fmt.Sprintf("as root: `divvy gpu set %d --mig %s` takes that back, or reset the GPU while nothing uses it", g.Index, modeWord(g.MIG.On)),
			"its MIG mode is %s and will be %s after its next reset: other tools may refuse the GPU until then", modeWord(g.MIG.On), modeWord(g.MIG.Pending))
	case given && !g.MIG.On:
		warn("mig.off", fmt.Sprintf("as root, while nothing uses it: `divvy gpu set %d --mig on`", g.Index), "it is given form mig, and its MIG mode is off")
	case g.MIG.On:
		for _, m := range g.Modes {
			if m.Mode == string(modes.TimeSlice) && m.Value != "" && m.Value != modes.Slices[0] {
				warn("mig.timeslice", fmt.Sprintf("as root: `nvidia-smi compute-policy -i %d --set-timeslice=0`", g.Index),
					"its time slices are set to %s, which has no effect in MIG mode", m.Value)
			}
		}
	}
	return checks
}

// emptyChecks tell of a GPU in MIG mode that nobody can use.
func emptyChecks(agent control.Info, g control.Formed) []doctor.Check {
	fixed := g.Layout == agentconfig.LayoutFixed
	if !g.MIG.On || len(g.MIG.Instances) > 0 || !agent.Ephemeral && !fixed {
		return nil
	}
	if fixed {
		return []doctor.Check{{
			ID: "mig.empty", Name: nameOfMIG(g), Status: doctor.Warn,
			Found: "it is in MIG mode without instances, and agent.yaml keeps its layout fixed: no share can be there",
			Next:  "as root: give it a layout with `divvy gpu apply`, or write layout: dynamic, which has instances made for shares",
		}}
	}
	return []doctor.Check{{
		ID: "mig.empty", Name: nameOfMIG(g), Status: doctor.Warn,
		Found: fmt.Sprintf("it is in MIG mode without instances, and the agent, which is %s's own, cannot make any", agent.User),
		Next:  "as root: start the agent (" + rundir.Start("") + "), which makes instances for shares; or make them with `nvidia-smi mig -cgi PROFILE -C`; or turn the mode off with `nvidia-smi -mig 0`",
	}}
}

// instanceChecks tell of instances that nobody can use, and of those that others made.
func instanceChecks(g control.Formed) (checks []doctor.Check) {
	var foreign []string
	for _, i := range g.MIG.Instances {
		switch {
		case i.Origin == backend.OriginVGPU:
		case i.Half != "" && i.Origin == backend.OriginForeign:
			checks = append(checks, doctor.Check{
				ID: "mig.half", Name: nameOfMIG(g), Status: doctor.Warn,
				Found: fmt.Sprintf("another tool left %s at memory slice %s, which no program can use: %s", i.Profile, slicesText(i.Instance), i.Half),
				Next:  fmt.Sprintf("as root, unless that tool is at work: `nvidia-smi mig -i %d -gi %d -dci` where it has a compute instance, then `nvidia-smi mig -i %[1]d -gi %[2]d -dgi`", g.Index, i.GPUInstance),
			})
		case i.Half != "":
			checks = append(checks, doctor.Check{
				ID: "mig.half", Name: nameOfMIG(g), Status: doctor.Warn,
				Found: fmt.Sprintf("%s at memory slice %s is half made, and no program can use it: %s", i.Profile, slicesText(i.Instance), i.Half),
				Next:  "if it stays, start the agent again: it takes away what it did not finish",
			})
		case i.Origin == backend.OriginForeign:
			foreign = append(foreign, fmt.Sprintf("%s at memory slice %s", i.Profile, slicesText(i.Instance)))
		}
	}
	if len(foreign) > 0 {
		checks = append(checks, doctor.Check{
			ID: "mig.foreign", Name: nameOfMIG(g), Status: doctor.OK,
			Found: "another tool made " + strings.Join(foreign, ", ") + ": shares may have what is free of these, and Divvy never takes them away",
		})
	}
	return checks
}

// capabilityChecks look for the files by which programs are given the instances of GPUs.
func capabilityChecks(f *control.Forms, simgpu string) []doctor.Check {
	if f == nil {
		return nil
	}
	var whole []doctor.Instance
	for _, g := range f.GPUs {
		if !hasMIG(g) {
			continue
		}
		for _, i := range g.MIG.Instances {
			if i.Half == "" {
				whole = append(whole, doctor.Instance{GPU: g.Index, GPUInstance: i.GPUInstance, ComputeInstance: i.ComputeInstance})
			}
		}
	}
	if simgpu != "" {
		return doctor.Capabilities(simfiles.Proc(simgpu), simfiles.Devices(simgpu), whole)
	}
	return doctor.Capabilities("/proc", "/dev", whole)
}
