package cli

import (
	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// newVMWriter is the process that changes drivers for an agent, because a write about them may never end. People do not run it.
func newVMWriter() *cobra.Command {
	return &cobra.Command{
		Use:    vfio.Command,
		Short:  "Change drivers for an agent",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE:   func(_ *cobra.Command, args []string) error { return vfio.Main(args[0]) },
	}
}
