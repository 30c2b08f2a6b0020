package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// look is how lists are shown.
type look struct {
	// width is that of the terminal in columns, 0 for no limit.
	width int
	// wide shows all columns.
	wide  bool
	paint columns.Paint
}

// printListings writes one block for each agent.
func printListings(w *strings.Builder, all []listing, as look) {
	for i, l := range all {
		if i > 0 {
			w.WriteByte('\n')
		}
		printListing(w, l, as)
	}
}

func printListing(w *strings.Builder, l listing, as look) {
	w.WriteString(titleOf(l) + "\n")
	printGPUs(w, l.GPUs, true, as)
	w.WriteByte('\n')
	if len(l.Tenants) == 0 {
		w.WriteString("No shares.\n")
	} else {
		printTenants(w, l.Tenants, l.Time, as)
	}
	if len(l.Devices) > 0 {
		w.WriteByte('\n')
		printClaims(w, l.Devices, l.Time, as)
	}
	printNotes(w, l, as)
}

// printUnserved writes the GPUs of a machine without an agent, and who uses them.
func printUnserved(w *strings.Builder, u unserved, as look) {
	machine := "This machine"
	if u.Machine != "" {
		machine = "Simulated machine " + u.Machine
	}
	if u.Fault != "" {
		fmt.Fprintf(w, "%s, no agent: %s\n", machine, text.Plain(u.Fault, mostOfNote))
		return
	}
	with := ""
	if u.Machine != "" {
		with = "--simgpu " + u.Machine + " "
	}
	fmt.Fprintf(w, "%s, no agent. `divvy run %s--memory 8Gi -- COMMAND` makes a share.\n", machine, with)
	printGPUs(w, u.GPUs, false, as)
	if len(u.Processes) > 0 {
		w.WriteByte('\n')
		processes := columns.Table{Most: columns.MostOfName, Elastic: "COMMAND", Paint: as.paint}
		processes.Row("PROCESS", "USER", "GPU", "USED", "TIME", "COMMAND")
		for _, p := range u.Processes {
			processes.Row(pid(p.PID), orDash(p.User), strconv.Itoa(indexOf(u.GPUs, p.UUID)), told(p.Used), percentOf(p.Percent), orDash(p.Command))
		}
		processes.Show(w, as.width)
	}
	for _, note := range u.Notes {
		fmt.Fprintln(w, as.note(note))
	}
}

// indexOf is that of the GPU with a UUID.
func indexOf(gpus []control.GPU, uuid string) int {
	for _, g := range gpus {
		if g.UUID == uuid {
			return g.Index
		}
	}
	return -1
}

// Columns of GPUs.
var (
	gpuColumns = []string{"GPU", "MODEL", "UTIL", "FREE", "MEMORY", "GRANTED", "CORES", "TEMP", "POWER", "UUID"}
	// wideColumns are those that -o wide adds, named as nvidia-smi names them as far as it does.
	wideColumns = []string{"USED", "FORM", "BUS-ID", "FAN", "PERF", "CAP", "PERSIST", "DISPLAY", "ECC", "COMPUTE", "MIG"}
)

// printGPUs writes one row for each GPU, with what is granted of it where an agent serves it.
func printGPUs(w *strings.Builder, all []control.GPU, served bool, as look) {
	gpus := columns.Table{Most: columns.MostOfName, Elastic: "MODEL", Paint: as.paint, Colours: func(_, cell string) columns.Colour {
		if strings.HasSuffix(cell, overMark) {
			return columns.Alarm
		}
		return ""
	}}
	names := slices.Clone(gpuColumns)
	if as.wide {
		names = append(names, wideColumns...)
	}
	gpus.Row(names...)
	for _, g := range all {
		row := gpuRow(g)
		if as.wide {
			row = append(row, wideRow(g)...)
		}
		gpus.Row(row...)
	}
	if !served {
		for _, name := range []string{"GRANTED", "CORES"} {
			gpus.Drop(slices.Index(gpus.Rows[0], name))
		}
	}
	if as.wide {
		gpus.Elastic = ""
		gpus.Show(w, as.width)
		return
	}
	if as.width > 0 && gpus.Width() > as.width {
		column := slices.Index(gpus.Rows[0], "UUID")
		for i, g := range all {
			gpus.Rows[i+1][column] = brief(g.UUID, all)
		}
	}
	gpus.Show(w, as.width, "CORES", "GRANTED", "UUID")
}

