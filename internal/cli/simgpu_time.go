package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newSimgpuSlice(a *app) *cobra.Command {
	var whose string
	var slice time.Duration
	command := &cobra.Command{
		Use:   "slice [NAME]",
		Short: "Set a process's time slice on a simulated machine",
		Long: `Set the time slice of a process, or of all processes of a tenant that run now,
from their next turns on. Processes with work on one GPU take turns, each for its
slice.`,
		Example: `  divvy simgpu slice --of 4711 --to 2ms
  divvy simgpu slice --of trainer --to 0`,
		Args: instanceArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if whose == "" || !cmd.Flags().Changed("to") {
				return usage(errors.New("say whose time slice and how long: --of PID --to 2ms"))
			}
			instance, err := a.instance(only(args))
			if err != nil {
				return err
			}
			return a.simgpus().SetSlice(cmd.Context(), instance, whose, slice)
		},
	}
	flags := command.Flags()
	flags.StringVar(&whose, "of", "", "`PID` of a process, or a tenant's name as the report shows it")
	flags.DurationVar(&slice, "to", 0, "length of a turn; 0 is the machine's own")
	return command
}

func newSimgpuClock(a *app) *cobra.Command {
	var by time.Duration
	command := &cobra.Command{
		Use:   "clock [NAME]",
		Short: "Move a simulated machine's virtual clock on, and print it",
		Long: `Move the virtual clock of a machine that was started with --set clock=virtual, and
print its time in nanoseconds. Nothing happens on such a machine's GPUs but by this.`,
		Example: `  divvy simgpu start t4 --set clock=virtual
  divvy simgpu clock --by 5ms`,
		Args: instanceArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			instance, err := a.instance(only(args))
			if err != nil {
				return err
			}
			now, err := a.simgpus().MoveClock(cmd.Context(), instance, by)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, now.Nanoseconds())
			return err
		},
	}
	command.Flags().DurationVar(&by, "by", 0, "how far")
	return command
}
