package program_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cli/program"
)

// full is a writer to a device that has no room.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

// percent is a flag whose error names its value, as those of the request's own rules do.
type percent struct{}

func (percent) Set(text string) error {
	return fmt.Errorf("invalid request: cores %q: give a whole number", text)
}
func (percent) Type() string   { return "PERCENT" }
func (percent) String() string { return "" }

// called runs a small command line, and returns its status and what it says on each stream.
func called(out io.Writer, args ...string) (status int, said string) {
	root := &cobra.Command{Use: "divvy", Short: "Divide GPUs"}
	child := &cobra.Command{
		Use: "show SHARE", Short: "Show a share", Args: program.Args(1, 1, "a share"),
		RunE: func(_ *cobra.Command, args []string) error {
			return fmt.Errorf("no such share: %q: `divvy ls` lists them", args[0])
		},
	}
	child.Flags().Var(percent{}, "cores", "a part")
	root.AddCommand(child, &cobra.Command{Use: "stop", Short: "Stop a share", RunE: func(*cobra.Command, []string) error { return nil }})
	var errOut strings.Builder
	root.SetOut(out)
	root.SetErr(&errOut)
	status = program.Run(root, args, func(*cobra.Command, error) int { return 0 })
	return status, errOut.String()
}

// Help that nobody can read is a failure, as any other output that was not written.
func TestHelpThatIsNotWritten(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"show", "--help"}, {"--version"}, {"help", "show"}} {
		if status, said := called(full{}, args...); status != program.ExitFailure || said != "divvy: no space left on device\n" {
			t.Errorf("%q: exit status %d, %q", args, status, said)
		}
	}
	if status, said := called(io.Discard, "--help"); status != 0 || said != "" {
		t.Errorf("exit status %d, %q", status, said)
	}
}

// What was typed is repeated as far as it helps, and nothing of it reaches the terminal as a command.
func TestArgumentsAreRepeatedInPart(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, args := range [][]string{{"show", long}, {"show", "--" + long, "a"}, {"show", "--cores", long, "a"}, {long}, {"show", strings.Repeat("x ", 50_000)}} {
		if _, said := called(io.Discard, args...); len(said) > 5000 || !strings.Contains(said, "…") || strings.Count(said, "\n") > 2 {
			t.Errorf("%.20q: %d bytes: %.300s", args, len(said), said)
		}
	}
	if _, said := called(io.Discard, "show", long); !strings.HasSuffix(said, "…\": `divvy ls` lists them\n") {
		t.Errorf("said %q", said)
	}
	if _, said := called(io.Discard, "show", "--\x1b[2J"); strings.Contains(said, "\x1b") || !strings.Contains(said, `--\x1b[2J`) {
		t.Errorf("said %q", said)
	}
}

// A refusal names a value once, and suggestions stand in its line.
func TestRefusalsAreShort(t *testing.T) {
	for want, args := range map[string][]string{
		"divvy: invalid argument \"101\" for \"--cores\" flag: give a whole number\n": {"show", "--cores", "101", "a"},
		"divvy: unknown command \"shw\" for \"divvy\": did you mean show?\n":          {"shw"},
		"divvy: unknown command \"sto\" for \"divvy\": did you mean show or stop?\n":  {"sto"},
		"divvy: unknown command \"lasagne\" for \"divvy\"\n":                          {"lasagne"},
	} {
		if status, said := called(io.Discard, args...); status != program.ExitUsage || !strings.HasPrefix(said, want) || strings.Count(said, "\n") != 2 {
			t.Errorf("%q: exit status %d, %q, want %q", args, status, said, want)
		}
	}
}

// What another host says does nothing to a terminal, and its lines cannot be taken for the program's.
func TestTell(t *testing.T) {
	var w strings.Builder
	program.Tell(&w, "divvy", "waiting: \x1b[2J\ndivvy: forged\a")
	if got, want := w.String(), "divvy: waiting: \\x1b[2J\n       divvy: forged\\a\n"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}