// overMark marks a GPU of which more was granted than it has.
const overMark = "!"

// overGranted says of what more was granted than the GPU has, "" if of nothing.
func overGranted(g control.GPU) string {
	var texts []string
	if g.Granted > g.Capacity {
		texts = append(texts, fmt.Sprintf("%s of its %s", size(g.Granted), size(g.Capacity)))
	}
	if g.Cores > 100 {
		texts = append(texts, fmt.Sprintf("%d%% of its time", g.Cores))
	}
	return strings.Join(texts, " and ")
}

func gpuRow(g control.GPU) []string {
	r := readingOf(g)
	granted, cores := size(g.Granted), percent(g.Cores)
	if g.Granted > g.Capacity {
		granted += overMark
	}
	if g.Cores > 100 {
		cores += overMark
	}
	free := "?"
	if g.Used != nil {
		free = size(g.Capacity - min(*g.Used, g.Capacity))
	}
	return []string{
		strconv.Itoa(g.Index), strings.TrimPrefix(g.Name, "NVIDIA "), figure(r.Utilisation, "%"), free, size(g.Capacity), granted, cores,
		figure(r.Temperature, "C"), watts(r.Milliwatts), g.UUID,
	}
}

func wideRow(g control.GPU) []string {
	r := readingOf(g)
	ecc := switched(r.ECC)
	if r.ECC != nil && *r.ECC && r.Uncorrected != nil {
		ecc = strconv.FormatUint(*r.Uncorrected, 10)
	}
	performance := "-"
	if r.PerformanceState != nil {
		performance = "P" + strconv.Itoa(*r.PerformanceState)
	}
	return []string{
		told(g.Used), orDash(string(g.Form)), orDash(g.PCI), figure(r.Fan, "%"), performance, watts(r.LimitMilliwatts), switched(r.Persistence), switched(r.Display), ecc,
		orDash(r.ComputeMode), switched(r.MIG),
	}
}

// readingOf is what a GPU does, with nothing in it where the driver does not answer.
func readingOf(g control.GPU) nvml.Reading {
	if g.Reading == nil {
		return nvml.Reading{}
	}
	return *g.Reading
}

func figure(n *int, unit string) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n) + unit
}

func watts(milliwatts *uint64) string {
	if milliwatts == nil {
		return "-"
	}
	return strconv.FormatUint((*milliwatts+500)/1000, 10) + "W"
}

func switched(on *bool) string {
	switch {
	case on == nil:
		return "-"
	case *on:
		return "on"
	}
	return "off"
}

// percentOf is a part of a GPU's time.
func percentOf(percent *float64) string {
	if percent == nil {
		return "-"
	}
	return strconv.FormatFloat(*percent, 'f', 1, 64) + "%"
}

// usual is what shares have whose request says nothing of it. A column that says
// nothing else is left out.
var usual = map[string][]string{"CLIENT": {"-"}, "INSTANCE": {"-"}, "BACKEND": {"slice"}, "POLICY": {"weighted", "-"}, "WEIGHT": {"1", "-"}, "CLASS": {"online"}, "LAYER": {"namespace"}, "HELD": {"-"}, "REFUSED": {"-"}, "RESIDENT": {"-"}, "TURN": {"-"}, "MOVED": {"-"}}

// spare are the columns that a narrow terminal misses least; JSON and -o wide have them.
var spare = []string{"OVERHEAD", "LAYER", "PIDS", "MOVED", "WEIGHT", "CLASS", "POLICY", "BACKEND", "INSTANCE", "CORES", "CLIENT"}

// printTenants writes one row for each share of tenants, as they were at a time.
func printTenants(w *strings.Builder, tenants []control.Tenant, at time.Time, as look) {
	shares := columns.Table{Most: columns.MostOfName, Elastic: "COMMAND", Paint: as.paint, Colours: stateColour}
	shares.Row("SHARE", "USER", "CLIENT", "AGE", "GPU", "INSTANCE", "USED", "LIMIT", "RESIDENT", "TURN", "MOVED", "OVERHEAD", "TIME", "HELD", "REFUSED", "CORES", "BACKEND", "POLICY", "WEIGHT", "CLASS", "LAYER", "PIDS", "STATE", "COMMAND")
	for _, tenant := range tenants {
		for _, s := range tenant.Shares {
			shares.Row(tenant.Name, tenant.User, clientOf(tenant), age(at.Sub(tenant.Created)), strconv.Itoa(s.Index), instanceOf(s), used(s), size(s.Limit), residentOf(s), turnOf(s, at), movedOf(s), size(s.Overhead),
				spent(s.Time), heldBack(s), refused(s), coresOf(s), string(s.Backend), policyOf(s), weightOf(s), string(s.Class), string(tenant.Layer), pids(s.Process), state(tenant, s),
				orDash(strings.Join(tenant.Command, " ")))
		}
	}
	if as.wide {
		shares.Elastic = ""
		shares.Show(w, as.width)
		return
	}
	shares.Omit(usual)
	shares.Show(w, as.width, spare...)
}

