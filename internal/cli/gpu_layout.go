package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/migfile"
)

// exitTrouble is the status of `divvy gpu diff` where nothing was compared: 1 means that something differs.
const exitTrouble = 2

// layoutOptions are the flags of commands that read a file of layouts.
type layoutOptions struct {
	machine, file, config string
}

func (o *layoutOptions) add(command *cobra.Command) {
	command.Flags().StringVarP(&o.file, "file", "f", "", "`FILE` in the format of NVIDIA's mig-parted, - for standard input")
	command.Flags().StringVar(&o.config, "config", "", "`NAME` of the configuration in the file (default: the only one)")
	addMachine(command, &o.machine)
}

const layoutFormat = `

The file has the format of NVIDIA's mig-parted: configurations by name below
mig-configs, each a list of entries with devices, mig-enabled, mig-devices and
perhaps device-filter. GPUs that no entry names stay as they are. Keys that are not
known are errors, and so are hooks and compute instances such as 1c.3g.40gb.`

func newGPUApply(a *app) *cobra.Command {
	o := &layoutOptions{}
	var dry bool
	command := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Give GPUs the MIG layout of a file",
		Long: `Give GPUs the MIG layout of a file, as root. What there is to do is printed before
it is done. Instances that shares or other processes use, and those of other tools,
stay where they are: a layout that fits only without them is refused, and then
nothing is changed on any GPU. One that no program can use counts as none of the
layout's. Afterwards the instances of these GPUs stay when
their last share ends. The MIG mode changes as with 'divvy gpu set --mig'.` + layoutFormat,
		Example: `  divvy gpu apply -f layouts.yaml --config small --dry-run
  divvy gpu apply -f layouts.yaml --config small`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted, err := o.read()
			if err != nil {
				return err
			}
			_, err = a.onMachine(cmd.Context(), o.machine, func(c *control.Client) error { return a.applyLayout(cmd.Context(), c, wanted, dry) })
			return err
		},
	}
	o.add(command)
	command.Flags().BoolVar(&dry, "dry-run", false, "print what there is to do, and change nothing")
	return command
}

func newGPUDiff(a *app) *cobra.Command {
	o := &layoutOptions{}
	command := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Compare GPUs with the MIG layout of a file",
		Long: `Compare GPUs with the MIG layout of a file: their mode, and how many instances of
each profile they have, whoever made these. The exit status is 0 where nothing
differs, 1 where something does, and 2 where that is not known.` + layoutFormat,
		Example: `  divvy gpu diff -f layouts.yaml --config small`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted, err := o.read()
			if err != nil {
				return err
			}
			var differs bool
			_, err = a.onMachine(cmd.Context(), o.machine, func(c *control.Client) (err error) {
				differs, err = a.diffLayout(cmd.Context(), c, wanted)
				return err
			})
			if err == nil && differs {
				err = program.ErrReported
			}
			return err
		},
	}
	o.add(command)
	return command
}

func newGPUExport(a *app) *cobra.Command {
	var machine, config string
	command := &cobra.Command{
		Use:   "export",
		Short: "Print the MIG layout of GPUs as a file",
		Long: `Print the MIG layout that GPUs have as a file for 'divvy gpu apply', in the format of
NVIDIA's mig-parted. Instances that are only half made are left out, and told.`,
		Example: `  divvy gpu export > layouts.yaml
  divvy gpu export --config today`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := a.onMachine(cmd.Context(), machine, func(c *control.Client) error { return a.exportLayout(cmd.Context(), c, config) })
			return err
		},
	}
	command.Flags().StringVar(&config, "config", "current", "`NAME` of the configuration in the file")
	addMachine(command, &machine)
	return command
}

// configuration is one of a file's.
type configuration struct {
	path, name string
	file       *migfile.File
}

// goal is what the GPUs of a machine should have.
type goal struct {
	gpus []control.Formed
	// entries are by the GPU's index.
	entries map[int]migfile.Entry
}

