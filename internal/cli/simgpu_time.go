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
		Long: `Set the time slice of a process, or of all processes of a tenant that run now.
It takes effect with their next turns. Processes with work on one GPU take turns,
each for its slice.`,
		Example: `  divvy simgpu slice --of 4711 --to 2ms
  divvy simgpu slice --of trainer --to 0`,
		Args: instanceArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if whose == "" || !cmd.Flags().Changed("to") {
				return usage(errors.New("give a process and a length: --of PID --to 2ms"))
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
	flags.DurationVar(&slice, "to", 0, "length of a turn; 0 restores the machine's default")
	return command
}

func newSimgpuClock(a *app) *cobra.Command {
	var by time.Duration
	command := &cobra.Command{
		Use:   "clock [NAME]",
		Short: "Advance a simulated machine's virtual clock, and print it",
		Long: `Advance the virtual clock of a machine that was started with --set clock=virtual,
and print its time in nanoseconds. Time on such a machine's GPUs passes only so.`,
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
