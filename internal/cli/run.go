package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/remote/host"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// runOptions are the flags of `divvy run`.
type runOptions struct {
	share  shareFlags
	choice choiceFlags
	name   string
	simgpu string
	wait   bool
	sum    bool
	swap   swapFlags
	// remote are other hosts of which one has the share, and whenUsed takes it there when it is used first.
	remote   hostsFlag
	whenUsed bool
	// on are other hosts of which one runs the command, and env the variables that it gets beside the usual ones.
	on  hostsFlag
	env variablesFlag
	// usedBy is for whom on another host this is, as `divvy serve` writes it.
	usedBy string
	// backend is empty for the default, profile for none and isolate for nothing in particular.
	backend, profile, isolate string
	layer                     layerFlag
}

// add defines the flags.
func (o *runOptions) add(flags *pflag.FlagSet) {
	o.share.add(flags, map[string]string{
		"memory": "all that a GPU has", "cores": "none guaranteed", "policy": "fixed with --cores, else weighted",
		"max-cores": "100", "weight": "1", "class": "online",
	})
	o.choice.add(flags)
	flags.Var(&word{"NAME", &o.name}, "name", "name of the share in lists (default: that of the command)")
	flags.Var(&word{"BACKEND", &o.backend}, "backend", "how the share is made: slice divides GPU time by cores and weights, timeslice leaves it to the driver, mps runs shares side by side, mig gives each a MIG instance, remote is slice with the command kept away from the driver, auto chooses the best but remote (default: slice, mig with --profile, auto with --isolate)")
	flags.Var(&word{"PROFILE", &o.profile}, "profile", "MIG profile of the share's instance, such as 1g.10gb; with another backend than mig the share is a part of such an instance (default: with --backend mig the smallest that has the memory and cores)")
	flags.Var(&word{"WHAT", &o.isolate}, "isolate", "what neighbours must not reach: faults, memory, bandwidth, or none for many small programs that belong together (default: what the backend leaves open is accepted)")
	flags.StringVar(&o.simgpu, "simgpu", "", "run on the simulated `MACHINE`, started if needed (see `divvy simgpu machines`)")
	flags.BoolVar(&o.wait, "wait", false, "wait until there is room")
	o.swap.add(flags)
	flags.Var(&o.layer, "layer", "how the driver is covered: namespace, env or auto")
}

const runText = `Run a command inside a share of one or more GPUs. The command and all its
children see only what the share allows. Memory beyond it is refused with
CUDA_ERROR_OUT_OF_MEMORY, and launches beyond its part of the GPU's time wait.
Memory and cores are per GPU.

Divvy becomes the command: process id, terminal, signals and exit status are the
command's own. Exit status 125 means an error of Divvy's, 126 a command that
cannot be executed, 127 a command that is not found. The share ends with its last
process.

The GPUs are those that --gpu names, else those of CUDA_VISIBLE_DEVICES, which
Slurm sets, else any. --gpu counts as "divvy ls" and nvidia-smi do.
CUDA_VISIBLE_DEVICES counts as CUDA does here: only GPUs that this process may
open. All that are named serve, unless --gpus asks for fewer. Of several, the
fullest on which the share fits is taken, so that emptier ones stay free for
larger shares. Inside, the share's GPUs are numbered from 0, and
CUDA_VISIBLE_DEVICES, if set, is rewritten so.

On a GPU in MIG mode a share is a MIG instance of its own: of the profile that
--profile names, or the smallest with the memory and at least that percentage of
the GPU's SMs. It is made if none is free, and taken away with the share. With
--profile and a backend other than mig the share is a part of an instance, and
--memory and --cores are parts of the instance.

With --backend remote the command sees neither the driver's files nor a device node.
A worker of Divvy's beside it has the share and calls the driver for it. Programs on
the CUDA runtime library are not served so.

With --swap the share's memory takes turns on the GPU and in host memory, where
the agent has some for that. Programs whose memory does not fit together run one
after the other, for seconds each, instead of failing.

With --remote the GPU is another host's, and this machine needs neither a driver nor an
agent. Of several hosts that one is taken on which the share fits best. The share ends
with the command, and the command's GPU with the host.

If no agent runs, Divvy starts one, which ends with its last share. Where a system
agent is configured Divvy starts none, and waits up to 30 seconds for that one.`

