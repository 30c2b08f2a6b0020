package cluster

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/explanation"
)

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got:\n%s", path, got)
	}
}

func departments() []explanation.Queue {
	use := func(guaranteed, entitled, used, lent, borrowed, demand int64) v1alpha1.QueueUse {
		return v1alpha1.QueueUse{Unit: v1alpha1.UnitGPUs, Guaranteed: guaranteed, Entitled: entitled, Used: used, Lent: lent, Borrowed: borrowed, Demand: demand}
	}
	memory := v1alpha1.QueueUse{Model: "H100", Unit: v1alpha1.UnitMemory, Guaranteed: 80 << 10, Used: 512}
	return []explanation.Queue{
		{Name: "research", Resources: []v1alpha1.QueueUse{use(8000, 8000, 8000, 0, 0, 10500)}, Running: 8, Waiting: 3, Seen: true},
		{Name: "speech", Parent: "research", Depth: 1, Resources: []v1alpha1.QueueUse{use(4000, 2500, 2500, 1500, 0, 2500), memory}, Running: 3, Seen: true},
		{
			Name: "vision", Parent: "research", Depth: 1, Resources: []v1alpha1.QueueUse{use(4000, 5500, 5500, 0, 1500, 8000)}, Running: 5, Waiting: 3,
			Conditions: []explanation.QueueCondition{{Type: "NoGPUs", Message: "no node has GPUs of model H900", Next: "write a model"}, {Type: "Other", Message: "unknown"}},
		},
	}
}

func TestQueuesPrinted(t *testing.T) {
	var text strings.Builder
	writeQueues(&text, departments())
	golden(t, "queues", text.String())
	for want, queues := range map[string][]explanation.Queue{
		"there are no queues":                            {},
		"no scheduler has told where these queues stand": {{Name: "a"}},
		"last change of 1 of 2 queues":                   {{Name: "a"}, {Name: "b", Seen: true}},
	} {
		text.Reset()
		if writeQueues(&text, queues); !strings.Contains(text.String(), want) {
			t.Errorf("%s; want %s", text.String(), want)
		}
	}
}

// A pipe gets a line for each change, and a terminal is drawn anew.
func TestChangesOfQueues(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	steps := func() [][]explanation.Queue {
		gone := departments()
		changed := departments()
		changed[1].Running = 4
		return [][]explanation.Queue{departments(), departments(), changed, gone[:2]}
	}
	for name, s := range map[string]shownQueues{"queues-lines": {}, "queues-objects": {json: true}, "queues-terminal": {terminal: true}} {
		var out strings.Builder
		s.a, s.now = &app{out: &out}, func() time.Time { return now }
		for _, queues := range steps() {
			if err := s.show(queues); err != nil {
				t.Fatal(err)
			}
		}
		if s.terminal {
			if n := strings.Count(out.String(), program.ClearScreen); n != 3 {
				t.Errorf("drawn %d times, want 3", n)
			}
			continue
		}
		golden(t, name, out.String())
	}
}

// clusterOf serves objects and texts by path, and anything else as not found. KUBECONFIG names it, with namespace mine.
func clusterOf(t *testing.T, objects map[string]any) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, ok := objects[r.URL.Path]
		if text, plain := answer.(string); plain {
			_, _ = io.WriteString(w, text)
			return
		}
		if status, failed := answer.(metav1.Status); failed {
			w.WriteHeader(int(status.Code))
		} else if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "config")
	config := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, namespace: mine}}], clusters: [{name: a, cluster: {server: "` + server.URL + `"}}]}`
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
}

const queuesPath = "/apis/divvy.dev/v1alpha1/queues"

func listOf(queues ...v1alpha1.Queue) map[string]any {
	for i := range queues {
		queues[i].APIVersion, queues[i].Kind = v1alpha1.APIVersion, v1alpha1.KindQueue
	}
	return map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "QueueList", "metadata": map[string]any{"resourceVersion": "7"}, "items": queues}
}

func TestQueuesCommand(t *testing.T) {
	vision := v1alpha1.Queue{Metadata: v1alpha1.QueueMetadata{Name: "vision", Generation: 1}, Status: v1alpha1.QueueStatus{
		ObservedGeneration: 1, Running: 2, Resources: []v1alpha1.QueueUse{{Unit: v1alpha1.UnitGPUs, Guaranteed: 4000, Used: 2500}},
	}}
	clusterOf(t, map[string]any{queuesPath: listOf(vision)})
	status, out, errOut := call("queues")
	if status != 0 || !strings.Contains(out, "vision  all    gpus  4           0         2.5   0     0         0       2        0\n") || errOut != "" {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	var got struct{ Queues []explanation.Queue }
	status, out, _ = call("queues", "-o", "json")
	if err := json.Unmarshal([]byte(out), &got); status != 0 || err != nil || len(got.Queues) != 1 || got.Queues[0].Resources[0].Used != 2500 {
		t.Errorf("status %d, %v, %s", status, err, out)
	}
	clusterOf(t, nil)
	for _, args := range [][]string{{"queues"}, {"queues", "--watch"}} {
		status, out, errOut = call(args...)
		if status != program.ExitFailure || out != "" || !strings.Contains(errOut, "no kind Queue: install Divvy's chart with scheduler.enabled=true and scheduler.queues=true") {
			t.Errorf("without the kind: status %d, %s%s", status, out, errOut)
		}
	}
	clusterOf(t, map[string]any{queuesPath: metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "queues.divvy.dev is forbidden"}})
	if status, _, errOut = call("queues"); status != program.ExitFailure || !strings.Contains(errOut, "binds the ClusterRole divvy-queues") {
		t.Errorf("without the right: status %d, %s", status, errOut)
	}
}
