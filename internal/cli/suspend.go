package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

func newSuspend(a *app) *cobra.Command {
	var machine string
	var hold bool
	command := &cobra.Command{
		Use:   "suspend SHARE",
		Short: "Take a share off its GPUs and keep it in host memory",
		Long: `Take all processes of a share off their GPUs, contexts included, by the driver's
checkpoint. Their memory lies in host memory meanwhile, and others may have their
room. Returns when they are off. They come back by 'divvy resume', or by
themselves when one of them calls the GPU: such a call waits until there is room.
With --hold only 'divvy resume' brings them back.

The agent needs host memory for it (--swap-memory), the machine driver 570 or
later on x86-64. A share with a process that the driver cannot save is refused: one
with managed memory, on a MIG instance, or before driver 610 with memory that other
processes have open.`,
		Example: `  divvy suspend notebook
  divvy suspend train --hold`,
		Args: argsOf(1, 1, "one share, by the name that `divvy ls` shows; another user's as USER/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.moveShare(cmd.Context(), machine, args[0], "suspended", func(ctx context.Context, c *control.Client, share string) (*control.Tenant, error) {
				return c.Suspend(ctx, control.SuspendParams{Tenant: share, Hold: hold})
			})
		},
	}
	command.Flags().BoolVar(&hold, "hold", false, "keep it out until 'divvy resume', whatever its programs call")
	addMachine(command, &machine)
	return command
}

func newResume(a *app) *cobra.Command {
	var machine string
	command := &cobra.Command{
		Use:   "resume SHARE",
		Short: "Bring a suspended share back to its GPUs",
		Long: `Bring a suspended share back to its GPUs. Returns when its processes go on. If
others have its room by now it waits in the queue, and says for what. Who
interrupts the command leaves the share its place.

A share whose room the cluster's scheduler gives to another pod is refused, and
comes back by itself: 'divvy ls' says for whom it is off its GPUs.`,
		Example: `  divvy resume notebook`,
		Args:    argsOf(1, 1, "one share, by the name that `divvy ls` shows; another user's as USER/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.moveShare(cmd.Context(), machine, args[0], "resumed", func(ctx context.Context, c *control.Client, share string) (*control.Tenant, error) {
				return c.Resume(ctx, control.ResumeParams{Tenant: share}, func(r control.Returning) {
					if r.Reason != "" {
						a.tell(fmt.Sprintf("%s waits: %s", args[0], r.Reason))
					}
				})
			})
		},
	}
	addMachine(command, &machine)
	return command
}

// moveShare has a share taken off its GPUs or brought back, and prints it.
func (a *app) moveShare(ctx context.Context, machine, name, what string, move func(ctx context.Context, c *control.Client, share string) (*control.Tenant, error)) error {
	found, err := a.holder(ctx, machine, name)
	if err != nil {
		return err
	}
	var tenant *control.Tenant
	err = a.insist(ctx, found.endpoint, func(c *control.Client) (err error) {
		tenant, err = move(ctx, c, found.share)
		return err
	})
	switch {
	case errors.Is(err, errUnknown):
		return fmt.Errorf("whether %s is %s is not known: %w: `divvy ls` tells when there is an agent", name, what, err)
	case errors.Is(err, errMeanwhile):
		return fmt.Errorf("%s: %w", name, errMeanwhile)
	case control.CodeOf(err) == control.CodeNotFound:
		return noShare(name)
	case err != nil:
		return err
	}
	var shown strings.Builder
	printTenants(&shown, []control.Tenant{*tenant}, time.Now(), a.style(false))
	_, err = io.WriteString(a.out, shown.String())
	return err
}
