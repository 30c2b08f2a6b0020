package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
	"github.com/divvy-gpu/divvy/internal/edits/docker"
)

// The forms of `divvy share show`.
const (
	showDevice = "device"
	showDocker = "docker"
)

func newShareShow(a *app) *cobra.Command {
	devices := cdi.Shares{Kind: v1alpha1.CDIKind}
	form, forms := showDevice, []string{showDevice, showDocker}
	command := &cobra.Command{
		Use:   "show NAME",
		Short: "Print by what containers get a share",
		Long: `Print the CDI device by which containers get a share that 'divvy share create' made.

With -o docker it prints arguments of 'docker run' instead, for Docker before 25, which
does not know CDI. They are those of the device, in one line that needs no quotes, but
for hooks: libraries of older drivers are hidden in /usr/local/cuda/compat alone. Print
them anew for each container: a share that is made again has others.`,
		Example: `  docker run $(divvy share show train -o docker) IMAGE`,
		Args:    argsOf(1, 1, "the name of the share, such as: divvy share show train -o docker"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.showShare(devices, args[0], form)
		},
	}
	command.Flags().VarP(choice{&form, "FORM", forms}, "output", "o", alternatives(forms))
	complete(command, "output", forms...)
	command.Flags().StringVar(&devices.Dir, "cdi-dir", cdi.DefaultDir, "`DIR` of the devices, as the agent was told")
	return command
}

func (a *app) showShare(devices cdi.Shares, name, form string) error {
	if err := devices.Check(name); err != nil {
		return usage(err)
	}
	e, err := devices.Read(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if form == showDevice {
		return a.line(devices.Kind + "=" + name)
	}
	arguments, err := docker.Arguments(e)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return a.line(strings.Join(arguments, " "))
}
