// Package program is what all of Divvy's programs have in common: how they take
// arguments, report errors and tell their version.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/version"
)

// Exit statuses.
const (
	ExitFailure = 1
	ExitUsage   = 2
	// exitInterrupted is what a shell makes of a program that Ctrl-C ended.
	exitInterrupted = 130
)

// ErrReported marks a failure of which everything has been said already.
var ErrReported = errors.New("reported")

// errUsage marks errors in how a command was called.
var errUsage = errors.New("wrong usage")

// Run runs a command line until it ends or is asked to by a signal, reports what
// went wrong, and returns the exit status: that of status, where it gives one.
func Run(root *cobra.Command, args []string, status func(*cobra.Command) int) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil {
		return exitInterrupted
	}
	report(root.ErrOrStderr(), command, err)
	if own := status(command); own != 0 {
		return own
	}
	if isUsage(err) {
		return ExitUsage
	}
	return ExitFailure
}

// report prints an error, and for wrong usage the way to the right one.
func report(w io.Writer, command *cobra.Command, err error) {
	if errors.Is(err, ErrReported) {
		return
	}
	// cobra joins its suggestions to the message with empty lines.
	text := strings.TrimSpace(strings.ReplaceAll(err.Error(), "\n\n", "\n"))
	Say(w, "divvy: %s", strings.ReplaceAll(text, "\n", "\n       "))
	if isUsage(err) {
		Say(w, "Run '%s --help' for what it takes.", command.CommandPath())
	}
}

// Say writes a line to somebody; a stream that nobody reads is no fault of ours.
func Say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}

// isUsage also knows cobra's own errors, which have no type.
func isUsage(err error) bool {
	return errors.Is(err, errUsage) || strings.HasPrefix(err.Error(), "unknown command")
}

// Usage marks a fault in how a command was called, keeping its text.
func Usage(err error) error {
	return usageError{err}
}

type usageError struct{ error }

func (e usageError) Unwrap() error        { return e.error }
func (e usageError) Is(target error) bool { return target == errUsage }

// Args checks the number of arguments and says what they are; any number from
// least on, where most is negative.
func Args(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least {
			return Usage(fmt.Errorf("say which: %s", what))
		}
		if most >= 0 && len(args) > most {
			return Usage(fmt.Errorf("%q is one argument too many: %s", args[most], what))
		}
		return nil
	}
}

// NoArgs refuses arguments.
var NoArgs = Args(0, 0, "this command takes none")

// NewVersion is the command that prints the version.
func NewVersion(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of Divvy",
		Example: "  divvy version",
		Args:    NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(out, "divvy %s (%s, %s/%s)\n", version.Full(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
