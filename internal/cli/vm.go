package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/version"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/preflight"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

func newVM(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "vm",
		Short: "Give GPUs and other devices to virtual machines",
		Long: `See whether this machine can give GPUs and other devices to virtual machines, give
them, and take them back. Divvy starts no virtual machine: it prints what QEMU or
libvirt needs.`,
		Example: "  divvy vm preflight --for libvirt\n  sudo divvy vm claim train --gpu 0 --form passthrough\n  sudo divvy vm release train",
	}
	command.AddCommand(newPreflight(a), newClaim(a), newRelease(a), newFunctions(a), newClaims(a))
	return command
}

func newPreflight(a *app) *cobra.Command {
	var output format
	var platform, recorded string
	var memory v1alpha1.Memory
	command := &cobra.Command{
		Use:   "preflight [GPU] --for PLATFORM",
		Short: "Find what keeps a GPU from being given to a virtual machine",
		Long: `Find what keeps GPUs of this machine, or one of them, from being given to a virtual
machine, say what helps, and print what the platform needs. Nothing is changed and
nothing is started. GPU is an index, a UUID or a PCI address; any other PCI device
can be named by its address. The exit status is 1 if something is in the way. Root
sees more. --host looks at a recording of 'divvy topo --capture' instead.`,
		Example: `  divvy vm preflight --for libvirt
  divvy vm preflight 0 --for qemu --memory 64Gi
  divvy vm preflight 0000:3b:00.0 --for kubevirt -o json
  divvy vm preflight --for proxmox --host my-server.host`,
		Args: argsOf(0, 1, "at most one GPU"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if platform == "" {
				return usage(errors.New("give --for: " + alternatives(platformNames())))
			}
			ask := preflight.Question{For: preflight.Platform(platform), Memory: int64(min(memory.InBytes(), 1<<60))}
			host, err := a.facts(cmd.Context(), recorded)
			if err != nil {
				return err
			}
			devices, err := devicesNamed(host, args)
			if err != nil {
				return err
			}
			if recorded == "" {
				ask.Own = a.own(cmd.Context())
			}
			report := preflight.NewReport(host, devices, ask, version.Full())
			if err := output.print(a.out, report, func(w *strings.Builder) { writePreflight(w, report) }); err != nil {
				return err
			}
			if !report.Ready {
				return program.ErrReported
			}
			return nil
		},
	}
	command.Flags().Var(&oneOf{&platform, platformNames()}, "for", "what runs the virtual machine: "+alternatives(platformNames()))
	command.Flags().Var(&machineMemory{&memory}, "memory", "memory of the virtual machine, such as 64Gi")
	command.Flags().StringVar(&recorded, "host", "", "look at the machine recorded in `FILE`")
	addFormat(command, &output)
	complete(command, "for", platformNames()...)
	command.ValidArgsFunction = a.offering(indexNames)
	return command
}

func platformNames() []string {
	names := make([]string, len(preflight.Platforms))
	for i, p := range preflight.Platforms {
		names[i] = string(p)
	}
	return names
}

// facts are those of this machine, or of a recorded one.
func (a *app) facts(ctx context.Context, recorded string) (*facts.Host, error) {
	if recorded == "" {
		return facts.Read(vfio.Files("/"))
	}
	host, err := recordedHost(ctx, recorded)
	if err != nil {
		return nil, err
	}
	return host.Facts()
}