// goal asks for the GPUs.
func (w configuration) goal(ctx context.Context, c *control.Client) (g goal, err error) {
	forms, err := c.Forms(ctx)
	if err != nil {
		return g, err
	}
	var named []migfile.GPU
	for _, gpu := range forms.GPUs {
		named = append(named, migfile.GPU{Index: gpu.Index, DeviceID: gpu.DeviceID})
	}
	if g.entries, err = w.file.Select(w.name, named); err != nil {
		return g, fmt.Errorf("%s: %w", w.path, err)
	}
	g.gpus = slices.DeleteFunc(forms.GPUs, func(gpu control.Formed) bool {
		_, named := g.entries[gpu.Index]
		return !named
	})
	for _, gpu := range g.gpus {
		if err := reachable(gpu, g.entries[gpu.Index]); err != nil {
			return g, err
		}
	}
	return g, nil
}

// read reads the configuration that is meant.
func (o *layoutOptions) read() (w configuration, err error) {
	var content []byte
	switch o.file {
	case "":
		return w, usage(errors.New("say which file: -f layouts.yaml, or -f - for standard input"))
	case "-":
		content, err = io.ReadAll(io.LimitReader(os.Stdin, migfile.MaxBytes+1))
	default:
		content, err = readAtMost(o.file, migfile.MaxBytes+1)
	}
	if err != nil {
		return w, fmt.Errorf("read the file of layouts: %w", err)
	}
	if w.file, err = migfile.Parse(content); err != nil {
		return w, fmt.Errorf("%s: %w", o.file, err)
	}
	w.path = o.file
	w.name, err = o.name(w.file)
	return w, err
}

// readAtMost reads the beginning of a file.
func readAtMost(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, most))
	return content, errors.Join(err, f.Close())
}

// name is that of the configuration that is meant.
func (o *layoutOptions) name(file *migfile.File) (string, error) {
	names := file.Names()
	switch {
	case o.config != "":
		return o.config, nil
	case len(names) == 1:
		return names[0], nil
	}
	return "", usage(fmt.Errorf("%s has %d configurations: name one with --config: %s", o.file, len(names), strings.Join(names, ", ")))
}

// reachable returns why a GPU can never be compared with an entry.
func reachable(gpu control.Formed, e migfile.Entry) error {
	switch {
	case gpu.MIG == nil && e.Enabled:
		return fmt.Errorf("GPU %d (%s) has no MIG, and the layout turns its MIG mode on: name other GPUs in devices, or add a device-filter", gpu.Index, gpu.Name)
	case gpu.MIG != nil && gpu.MIG.Unknown != "":
		return fmt.Errorf("how MIG divides GPU %d is not known: %s", gpu.Index, gpu.MIG.Unknown)
	}
	return nil
}

