package cli

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cli/program"
)

// clusterProgram has the commands that speak to a Kubernetes cluster. It is a
// program of its own because its libraries cost tens of milliseconds and tens of
// megabytes at every start, which `divvy run` and `divvy ls` must not pay.
const clusterProgram = "divvy-cluster"

// forCluster reports whether a command line is for the cluster's program.
func forCluster(args []string) bool {
	switch {
	case len(args) == 0:
		return false
	case args[0] == "explain":
		return len(args) > 1 && (args[1] == "pod" || args[1] == "queue")
	case args[0] == "ls" || args[0] == "list":
		return slices.Contains(args, "--cluster")
	}
	return (args[0] == "agent" || args[0] == "doctor" || args[0] == "serve") && slices.Contains(args, "--kubernetes")
}

// handOver becomes the cluster's program, under our own name. It returns only if
// that fails.
func (a *app) handOver(args []string) error {
	path := a.tree.Program(clusterProgram)
	err := a.become(path, append([]string{program.Called()}, args...), os.Environ())
	return fmt.Errorf("run %s: %w: reinstall Divvy", path, err)
}

// newHandedOver is a command of the cluster's program, which also prints its help.
func newHandedOver(a *app, name, short string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              short,
		Example:            "  divvy " + name + " --help",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.handOver(append([]string{name}, args...))
		},
	}
}
