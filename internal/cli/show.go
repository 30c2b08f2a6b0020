package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func newShow(a *app) *cobra.Command {
	var machine string
	command := &cobra.Command{
		Use:   "show [SHARE]",
		Short: "Explain why a share is slow or ran out of memory",
		Long: `Explain one share in sentences: what it was granted and uses, which of its
allocations were refused and by whom, how much of its life it was held back and by
whom, and what would help. Without a name inside a share, that share is meant, which
the variable DIVVY_SHARE names. Of a share that has ended, what happened to it is
told, as long as the agent runs.`,
		Example: `  divvy show train
  divvy run --memory 8Gi -- sh -c 'python train.py || divvy show'`,
		Args: argsOf(0, 1, "one share, by the name that `divvy ls` shows; another user's as USER/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := os.Getenv(shareVariable)
			switch {
			case len(args) == 1:
				name = args[0]
			case name == "":
				return usage(fmt.Errorf("this is no share: give one, by the name that `divvy ls` shows"))
			}
			lines, err := a.show(cmd.Context(), machine, name)
			if err != nil {
				return err
			}
			_, err = io.WriteString(a.out, strings.Join(lines, "\n")+"\n")
			return err
		},
	}
	addMachine(command, &machine)
	return command
}

// show is the account of the share of that name, in lines.
func (a *app) show(ctx context.Context, machine, name string) ([]string, error) {
	found, err := a.holder(ctx, machine, name)
	if errors.Is(err, errNoShare) {
		return a.ended(ctx, machine, name)
	}
	if err != nil {
		return nil, err
	}
	l := listing{endpoint: found.endpoint}
	if err := l.list(ctx); err != nil {
		return nil, err
	}
	for i := range l.Tenants {
		if t := &l.Tenants[i]; t.ID == found.share {
			return why(&l.Listing, t, os.Getuid()), nil
		}
	}
	for i := range l.Tenants { // one of several users' of that name
		if t := &l.Tenants[i]; t.Called(found.share) {
			return nil, fmt.Errorf("several users have a share %q: say whose, as %s/%s", name, t.User, t.Name)
		}
	}
	return a.ended(ctx, machine, name)
}

// ended tells of a share that has ended what the agents still know.
func (a *app) ended(ctx context.Context, machine, name string) ([]string, error) {
	all, err := a.survey(ctx, machine)
	if err != nil {
		return nil, err
	}
	user, share, whole := strings.Cut(name, "/")
	if !whole {
		user, share = "", name
	}
	var lines, refused []string
	for i := range all.agents {
		l := &all.agents[i].Listing
		lines = append(lines, eventsOf(l, share, user, false)...)
		refused = append(refused, eventsOf(l, share, user, true)...)
	}
	switch {
	case len(lines) > 0:
		return append([]string{fmt.Sprintf("%s has ended. What happened to it:", name)}, append(lines, refused...)...), nil
	case len(refused) > 0:
		return append([]string{fmt.Sprintf("%s never began: it was refused.", name)}, refused...), nil
	}
	return nil, noShare(name)
}