// clientOf is who uses a share from another host.
func clientOf(t control.Tenant) string {
	if t.Remote == nil {
		return "-"
	}
	return t.Remote.Text()
}

// heldBack is how much of the last second a share had to wait for GPU time.
func heldBack(s control.Share) string {
	if s.Time == nil || s.Time.HeldBackPercent <= 0 {
		return "-"
	}
	return strconv.FormatFloat(s.Time.HeldBackPercent, 'f', 0, 64) + "%"
}

// residentOf is how much of a swap share's memory that can leave the GPU is there.
func residentOf(s control.Share) string {
	if s.Turns == nil {
		return "-"
	}
	return size(s.Turns.OnGPU) + "/" + size(s.Turns.Swapped)
}

// turnOf says whether a swap share has its turn, and in how long that changes; of one that waits, nobody may know it.
func turnOf(s control.Share, now time.Time) string {
	switch t := s.Turns; {
	case t == nil:
		return "-"
	case t.Until != nil && t.Until.After(now):
		return fmt.Sprintf("%s, %s", t.State, age(t.Until.Sub(now)))
	case t.Waits:
		return string(t.State) + ", waits"
	default:
		return string(t.State)
	}
}

// movedOf is how much of a swap share's memory was moved at the ends of turns, to the GPU and to the host.
func movedOf(s control.Share) string {
	if s.Turns == nil || s.Turns.MovedIn+s.Turns.MovedOut == 0 {
		return "-"
	}
	return size(s.Turns.MovedIn) + "/" + size(s.Turns.MovedOut)
}

// refused is how many allocations of a share were refused.
func refused(s control.Share) string {
	if s.Refusals == nil || s.Refusals.Count == 0 {
		return "-"
	}
	return strconv.FormatUint(s.Refusals.Count, 10)
}

// stateColour is the colour of a share's cell.
func stateColour(column, cell string) columns.Colour {
	switch {
	case column != "STATE":
		return ""
	case cell == "fault", strings.HasPrefix(cell, "over"):
		return columns.Alarm
	case cell == "held back", cell == string(control.TurnOut):
		return columns.Notice
	}
	return ""
}

// instanceOf is the profile of the MIG instance on which a share is, with its first memory slice.
func instanceOf(s control.Share) string {
	if s.Instance == nil {
		return "-"
	}
	return fmt.Sprintf("%s@%d", s.Instance.Profile, s.Instance.Start)
}

// processOf names a process that uses a GPU outside every share.
func processOf(o control.Outside) string {
	text := fmt.Sprintf("process %d", o.PID)
	if o.User != "" {
		text += " of " + o.User
	}
	if o.Command != "" {
		text += " (" + o.Command + ")"
	}
	return text
}

// outsideNotes are about processes on a GPU that are in no share.
func outsideNotes(l listing) (notes []string) {
	for _, o := range l.Outside {
		whose := "is in no share"
		if o.Tenant != "" {
			whose = fmt.Sprintf("was started in %s but has left it", shareOf(o.Tenant, o.Owner))
		}
		if o.Answer != "" {
			whose += "; the agent has it " + o.Answer
		}
		time := ""
		if o.Percent != nil {
			time = ", " + percentOf(o.Percent) + " of its time,"
		}
		notes = append(notes, fmt.Sprintf("! %s uses %s of GPU %d%s and %s", processOf(o), told(o.Used), indexOf(l.GPUs, o.UUID), time, whose))
	}
	return notes
}

// mostOfNote bounds a line below the tables, in characters.
const mostOfNote = 1000

// note is a line below the tables. Those that begin with ! are about something that is wrong.
func (as look) note(line string) string {
	line = text.Plain(line, mostOfNote)
	if strings.HasPrefix(line, "!") {
		return as.paint.Of(columns.Alarm, line)
	}
	return line
}