const runExamples = `  # A quarter of a GPU's memory and 30 percent of its time.
  divvy run --memory 25% --cores 30 -- python train.py

  # A service with half of the GPU's time guaranteed, and batch work in idle time.
  divvy run --memory 8Gi --cores 50 --policy burst -- ./serve
  divvy run --memory 8Gi --class offline -- python train.py

  # 8 GiB on each of two GPUs; wait until there is room.
  divvy run --gpus 2 --memory 8Gi --wait -- torchrun --nproc-per-node 2 train.py

  # 8 GiB on each of these two GPUs.
  divvy run --gpu 0,2 --memory 8Gi -- torchrun --nproc-per-node 2 train.py

  # A MIG instance, and 30 percent of one that others share.
  divvy run --profile 1g.10gb -- python eval.py
  divvy run --profile 3g.40gb --backend slice --memory 10Gi --cores 30 -- ./serve

  # Two programs that need most of the GPU take turns.
  divvy run --swap --memory 90% -- python one.py
  divvy run --swap --memory 90% -- python two.py

  # A program that must not reach the driver.
  divvy run --backend remote --memory 8Gi -- ./program

  # A share on the first or the second host, whichever has room.
  divvy run --remote gpu1,gpu2 --memory 8Gi --cores 30 -- ./program

  # No GPU at hand: the same on a simulated A100.
  divvy run --simgpu a100-80g --memory 8Gi -- ./program`

func newRun(a *app) *cobra.Command {
	o := &runOptions{}
	command := &cobra.Command{
		Use:     "run [flags] -- COMMAND [ARGUMENT]...",
		Short:   "Run a command inside a share of a GPU",
		Long:    runText,
		Example: runExamples,
		Args:    argsOf(1, -1, "the command to run, such as: divvy run --memory 4Gi -- python train.py"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.run(cmd.Context(), o, args)
			if full, ok := rundir.NoRoom(err); ok {
				err = errors.New(full.Text(os.Getuid()))
			}
			return err
		},
	}
	flags := command.Flags()
	flags.SetInterspersed(false) // flags after the command's name belong to the command
	o.add(flags)
	flags.Var(&o.remote, "remote", "take the share on one of these hosts, each HOST or HOST:PORT, where divvy serve runs; any is every host that you have a bundle for")
	flags.Var(&o.on, "on", "run the command itself on one of these hosts, in the same directory, with this terminal; any is every host that you have a bundle for")
	flags.Var(&o.env, "env", "with --on a variable that the command gets too, such as WANDB_MODE, NCCL_* or X=1; may be repeated")
	flags.StringVar(&o.usedBy, host.UsedByFlag, "", "for whom on another host the command is, in JSON")
	flags.Lookup(host.UsedByFlag).Hidden = true
	flags.BoolVar(&o.whenUsed, "when-used", false, "with --remote take the share when the first process uses a GPU, and give it back after the last one")
	flags.BoolVar(&o.sum, "summary", false, "when the command has ended, say on standard error what its share used, was refused and waited for; Divvy stays the command's parent")
	return command
}

// request is what the flags ask for.
func (o *runOptions) request() v1alpha1.ShareRequest {
	r := v1alpha1.ShareRequest{
		Name:       o.name,
		GPUs:       o.choice.count.n,
		Among:      o.choice.names.list,
		Memory:     o.share.memory,
		Cores:      int(o.share.cores),
		Profile:    o.profile,
		Isolate:    v1alpha1.Isolation(o.isolate),
		Overcommit: o.share.overcommit,
		ShareConfig: v1alpha1.ShareConfig{
			Policy:   v1alpha1.Policy(o.share.policy),
			MaxCores: int(o.share.maxCores),
			Weight:   int(o.share.weight),
			Class:    v1alpha1.Class(o.share.class),
			Backend:  v1alpha1.Backend(o.backend),
		},
	}
	o.swap.ask(&r.ShareConfig)
	return r
}

// runElsewhere does what the flags ask for that name another host. It reports whether they name one.
func (a *app) runElsewhere(ctx context.Context, o *runOptions, command []string) (elsewhere bool, err error) {
	switch {
	case o.on.given():
		return true, a.runOn(ctx, o, command)
	case len(o.env.list) > 0:
		return false, usage(errors.New("--env needs --on: a command on this machine has the variables of its caller"))
	case o.remote.given():
		return true, a.runAway(ctx, o, command)
	case o.whenUsed:
		return false, usage(errors.New("--when-used needs --remote: a share on this machine is there as long as its command"))
	}
	return false, nil
}

