package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

func newFunctions(a *app) *cobra.Command {
	var machine, count string
	var output format
	command := &cobra.Command{
		Use:   "functions GPU --count NUMBER",
		Short: "Enable the virtual functions of a GPU, or take them away",
		Long: `Enable virtual functions (SR-IOV) of a GPU, as root: as many as --count says, or "all"
that it can have. GPU is an index, a UUID or a PCI address; any other device can be named
by its address. Then 'divvy vm claim' gives one to a virtual machine: as a vGPU, or whole
with --form vf.

A number is changed only from 0, because others may use the functions that there are.
--count 0 takes away those that Divvy enabled, once no virtual machine has one. The host's
driver has to make them, and drivers of the host get them only where they make vGPUs.`,
		Example: "  sudo divvy vm functions 0 --count all\n  sudo divvy vm functions 0000:c1:00.0 --count 4\n  sudo divvy vm functions 0 --count 0",
		Args:    argsOf(1, 1, "one GPU, by index, UUID or PCI address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := functionsAsked(args[0], count)
			if err != nil {
				return usage(err)
			}
			return a.functions(cmd.Context(), machine, p, output)
		},
	}
	command.Flags().StringVar(&count, "count", "", "`NUMBER` of virtual functions, or all; 0 takes them away")
	addMachine(command, &machine)
	addFormat(command, &output)
	complete(command, "count", "all", "0")
	command.ValidArgsFunction = a.offering(indexNames)
	return command
}

// functionsAsked are what the agent is asked for.
func functionsAsked(name, count string) (p control.SetFunctionsParams, err error) {
	if at, err := pci.ParseAddress(strings.ToLower(name)); err == nil {
		p.PCI = &at
	} else {
		p.GPU = name
	}
	if count == "all" {
		p.Count = pci.AllFunctions
		return p, nil
	}
	if p.Count, err = strconv.Atoi(count); err != nil || p.Count < 0 {
		return p, errors.New("give --count: the number of virtual functions, all, or 0 to take them away")
	}
	return p, nil
}

// virtualFunctions is the document that `divvy vm functions -o json` prints.
type virtualFunctions struct {
	control.Functions
	// Total is how many there can be, Virtual are those that there are.
	Total   int               `json:"total"`
	Virtual []virtualFunction `json:"virtual"`
}

type virtualFunction struct {
	Device pci.Address `json:"device"`
	Driver string      `json:"driver,omitempty"`
	// Group is the IOMMU group, -1 for none.
	Group int `json:"group"`
}

func (a *app) functions(ctx context.Context, machine string, p control.SetFunctionsParams, output format) error {
	var set *control.Functions
	err := a.askMachines(ctx, machine, func(c *control.Client) (err error) {
		set, err = c.SetFunctions(ctx, p)
		return err
	})
	if err != nil {
		return err
	}
	host, err := a.facts(ctx, "")
	if err != nil {
		return err
	}
	return output.print(a.out, functionsNow(host, *set), func(w *strings.Builder) { writeFunctions(w, host, functionsNow(host, *set)) })
}

// functionsNow is what there is of a device's virtual functions.
func functionsNow(host *facts.Host, set control.Functions) virtualFunctions {
	d, _ := host.Find(set.Device)
	all := virtualFunctions{Functions: set, Total: d.VFsTotal, Virtual: []virtualFunction{}}
	for _, f := range host.VirtualOf(set.Device) {
		all.Virtual = append(all.Virtual, virtualFunction{Device: f.Address, Driver: f.Driver, Group: f.Group})
	}
	return all
}

// writeFunctions tells people what there is.
func writeFunctions(w *strings.Builder, host *facts.Host, all virtualFunctions) {
	d, _ := host.Find(all.Device)
	if all.Count == 0 {
		fmt.Fprintf(w, "%s has no virtual functions of Divvy's.\n", all.Device)
	} else {
		fmt.Fprintf(w, "%s has %d virtual functions of %d:\n", all.Device, len(all.Virtual), all.Total)
	}
	bare := 0
	for _, f := range all.Virtual {
		group, driver := "no IOMMU group", "no driver"
		if f.Group >= 0 {
			group = fmt.Sprintf("IOMMU group %d", f.Group)
		}
		if f.Driver != "" {
			driver = "driver " + text.Plain(f.Driver, 64)
		} else {
			bare++
		}
		fmt.Fprintf(w, "    %s  %s, %s\n", f.Device, driver, group)
	}
	for _, left := range all.Left {
		fmt.Fprintf(w, "! %s\n", text.Plain(left, 300))
	}
	if all.Count > 0 && bare > 0 && d.Driver == binding.VGPUDriver {
		fmt.Fprintf(w, "! %d of them have no driver, and only driver %s makes vGPUs of them: either /sys/bus/pci/devices/%s/sriov_drivers_autoprobe is 0, or the driver refused them, which the kernel's log says\n", bare, d.Driver, all.Device)
	}
	if all.Count > 0 {
		fmt.Fprintf(w, "\n`divvy vm functions %s --count 0` takes them away.\n", all.Device)
	}
}

// printFunctions writes one row for each device with functions that Divvy enabled, and what is wrong below.
func printFunctions(w *strings.Builder, all []control.Functions, as look) {
	if len(all) == 0 {
		return
	}
	table := columns.Table{Most: columns.MostOfName, Paint: as.paint, Colours: func(column, cell string) columns.Colour {
		if column == "STATE" && (cell == "stuck" || cell == "fault") {
			return columns.Alarm
		}
		return ""
	}}
	table.Row("FUNCTIONS OF", "GPU", "COUNT", "STATE")
	for _, f := range all {
		gpu := "-"
		if f.Index != nil {
			gpu = strconv.Itoa(*f.Index)
		}
		table.Row(f.Device.String(), gpu, strconv.Itoa(f.Count), f.State())
	}
	table.Show(w, as.width, "GPU")
	for _, f := range all {
		if f.Fault != "" {
			fmt.Fprintln(w, as.note(fmt.Sprintf("! functions of %s: %s", f.Device, f.Fault)))
		}
	}
}
