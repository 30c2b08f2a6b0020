package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend/mps"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

func newGPU(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "gpu",
		Short: "Show and change the forms and MIG layouts of GPUs",
		Long: `Show and change the forms and MIG layouts of GPUs. All shares of a GPU have one
backend, which is the GPU's form. A GPU in MIG mode has form mig, and shares are on
its instances.`,
		Example: "  divvy gpu ls\n  divvy gpu set 0 --form mps\n  divvy gpu set 1 --mig on",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			return usage(errors.New("say what to do: `divvy gpu ls`, `set`, `apply`, `diff` or `export`"))
		},
	}
	command.AddCommand(newGPUList(a), newGPUSet(a), newGPUApply(a), newGPUDiff(a), newGPUExport(a))
	return command
}

func newGPUList(a *app) *cobra.Command {
	var machine string
	var output format
	var profiles bool
	command := &cobra.Command{
		Use:   "ls",
		Short: "List GPUs with their forms and MIG instances",
		Long: `List GPUs with their forms, what gives them these, their modes, and who uses them.
GIVEN is "configuration" for agent.yaml, "set" for 'divvy gpu set', "default" for a
GPU without a form beside others that have one by hand, and "shares" where the
shares there decide. A mode that Divvy changed is shown with what it was before.

The second table has the MIG instances. AT is the memory slices that one takes.
MADE BY tells whether Divvy made it for a share, with the last of which it goes, or
for a layout, or whether another tool did: such a one is used while it is free, and
never taken away. DIVIDED BY is the backend of several shares on one instance. With
--profiles a third table tells the profiles of each GPU in MIG mode, and at which
memory slices an instance could begin beside those that are there.`,
		Example: `  divvy gpu ls
  divvy gpu ls --profiles
  divvy gpu ls -o json | jq '.machines[].gpus[].mig.instances[]?.uuid'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.forms(cmd.Context(), machine)
			if err != nil {
				return err
			}
			err = output.print(a.out, all, func(w *strings.Builder) { all.print(w, profiles) })
			if err == nil && len(all.Away) > 0 {
				err = program.ErrReported
			}
			return err
		},
	}
	command.Flags().BoolVar(&profiles, "profiles", false, "list MIG profiles too, with the places that are free")
	addMachine(command, &machine)
	addFormat(command, &output)
	return command
}

// machineForms are the forms of one machine's GPUs.
type machineForms struct {
	// Machine is the simulated machine's name, empty for the real one.
	Machine string `json:"machine,omitempty"`
	*control.Forms
}

// formsList is the document that `divvy gpu ls -o json` prints.
type formsList struct {
	Machines []machineForms `json:"machines"`
	// Away are system agents that should run and do not.
	Away []absence `json:"away,omitempty"`
}

// print writes who is away, and the GPUs of the machines.
func (l formsList) print(w *strings.Builder, profiles bool) {
	for _, a := range l.Away {
		w.WriteString(a.text())
	}
	if len(l.Away)+len(l.Machines) == 0 {
		w.WriteString("No agent runs. `divvy run` or " + rundir.Start("") + " starts one, which knows the forms; `divvy doctor` finds modes that an agent left changed.\n")
	}
	printForms(w, l.Machines, profiles)
}

// forms asks all agents.
func (a *app) forms(ctx context.Context, machine string) (all formsList, err error) {
	all.Machines = []machineForms{} // a list in JSON even when empty
	endpoints, err := a.endpoints(ctx, machine)
	if err != nil {
		return all, err
	}
	for _, name := range sortedKeys(endpoints) {
		one := machineForms{Machine: name}
		err := ask(ctx, endpoints[name], func(c *control.Client) (err error) {
			one.Forms, err = c.Forms(ctx)
			return err
		})
		var away *control.AwayError
		switch {
		case err == nil:
			all.Machines = append(all.Machines, one)
		case errors.As(err, &away):
			all.Away = append(all.Away, absent(name, away))
		case !errors.Is(err, control.ErrNoAgent):
			return all, err
		}
	}
	return all, nil
}

// setOptions are the flags of `divvy gpu set`.
type setOptions struct {
	machine, form, slice string
	replicas             int
	multiUser, wait      bool
	mig                  onOff
}

func newGPUSet(a *app) *cobra.Command {
	o := &setOptions{}
	command := &cobra.Command{
		Use:   "set GPU",
		Short: "Give a GPU a form, or turn its MIG mode on or off",
		Long: `Give a GPU a form, as root, while nothing uses it. It keeps the form when the agent
starts again, until another one is set or the machine starts again; agent.yaml gives
forms for good, and where it does, this command is refused. Once a GPU is set,
those that are not have form slice. With --form none the GPU is given nothing, and
its first share decides.

With --mig the GPU's MIG mode is turned on or off, also where agent.yaml gives forms.
In MIG mode its form is mig. The mode changes only while nothing uses the GPU and it
has no instances of another tool, and only at once: where the driver would change it at the next
reset, nothing stays pending, and the refusal says what to do. GPUs before Hopper
keep the mode when the machine starts again, later ones do not.`,
		Example: `  divvy gpu set 0 --form timeslice --slice short
  divvy gpu set 1 --form mps --wait
  divvy gpu set 0 --form none
  divvy gpu set 2 --mig on`,
		Args: argsOf(1, 1, "one GPU, by the index or UUID that `divvy gpu ls` shows"),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := o.wanted(cmd)
			if err != nil {
				return usage(err)
			}
			return a.giveForm(cmd.Context(), o.machine, func(c *control.Client) (*control.Formed, error) {
				if o.mig.given {
					return c.MIGMode(cmd.Context(), control.MIGModeParams{GPU: args[0], On: o.mig.on, Wait: o.wait}, a.tellAwaited)
				}
				return c.GiveForm(cmd.Context(), control.FormParams{GPU: args[0], Form: form, Wait: o.wait}, a.tellAwaited)
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.form, "form", "", "`FORM`: slice, timeslice, mps or none")
	flags.StringVar(&o.slice, "slice", "", "`LENGTH` of the driver's time slices: default, short, medium or long")
	flags.IntVar(&o.replicas, "replicas", 0, "`N`, the most shares at once; one that names no memory gets that part of it")
	flags.BoolVar(&o.multiUser, "multi-user", false, "with form mps: shares of several users, which are not isolated from each other")
	flags.Var(&o.mig, "mig", "turn the MIG mode on or off")
	flags.BoolVar(&o.wait, "wait", false, "wait until nothing uses the GPU; no new share begins there meanwhile")
	addMachine(command, &o.machine)
	return command
}

// wanted is the form that the flags give, the zero form for none.
func (o *setOptions) wanted(cmd *cobra.Command) (form agentconfig.Form, err error) {
	switch {
	case o.mig.given && anyChanged(cmd, "form", "slice", "replicas", "multi-user"):
		return form, errors.New("--mig gives the GPU form mig, or takes it away: leave out --form, --slice, --replicas and --multi-user")
	case o.mig.given:
		return form, nil
	case o.form == "":
		return form, errors.New("say which form: --form slice, timeslice, mps or none, or turn the MIG mode --mig on or off")
	case o.form == string(v1alpha1.BackendMIG):
		return form, errors.New("--form mig: a GPU has that form while it is in MIG mode: use --mig on")
	case o.form == "none" && anyChanged(cmd, "slice", "replicas", "multi-user"):
		return form, errors.New("--form none is given with nothing: leave out --slice, --replicas and --multi-user")
	case o.form == "none":
		return form, nil
	case cmd.Flags().Changed("replicas") && o.replicas < 1:
		return form, fmt.Errorf("--replicas %d: give 1 to %d", o.replicas, agentconfig.MaxReplicas)
	case cmd.Flags().Changed("slice") && o.slice == "":
		return form, fmt.Errorf("--slice is empty: give one of %s", strings.Join(agentconfig.Slices, ", "))
	}
	form = agentconfig.Form{Backend: v1alpha1.Backend(o.form), Slice: o.slice, Replicas: o.replicas, MultiUser: o.multiUser}
	return form, form.Check()
}

// giveForm has the agent of one machine change a GPU, and shows what that is then.
func (a *app) giveForm(ctx context.Context, machine string, give func(*control.Client) (*control.Formed, error)) error {
	var info control.Info
	var formed *control.Formed
	name, err := a.onMachine(ctx, machine, func(c *control.Client) (err error) {
		info = c.Info()
		formed, err = give(c)
		return err
	})
	if err != nil {
		return err
	}
	var text strings.Builder
	printForms(&text, []machineForms{{Machine: name, Forms: &control.Forms{Info: info, GPUs: []control.Formed{*formed}}}}, false)
	if _, err := fmt.Fprint(a.out, text.String()); err != nil {
		return fmt.Errorf("show the GPU's form: %w", err)
	}
	return nil
}

// tellAwaited tells for what the change of a GPU waits.
func (a *app) tellAwaited(w control.Awaited) { a.tell("waiting: " + w.Reason) }

// onMachine asks the agent of this machine, or of the simulated one, about its GPUs. It returns the simulated machine's
// name where an agent of its own serves it.
func (a *app) onMachine(ctx context.Context, machine string, f func(*control.Client) error) (name string, err error) {
	endpoint := a.endpoint("")
	if machine != "" {
		endpoints, err := a.endpoints(ctx, machine)
		if err != nil {
			return "", err
		}
		for name, endpoint = range endpoints { // there is one
			break
		}
	}
	err = a.insist(ctx, endpoint, f)
	var answer *control.Error
	switch {
	case errors.Is(err, errMeanwhile) && errors.As(err, &answer): // it is about no share
		err = fmt.Errorf("the agent ended before it answered, and the next one says: %w", answer)
	case errors.Is(err, errMeanwhile):
		err = fmt.Errorf("%w: %w", errUnknown, errAgentless(machine))
	case errors.Is(err, control.ErrNoAgent):
		err = errAgentless(machine)
	}
	return name, err
}

// errNobody marks a machine whose GPUs no agent serves.
var errNobody = errors.New("no agent serves")

// errAgentless says that no agent can keep a form.
func errAgentless(machine string) error {
	if machine != "" {
		return fmt.Errorf("%w the simulated machine %s: start one as root (%s), which keeps the form", errNobody, machine, rundir.Start(machine))
	}
	return fmt.Errorf("%w this machine's own GPUs: start one as root (%s), which keeps the form; for a simulated machine add --simgpu", errNobody, rundir.Start(""))
}

// printForms writes one row for each GPU and for each MIG instance, on request for each profile, and what is wrong below.
func printForms(w *strings.Builder, all []machineForms, profiles bool) {
	for i, m := range all {
		if i > 0 {
			w.WriteByte('\n')
		}
		if m.Machine != "" {
			fmt.Fprintf(w, "simulated machine %s\n", m.Machine)
		}
		forms := columns.Table{}
		forms.Row("GPU", "NAME", "FORM", "GIVEN", "COMPUTE MODE", "TIME SLICE", "MIG MODE", "SHARES", "OUTSIDE")
		for _, g := range m.GPUs {
			forms.Row(fmt.Sprint(g.Index), g.Name, formText(g, m.Info.Driver), givenText(g), modeText(g, "compute-mode"), modeText(g, "time-slice"), migText(g), sharesText(g.Shares), outsideText(g.Outside))
		}
		forms.Omit(map[string][]string{"MIG MODE": {"-"}})
		forms.Print(w)
		printMIGInstances(w, m.GPUs)
		if profiles {
			printProfiles(w, m.GPUs)
		}
		for _, g := range m.GPUs {
			if g.MultiUser && !mps.ServesSeveral(m.Info.Driver) {
				fmt.Fprintf(w, "! GPU %d: it is given multi-user, which has no effect with driver %s: that needs %d or later\n", g.Index, m.Info.Driver, mps.MultiUserSince)
			}
			for _, text := range migNotes(g) {
				w.WriteString(text + "\n")
			}
			for _, mode := range g.Modes {
				if mode.Foreign() {
					fmt.Fprintf(w, "! GPU %d: somebody changed its %s: Divvy made it %s, and it is %s\n", g.Index, mode.Mode, mode.Made, mode.Value)
				}
			}
			if g.Fault != "" {
				fmt.Fprintf(w, "! GPU %d: %s\n", g.Index, g.Fault)
			}
		}
	}
}

// formText is a GPU's form with what is given with it, as this driver keeps it.
func formText(g control.Formed, driver string) string {
	text := orDash(string(g.Form))
	if g.Slice != "" {
		text += ", slice " + g.Slice
	}
	if g.Layout != "" {
		text += ", layout " + g.Layout
	}
	if g.Replicas > 0 {
		text += fmt.Sprintf(", %d replicas", g.Replicas)
	}
	switch {
	case g.MultiUser && mps.ServesSeveral(driver):
		text += ", multi-user"
	case g.MultiUser:
		text += ", one user"
	}
	return text
}

func givenText(g control.Formed) string {
	if g.Given == control.GivenNone && len(g.Shares) > 0 {
		return "shares"
	}
	return orDash(string(g.Given))
}

// modeText is a mode of a GPU as it is, with what it was where Divvy changed it.
func modeText(g control.Formed, name string) string {
	at := slices.IndexFunc(g.Modes, func(m control.GPUMode) bool { return m.Mode == name })
	if at < 0 {
		return "-"
	}
	m := g.Modes[at]
	text := orDash(m.Value)
	if m.Made != "" && !m.Foreign() {
		text += " (was " + m.Before + ")"
	}
	return text
}

func sharesText(shares []control.FormedShare) string {
	var names []string
	for _, s := range shares {
		names = append(names, s.FullName())
	}
	return orDash(strings.Join(names, ", "))
}

func outsideText(outside []control.Outside) string {
	var pids []string
	for _, o := range outside {
		pids = append(pids, fmt.Sprintf("process %d", o.PID))
	}
	return orDash(strings.Join(pids, ", "))
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
