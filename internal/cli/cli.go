// Package cli is the command line: it reads flags, asks the agent and prints
// answers. It has no rules of its own about shares.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// Exit statuses. Those of `divvy run` are Divvy's own only before its command
// starts, and chosen as in shells and env(1).
const (
	exitFailure = 1
	exitUsage   = 2
	exitRun     = 125
	// exitInterrupted is what a shell makes of a program that Ctrl-C ended.
	exitInterrupted = 130
)

// errUsage marks errors in how a command was called.
var errUsage = errors.New("wrong usage")

// errReported marks a failure of which everything has been said already.
var errReported = errors.New("reported")

// app is what every command works with.
type app struct {
	tree   install.Tree
	rundir string
	out    io.Writer
	err    io.Writer
}

// Main runs the command line and returns the exit status.
func Main(args []string, out, errOut io.Writer) int {
	tree, err := install.Find()
	if err != nil {
		say(errOut, "divvy: %v", err)
		return exitFailure
	}
	a := &app{tree: tree, rundir: rundir.Path(), out: out, err: errOut}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(a)
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil {
		return exitInterrupted
	}
	report(errOut, command, err)
	return status(command, err)
}

// report prints an error, and for wrong usage the way to the right one.
func report(w io.Writer, command *cobra.Command, err error) {
	if errors.Is(err, errReported) {
		return
	}
	// cobra joins its suggestions to the message with empty lines.
	text := strings.TrimSpace(strings.ReplaceAll(err.Error(), "\n\n", "\n"))
	say(w, "divvy: %s", strings.ReplaceAll(text, "\n", "\n       "))
	if isUsage(err) {
		say(w, "Run '%s --help' for what it takes.", command.CommandPath())
	}
}

// say writes a line to somebody; a stream that nobody reads is no fault of ours.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}

// isUsage also knows cobra's own errors, which have no type.
func isUsage(err error) bool {
	return errors.Is(err, errUsage) || strings.HasPrefix(err.Error(), "unknown command")
}

func status(command *cobra.Command, err error) int {
	switch {
	case command.Name() == "run" && command.Parent() == command.Root():
		return exitRun
	case isUsage(err):
		return exitUsage
	}
	return exitFailure
}

// usage marks a fault in how the command was called, keeping its text.
func usage(err error) error {
	return usageError{err}
}

type usageError struct{ error }

func (e usageError) Unwrap() error        { return e.error }
func (e usageError) Is(target error) bool { return target == errUsage }

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "divvy",
		Short: "Divide NVIDIA GPUs among containers and processes",
		Long: `Divvy divides NVIDIA GPUs among containers and processes: each gets a share
whose memory limit holds, on a real GPU or on a simulated one.`,
		Example: `  divvy run --memory 8Gi -- python train.py
  divvy run --simgpu a100-80g --memory 8Gi -- python train.py
  divvy ls`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.AddCommand(
		newRun(a), newList(a), newTop(a), newSet(a), newStop(a),
		newSimgpuCommand(a), newDoctor(a), newTopo(a), newReplayCommand(a), newAgent(a), newWebhook(a), newController(a),
		newVersion(a),
	)
	return root
}

// argsOf checks the number of arguments and says what they are.
func argsOf(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least {
			return usage(fmt.Errorf("say which: %s", what))
		}
		if most >= 0 && len(args) > most {
			return usage(fmt.Errorf("%q is one argument too many: %s", args[most], what))
		}
		return nil
	}
}

var noArgs = argsOf(0, 0, "this command takes none")
