package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

func newWeb(a *app) *cobra.Command {
	var machine string
	command := &cobra.Command{
		Use:   "web",
		Short: "Print a link to the web page that shows your shares",
		Long: `Print a link to the agent's web page. Without it the page shows sums over all
shares; with it, your own shares, and to root all. It can be opened once, within five
minutes, and leads to a page that lasts 12 hours, or until nobody has had it open for
two. Give neither address to others. Other machines reach the page by SSH alone:
'ssh -L 9410:127.0.0.1:9410 MACHINE' there, and then open the link.`,
		Example: "  divvy web",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			link, err := a.web(cmd.Context(), machine)
			if err != nil {
				return err
			}
			return a.line(link)
		},
	}
	addMachine(command, &machine)
	return command
}

// web asks the agents for a link, and takes the first one's that has a web page.
func (a *app) web(ctx context.Context, machine string) (string, error) {
	endpoints, err := a.endpoints(ctx, machine)
	if err != nil {
		return "", err
	}
	var refused error
	for _, name := range sortedKeys(endpoints) {
		var made control.Web
		err := ask(ctx, endpoints[name], func(c *control.Client) (err error) {
			made, err = c.Web(ctx)
			return err
		})
		switch {
		case err == nil:
			return made.Link, nil
		case errors.Is(err, control.ErrNoAgent):
		case refused == nil:
			refused = err
		}
	}
	if refused == nil {
		refused = errors.New("no agent runs: " + rundir.Start("") + " starts one that serves every user, and a web page")
	}
	return "", refused
}
