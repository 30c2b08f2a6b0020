package cli

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

func newShare(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "share",
		Short: "Make shares for containers, and end them",
		Long: `Make shares for the containers of podman, Docker and others. No process holds such
a share: it stays until it is ended or the machine starts again. Containers get it by
a device of the Container Device Interface (CDI), or, where Docker is too old to know
these, by what 'divvy share show NAME -o docker' prints.`,
		Example: "  sudo divvy share create train --memory 8Gi\n  podman run --device " + v1alpha1.CDIKind + "=train IMAGE\n  sudo divvy share rm train",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			return usage(errors.New("say what to do: `divvy share create`, `show` or `rm`; `divvy ls` lists shares"))
		},
	}
	command.AddCommand(newShareCreate(a), newShareShow(a), newShareRemove(a))
	return command
}

// createOptions are the flags of `divvy share create`.
type createOptions struct {
	share   shareFlags
	choice  choiceFlags
	backend string
	owner   string
	machine string
	wait    bool
	swap    swapFlags
}

const shareCreateText = `Make a share for containers, and print the CDI device by which they get it. All
containers that have the device are in the one share, with one memory limit and one
part of the GPU's time. A container has one such device.

Root makes shares, at the system agent ('divvy agent'). With --for the share is that
user's: their limits count, and they may change and end it. It survives restarts of
the agent. 'divvy set' changes it, 'divvy share rm' or 'divvy stop' end it.

Memory and cores are per GPU. The GPUs are those that --gpu names, else those of
CUDA_VISIBLE_DEVICES, else any.`

func newShareCreate(a *app) *cobra.Command {
	o := &createOptions{}
	command := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a share for containers",
		Long:  shareCreateText,
		Example: `  sudo divvy share create train --memory 8Gi
  sudo divvy share create serve --memory 8Gi --cores 50 --policy burst --for ada
  podman run --device ` + v1alpha1.CDIKind + `=train IMAGE
  docker run --device ` + v1alpha1.CDIKind + `=train IMAGE`,
		Args: argsOf(1, 1, "the name of the share, such as: divvy share create train --memory 8Gi"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.createShare(cmd.Context(), o, args[0]) },
	}
	flags := command.Flags()
	o.share.add(flags, map[string]string{
		"memory": "all that a GPU has", "cores": "none guaranteed", "policy": "fixed with --cores, else weighted",
		"max-cores": "100", "weight": "1", "class": "online",
	})
	o.choice.add(flags)
	flags.Var(&word{"BACKEND", &o.backend}, "backend", "how the share is made: slice divides GPU time by cores and weights, timeslice leaves it to the driver (default: slice)")
	flags.Var(&word{"USER", &o.owner}, "for", "the user whose share it is and whose limits count, by name or number (default: root)")
	flags.BoolVar(&o.wait, "wait", false, "wait until there is room")
	o.swap.add(flags)
	addMachine(command, &o.machine)
	return command
}

func (a *app) createShare(ctx context.Context, o *createOptions, name string) error {
	if err := (cdi.Shares{}).Check(name); err != nil {
		return usage(err)
	}
	run := runOptions{share: o.share, choice: o.choice, name: name, backend: o.backend, swap: o.swap}
	request := run.request()
	checked := request
	checked.Default()
	if err := errors.Join(checked.Validate(), o.choice.wish().Validate()); err != nil {
		return usage(err)
	}
	owner, err := userNumber("--for", o.owner)
	if err != nil {
		return usage(err)
	}
	if o.machine != "" && !a.servedToAll(ctx, o.machine) {
		return fmt.Errorf("no system agent serves the simulated machine %s, which shares for containers need: start it as root (%s)", o.machine, rundir.Start(o.machine))
	}
	params := control.CreateParams{Request: request, Layer: control.LayerContainer, For: owner, Wait: o.wait}
	client, created, err := a.obtain(ctx, a.endpoint(""), params, func(client *control.Client, r *v1alpha1.ShareRequest) error {
		served, err := driverOf(client.Info(), driver.Finder{})
		if err != nil {
			return err
		}
		return a.choose(ctx, &o.choice, r, served, client)
	})
	if err != nil {
		return err
	}
	return errors.Join(a.line(created.Tenant.Device), client.Close())
}

// userNumber is the number of the user that a flag names, nil for no name. A number may be of no user that the machine knows, as the users of
// containers are: lists show these by their numbers.
func userNumber(flag, name string) (*int, error) {
	if name == "" {
		return nil, nil
	}
	number := name
	if found, err := user.Lookup(name); err == nil {
		number = found.Uid
	}
	uid, err := strconv.ParseUint(number, 10, 32)
	if err != nil || uid > lastUser {
		return nil, fmt.Errorf("%s: there is no user %q", flag, name)
	}
	as := int(uid)
	return &as, nil
}

// lastUser is the largest number of a user: the one above means nobody to the kernel.
const lastUser = 1<<32 - 2

func newShareRemove(a *app) *cobra.Command {
	var machine string
	var grace time.Duration
	command := &cobra.Command{
		Use:   "rm NAME...",
		Short: "End shares for containers",
		Long: `End shares that 'divvy share create' made: no container gets their devices any more,
and the processes of containers that have them get SIGTERM and, if they still run
after the grace time, SIGKILL, whoever's they are. Returns when the memory is back.`,
		Example: `  sudo divvy share rm train`,
		Args:    argsOf(1, -1, "one or more shares, by the names that `divvy ls` shows; another user's as USER/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if grace < 0 {
				return usage(fmt.Errorf("--grace %s: give a time of 0 or more", grace))
			}
			return a.stopAll(cmd.Context(), machine, args, control.StopParams{Grace: grace, Lasting: true})
		},
	}
	command.Flags().DurationVar(&grace, "grace", 10*time.Second, "time between SIGTERM and SIGKILL")
	addMachine(command, &machine)
	return command
}
