package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

func newRelease(a *app) *cobra.Command {
	var machine string
	command := &cobra.Command{
		Use:   "release NAME",
		Short: "Take a device back from a virtual machine",
		Long: `Take a claim's device back, as root: drivers and all else are as they were before, after
a reset where the device can be reset. A device that a virtual machine has open stays
with it, and the refusal names the process. What somebody else changed meanwhile is
left, and told here and in the agent's log.`,
		Example: "  sudo divvy vm release train",
		Args:    argsOf(1, 1, "the name of one claim, as `divvy vm ls` shows it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			asked := 0
			err := a.askMachines(cmd.Context(), machine, func(c *control.Client) error {
				asked++
				released, err := c.ReleaseDevice(cmd.Context(), args[0])
				if err == nil {
					a.tellOf("claim "+args[0], released.Left)
				}
				return err
			})
			if asked > 1 && control.CodeOf(err) == control.CodeNotFound {
				return nil // an agent that ended meanwhile put it back, or the next one as it started
			}
			return err
		},
	}
	addMachine(command, &machine)
	command.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.offering(ownClaimNames)(cmd, args, typed)
	}
	return command
}

func newClaims(a *app) *cobra.Command {
	var machine string
	var output format
	command := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the devices that virtual machines have",
		Long: `List the devices that virtual machines have, whose they are, and how far each is:
"held", on the way there or back ("taking", "leaving"), or "stuck": then the kernel
does not end a change while somebody holds the device, and who does stands below.
"fault" says that the device is gone, or that somebody else changed it since. Virtual
functions that 'divvy vm functions' enabled follow, by the device that has them.`,
		Example: "  divvy vm ls\n  divvy vm ls -o json | jq '.claims[].device'",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all *control.Devices
			err := a.askMachines(cmd.Context(), machine, func(c *control.Client) (err error) {
				all, err = c.Devices(cmd.Context())
				return err
			})
			if err != nil {
				return err
			}
			err = output.print(a.out, all, func(w *strings.Builder) {
				if len(all.Claims) == 0 && all.Unread == "" {
					w.WriteString("No virtual machine has a device.\n")
				}
				printClaims(w, all.Claims, time.Now(), a.style(false))
				if len(all.Functions) > 0 {
					w.WriteString("\n")
				}
				printFunctions(w, all.Functions, a.style(false))
			})
			if err == nil && all.Unread != "" {
				return fmt.Errorf("this list is not whole: %s", text.Plain(all.Unread, 500))
			}
			return err
		},
	}
	addMachine(command, &machine)
	addFormat(command, &output)
	return command
}

// askMachines asks the agent that keeps the devices of virtual machines.
func (a *app) askMachines(ctx context.Context, machine string, f func(*control.Client) error) error {
	_, err := a.onMachine(ctx, machine, f)
	if !errors.Is(err, errNobody) {
		return err
	}
	nobody := fmt.Errorf("no agent serves this machine: start the system agent (%s), which keeps devices for virtual machines; on a host without NVIDIA's driver %s", rundir.Start(machine), rundir.ForMachines())
	if errors.Is(err, errUnknown) {
		return fmt.Errorf("%w: %w", errUnknown, nobody)
	}
	return nobody
}

// printClaims writes one row for each claim, and what is wrong below.
func printClaims(w *strings.Builder, all []control.DeviceClaim, now time.Time, as look) {
	if len(all) == 0 {
		return
	}
	table := columns.Table{Most: columns.MostOfName, Paint: as.paint, Colours: func(column, cell string) columns.Colour {
		if column == "STATE" && (cell == "stuck" || cell == "fault") {
			return columns.Alarm
		}
		return ""
	}}
	table.Row("VM CLAIM", "USER", "FORM", "DEVICE", "GPU", "GROUP", "STATE", "AGE")
	for _, c := range all {
		gpu, group, since := "-", "-", "-"
		if c.Index != nil {
			gpu = strconv.Itoa(*c.Index)
		}
		if c.Group >= 0 {
			group = strconv.Itoa(c.Group)
		}
		if !c.Since.IsZero() {
			since = age(now.Sub(c.Since))
		}
		table.Row(c.Name, cmp.Or(c.Cluster, orDash(c.User)), formOf(c), c.Device.String(), gpu, group, c.State(), since)
	}
	table.Show(w, as.width, "AGE", "GROUP", "GPU")
	for _, c := range all {
		if c.Fault != "" {
			fmt.Fprintln(w, as.note("! claim "+text.Plain(c.Name, 64)+": "+c.Fault))
		}
	}
}
