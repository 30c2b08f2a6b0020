package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
	"github.com/divvy-gpu/divvy/internal/topology"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

func newTopo(a *app) *cobra.Command {
	var output, recorded, machine string
	var capture bool
	command := &cobra.Command{
		Use:   "topo",
		Short: "Show how near GPUs and network adapters are to each other",
		Long: `Show how near this machine's GPUs and RDMA adapters are to each other: as the
matrix that nvidia-smi prints, as JSON, or as the topology file that NCCL reads.
-o pairs shows which adapters make a pair with each GPU, as pods get them that
ask for pairs: strict on one PCIe switch, bridge on one host bridge, socket on one
NUMA node.
With --capture, write a recording of this machine to standard output, as one text
file, for this command and for 'divvy vm preflight'; as root it is complete. --host
shows a recording on any machine, and --simgpu a simulated machine.`,
		Example: `  divvy topo
  divvy topo -o nccl-xml > topology.xml
  divvy topo -o pairs
  divvy topo --capture > my-server.host
  divvy topo --host my-server.host
  divvy topo --simgpu a800x8`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if capture && recorded != "" {
				return usage(errors.New("give either --capture or --host: a recording is captured from the machine itself"))
			}
			if machine != "" && recorded != "" {
				return usage(errors.New("give either --simgpu or --host"))
			}
			host, err := a.host(cmd.Context(), recorded, machine)
			if err != nil {
				return err
			}
			if capture {
				return host.Format(a.out)
			}
			return printTopology(a.out, host, output)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "table", "`FORM`: table, json, nccl-xml or pairs")
	command.Flags().StringVar(&recorded, "host", "", "show the machine recorded in `FILE`")
	command.Flags().StringVar(&machine, "simgpu", "", "show the simulated `MACHINE`, started if needed (see `divvy simgpu machines`)")
	command.Flags().BoolVar(&capture, "capture", false, "write a recording of this machine")
	return command
}

func printTopology(w io.Writer, host *hostfile.Host, form string) error {
	model, err := host.Topology()
	if err != nil {
		return err
	}
	switch form {
	case "table":
		return model.PrintTable(w)
	case "json":
		return model.PrintJSON(w)
	case "nccl-xml":
		return model.PrintNCCL(w, machineArch())
	case "pairs":
		return printPairs(w, model)
	}
	return usage(fmt.Errorf("unknown output %q: choose table, json, nccl-xml or pairs", form))
}

// machineArch is the kernel's name of the processor architecture, which NCCL's file uses.
func machineArch() string {
	return map[string]string{"amd64": "x86_64", "arm64": "arm64"}[runtime.GOARCH]
}

// host reads a recorded machine, or records this one or a simulated one, so that all take the same way to a topology.
func (a *app) host(ctx context.Context, recorded, machine string) (*hostfile.Host, error) {
	if machine != "" {
		instance, err := a.simulated(ctx, machine)
		if err != nil {
			return nil, err
		}
		return a.simulatedHost(instance.Dir)
	}
	if recorded == "" {
		if dir := a.standIn(ctx); dir != "" {
			say(a.err, "divvy: these are the GPUs of the simulated machine %s, which the system agent serves", filepath.Base(dir))
			return a.simulatedHost(dir)
		}
		gpus, err := a.linkedGPUs(control.Endpoint{})
		if err != nil {
			return nil, err
		}
		return hostfile.CaptureMachine(vfio.Files("/"), gpus)
	}
	return recordedHost(ctx, recorded)
}

// recordedHost reads a recording from a file.
func recordedHost(ctx context.Context, path string) (*hostfile.Host, error) {
	return until(ctx, func() (*hostfile.Host, error) {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("open recorded host: %w", err)
		}
		defer file.Close() //nolint:errcheck // only read
		return hostfile.Parse(file, path)
	})
}

// standIn is the directory of the simulated machine that stands in for this machine's GPUs, "" for none.
func (a *app) standIn(ctx context.Context) string {
	client, err := control.Find(ctx, a.endpoint(""))
	if err != nil {
		return ""
	}
	defer client.Close() //nolint:errcheck // it has told enough
	return client.Info().Simgpu
}

// simulatedHost records the simulated machine in a directory.
func (a *app) simulatedHost(dir string) (*hostfile.Host, error) {
	gpus, err := a.linkedGPUs(control.Endpoint{Simgpu: dir})
	if err != nil {
		return nil, err
	}
	return hostfile.Capture(os.DirFS(simfiles.Sysfs(dir)), gpus)
}

// linkedGPUs asks the driver, through a process that may hang. A machine without a driver may still have adapters, so that is no error.
func (a *app) linkedGPUs(at control.Endpoint) ([]topology.GPUInfo, error) {
	library, err := a.openDriver(at)
	if errors.Is(err, driver.ErrNotFound) {
		say(a.err, "divvy: this machine has no NVIDIA driver, so no GPUs are shown")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer library.Close() //nolint:errcheck // the program ends
	silent, _ := library.LeftOut()
	refused := library.Refused()
	for _, gpu := range silent {
		if why := refused[gpu]; why != "" {
			say(a.err, "divvy: the driver answers about GPU %d with an error, so it is not shown: %s", gpu, why)
			continue
		}
		say(a.err, "divvy: the driver does not answer about GPU %d, so it is not shown", gpu)
	}
	return hostfile.Linked(library)
}
