// Package cli is the command line: it reads flags, asks the agent and prints
// answers. The rules about shares are elsewhere, in api/v1alpha1 and the agent.
package cli

import (
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// exitRun is the status of Divvy's own errors in `divvy run`, before its command
// starts: chosen as in shells and env(1).
const exitRun = 125

// app is what every command works with.
type app struct {
	tree   install.Tree
	rundir string
	out    io.Writer
	err    io.Writer
	// become is execve(2).
	become func(program string, args, env []string) error
	// awayTime is how long a system agent is waited for that ended before it answered; 0
	// means control.AwayTime.
	awayTime time.Duration
}

// Main runs the command line and returns the exit status.
func Main(args []string, out, errOut io.Writer) int {
	tree, err := install.Find()
	if err != nil {
		say(errOut, "%s: %v", program.Name(), err)
		return program.ExitFailure
	}
	a := &app{tree: tree, rundir: rundir.Path(), out: out, err: errOut, become: syscall.Exec}
	return a.execute(args)
}

func (a *app) execute(args []string) int {
	if forCluster(args) {
		say(a.err, "%s: %v", program.Name(), a.handOver(args))
		return program.ExitFailure
	}
	root := newRoot(a)
	return program.Run(root, args, func(command *cobra.Command, err error) int {
		var ended commandStatus
		switch {
		case errors.As(err, &ended):
			return int(ended)
		case command.Name() == "run" && command.Parent() == root:
			return exitRun
		case command.Name() == "diff" && !errors.Is(err, program.ErrReported):
			return exitTrouble
		case command.Name() == "agent" && command.Parent() == root:
			return exitAgent(err, process.Uptime())
		case command.Name() == "serve" && command.Parent() == root && errors.Is(err, servefile.ErrFile):
			return program.ExitConfig
		}
		return 0
	})
}

// line prints what a command was called for.
func (a *app) line(text string) error {
	_, err := io.WriteString(a.out, text+"\n")
	return err
}

// Commands are the commands of divvy, for documents made of them.
func Commands() *cobra.Command { return newRoot(&app{}) }

// Short names of what every command needs.
var (
	say    = program.Say
	usage  = program.Usage
	argsOf = program.Args
	noArgs = program.NoArgs
)

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "divvy",
		Short: "Divide NVIDIA GPUs among containers and processes",
		Long: `Divvy divides NVIDIA GPUs among containers and processes: each gets a share
whose memory limit holds, on a real GPU or on a simulated one.`,
		Example: `  divvy run --memory 8Gi -- python train.py
  divvy run --simgpu a100-80g --memory 8Gi -- python train.py
  divvy ls`,
	}
	var once sync.Once
	root.PersistentPreRun = func(command *cobra.Command, _ []string) {
		command.SetContext(control.Warning(command.Context(), func(text string) { once.Do(func() { a.tell(text) }) }))
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.AddGroup(&cobra.Group{ID: "shares", Title: "Shares"}, &cobra.Group{ID: "gpus", Title: "GPUs and machines"}, &cobra.Group{ID: "clusters", Title: "Clusters"})
	root.AddCommand(
		newRun(a), newList(a), newTop(a), newShow(a), newHistory(a), newAdvise(a), newWeb(a), newSet(a), newSuspend(a), newResume(a), newStop(a), newShare(a), newGPU(a),
		newExplain(a), newSimgpuCommand(a), newDoctor(a), newTopo(a), newVM(a), newReplayCommand(a), newConvert(a), newAgent(a), newServe(a), newHold(a), newAttend(a), newHelper(), newTell(), newRelay(), newVMWriter(), program.NewVersion(a.out),
		newHandedOver(a, "webhook", "Serve a Kubernetes cluster's admission reviews"),
		newHandedOver(a, "node", "Show what each GPU of a node of a Kubernetes cluster has, gives and does"),
		newHandedOver(a, "queues", "Show the queues of a Kubernetes cluster, and follow them"),
		newHandedOver(a, "controller", "Make a Kubernetes cluster's claim templates, and explain why pods wait"),
		newHandedOver(a, "scheduler-extender", "Tell the scheduler of Kubernetes 1.32 to 1.35 which GPUs pods get"),
	)
	for _, command := range root.Commands() {
		command.GroupID = groups[command.Name()]
	}
	a.completeAll(root)
	return root
}

// groups are those of commands in help.
var groups = map[string]string{
	"run": "shares", "ls": "shares", "top": "shares", "show": "shares", "history": "shares", "advise": "shares", "web": "shares", "set": "shares", "suspend": "shares", "resume": "shares", "share": "shares", "stop": "shares", "explain": "shares",
	"gpu": "gpus", "topo": "gpus", "vm": "gpus", "doctor": "gpus", "simgpu": "gpus", "agent": "gpus", "serve": "gpus",
	"queues": "clusters", "node": "clusters", "replay": "clusters", "convert": "clusters", "webhook": "clusters", "controller": "clusters", "scheduler-extender": "clusters",
}
