// Package cluster is the command line of what speaks to a Kubernetes cluster: the
// agent of a node, the webhook and the controller, and what answers questions about it. People call it by way of
// divvy, which becomes this program; see internal/cli.
package cluster

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// app is what every command works with.
type app struct {
	tree  install.Tree
	hooks Hooks
	out   io.Writer
	err   io.Writer
}

// Hooks are for tests.
type Hooks struct {
	// Step is told of each step of preparing and releasing a claim; nil tells nobody.
	Step func(name string)
	// Machine is the host whose devices virtual machines get from the agent, nil for this one.
	Machine *vfio.Host
}

// Main runs the command line and returns the exit status.
func Main(args []string, hooks Hooks, out, errOut io.Writer) int {
	tree, err := install.Find()
	if err != nil {
		program.Say(errOut, "%s: %v", program.Name(), err)
		return program.ExitFailure
	}
	root := newRoot(&app{tree: tree, hooks: hooks, out: out, err: errOut})
	return program.Run(root, args, func(*cobra.Command, error) int { return 0 })
}

// Commands are the commands of divvy-cluster, for documents made of them.
func Commands() *cobra.Command { return newRoot(&app{}) }

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{Use: "divvy", Short: "Divide the GPUs of a Kubernetes cluster"}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.AddCommand(newAgent(a), newServe(a), newWebhook(a), newController(a), newSchedulerExtender(a), newDoctor(a), newExplain(a), newQueues(a), newNode(a), newList(a), program.NewVersion(a.out))
	return root
}