// devicesNamed finds the device that an argument names, or all GPUs where there is none. Indexes count NVIDIA's GPUs in the order of
// their addresses, as its driver does.
func devicesNamed(host *facts.Host, args []string) ([]facts.Device, error) {
	gpus := preflight.GPUs(host)
	if len(args) == 0 {
		return gpus, nil
	}
	name := args[0]
	if address, err := pci.ParseAddress(name); err == nil {
		if d, found := host.Find(address); found {
			return []facts.Device{d}, nil
		}
		return nil, fmt.Errorf("no PCI device has address %s: `lspci` lists them", address)
	}
	index, err := strconv.Atoi(name)
	counted := 0
	for _, d := range gpus {
		if d.UUID != "" && d.UUID == name || err == nil && d.Vendor == facts.NVIDIA && counted == index {
			return []facts.Device{d}, nil
		}
		if d.Vendor == facts.NVIDIA {
			counted++
		}
	}
	if counted == 0 {
		return nil, fmt.Errorf("no GPU is called %s, and none here is NVIDIA's: give a PCI address such as 0000:3b:00.0", text.Plain(name, 64))
	}
	return nil, fmt.Errorf("no GPU is called %s: give an index below %d, a UUID or a PCI address such as 0000:3b:00.0", text.Plain(name, 64), counted)
}

// writePreflight writes a report for people: what is wrong, what is right, what the platform needs. What the host named is made fit
// for a terminal.
func writePreflight(w *strings.Builder, r preflight.Report) {
	const most = 500
	plain := func(s string) string { return text.Plain(s, most) }
	for _, d := range r.Devices {
		fmt.Fprintf(w, "%s  %04x:%04x", d.Address, d.Vendor, d.ID)
		if d.Model != "" {
			fmt.Fprintf(w, "  %s", plain(d.Model))
		}
		if d.Group != nil {
			fmt.Fprintf(w, "  IOMMU group %d", *d.Group)
		}
		w.WriteString("\n")
		for _, f := range d.Forms {
			fmt.Fprintf(w, "  %-12s %-4s %s\n", f.Form, map[bool]string{true: "yes", false: "no"}[f.Offered], plain(f.Why))
		}
		writeTypes(w, d.Types)
	}
	if len(r.Devices) > 0 {
		w.WriteString("\n")
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%-8s %-18s %s\n", f.Status, f.ID, plain(f.Evidence))
		if f.Remedy != "" {
			fmt.Fprintf(w, "%28s%s\n", "→ ", plain(f.Remedy))
		}
		if f.Command != "" {
			fmt.Fprintf(w, "%28s%s\n", "$ ", plain(f.Command))
		}
	}
	for _, s := range r.Needs {
		fmt.Fprintf(w, "\n%s:\n", s.Title)
		for line := range strings.Lines(s.Text) {
			w.WriteString("    " + plain(strings.TrimRight(line, "\n")) + "\n")
		}
	}
	if len(r.Notes) > 0 {
		w.WriteString("\nLeft out:\n")
	}
	for _, note := range r.Notes {
		w.WriteString("    " + plain(note) + "\n")
	}
	w.WriteString("\nNot checked:\n")
	for _, u := range r.Unchecked {
		w.WriteString("    " + u + "\n")
	}
}

// mostTypes is how many types of vGPUs people are told of each device.
const mostTypes = 24

// writeTypes writes a line of at most 80 letters for each type of vGPU.
func writeTypes(w *strings.Builder, types []preflight.VGPUType) {
	for _, t := range types[:min(len(types), mostTypes)] {
		left := fmt.Sprintf("%d left", t.Free)
		if t.Most > 0 {
			left += fmt.Sprintf(" of %d", t.Most)
		}
		fmt.Fprintf(w, "    %-14s %-36s %s\n", text.Plain(t.ID, 14), text.Plain(t.Name, 36), left)
	}
	if more := len(types) - mostTypes; more > 0 {
		fmt.Fprintf(w, "    and %d more types: -o json has all\n", more)
	}
}

// oneOf is a flag that takes one of some words.
type oneOf struct {
	word  *string
	known []string
}

// Set implements pflag.Value.
func (o *oneOf) Set(text string) error {
	if !slices.Contains(o.known, text) {
		return errors.New("use " + alternatives(o.known))
	}
	*o.word = text
	return nil
}

// Type implements pflag.Value.
func (o *oneOf) Type() string { return "PLATFORM" }

func (o *oneOf) String() string {
	if o.word == nil {
		return ""
	}
	return *o.word
}
