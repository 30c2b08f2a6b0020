package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/alloc/replay"
)

func replayFiles(t *testing.T) (nodes, pods string) {
	t.Helper()
	folder := t.TempDir()
	nodes, pods = filepath.Join(folder, "nodes.csv"), filepath.Join(folder, "pods.csv")
	for path, text := range map[string]string{
		nodes: "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,T4\nb,96000,393216,8,G2\n",
		pods:  "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,4000,1024,1,500\np1,8000,1024,1,1000\np2,1000,1024,0,0\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return nodes, pods
}

func runReplay(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	command := newReplayCommand(&app{out: &out, err: &out})
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(args)
	err := command.Execute()
	return out.String(), err
}

func TestReplayPrintsAnObjectForEachSeed(t *testing.T) {
	nodes, pods := replayFiles(t)
	plot := filepath.Join(t.TempDir(), "out.svg")
	out, err := runReplay(t, "--nodes", nodes, "--pods", pods, "--seeds", "2", "--policy", "capacity,bestfit", "--plot", plot, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(strings.NewReader(out))
	var results []map[string]any
	for decoder.More() {
		var one map[string]any
		if err := decoder.Decode(&one); err != nil {
			t.Fatal(err)
		}
		results = append(results, one)
	}
	if len(results) != 4 {
		t.Fatalf("%d objects for two policies and two seeds", len(results))
	}
	for i, want := range []struct {
		policy string
		seed   float64
	}{{"capacity", 42}, {"capacity", 43}, {"bestfit", 42}, {"bestfit", 43}} {
		r := results[i]
		if r["policy"] != want.policy || r["seed"] != want.seed {
			t.Errorf("object %d is of %v %v", i, r["policy"], r["seed"])
		}
		for _, field := range []string{"allocated_percent_at_100", "allocated_percent_at_130", "decisions_per_second"} {
			if n, ok := r[field].(float64); !ok || n <= 0 {
				t.Errorf("%s is %v", field, r[field])
			}
		}
	}
	svg, err := os.ReadFile(plot)
	if err != nil || !strings.HasPrefix(string(svg), "<svg ") || strings.Count(string(svg), "<polyline") != 6 {
		t.Errorf("plot %.80s, %v", svg, err)
	}
}

// Columns name the demand that arrived.
func TestReplayNamesTheDemand(t *testing.T) {
	nodes, pods := replayFiles(t)
	for until, want := range map[string]string{
		"130%": "POLICY SEED AT 100% AT 130% DECISIONS", "110%": "POLICY SEED AT 100% AT 110% DECISIONS", "50": "POLICY SEED AT 50% DECISIONS",
		"100%": "POLICY SEED AT 100% DECISIONS", "300%": "POLICY SEED AT 100% AT 130% AT 300% DECISIONS",
	} {
		out, err := runReplay(t, "--nodes", nodes, "--pods", pods, "--until", until, "--seeds", "2", "--policy", "capacity,bestfit")
		if err != nil || !strings.HasPrefix(strings.Join(strings.Fields(out), " "), want) || strings.Count(out, "median") != 2 {
			t.Errorf("%s: %v\n%s", until, err, out)
		}
		out, err = runReplay(t, "--nodes", nodes, "--pods", pods, "--until", until, "-o", "json")
		if err != nil || strings.Contains(out, "at_130") != (until == "130%" || until == "300%") || strings.Contains(out, "at_100") != (until != "50") || !strings.Contains(out, "at_end") {
			t.Errorf("%s: %v\n%.300s", until, err, out)
		}
	}
}

func TestReplayChurn(t *testing.T) {
	nodes, pods := replayFiles(t)
	plot := filepath.Join(t.TempDir(), "out.svg")
	out, err := runReplay(t, "--nodes", nodes, "--pods", pods, "--churn", "80%", "--events", "500", "-o", "json", "--plot", plot)
	if svg, err := os.ReadFile(plot); err != nil || strings.Count(string(svg), "<polyline") != 1 {
		t.Errorf("plot %.80s, %v", svg, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var r replay.ChurnResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Events != 500 || r.Load != 80 || r.Arrivals == 0 {
		t.Errorf("%s: %+v, %v", out, r, err)
	}
}

func TestReplayRefusesWrongUsage(t *testing.T) {
	nodes, pods := replayFiles(t)
	for _, test := range []struct {
		want string
		args []string
	}{
		{"both --nodes and --pods", []string{"--nodes", nodes}},
		{"choose adaptive", []string{"--nodes", nodes, "--pods", pods, "--policy", "best"}},
		{"1% to 1000%", []string{"--nodes", nodes, "--pods", pods, "--until", "0"}},
		{"1% to 1000%", []string{"--nodes", nodes, "--pods", pods, "--churn", "many"}},
		{"table or json", []string{"--nodes", nodes, "--pods", pods, "-o", "xml"}},
		{"choose 1 to 10000", []string{"--nodes", nodes, "--pods", pods, "--seeds", "0"}},
		{"line 1: the columns match no known format", []string{"--nodes", nodes, "--pods", nodes}},
		{"no such file", []string{"--nodes", nodes + "x", "--pods", pods}},
	} {
		if _, err := runReplay(t, test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error %v; want %q", test.args, err, test.want)
		}
	}
}

// What is drawn of two departments of which one takes back what it lent.
func TestReplayQueues(t *testing.T) {
	const folder = "../../testdata/queues/"
	args := []string{"--nodes", folder + "nodes.csv", "--pods", folder + "pods.csv", "--queues", "../../docs/examples/queues.yaml"}
	out, err := runReplay(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "replay-queues", out)
	// The manual has the second chart.
	page, err := os.ReadFile("../../docs/replay.md")
	if err != nil {
		t.Fatal(err)
	}
	_, chart, _ := strings.Cut(out, "vision, ")
	chart, _, _ = strings.Cut("vision, "+chart, "\n\n")
	if !strings.Contains(string(page), "    "+strings.ReplaceAll(chart, "\n", "\n    ")) {
		t.Errorf("docs/replay.md has another chart than\n%s", chart)
	}
	for line := range strings.Lines(out) {
		if len(line) > 101 {
			t.Errorf("wider than 100 columns: %s", line)
		}
	}
	out, err = runReplay(t, append(args, "-o", "json", "--policy", "bestfit,spread")...)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(strings.NewReader(out))
	for _, policy := range []string{"bestfit", "spread"} {
		var r replay.QueueResult
		if err := decoder.Decode(&r); err != nil || r.Policy != policy || len(r.Series) != 2 || len(r.Series[0].Points) != 80 || len(r.Totals) != 2 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

func TestReplayQueuesRefuses(t *testing.T) {
	nodes, pods := replayFiles(t)
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const head = "apiVersion: divvy.dev/v1alpha1\nkind: Queue\nmetadata: {name: "
	queues := file("queues.yaml", head+"a}\nspec: {}\n")
	timed := file("timed.csv", "name,cpu_milli,memory_mib,gpus,gpu_memory,arrival_s,runtime_s,queue\np,0,0,1,,0,1,\nq,0,0,1,,0,1,\n")
	for _, test := range []struct {
		want string
		args []string
	}{
		{"--assign is for --queues", []string{"--assign", "a=1"}},
		{"--churn cannot be combined", []string{"--queues", queues, "--churn", "80%"}},
		{"--plot cannot be combined", []string{"--queues", queues, "--plot", "x"}},
		{"no such file", []string{"--queues", queues + "x"}},
		{"document 1: queue a: there is no queue b", []string{"--queues", file("parent.yaml", head+"a}\nspec: {parent: b}\n")}},
		{"give QUEUE=PARTS", []string{"--queues", queues, "--pods", timed, "--assign", "a"}},
		{`--assign b=1: invalid options: pods for queue "b"`, []string{"--queues", queues, "--pods", timed, "--assign", "b=1"}},
		{"column creation_time: the column is missing", []string{"--queues", queues, "--assign", "a=1"}},
		{"is in a queue: give it a column queue or names NAMESPACE/NAME, or deal its pods with --assign a=1", []string{"--queues", queues, "--pods", timed}},
	} {
		_, err := runReplay(t, append([]string{"--nodes", nodes, "--pods", pods}, test.args...)...)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: error %v; want %q", test.args, err, test.want)
		}
	}
}
