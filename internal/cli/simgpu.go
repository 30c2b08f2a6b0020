package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

func newSimgpuCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "simgpu",
		Short: "Run simulated machines, for work without a GPU",
		Long: `Run simulated machines: their driver serves any program that uses the CUDA
driver API or NVML, its memory is real and its time is modelled. Programs inside
a share use one with ` + "`divvy run --simgpu`" + `, others with ` + "`divvy simgpu exec`" + `.`,
		Example: `  divvy simgpu machines
  divvy simgpu start a100-80g
  divvy simgpu exec -- nvitop -1
  divvy simgpu report -o json
  divvy simgpu stop`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(fmt.Errorf("there is no `divvy simgpu %s`", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(newMachines(a), newSimgpuStart(a), newSimgpuList(a), newSimgpuReport(a),
		newSimgpuExec(a), newSimgpuInject(a), newSimgpuSlice(a), newSimgpuClock(a), newSimgpuStop(a))
	return command
}

// machineSummary is one row of `divvy simgpu machines`.
type machineSummary struct {
	Name        string `json:"name"`
	GPUs        int    `json:"gpus"`
	Model       string `json:"model"`
	Memory      uint64 `json:"memory"`
	Driver      string `json:"driver"`
	CUDA        string `json:"cuda"`
	Description string `json:"description"`
}

func newMachines(a *app) *cobra.Command {
	var output format
	command := &cobra.Command{
		Use:   "machines [MACHINE]",
		Short: "List the machines that can be simulated, or print one's file",
		Long: `List the machines that can be simulated. With a name, print that machine's file:
changed and saved under a name of your own, its path is a machine too.`,
		Example: `  divvy simgpu machines
  divvy simgpu machines t4 > lab.yaml && divvy simgpu start ./lab.yaml`,
		Args: argsOf(0, 1, "at most one machine, whose file is printed"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				content, _, err := simgpu.Source(args[0])
				if err != nil {
					return err
				}
				_, err = a.out.Write(content)
				return err
			}
			list, err := machineSummaries()
			if err != nil {
				return err
			}
			return output.print(a.out, list, func(w *strings.Builder) { printMachines(w, list) })
		},
	}
	addFormat(command, &output)
	return command
}

func machineSummaries() ([]machineSummary, error) {
	var list []machineSummary
	for _, name := range simgpu.Names() {
		m, err := simgpu.Load(name)
		if err != nil {
			return nil, err
		}
		list = append(list, machineSummary{
			Name: m.Name, GPUs: len(m.GPUs), Model: m.GPU.Name, Memory: uint64(m.GPU.Memory),
			Driver: m.Driver.Version, CUDA: m.Driver.CUDA, Description: m.Description,
		})
	}
	return list, nil
}

func printMachines(w *strings.Builder, list []machineSummary) {
	t := columns.Table{}
	t.Row("NAME", "GPUS", "MODEL", "MEMORY", "DRIVER", "CUDA", "DESCRIPTION")
	for _, m := range list {
		t.Row(m.Name, strconv.Itoa(m.GPUs), m.Model, size(m.Memory), m.Driver, m.CUDA, m.Description)
	}
	t.Print(w)
}

func newSimgpuStart(a *app) *cobra.Command {
	var name, seed string
	var memory string
	var overrides []string
	command := &cobra.Command{
		Use:   "start MACHINE",
		Short: "Start a simulated machine",
		Long: `Start a simulated machine: one of ` + "`divvy simgpu machines`" + `, or a file by its path.
Starting the same one again changes nothing. Its GPUs have UUIDs that nobody
else has, unless --seed asks for the same ones each time.`,
		Example: `  divvy simgpu start a800x8
  divvy simgpu start a100-80g --name small --memory 1Gi
  divvy simgpu start t4 --set costs.alloc=20us --set gpu.context=64Mi --seed 7
  divvy simgpu start ./lab.yaml`,
		Args: argsOf(1, 1, "a machine that `divvy simgpu machines` lists, or the path of a machine file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if memory != "" {
				overrides = append(overrides, "gpu.memory="+memory)
			}
			machine, err := simgpu.Load(args[0], overrides...)
			if err != nil {
				return err
			}
			if name == "" {
				name = machine.Name
			}
			instance, err := a.simgpus().Start(cmd.Context(), name, machine, seed)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "%s runs: %s; divvy simgpu exec %[1]s -- COMMAND\n", instance.Name, machine.Description)
			return err
		},
	}
	flags := command.Flags()
	flags.StringVar(&name, "name", "", "name of the instance (default: the machine's)")
	flags.StringVar(&memory, "memory", "", "memory of each GPU, `AMOUNT` such as 1Gi, instead of the file's")
	flags.StringArrayVar(&overrides, "set", nil, "set another field of the file, `FIELD=VALUE` such as gpu.reserved=64Mi")
	flags.StringVar(&seed, "seed", "", "any `TEXT`; the same makes the same UUIDs (default: random)")
	return command
}

// instances is the document that `divvy simgpu ls -o json` prints.
type instances struct {
	Instances []*simgpu.Instance `json:"instances"`
}

func newSimgpuList(a *app) *cobra.Command {
	var output format
	command := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the simulated machines that run",
		Example: `  divvy simgpu ls
  divvy simgpu ls -o json | jq -r '.instances[].dir'`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := a.simgpus().List()
			if err != nil {
				return err
			}
			return output.print(a.out, instances{list}, func(w *strings.Builder) { printInstances(w, list) })
		},
	}
	addFormat(command, &output)
	return command
}

func printInstances(w *strings.Builder, list []*simgpu.Instance) {
	if len(list) == 0 {
		w.WriteString("No simulated machine runs. `divvy simgpu start a100-80g` starts one.\n")
		return
	}
	t := columns.Table{}
	t.Row("NAME", "MACHINE", "STARTED", "DIRECTORY")
	for _, i := range list {
		t.Row(i.Name, i.Machine, i.Started.Local().Format(time.DateTime), i.Dir)
	}
	t.Print(w)
}

// errWhich is returned where a name is needed to tell simulated machines apart.
var errWhich = errors.New("name one of the simulated machines")

// instance finds the simulated machine of that name; without a name, the only
// one that runs.
func (a *app) instance(name string) (*simgpu.Instance, error) {
	if name != "" {
		instance, err := a.simgpus().Open(name)
		if errors.Is(err, simgpu.ErrNoInstance) {
			// One that the system agent serves to everybody.
			if shared, sharedErr := simgpu.NewStore(rundir.System, a.tree).Open(name); sharedErr == nil {
				return shared, nil
			}
		}
		return instance, err
	}
	list, err := a.simgpus().List()
	if err != nil {
		return nil, err
	}
	switch len(list) {
	case 0:
		return nil, fmt.Errorf("%w: none runs: `divvy simgpu start a100-80g` starts one", simgpu.ErrNoInstance)
	case 1:
		return list[0], nil
	}
	names := make([]string, 0, len(list))
	for _, i := range list {
		names = append(names, i.Name)
	}
	return nil, usage(fmt.Errorf("%w: %s run", errWhich, strings.Join(names, ", ")))
}

// only is the one argument of a command, or nothing.
func only(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// instanceArg describes the argument of commands about one simulated machine.
var instanceArg = argsOf(0, 1, "at most one name that `divvy simgpu ls` shows")
