package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/doctor"
)

func newDoctor(a *app) *cobra.Command {
	var output format
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Check what Divvy needs of this machine, and say what to do",
		Long: `Check what Divvy needs of this machine: its own files, the driver, namespaces,
shared memory and agents. Nothing is changed. The exit status is 1 if 'divvy run'
cannot work.`,
		Example: "  divvy doctor\n  divvy doctor -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks := a.checks(cmd.Context())
			print := func(w *strings.Builder) { printChecks(w, checks) }
			if err := output.print(a.out, map[string]any{"checks": checks}, print); err != nil {
				return err
			}
			for _, c := range checks {
				if c.Status == doctor.Fail {
					return program.ErrReported
				}
			}
			return nil
		},
	}
	addFormat(command, &output)
	return command
}

func (a *app) checks(ctx context.Context) []doctor.Check {
	host := doctor.Host{
		Root: "/", Tree: a.tree, Rundir: a.rundir,
		LibraryPath: filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")),
	}
	checks := host.Run(ctx)
	endpoints, err := a.endpoints("")
	if err != nil {
		return append(checks, doctor.Check{Name: "simulated machines", Status: doctor.Warn, Found: err.Error()})
	}
	for _, machine := range sortedKeys(endpoints) {
		checks = append(checks, agentCheck(ctx, machine, endpoints[machine]))
	}
	return checks
}

// agentCheck says which agent serves a machine.
func agentCheck(ctx context.Context, machine string, endpoint control.Endpoint) doctor.Check {
	c := doctor.Check{Name: "agent", Status: doctor.OK}
	if machine != "" {
		c.Name = "agent of simulated machine " + machine
	}
	err := ask(ctx, endpoint, func(client *control.Client) error {
		info := client.Info()
		c.Found = fmt.Sprintf("pid %d of %s serves, driver %s", info.PID, info.User, info.Driver)
		found, err := client.List(ctx)
		if err != nil {
			return err
		}
		for _, g := range found.GPUs {
			if g.Unwatched != "" {
				c.Status = doctor.Warn
				c.Found += fmt.Sprintf("; GPU %d: %s", g.Index, g.Unwatched)
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, control.ErrNoAgent):
		c.Found = "none runs; `divvy run` starts one"
	case err != nil:
		c.Status, c.Found = doctor.Fail, err.Error()
	}
	return c
}

func printChecks(w *strings.Builder, checks []doctor.Check) {
	for _, c := range checks {
		fmt.Fprintf(w, "%-4s  %s: %s\n", c.Status, c.Name, c.Found)
		if c.Next != "" {
			fmt.Fprintf(w, "      → %s\n", c.Next)
		}
	}
}
