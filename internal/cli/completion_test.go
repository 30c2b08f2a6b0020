package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/version"
)

// The shell offers what there is: shares, GPUs, users and words.
func TestCompletion(t *testing.T) {
	all := survey{agents: example(), unserved: []unserved{unservedExample()}}
	clusters := deviceClaim("pod", v1alpha1.BackendPassthrough, "")
	clusters.Cluster = "team/claim"
	all.agents[0].Devices = []control.DeviceClaim{deviceClaim("desk", v1alpha1.BackendVGPU, "nvidia-471"), clusters}
	if got := ownClaimNames(all); !slices.Equal(got, []string{"desk\tvgpu:nvidia-471 of ada"}) {
		t.Errorf("claims that may be released: %q", got)
	}
	for name, test := range map[string]struct {
		names func(survey) []string
		want  string
	}{
		"shares": {shareNames, "train\tof alice"}, "GPUs": {indexNames, "1\tTesla T4"}, "users": {userNames, "alice"}, "claims": {claimNames, "pod\tpassthrough of ada"},
	} {
		if got := test.names(all); !slices.Contains(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	for args, want := range map[string]string{
		"run --policy ": "fixed\nweighted\nburst\n", "set train --class ": "online\noffline\n", "ls --sort ": "age\ngpu\nlimit\nname\ntime\nused\nuser\n",
		"ls -o ": "table\njson\nyaml\nwide\n", "stop ": ":4\n", "c": "completion\t",
		"run --simgpu t": "t4\n:4\n", "run --simgpu ./": ":0\n", "share create --policy ": "fixed\nweighted\nburst\n", "share rm ": ":4\n", "vm release ": ":4\n", "vm release a ": ":4\n",
		"vm claim --like ": ":0\n", "vm functions 0 --count ": "all\n0\n", "topo --simgpu a1": "a100-80g\n",
	} {
		status, out, _ := call(t, append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("%q: status %d, %q", args, status, out)
		}
	}
}

func TestVersionFlag(t *testing.T) {
	if status, out, _ := call(t, "--version"); status != 0 || !strings.HasPrefix(out, "divvy version "+version.Full()+" (") {
		t.Errorf("status %d, %q", status, out)
	}
}
