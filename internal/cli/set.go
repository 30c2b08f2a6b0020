package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/text"
)

func newSet(a *app) *cobra.Command {
	flags := &shareFlags{}
	var machine string
	var belowUsed bool
	command := &cobra.Command{
		Use:   "set SHARE",
		Short: "Change a share while it runs",
		Long: `Change a share while its processes run. Whatever has no flag stays as it is.
Memory in use is never taken away: a limit below it is refused. With --below-used
it is allowed, and then allocations fail until enough memory is freed. Cores,
policy, weight and class take effect within milliseconds. With backend mps, cores
are the ceiling of programs that start later; those that run keep theirs.`,
		Example: `  divvy set train --memory 12Gi
  divvy set train --cores 30 --policy burst --max-cores 80
  divvy set batch --class offline --policy weighted --weight 1`,
		Args: argsOf(1, 1, "one share, by the name that `divvy ls` shows; another user's as USER/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !anyChanged(cmd, "memory", "cores", "max-cores", "policy", "weight", "class") {
				return usage(fmt.Errorf("say what to change: --memory, --cores, --max-cores, --policy, --weight or --class"))
			}
			params := flags.changes(cmd)
			params.Tenant, params.BelowUsed = args[0], belowUsed
			return a.set(cmd.Context(), machine, params)
		},
	}
	flags.add(command.Flags(), nil)
	command.Flags().BoolVar(&belowUsed, "below-used", false, "allow a memory limit below what is in use")
	addMachine(command, &machine)
	return command
}

func anyChanged(cmd *cobra.Command, names ...string) bool {
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// changes are the flags that were given.
func (f *shareFlags) changes(cmd *cobra.Command) control.SetParams {
	params := control.SetParams{Overcommit: f.overcommit}
	set := func(name string, take func()) {
		if cmd.Flags().Changed(name) {
			take()
		}
	}
	set("memory", func() { params.Memory = &f.memory })
	set("cores", func() { params.Cores = new(int(f.cores)) })
	set("max-cores", func() { params.MaxCores = new(int(f.maxCores)) })
	set("policy", func() { params.Policy = new(v1alpha1.Policy(f.policy)) })
	set("weight", func() { params.Weight = new(int(f.weight)) })
	set("class", func() { params.Class = new(v1alpha1.Class(f.class)) })
	return params
}

func (a *app) set(ctx context.Context, machine string, params control.SetParams) error {
	name := params.Tenant
	found, err := a.holder(ctx, machine, name)
	if err != nil {
		return err
	}
	params.Tenant = found.share
	var tenant *control.Tenant
	err = a.insist(ctx, found.endpoint, func(c *control.Client) (err error) {
		tenant, err = c.Set(ctx, params)
		return err
	})
	switch {
	case errors.Is(err, errUnknown):
		return fmt.Errorf("whether %s was changed is not known: %w: `divvy ls` tells when there is an agent", name, err)
	case errors.Is(err, errMeanwhile):
		return fmt.Errorf("%s: %w", name, errMeanwhile)
	case control.CodeOf(err) == control.CodeNotFound:
		return noShare(name)
	case err != nil:
		return err
	}
	var shown strings.Builder
	printTenants(&shown, []control.Tenant{*tenant}, time.Now(), a.style(false))
	if _, err = io.WriteString(a.out, shown.String()); err == nil && params.Cores != nil && keepsCeiling(tenant) {
		say(a.err, "divvy: programs of %s that run keep their ceiling of SMs: the new one holds for those that start later", name)
	}
	return err
}

// keepsCeiling reports whether a share has programs whose ceiling the driver does not change while they run.
func keepsCeiling(t *control.Tenant) bool {
	return slices.ContainsFunc(t.Shares, func(s control.Share) bool { return s.Backend == v1alpha1.BackendMPS && len(s.Process) > 0 })
}

func newStop(a *app) *cobra.Command {
	var machine string
	var grace time.Duration
	command := &cobra.Command{
		Use:   "stop SHARE...",
		Short: "End shares and their processes",
		Long: `End shares: their processes get SIGTERM and, if they still run after the grace
time, SIGKILL. Returns when the memory is back.`,
		Example: `  divvy stop train
  divvy stop train batch --grace 1m`,
		Args: argsOf(1, -1, "one or more shares, by the names that `divvy ls` shows; another user's as USER/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if grace < 0 {
				return usage(fmt.Errorf("--grace %s: give a time of 0 or more", grace))
			}
			return a.stopAll(cmd.Context(), machine, args, control.StopParams{Grace: grace})
		},
	}
	command.Flags().DurationVar(&grace, "grace", usualGrace, "time between SIGTERM and SIGKILL")
	addMachine(command, &machine)
	return command
}

// usualGrace is the time between SIGTERM and SIGKILL.
const usualGrace = 10 * time.Second

// stopAll ends shares, one after the other, and says so of each.
func (a *app) stopAll(ctx context.Context, machine string, shares []string, params control.StopParams) error {
	for _, share := range shares {
		params.Tenant = share
		if err := a.stop(ctx, machine, params); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(a.out, "%s has ended, and its memory is back\n", text.Plain(share, columns.MostOfName)); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}

func (a *app) stop(ctx context.Context, machine string, params control.StopParams) error {
	name := params.Tenant
	found, err := a.holder(ctx, machine, name)
	if err != nil {
		return err
	}
	params.Tenant = found.share
	err = a.insist(ctx, found.endpoint, func(c *control.Client) error { return c.Stop(ctx, params) })
	switch {
	case errors.Is(err, errUnknown):
		return fmt.Errorf("whether %s has ended is not known: %w: `divvy ls` tells when there is an agent", name, err)
	case errors.Is(err, errMeanwhile):
		return fmt.Errorf("%s: %w: processes that it had and that use no GPU may go on", name, errMeanwhile)
	case control.CodeOf(err) == control.CodeNotFound:
		return noShare(name)
	}
	return err
}

// addMachine adds the flag that narrows a command to one simulated machine.
func addMachine(command *cobra.Command, machine *string) {
	command.Flags().StringVar(machine, "simgpu", "", "only the simulated `MACHINE`")
}
