package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/cli/program"
)

// What is for a cluster becomes the cluster's program with the same arguments,
// those of others stay here.
func TestHandOver(t *testing.T) {
	errBecome := errors.New("no such file")
	for _, test := range []struct {
		args []string
		over bool
	}{
		{[]string{"webhook", "--config", "f", "--help"}, true},
		{[]string{"controller"}, true},
		{[]string{"agent", "--node-name", "n", "--kubernetes"}, true},
		{[]string{"doctor", "--kubernetes", "-o", "json"}, true},
		{[]string{"explain", "pod", "p", "-n", "ns"}, true},
		{[]string{"explain", "pod", "--help"}, true},
		{[]string{"explain", "queue", "q"}, true},
		{[]string{"queues", "--watch"}, true},
		{[]string{"node", "gpu-1"}, true},
		{[]string{"ls", "-o", "json", "--cluster"}, true},
		{[]string{"list", "--cluster"}, true},
		{[]string{"ls", "--no-such-flag"}, false},
		{[]string{"explain", "pods"}, false},
		{[]string{"agent", "--no-such-flag"}, false},
		{[]string{"version"}, false},
	} {
		var errOut strings.Builder
		var became []string
		a := &app{tree: "/opt/divvy", out: &strings.Builder{}, err: &errOut}
		a.become = func(path string, args, _ []string) error {
			if path != "/opt/divvy/libexec/divvy/divvy-cluster" {
				t.Errorf("%q becomes %s", test.args, path)
			}
			became = args
			return errBecome
		}
		status := a.execute(test.args)
		if !test.over {
			if became != nil {
				t.Errorf("%q was handed over", test.args)
			}
			continue
		}
		if !slices.Equal(became, append([]string{"divvy"}, test.args...)) {
			t.Errorf("%q was handed over as %q", test.args, became)
		}
		if status != program.ExitFailure || !strings.Contains(errOut.String(), "divvy-cluster: no such file: reinstall Divvy") {
			t.Errorf("%q: status %d, %s", test.args, status, errOut.String())
		}
	}
}
