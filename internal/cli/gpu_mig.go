package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
)

// onOff is a flag of two words.
type onOff struct{ on, given bool }

// Set implements pflag.Value.
func (f *onOff) Set(text string) error {
	if text != "on" && text != "off" {
		return fmt.Errorf("use on or off")
	}
	*f = onOff{on: text == "on", given: true}
	return nil
}

// Type implements pflag.Value.
func (f *onOff) Type() string { return "on|off" }

func (f *onOff) String() string {
	if !f.given {
		return ""
	}
	return modeWord(f.on)
}

func modeWord(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// migText is a GPU's MIG mode, "-" for a GPU without MIG.
func migText(g control.Formed) string {
	switch m := g.MIG; {
	case m == nil:
		return "-"
	case m.Unknown != "":
		return "?"
	case m.On != m.Pending:
		return fmt.Sprintf("%s (%s after a reset)", modeWord(m.On), modeWord(m.Pending))
	default:
		return modeWord(m.On)
	}
}

// hasMIG reports whether a GPU can be divided by MIG.
func hasMIG(g control.Formed) bool { return g.MIG != nil }

// printMIGInstances writes one row for each MIG instance of GPUs, if there are any.
func printMIGInstances(w *strings.Builder, gpus []control.Formed) {
	instances := columns.Table{}
	instances.Row("GPU", "PROFILE", "AT", "MEMORY", "SMS", "MADE BY", "DIVIDED BY", "SHARES", "OUTSIDE", "UUID")
	for _, g := range gpus {
		if !hasMIG(g) {
			continue
		}
		for _, i := range g.MIG.Instances {
			instances.Row(strconv.Itoa(g.Index), i.Profile, slicesText(i.Instance), size(i.Bytes), strconv.Itoa(i.Multiprocessors), originText(i.Origin),
				dividedText(i), sharesText(i.Shares), outsideText(i.Outside), orDash(i.UUID))
		}
	}
	if len(instances.Rows) > 1 {
		w.WriteByte('\n')
		instances.Print(w)
	}
}

// slicesText are the memory slices of an instance, such as "0-3".
func slicesText(i backend.Instance) string {
	if i.Size < 2 {
		return strconv.Itoa(i.Start)
	}
	return fmt.Sprintf("%d-%d", i.Start, i.Start+i.Size-1)
}

// originText says who made an instance.
func originText(o backend.Origin) string {
	switch o {
	case backend.OriginShare:
		return "Divvy, for a share"
	case backend.OriginLayout:
		return "Divvy, for a layout"
	case backend.OriginVGPU:
		return "Divvy, for a vGPU"
	default:
		return "another tool"
	}
}

// dividedText says how the shares of an instance divide it, "-" where one has it whole or none does.
func dividedText(i control.Instance) string {
	if i.Backend == v1alpha1.BackendMIG {
		return "-"
	}
	return orDash(string(i.Backend))
}

// printProfiles writes one row for each MIG profile of GPUs.
func printProfiles(w *strings.Builder, gpus []control.Formed) {
	profiles := columns.Table{}
	profiles.Row("GPU", "PROFILE", "MEMORY", "SMS", "SLICES", "FREE AT")
	for _, g := range gpus {
		if !hasMIG(g) {
			continue
		}
		for _, p := range g.MIG.Profiles {
			var free []string
			for _, start := range p.Free {
				free = append(free, strconv.Itoa(start))
			}
			profiles.Row(strconv.Itoa(g.Index), p.Name, size(p.Bytes), strconv.Itoa(p.Multiprocessors), strconv.Itoa(p.Size), orDash(strings.Join(free, ", ")))
		}
	}
	w.WriteByte('\n')
	if len(profiles.Rows) == 1 {
		w.WriteString("No GPU here is in MIG mode: the driver tells profiles in that mode only.\n")
		return
	}
	profiles.Print(w)
}

// migNotes say what is wrong with how a GPU is divided by MIG.
func migNotes(g control.Formed) (notes []string) {
	if !hasMIG(g) {
		return nil
	}
	note := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf("! GPU %d: %s", g.Index, fmt.Sprintf(format, args...)))
	}
	if g.MIG.Unknown != "" {
		note("how MIG divides it is not known: %s", g.MIG.Unknown)
	}
	for _, i := range g.MIG.Instances {
		if i.Half != "" {
			note("no program can use its instance %s at memory slice %s: %s", i.Profile, slicesText(i.Instance), i.Half)
		}
	}
	return notes
}
