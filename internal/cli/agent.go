package cli

import (
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

func newAgent(a *app) *cobra.Command {
	var instance string
	var ephemeral bool
	command := &cobra.Command{
		Use:   "agent",
		Short: "Serve this machine's GPUs to every user",
		Long: `Serve this machine's GPUs: grant shares, take back the memory of processes that
died, report processes on a GPU that are in no share. As root it serves every
user; 'divvy run' starts one for its user alone where none runs. Two agents
never serve one GPU. Shares outlive the agent; SIGTERM ends it.`,
		Example: "  sudo divvy agent",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return agent.Serve(cmd.Context(), agent.Options{
				Place:     a.place(instance),
				Tree:      a.tree,
				Ephemeral: ephemeral,
				Ready:     starter(ephemeral),
				Log:       slog.New(slog.NewTextHandler(a.err, nil)),
			})
		},
	}
	flags := command.Flags()
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
