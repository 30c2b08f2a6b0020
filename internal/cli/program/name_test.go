package program_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cli/program"
)

// calledAs has the program believe that it was called so.
func calledAs(t *testing.T, path string) {
	t.Helper()
	before := os.Args
	os.Args = []string{path}
	t.Cleanup(func() { os.Args = before })
}

// Called by kubectl, the program names itself as kubectl does, and passes the name on.
func TestNameByCaller(t *testing.T) {
	for path, want := range map[string]struct{ called, name string }{
		"divvy":                    {"divvy", "divvy"},
		"/usr/bin/divvy":           {"divvy", "divvy"},
		"/usr/bin/kubectl-divvy":   {"kubectl-divvy", "kubectl divvy"},
		"/tmp/other/program.test":  {"divvy", "divvy"},
		"kubectl-divvy":            {"kubectl-divvy", "kubectl divvy"},
		"/opt/kubectl-divvy/divvy": {"divvy", "divvy"},
	} {
		calledAs(t, path)
		if program.Called() != want.called || program.Name() != want.name {
			t.Errorf("%s is called %q and named %q", path, program.Called(), program.Name())
		}
	}
}

func TestHelpAndErrorsNameTheCaller(t *testing.T) {
	for path, name := range map[string]string{"/usr/bin/divvy": "divvy", "/usr/bin/kubectl-divvy": "kubectl divvy"} {
		calledAs(t, path)
		run := func(args ...string) string {
			root := &cobra.Command{Use: "divvy", Short: "Divide GPUs"}
			child := &cobra.Command{
				Use: "node NODE", Short: "Show a node", Example: "  divvy node gpu-1\n  divvy node gpu-1 -o json | jq .", Args: program.Args(1, 1, "the node's name"),
				RunE: func(*cobra.Command, []string) error { return errors.New("first\nsecond") },
			}
			root.AddCommand(child)
			var out strings.Builder
			root.SetOut(&out)
			root.SetErr(&out)
			program.Run(root, args, func(*cobra.Command, error) int { return 0 })
			return out.String()
		}
		for _, test := range []struct {
			args []string
			want string
		}{
			{[]string{"node"}, name + ": an argument is missing: give the node's name\nRun '" + name + " node --help' for its flags and arguments.\n"},
			{[]string{"node", "a"}, name + ": first\n" + strings.Repeat(" ", len(name)+2) + "second\n"},
			{[]string{"node", "--help"}, "\n  " + name + " node NODE [flags]\n"},
			{[]string{"node", "--help"}, "Examples:\n  " + name + " node gpu-1\n  " + name + " node gpu-1 -o json | jq .\n"},
			{[]string{"--help"}, `Use "` + name + ` [command] --help"`},
			{[]string{"--version"}, name + " version "},
		} {
			if got := run(test.args...); !strings.Contains(got, test.want) {
				t.Errorf("%s %q: %s; want %q", path, test.args, got, test.want)
			}
		}
	}
}
