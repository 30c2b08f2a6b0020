package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

func newServe(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "serve",
		Short: "Serve GPUs of this machine to programs of others",
		Long: `Serve GPUs of this machine to programs of other machines. 'divvy serve init' makes the
certificates of the server and its file, serve.yaml; 'divvy serve admit' lets a client in.`,
		Example: "  sudo divvy serve init\n  sudo divvy serve admit ada --user ada --memory 48Gi",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			return usage(errors.New("say what to do: `divvy serve init`, `admit` or `expel`"))
		},
	}
	command.AddCommand(newServeInit(a), newServeAdmit(a), newServeExpel(a))
	return command
}
