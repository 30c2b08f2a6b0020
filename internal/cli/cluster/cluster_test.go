package cluster

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/cli/program"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func call(args ...string) (status int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	status = Main(args, Hooks{}, &stdout, &stderr)
	return status, stdout.String(), stderr.String()
}

// Help is part of the interface.
func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"divvy-agent-kubernetes":   {"agent", "--kubernetes", "--help"},
		"divvy-webhook":            {"webhook", "--help"},
		"divvy-controller":         {"controller", "--help"},
		"divvy-scheduler-extender": {"scheduler-extender", "--help"},
		"divvy-doctor":             {"doctor", "--kubernetes", "--help"},
		"divvy-explain-pod":        {"explain", "pod", "--help"},
		"divvy-explain-queue":      {"explain", "queue", "--help"},
		"divvy-queues":             {"queues", "--help"},
		"divvy-node":               {"node", "--help"},
		"divvy-ls":                 {"ls", "--cluster", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := call(args...)
			if status != 0 || errOut != "" {
				t.Errorf("exit status %d, %s", status, errOut)
			}
			path := filepath.Join("testdata", "help", name)
			if *update {
				if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v (go test -update writes it)", err)
			}
			if out != string(want) {
				t.Errorf("%s differs (go test -update rewrites it); got:\n%s", path, out)
			}
		})
	}
}

func TestWrongUsage(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"webhook"}, "--config FILE"},
		{[]string{"webhook", "--config", "testdata/webhook.yaml", "--client-name", "a"}, "needs --client-authority"},
		{[]string{"doctor", "-o", "yaml"}, "use table or json"},
		{[]string{"explain", "pod"}, "give the pod's name"},
		{[]string{"explain", "pod", "a", "b"}, `unexpected argument "b"`},
		{[]string{"explain", "pod", "A/b"}, `"A/b" is no name of a pod`},
		{[]string{"explain", "pod", "a", "-n", "x y"}, `"x y" is no name of a namespace`},
		{[]string{"explain", "pod", "a", "-o", "yaml"}, "use table or json"},
		{[]string{"explain", "node", "a"}, "only pods and queues can"},
		{[]string{"explain", "queue"}, "give the queue's name"},
		{[]string{"explain", "queue", "A/b"}, `"A/b" is no name of a queue`},
		{[]string{"explain", "queue", "a", "-n", "x y"}, `"x y" is no name of a namespace`},
		{[]string{"explain", "queue", "a", "-o", "yaml"}, "use table or json"},
		{[]string{"queues", "-o", "yaml"}, "use table or json"},
		{[]string{"node"}, "give the node's name"},
		{[]string{"node", "A/b"}, `"A/b" is no name of a node`},
		{[]string{"node", "a", "-n", "x y"}, `"x y" is no name of a namespace`},
		{[]string{"node", "a", "-o", "wide"}, "use table or json"},
		{[]string{"ls", "--cluster", "-o", "yaml"}, "use table or json"},
		{[]string{"ls", "--cluster", "gpu-1"}, `unexpected argument "gpu-1"`},
		{[]string{"queues", "vision"}, `unexpected argument "vision"`},
		{[]string{"controller", "--mode", "slots"}, "do not run the controller there"},
		{[]string{"controller", "--mode", "both"}, `mode "both"`},
		{[]string{"scheduler-extender"}, "whoever reaches :8444 could bind every pod"},
		{[]string{"scheduler-extender", "--client-name", "a"}, "together"},
		{[]string{"scheduler-extender", "--policy", "none"}, `unknown policy "none"`},
		{[]string{"scheduler-extender", "--address", "127.0.0.1:0", "--lease-duration", "9s"}, "--lease-duration > --lease-renew-deadline"},
		{[]string{"scheduler-extender", "--address", "127.0.0.1:0", "--lease-duration", "900ms", "--lease-renew-deadline", "400ms", "--lease-retry-period", "100ms"}, "--lease-duration >= 1s"},
		{[]string{"scheduler-extender", "--address", "127.0.0.1:0", "--grace", "-5s"}, "--grace"},
		{[]string{"scheduler-extender", "--address", "127.0.0.1:0", "--lease", ""}, `"" is no name of a lease`},
		{[]string{"scheduler-extender", "--address", "127.0.0.1:0", "--namespace", "A/B"}, `"A/B" is no name of a namespace`},
		{[]string{"scheduler-extender", "--address", "127.0.0.1:0", "--follow-lease", "a b"}, `"a b" is no name of a lease`},
		{[]string{"scheduler-extender", "--address", "127.0.0.1:0", "--follow-lease", "divvy-scheduler-extender"}, "follows its own never leads"},
		{[]string{"scheduler-extender", "--address", "127.0.0.1:0", "--certificates", ""}, "--certificates"},
		{[]string{"scheduler-extender", "--client-authority", "ca.crt", "--client-name", ""}, "certificate without a name"},
		{[]string{"agent", "--kubernetes", "--mode", "both"}, "use claims, slots or auto"},
		{[]string{"agent", "--kubernetes"}, "node"},
		{[]string{"agent", "--kubernetes", "--node-name", "n", "--default-policy", "fair"}, "use fixed, weighted or burst"},
		{[]string{"agent", "--kubernetes", "--node-name", "n", "--default-policy", "fixed"}, "give default cores too"},
		{[]string{"agent", "--kubernetes", "--node-name", "n", "--default-cores", "5", "--mode", "slots"}, "need mode claims"},
		{[]string{"agent", "--kubernetes", "--node-name", "n", "extra"}, "unexpected argument"},
	} {
		status, _, errOut := call(test.args...)
		if status != program.ExitUsage || !strings.Contains(errOut, test.want) {
			t.Errorf("%q: status %d, %s; want %q", test.args, status, errOut, test.want)
		}
	}
}
