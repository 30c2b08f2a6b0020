package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/command"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/version"
)

// variablesFlag are variables for a command on another host. The flag may be repeated.
type variablesFlag struct{ list []string }

// Set implements pflag.Value. A value may have commas.
func (f *variablesFlag) Set(text string) error {
	if _, err := command.Pass(nil, []string{text}); err != nil {
		return err
	}
	f.list = append(f.list, text)
	return nil
}

// Type implements pflag.Value.
func (f *variablesFlag) Type() string { return "NAME[=VALUE]" }

func (f *variablesFlag) String() string { return strings.Join(f.list, " ") }

// unfitOn says which flag makes no sense for a command on another host, nil if none.
func (o *runOptions) unfitOn() error {
	for _, one := range []struct {
		given bool
		flag  string
		why   string
	}{
		{o.remote.given(), "--remote", "the command would be on one host and its share on another: choose one of the two"},
		{o.whenUsed, "--when-used", "the share is there as long as the command"},
		{o.simgpu != "", "--simgpu", "a simulated machine is served by `divvy serve --simgpu` on its host"},
		{len(o.choice.names.list) > 0, "--gpu", "the host chooses among its GPUs"},
		{o.choice.count.all, "--gpus all", "say how many, because hosts differ"},
		{o.layer.layer != "", "--layer", "the host knows what it allows"},
	} {
		if one.given {
			return usage(fmt.Errorf("%s cannot be given with --on: %s", one.flag, one.why))
		}
	}
	return nil
}

// runOn runs a command on another host, and returns how it ended.
func (a *app) runOn(ctx context.Context, o *runOptions, args []string) error {
	if err := o.unfitOn(); err != nil {
		return err
	}
	request := o.request()
	if err := valid(request); err != nil {
		return err
	}
	env, err := command.Pass(os.Environ(), o.env.list)
	if err != nil {
		return usage(err)
	}
	names, err := o.on.hosts()
	if err != nil {
		return err
	}
	here, err := os.Hostname()
	if err != nil {
		here = "unknown"
	}
	take := wire.Take{Request: request, Wait: o.wait, Host: here, User: process.UserName(os.Getuid())}
	client := command.Client{Streams: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, Tell: a.tell}
	var exited wire.Exited
	err = relay.Find(names).Command(ctx, take, a.tell, func(conn *wire.Conn, take wire.Take) (err error) {
		open := wire.Open{Version: version.Full(), Purpose: wire.PurposeCommand, Take: &take, Command: &wire.Command{Args: args, Env: env}}
		exited, err = client.Run(ctx, conn, open)
		return err
	})
	if err != nil {
		return err
	}
	if status := command.Status(exited); status != 0 {
		return commandStatus(status)
	}
	return nil
}

// forWhom is who uses a command's share from another host, nil for nobody.
func forWhom(text string) (*control.Remote, error) {
	if text == "" {
		return nil, nil
	}
	r := &control.Remote{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, usage(fmt.Errorf("read for whom the command is: %w", err))
	}
	return r, nil
}

// attendCommand is the argument with which divvy becomes the parent of a command of another host's client.
const attendCommand = "attend"

// newAttend is the process that runs a command for a client of `divvy serve`. People do not run it.
func newAttend(a *app) *cobra.Command {
	var machine string
	c := &cobra.Command{
		Use:    attendCommand,
		Short:  "Run a command for a client of divvy serve",
		Args:   noArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var agent *control.Client
			err := command.Attend(cmd.Context(), func(ctx context.Context) (err error) {
				agent, err = a.haveAgent(ctx, machine)
				return err
			})
			if agent != nil {
				err = errors.Join(err, agent.Close())
			}
			return err
		},
	}
	c.Flags().StringVar(&machine, "simgpu", "", "the simulated `MACHINE` on which the command has its share")
	return c
}

// haveAgent starts the user's own agent if the command will need one, so that it does not become the command's and end with
// it: an agent stays while somebody is connected. What is wrong with one `divvy run` tells.
func (a *app) haveAgent(ctx context.Context, machine string) (*control.Client, error) {
	instance, err := a.ownMachine(ctx, machine)
	if err != nil {
		return nil, err
	}
	client, err := control.Ensure(ctx, a.endpoint(instance), control.Starter{Say: func(string) {}, Hidden: hidden})
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // see above
	}
	return client, nil
}
