package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cli/program"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of Divvy",
		Example: "  divvy version",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(a.out, "divvy %s (%s, %s/%s)\n", program.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