// applyLayout prints what there is to do for all GPUs, and does it.
func (a *app) applyLayout(ctx context.Context, c *control.Client, wanted configuration, dry bool) error {
	g, err := wanted.goal(ctx, c)
	if err != nil {
		return err
	}
	var todo []control.LayoutParams
	var text strings.Builder
	var faults []error
	for _, gpu := range g.gpus {
		if gpu.MIG == nil {
			fmt.Fprintf(&text, "GPU %d: nothing to do\n", gpu.Index)
			continue
		}
		e := g.entries[gpu.Index]
		p := control.LayoutParams{GPU: gpu.UUID, On: e.Enabled, Instances: e.Instances, Dry: true}
		r, err := c.Layout(ctx, p)
		if err != nil {
			faults = append(faults, err) // which names the GPU
			continue
		}
		printRearrangement(&text, *r)
		for _, half := range halvesOf(gpu) {
			if half.Origin == backend.OriginForeign && e.Enabled {
				fmt.Fprintf(&text, "GPU %d: %s at memory slice %s stays, and counts as none of the layout's: %s\n", gpu.Index, half.Profile, slicesText(half.Instance), half.Half)
			}
		}
		if p.Dry = false; !r.Empty() || p.On { // also where all is there: what was made for shares is to stay
			todo = append(todo, p)
		}
	}
	if _, err := io.WriteString(a.out, text.String()); err != nil {
		return fmt.Errorf("show what there is to do: %w", err)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if dry {
		return nil
	}
	for done, p := range todo {
		if _, err := c.Layout(ctx, p); err != nil {
			return fmt.Errorf("%w; %d of %d GPUs have the new one", err, done, len(todo)) // it names the GPU
		}
	}
	return nil
}

// printRearrangement writes what there is to do for a GPU.
func printRearrangement(w *strings.Builder, r control.Rearrangement) {
	line := func(format string, args ...any) {
		fmt.Fprintf(w, "GPU %d: %s\n", r.Index, fmt.Sprintf(format, args...))
	}
	if r.Empty() {
		line("nothing to do")
	}
	for _, p := range r.Remove {
		line("take away %s at memory slice %d (%s)", p.Profile, p.Start, p.UUID)
	}
	if r.Mode != nil {
		line("turn the MIG mode %s", modeWord(*r.Mode))
	}
	unplaced := map[string]int{}
	for _, p := range r.Add {
		if p.Start < 0 {
			unplaced[p.Profile]++
			continue
		}
		line("make %s at memory slice %d", p.Profile, p.Start)
	}
	for _, profile := range slices.Sorted(maps.Keys(unplaced)) {
		line("make %d of %s, where they fit: the driver tells that when the mode is on", unplaced[profile], profile)
	}
}

// diffLayout prints in what GPUs differ from a layout, and reports whether any does.
func (a *app) diffLayout(ctx context.Context, c *control.Client, wanted configuration) (differs bool, err error) {
	g, err := wanted.goal(ctx, c)
	if err != nil {
		return false, err
	}
	found := columns.Table{}
	found.Row("GPU", "OF", "HAS", "LAYOUT")
	for _, gpu := range g.gpus {
		addDifferences(&found, gpu, g.entries[gpu.Index])
	}
	if len(found.Rows) == 1 {
		return false, nil
	}
	var text strings.Builder
	found.Print(&text)
	_, err = io.WriteString(a.out, text.String())
	return true, err
}

// addDifferences adds a row for the mode and for each profile in which a GPU differs.
func addDifferences(found *columns.Table, gpu control.Formed, e migfile.Entry) {
	index := fmt.Sprint(gpu.Index)
	state := stateOf(gpu)
	if mode := migText(gpu); gpu.MIG != nil && mode != modeWord(e.Enabled) {
		found.Row(index, "MIG mode", mode, modeWord(e.Enabled))
	}
	profiles := maps.Clone(state.Instances)
	maps.Copy(profiles, e.Instances)
	for _, profile := range slices.Sorted(maps.Keys(profiles)) {
		if has, should := state.Instances[profile], e.Instances[profile]; has != should {
			found.Row(index, profile, fmt.Sprint(has), fmt.Sprint(should))
		}
	}
	if halves := halvesOf(gpu); len(halves) > 0 {
		found.Row(index, "half-made instances", fmt.Sprint(len(halves)), "0")
	}
}

// stateOf is what a GPU has, without instances that are half made.
func stateOf(gpu control.Formed) migfile.State {
	s := migfile.State{Index: gpu.Index, Instances: map[string]int{}}
	if gpu.MIG == nil {
		return s
	}
	s.Enabled = gpu.MIG.On
	for _, i := range gpu.MIG.Instances {
		if i.Half == "" {
			s.Instances[i.Profile]++
		}
	}
	return s
}

// halvesOf are the instances of a GPU that no program can use.
func halvesOf(gpu control.Formed) (halves []control.Instance) {
	if gpu.MIG == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(gpu.MIG.Instances), func(i control.Instance) bool { return i.Half == "" })
}

func (a *app) exportLayout(ctx context.Context, c *control.Client, config string) error {
	forms, err := c.Forms(ctx)
	if err != nil {
		return err
	}
	var states []migfile.State
	for _, gpu := range forms.GPUs {
		if err := reachable(gpu, migfile.Entry{}); err != nil {
			return err
		}
		states = append(states, stateOf(gpu))
		for _, half := range halvesOf(gpu) {
			a.tell(fmt.Sprintf("GPU %d: left out is %s at memory slice %s: %s", gpu.Index, half.Profile, slicesText(half.Instance), half.Half))
		}
	}
	_, err = a.out.Write(migfile.Export(config, states))
	return err
}
