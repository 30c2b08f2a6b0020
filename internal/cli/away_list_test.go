package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// awayExample has a share of each state.
func awayExample(now time.Time) []relay.Listed {
	taken := relay.Record{
		Name: "train", State: relay.StateTaken, Hosts: []string{"gpu1", "gpu2"}, Host: "gpu2", Share: "train-2", Memory: 8 << 30, Cores: 30, Since: now.Add(-time.Hour), Command: []string{"python", "train.py"},
		GPUs: []relay.GPU{{UUID: "GPU-1", Index: 3, Model: "NVIDIA A100-SXM4-80GB"}, {UUID: "GPU-2", Index: 4, Model: "NVIDIA A100-SXM4-80GB"}}, Processes: []int{4101},
	}
	ready := relay.Record{Name: "eval", State: relay.StateReady, Hosts: []string{"gpu1", "gpu2"}, Since: now.Add(-time.Minute), Command: []string{"python", "eval.py"}}
	ended := taken
	ended.Name, ended.State, ended.GPUs, ended.Processes, ended.Why = "lost", relay.StateEnded, taken.GPUs[:1], nil, "gpu2 has been silent for more than 11s: it is gone, or the network is"
	unknown := relay.Record{Name: "7124bb2e7ca3", State: relay.StateUnknown, Why: "checkpoint of another version"}
	return []relay.Listed{{Record: taken}, {Record: ready}, {Record: ended}, {Record: unknown}}
}

func TestSharesOnOtherHostsAreListed(t *testing.T) {
	var w strings.Builder
	printSurvey(&w, survey{remote: awayExample(time.Now())}, look{})
	golden(t, "ls-remote.table", w.String())
}

// The relays of containers keep what they tell beside their agent's socket.
func TestSharesOfContainersAreListed(t *testing.T) {
	t.Setenv(rundir.Variable, t.TempDir())
	l := listing{endpoint: control.Endpoint{Rundir: t.TempDir(), Simgpu: "node"}}
	dir := filepath.Join(l.endpoint.Dir(), "remote", "9ae1")
	if err := os.MkdirAll(relay.RecordFolder(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	record := awayExample(time.Now())[0].Record
	record.Process.PID = os.Getpid()
	if err := checkpoint.NewFile[relay.Record](filepath.Join(relay.RecordFolder(dir), "share.json"), "remote share", 1).Save(record); err != nil {
		t.Fatal(err)
	}
	all, err := sharesAway([]listing{l, {endpoint: control.Endpoint{Rundir: rundir.Own()}}})
	if err != nil || len(all) != 1 || all[0].Name != "train" || all[0].Dir != dir {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestSelectionOfSharesOnOtherHosts(t *testing.T) {
	for _, c := range []struct {
		selection
		shown bool
	}{{selection{}, true}, {selection{user: "nobody-else"}, false}, {selection{gpu: "0"}, false}} {
		if got := c.ofAway(awayExample(time.Now())); (len(got) > 0) != c.shown {
			t.Errorf("%+v: %d shares", c.selection, len(got))
		}
	}
}

// What makes no sense for a share on another host is refused by name.
func TestFlagsOfSharesOnOtherHosts(t *testing.T) {
	for _, c := range []struct {
		args  []string
		wants string
	}{
		{[]string{"--backend", "slice"}, "--backend slice cannot be given with --remote"},
		{[]string{"--profile", "1g.10gb"}, "--profile cannot"},
		{[]string{"--isolate", "faults"}, "--isolate cannot"},
		{[]string{"--simgpu", "a100-80g"}, "--simgpu cannot"},
		{[]string{"--gpu", "0"}, "--gpu cannot"},
		{[]string{"--gpus", "all"}, "--gpus all cannot"},
		{[]string{"--summary"}, "--summary cannot"},
		{[]string{"--when-used", "--wait"}, "--wait with --when-used cannot"},
		{[]string{"--cores", "30", "--class", "offline", "--policy", "weighted"}, "class offline guarantees nothing"},
		{[]string{"--remote", "gpu1,,gpu2"}, "HOST:PORT"},
		{[]string{"--remote", "gpu1:0"}, "HOST:PORT"},
	} {
		status, _, said := call(t, append(append([]string{"run", "--remote", "nowhere.invalid"}, c.args...), "--", "true")...)
		if status != exitRun || !strings.Contains(said, c.wants) {
			t.Errorf("%q: status %d, %s", c.args, status, said)
		}
	}
	if status, _, said := call(t, "run", "--when-used", "--", "true"); status != exitRun || !strings.Contains(said, "--remote") {
		t.Errorf("--when-used alone: status %d, %s", status, said)
	}
}
