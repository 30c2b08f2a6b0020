package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
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
	checks = append(checks, configurationChecks(daemon.DefaultConfig)...)
	return append(checks, holderChecks(ctx, a.endpoint(""))...)
}

// agentCheck says which agent serves a machine.
func agentCheck(ctx context.Context, machine string, endpoint control.Endpoint) doctor.Check {
	c := doctor.Check{Name: "agent", Status: doctor.OK}
	if machine != "" {
		c.Name = "agent of simulated machine " + machine
	}
	var away *control.AwayError
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
		for _, gpu := range found.LeftOut {
			c.Status = doctor.Warn
			c.Found += "; " + awaited(gpu)
		}
		if n := len(found.Waiting); n > 0 {
			c.Found += fmt.Sprintf("; %d requests wait, the first since %s: %s", n, found.Waiting[0].Since.Local().Format("15:04:05"), found.Waiting[0].Reason)
		}
		if by, configured := endpoint.Configured(); info.Ephemeral && configured {
			return &control.AwayError{System: by}
		}
		return nil
	})
	switch {
	case errors.Is(err, control.ErrNoAgent):
		c.Found = "none runs; `divvy run` starts one"
	case errors.As(err, &away):
		if c.Found != "" {
			c.Found = "an own agent (" + c.Found + ") serves its shares and grants no more; "
		}
		c.Status, c.Found, c.Next = doctor.Fail, c.Found+strings.TrimPrefix(absent("", away).text(), "! "), away.Remedy()
	case err != nil:
		c.Status, c.Found = doctor.Fail, err.Error()
	}
	c.Found = strings.TrimSpace(c.Found)
	return c
}

// configurationChecks check the system agent's configuration, if there is one.
func configurationChecks(path string) []doctor.Check {
	c := doctor.Check{Name: "agent configuration", Status: doctor.OK, Found: path}
	switch err := daemon.CheckConfig(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission):
		c.Found += " (only root can read it)"
	case err != nil:
		c.Status, c.Found, c.Next = doctor.Fail, err.Error(), "correct it: a system agent does not start with it"
	}
	return []doctor.Check{c}
}

// holderChecks tell of agents that hold GPUs beside the one that serves this user.
func holderChecks(ctx context.Context, endpoint control.Endpoint) []doctor.Check {
	all, err := gpulock.Real.All(ctx)
	if err != nil {
		return []doctor.Check{{Name: "GPUs held", Status: doctor.Warn, Found: err.Error()}}
	}
	serving := 0
	if client, err := control.Find(ctx, endpoint); err == nil {
		serving = client.Info().PID
		_ = client.Close() // it has told enough
	}
	_, wanted := endpoint.Configured()
	var checks []doctor.Check
	for _, h := range all {
		if h.PID == serving && serving != 0 {
			continue
		}
		c := doctor.Check{Name: "GPU held", Status: doctor.Warn, Found: fmt.Sprintf("%s by %s", h.UUID, h), Next: h.Remedy(os.Getuid())}
		if wanted {
			c.Next = "the system agent takes it over when it starts"
			if serving != 0 {
				c.Status, c.Next = doctor.Fail, "end that process, or find out what it is: it is not the agent that serves this machine"
			}
		}
		checks = append(checks, c)
	}
	return checks
}

func printChecks(w *strings.Builder, checks []doctor.Check) {
	for _, c := range checks {
		fmt.Fprintf(w, "%-4s  %s: %s\n", c.Status, c.Name, c.Found)
		if c.Next != "" {
			fmt.Fprintf(w, "      → %s\n", c.Next)
		}
	}
}