// run returns only if the command could not be started.
func (a *app) run(ctx context.Context, o *runOptions, command []string) error {
	if elsewhere, err := a.runElsewhere(ctx, o, command); elsewhere || err != nil {
		return err
	}
	request := o.request()
	if err := valid(request); err != nil {
		return err
	}
	if err := o.choice.wish().Validate(); err != nil {
		return usage(err)
	}
	a.tellOfContainers(command)
	instance, err := a.ownMachine(ctx, o.simgpu)
	if err != nil {
		return err
	}
	libraryPath := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))
	finder := driver.Finder{LibraryPath: libraryPath, Instance: instance}
	if err := a.expectDriver(ctx, finder); err != nil {
		return err
	}
	enter := launch.Enter(a.tree.Program("divvy-enter"))
	layer, err := a.chooseLayer(ctx, o.layer.layer, enter)
	if err != nil {
		return err
	}
	remote, err := forWhom(o.usedBy)
	if err != nil {
		return err
	}
	params := control.CreateParams{Remote: remote, Request: request, Layer: layer, Command: command, LibraryPath: libraryPath, Wait: o.wait}
	if request.Backend == v1alpha1.BackendRemote {
		params.Environment = edits.DriverVariables(os.Environ())
	}
	client, created, err := a.obtain(ctx, a.endpoint(instance), params, func(client *control.Client, r *v1alpha1.ShareRequest) error {
		served, err := driverOf(client.Info(), finder)
		if err != nil {
			return err
		}
		return a.choose(ctx, &o.choice, r, served, client)
	})
	if err != nil {
		return err
	}
	a.tellChoice(request, &created.Tenant)
	env := shareEnvironment(os.Environ(), &created.Tenant)
	// First, because the worker must not inherit what keeps the share.
	if err := a.work(enter, created, env); err != nil {
		return errors.Join(err, client.Close())
	}
	if err := errors.Join(client.Bequeath(), leaveSigns(client.Info(), &created.Tenant)); err != nil {
		return err
	}
	// The command must ignore the signals that this process was started to ignore,
	// such as SIGINT after a shell's "&". Signals that this process catches would
	// have their default effect after exec.
	signal.Reset()
	plan := enter.Plan(created.Edits, env, command)
	if o.sum {
		return a.runSummed(ctx, a.endpoint(instance), created, plan)
	}
	return plan.Exec()
}

// work starts the worker of a share that has one, unless the agent has, and leaves its life to the command.
func (a *app) work(enter launch.Enter, created *control.Created, env []string) error {
	if created.Worker == nil {
		return nil
	}
	if created.Tenant.Layer == control.LayerEnv {
		a.tell("without namespaces nothing hides the driver from the command, which reaches it by leaving LD_LIBRARY_PATH")
	}
	life, err := workerOf(enter, created, env)
	if err != nil {
		return err
	}
	return life.Bequeath()
}

// workerOf is the life of a share's worker, which is started with an environment unless the agent has.
func workerOf(enter launch.Enter, created *control.Created, env []string) (launch.Life, error) {
	if created.Served {
		return launch.Inherited(created.Hand()), nil
	}
	return enter.Work(created.Worker, env)
}

// expectDriver returns an error if there is no driver and no system agent that may serve
// a simulated machine in place of this machine's GPUs. One that is away is waited for.
func (a *app) expectDriver(ctx context.Context, finder driver.Finder) error {
	found, missing := finder.Find()
	if missing == nil {
		a.tellAside(found)
	}
	if !errors.Is(missing, driver.ErrNotFound) || finder.Instance != "" {
		return missing
	}
	client, err := control.Find(ctx, a.endpoint(""))
	var away *control.AwayError
	switch {
	case errors.As(err, &away):
		return nil
	case errors.Is(err, control.ErrNoAgent):
		return missing
	case err != nil:
		return err
	}
	return client.Close()
}

// tellAside tells of a driver in LD_LIBRARY_PATH in whose place the share has the machine's.
func (a *app) tellAside(found *driver.Driver) {
	for _, fault := range found.Aside {
		if fault.Asked && fault.Rival() {
			say(a.err, "divvy: the share has the machine's driver, and LD_LIBRARY_PATH leads to another: %v", fault)
		}
	}
}

// driverOf finds the driver of the GPUs that an agent serves.
func driverOf(agent control.Info, finder driver.Finder) (driver.Finder, error) {
	if agent.Simgpu != "" {
		finder.Instance = agent.Simgpu
	}
	_, err := finder.Find()
	return finder, err
}

// chooseLayer returns the strongest layer that this machine allows. It tells the
// user if that is not the strongest of all.
func (a *app) chooseLayer(ctx context.Context, wanted control.Layer, enter launch.Enter) (control.Layer, error) {
	if wanted == control.LayerEnv {
		return wanted, nil
	}
	err := enter.Probe(ctx)
	switch {
	case err == nil:
		return control.LayerNamespace, nil
	case wanted == "" && errors.Is(err, launch.ErrNamespaces):
		say(a.err, "divvy: %v\n"+
			"       The limit holds for programs that keep LD_LIBRARY_PATH; `divvy ls` reports others.\n"+
			"       `divvy doctor` says how to allow namespaces; --layer env suppresses this message.", err)
		return control.LayerEnv, nil
	case errors.Is(err, launch.ErrNamespaces):
		return "", fmt.Errorf("%w: `divvy doctor` says how to allow them; --layer auto works without", err)
	}
	return "", err
}
