package cli

import (
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/pacing"
)

func newAgent(a *app) *cobra.Command {
	var instance, driver string
	var ephemeral, kubernetes bool
	misuse := pacing.MisuseReport
	command := &cobra.Command{
		Use:   "agent",
		Short: "Serve this machine's GPUs to every user, or to a Kubernetes cluster",
		Long: `Serve this machine's GPUs: grant shares, take back the memory of processes that
died, report processes on a GPU that are in no share. As root it serves every
user; 'divvy run' starts one for its user alone where none runs. Two agents
never serve one GPU. Shares outlive the agent; SIGTERM ends it.

A share that uses more of a GPU's time than it may, or than it says, is seen by
the driver's figures within two seconds. It is then reported by 'divvy ls' or,
with --misuse, its processes on the GPU are stopped (SIGSTOP) or killed as well.

With --kubernetes it also serves the kubelet of a cluster's node, and takes
further flags: 'divvy agent --kubernetes --help' lists them.`,
		Example: "  sudo divvy agent\n  sudo divvy agent --misuse stop\n  divvy agent --kubernetes --driver-root /host",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return agent.Serve(cmd.Context(), agent.Options{
				Place:      a.place(instance),
				Tree:       a.tree,
				DriverRoot: driver,
				Ephemeral:  ephemeral,
				Misuse:     misuse,
				Ready:      starter(ephemeral),
				Log:        slog.New(slog.NewTextHandler(a.err, nil)),
			})
		},
	}
	flags := command.Flags()
	flags.Var(&misuse, "misuse", "what is done about misuse of GPU time: report, stop or kill")
	flags.StringVar(&driver, "driver-root", "", "where the host's files are seen, for an agent in a container")
	// Never seen here: it makes the command line one for the cluster's program.
	flags.BoolVar(&kubernetes, "kubernetes", false, "serve the node of a Kubernetes cluster")
	// What control.Ensure says to the agents that it starts.
	flags.BoolVar(&ephemeral, "ephemeral", false, "end with the last share")
	flags.StringVar(&instance, "simgpu-dir", "", "serve the simulated machine in this directory")
	for _, name := range []string{"ephemeral", "simgpu-dir"} {
		flags.Lookup(name).Hidden = true
	}
	return command
}

// starter is the pipe to the program that started an ephemeral agent, nil where
// a person did. Programs that the agent runs do not inherit it.
func starter(ephemeral bool) io.WriteCloser {
	var stat unix.Stat_t
	if !ephemeral || unix.Fstat(control.ReadyFD, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil
	}
	unix.CloseOnExec(control.ReadyFD)
	return os.NewFile(control.ReadyFD, "ready")
}
