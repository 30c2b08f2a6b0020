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
)

func newGPU(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "gpu",
		Short: "Show and change the forms of GPUs",
		Long: `Show and change the forms of GPUs. All shares of a GPU have one backend, which is
the GPU's form.`,
		Example: "  divvy gpu ls\n  divvy gpu set 0 --form mps",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			return usage(errors.New("say what to do: `divvy gpu ls` or `divvy gpu set`"))
		},
	}
	command.AddCommand(newGPUList(a), newGPUSet(a))
	return command
}

func newGPUList(a *app) *cobra.Command {
	var machine string
	var output format
	command := &cobra.Command{
		Use:   "ls",
		Short: "List GPUs with their forms",
		Long: `List GPUs with their forms, what gives them these, their modes, and who uses them.
GIVEN is "configuration" for agent.yaml, "set" for 'divvy gpu set', "default" for a
GPU without a form beside others that have one by hand, and "shares" where the
shares there decide. A mode that Divvy changed is shown with what it was before.`,
		Example: `  divvy gpu ls
  divvy gpu ls -o json | jq '.machines[].gpus[].form'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.forms(cmd.Context(), machine)
			if err != nil {
				return err
			}
			return output.print(a.out, map[string]any{"machines": all}, func(w *strings.Builder) { printForms(w, all) })
		},
	}
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

// errFormless says that nobody knows of forms.
var errFormless = errors.New("no agent runs: `divvy run` or `divvy agent` starts one, which knows the forms; `divvy doctor` finds modes that an agent left changed")

// forms asks all agents.
func (a *app) forms(ctx context.Context, machine string) ([]machineForms, error) {
	endpoints, err := a.endpoints(ctx, machine)
	if err != nil {
		return nil, err
	}
	var all []machineForms
	for _, name := range sortedKeys(endpoints) {
		one := machineForms{Machine: name}
		err := ask(ctx, endpoints[name], func(c *control.Client) (err error) {
			one.Forms, err = c.Forms(ctx)
			return err
		})
		switch {
		case err == nil:
			all = append(all, one)
		case !errors.Is(err, control.ErrNoAgent):
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, errFormless
	}
	return all, nil
}

// setOptions are the flags of `divvy gpu set`.
type setOptions struct {
	machine, form, slice string
	replicas             int
	multiUser, wait      bool
}

func newGPUSet(a *app) *cobra.Command {
	o := &setOptions{}
	command := &cobra.Command{
		Use:   "set GPU",
		Short: "Give a GPU a form",
		Long: `Give a GPU a form, as root, while nothing uses it. It keeps the form when the agent
starts again, until another one is set or the machine starts again; agent.yaml gives
forms for good, and where it does, this command is refused. Once a GPU is set,
those that are not have form slice. With --form none the GPU is given nothing, and
its first share decides.`,
		Example: `  divvy gpu set 0 --form timeslice --slice short
  divvy gpu set 1 --form mps --wait
  divvy gpu set 0 --form none`,
		Args: argsOf(1, 1, "one GPU, by the index or UUID that `divvy gpu ls` shows"),
		RunE: func(cmd *cobra.Command, args []string) error {
			form, err := o.wanted(cmd)
			if err != nil {
				return usage(err)
			}
			return a.giveForm(cmd.Context(), o.machine, control.FormParams{GPU: args[0], Form: form, Wait: o.wait})
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.form, "form", "", "`FORM`: slice, timeslice, mps or none")
	flags.StringVar(&o.slice, "slice", "", "`LENGTH` of the driver's time slices: default, short, medium or long")
	flags.IntVar(&o.replicas, "replicas", 0, "`N`, the most shares at once; one that names no memory gets that part of it")
	flags.BoolVar(&o.multiUser, "multi-user", false, "with form mps: shares of several users, which are not isolated from each other")
	flags.BoolVar(&o.wait, "wait", false, "wait until nothing uses the GPU; no new share begins there meanwhile")
	addMachine(command, &o.machine)
	return command
}

// wanted is the form that the flags give, the zero form for none.
func (o *setOptions) wanted(cmd *cobra.Command) (form agentconfig.Form, err error) {
	switch {
	case o.form == "":
		return form, errors.New("say which form: --form slice, timeslice, mps or none")
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

func (a *app) giveForm(ctx context.Context, machine string, p control.FormParams) error {
	endpoints, err := a.endpoints(ctx, machine)
	if err != nil {
		return err
	}
	if machine == "" {
		endpoints = map[string]control.Endpoint{"": a.endpoint("")}
	}
	for name, endpoint := range endpoints {
		var formed *control.Formed
		err := a.insist(ctx, endpoint, func(c *control.Client) (err error) {
			formed, err = c.GiveForm(ctx, p)
			return err
		})
		switch {
		case errors.Is(err, control.ErrNoAgent):
			return errAgentless(machine)
		case err != nil:
			return err
		}
		var text strings.Builder
		printForms(&text, []machineForms{{Machine: name, Forms: &control.Forms{GPUs: []control.Formed{*formed}}}})
		if _, err := fmt.Fprint(a.out, text.String()); err != nil {
			return fmt.Errorf("show the GPU's form: %w", err)
		}
	}
	return nil
}

// errAgentless says that no agent can keep a form.
func errAgentless(machine string) error {
	if machine != "" {
		return fmt.Errorf("no agent serves the simulated machine %s: start one as root (`divvy agent --simgpu %[1]s`), which keeps the form", machine)
	}
	return errors.New("no agent serves this machine's own GPUs: start one as root (`divvy agent`), which keeps the form; for a simulated machine add --simgpu")
}

// printForms writes one row for each GPU, and what is wrong below.
func printForms(w *strings.Builder, all []machineForms) {
	for i, m := range all {
		if i > 0 {
			w.WriteByte('\n')
		}
		if m.Machine != "" {
			fmt.Fprintf(w, "simulated machine %s\n", m.Machine)
		}
		forms := table{}
		forms.row("GPU", "NAME", "FORM", "GIVEN", "COMPUTE MODE", "TIME SLICE", "SHARES", "OUTSIDE")
		for _, g := range m.GPUs {
			forms.row(fmt.Sprint(g.Index), g.Name, formText(g), givenText(g), modeText(g, "compute-mode"), modeText(g, "time-slice"), sharesText(g), outsideText(g))
		}
		forms.print(w)
		for _, g := range m.GPUs {
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

// formText is a GPU's form with what is given with it.
func formText(g control.Formed) string {
	text := orDash(string(g.Form))
	if g.Slice != "" {
		text += ", slice " + g.Slice
	}
	if g.Replicas > 0 {
		text += fmt.Sprintf(", %d replicas", g.Replicas)
	}
	if g.MultiUser {
		text += ", multi-user"
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

func sharesText(g control.Formed) string {
	var names []string
	for _, s := range g.Shares {
		names = append(names, s.Name)
	}
	return orDash(strings.Join(names, ", "))
}

func outsideText(g control.Formed) string {
	var pids []string
	for _, o := range g.Outside {
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
