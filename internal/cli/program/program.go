// Package program has what all of Divvy's programs share: how they read arguments,
// report errors and print their version.
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

	"github.com/divvy-gpu/divvy/internal/plaintext"
	"github.com/divvy-gpu/divvy/internal/version"
)

// Exit statuses.
const (
	ExitFailure = 1
	ExitUsage   = 2
	// ExitUnavailable and ExitConfig are what sysexits.h calls EX_UNAVAILABLE and EX_CONFIG: the agent needs an
	// administrator, and its unit is not tried again.
	ExitUnavailable = 69
	ExitConfig      = 78
	// exitInterrupted is the status that shells report for a program ended by Ctrl-C.
	exitInterrupted = 130
)

// ErrReported marks a failure that has been reported already.
var ErrReported = errors.New("reported")

// errUsage marks errors in how a command was called.
var errUsage = errors.New("wrong usage")

// Run runs a command line until it ends or a signal ends it, reports the error if
// there is one, and returns the exit status. For an error, status may choose it; 0 leaves the usual one.
func Run(root *cobra.Command, args []string, status func(*cobra.Command, error) int) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = versionText()
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: Name()}
	root.SetUsageFunc(writeUsage)
	root.SetFlagErrorFunc(flagError)
	root.SetArgs(args)
	out := &watched{Writer: root.OutOrStdout()}
	root.SetOut(out)
	command, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil {
		err = out.err // cobra tells nobody that help was not written
	}
	if err == nil {
		return 0
	}
	if ctx.Err() != nil {
		return exitInterrupted
	}
	report(root.ErrOrStderr(), command, err)
	if own := status(command, err); own != 0 {
		return own
	}
	if isUsage(err) {
		return ExitUsage
	}
	return ExitFailure
}

// watched remembers the first error of a writer.
type watched struct {
	io.Writer
	err error
}

// Write implements [io.Writer].
func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err //nolint:wrapcheck // the writer's own
}

// What is shown of an error, in characters: arguments and what others named may be of any length.
const (
	longestWord = 200
	longestLine = 4000
)

// report prints an error and, for wrong usage, how to get help.
func report(w io.Writer, command *cobra.Command, err error) {
	if errors.Is(err, ErrReported) {
		return
	}
	Tell(w, Name(), meant(err.Error()))
	if isUsage(err) {
		Say(w, "Run '%s --help' for its flags and arguments.", command.CommandPath())
	}
}

// Tell writes what a program has to say. What others named or said in it, such as another host, is shown and does nothing to a
// terminal.
func Tell(w io.Writer, name, text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		lines[i] = plaintext.Line(plaintext.Short(line, longestWord), longestLine)
	}
	Say(w, "%s: %s", name, strings.Join(lines, "\n"+strings.Repeat(" ", len(name)+2)))
}

// Say writes a line. It ignores errors, because nobody could be told about them.
func Say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}

// isUsage also recognises cobra's own errors, which have no type.
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

// Args checks the number of arguments; what describes them in the error. A negative
// most allows any number.
func Args(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least {
			return Usage(fmt.Errorf("an argument is missing: give %s", what))
		}
		if most >= 0 && len(args) > most {
			return Usage(fmt.Errorf("unexpected argument %q: give %s", args[most], what))
		}
		return nil
	}
}

// NoArgs refuses arguments.
var NoArgs = Args(0, 0, "no arguments")

// NewVersion is the command that prints the version.
func NewVersion(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of Divvy",
		Example: "  divvy version",
		Args:    NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(out, "divvy %s\n", versionText())
			return err
		},
	}
}

func versionText() string {
	return fmt.Sprintf("%s (%s, %s/%s)", version.Full(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
