package cluster

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/overview"
)

// racks are what a reader may see of a cluster.
func racks() *overview.Overview {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	number := func(n int) *int { return &n }
	amount := func(n uint64) *uint64 { return &n }
	held := 90 * time.Second
	o := overview.New(noon)
	o.Hidden = "use: you may not get pods/proxy in namespace divvy-system"
	o.Nodes = []overview.Node{
		{Name: "gpu-1", Notes: []string{"extended resource divvy.dev/shares: the node has 64, its pods have 1"}, Outside: []overview.Outside{{PID: 7, User: "ada", GPU: 0}}, GPUs: []overview.GPU{
			{
				Index: number(0), UUID: "GPU-7b8aaf23-1b7a-4c55-9d0f-5b6c7d8e9f00", Model: "NVIDIA A100-SXM4-80GB", Form: v1alpha1.BackendSlice, Capacity: 80 << 30, Granted: 96 << 30, Cores: 130,
				Used: amount(17 << 30), Utilisation: number(97), Temperature: number(64), Milliwatts: amount(312400), Count: 3, Shares: []overview.Share{
					{Name: "train-gpu-x7", Namespace: "research", Pods: []string{"train-0"}, Memory: 16 << 30, Used: amount(15 << 30), Cores: 30, HeldBack: &held, Refused: 3, Policy: "fixed", Class: "online", Since: noon.Add(-3 * time.Hour), Notes: []string{"it has more memory than it was granted or tells"}},
					{Name: "both", Namespace: "research", Pods: []string{"serve-0", "serve-1"}, Memory: 80 << 30, Whole: true},
				},
			},
			{Index: number(1), Device: "gpu-1-shared", Form: v1alpha1.BackendMPS, Capacity: 80 << 30, Fault: "xid-79"},
		}},
		{Name: "gpu-2", GPUs: []overview.GPU{{UUID: "MIG-1", Profile: "1g.10gb", Form: v1alpha1.BackendMIG, Capacity: 10 << 30}}},
	}
	o.Waiting = []overview.Waiting{
		{Namespace: "research", Name: "large", Since: noon.Add(-5 * time.Minute), Reason: "no GPU has 40Gi free: the most is 24Gi on node gpu-1 (GPU 0)"},
		{Namespace: "research", Name: "evil\x1b[31m", Since: noon},
	}
	o.WaitingUnseen = 2
	return o
}

func TestOverviewPrinted(t *testing.T) {
	one := racks()
	one.Nodes, one.Waiting, one.WaitingUnseen = one.Nodes[:1], nil, 0
	for name, c := range map[string]struct {
		o  *overview.Overview
		as style
	}{
		"cluster": {racks(), style{}}, "cluster-80": {racks(), style{width: 80}}, "cluster-40": {racks(), style{width: 40}},
		"node": {one, style{}}, "node-80": {one, style{width: 80}}, "node-colours": {one, style{paint: true}},
		"cluster-none": {overview.New(time.Unix(0, 0)), style{}},
	} {
		t.Run(name, func(t *testing.T) {
			var w strings.Builder
			writeOverview(&w, c.o, c.as)
			golden(t, "overview-"+name, w.String())
			// The tables are between the summary and the lines below them, each of which is as long as it is.
			if tables := strings.Split(w.String(), "\n\n"); c.as.width > 0 {
				for line := range strings.Lines(strings.Join(tables[1:3], "\n")) {
					if text.Width(strings.TrimSuffix(line, "\n")) > c.as.width {
						t.Errorf("%d columns: %s", text.Width(line), line)
					}
				}
			}
			if strings.ContainsRune(w.String(), '\x1b') != bool(c.as.paint) {
				t.Error("escape sequences of others, or no colours")
			}
		})
	}
}

// agentMetrics is what an agent of the node tells.
func agentMetrics(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../agent/exposition/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const (
	nodePath   = "/api/v1/nodes/gpu-1"
	slicesPath = "/apis/resource.k8s.io/v1/resourceslices"
	claimsPath = "/apis/resource.k8s.io/v1/resourceclaims"
	agentsPath = "/api/v1/namespaces/divvy-system/pods"
	proxyPath  = agentsPath + "/divvy-agent-x:9410/proxy/metrics"
	publisher  = `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "items": [{"metadata": {"name": "s"}, "spec": {"driver": "divvy.dev", "nodeName": "gpu-1", "pool": {"name": "gpu-1", "generation": 1},
		"devices": [{"name": "gpu-0-shared", "attributes": {"index": {"int": 0}, "uuid": {"string": "GPU-0"}, "form": {"string": "shared"}, "model": {"string": "A100"}}, "capacity": {"memory": {"value": "80Gi"}}}]}}]}`
	holders = `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimList", "items": [{"metadata": {"name": "train-gpu-x7", "namespace": "team-a"}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "share.divvy.dev"}}]}},
		"status": {"reservedFor": [{"resource": "pods", "name": "train", "uid": "1"}], "allocation": {"devices": {"results": [{"request": "gpu", "driver": "divvy.dev", "pool": "gpu-1", "device": "gpu-0-shared", "consumedCapacity": {"memory": "4Gi", "cores": "30"}}]}}}}]}`
)

func refusal(reason metav1.StatusReason, code int32, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: reason, Code: code, Message: message}
}

// nodeObjects are those of a node with an agent.
func nodeObjects(t *testing.T) map[string]any {
	running := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "divvy-system", Name: "divvy-agent-x"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9410}}}}},
	}
	empty := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	own := empty
	own.Items = []corev1.Pod{running}
	return map[string]any{
		nodePath:   corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"}},
		slicesPath: json.RawMessage(publisher), claimsPath: json.RawMessage(holders), "/api/v1/pods": empty, agentsPath: own, proxyPath: agentMetrics(t),
	}
}

// The agent's figures stand beside what the cluster knows, and shares of which the cluster does not know are there too.
func TestNodeCommand(t *testing.T) {
	clusterOf(t, nodeObjects(t))
	status, out, errOut := call("node", "gpu-1")
	if status != 0 || errOut != "" {
		t.Errorf("status %d, %s", status, errOut)
	}
	golden(t, "node-command", out)
	status, out, _ = call("node", "gpu-1", "-o", "json")
	var got overview.Overview
	if err := json.Unmarshal([]byte(out), &got); status != 0 || err != nil || got.Check() != nil {
		t.Fatalf("status %d, %v, %s", status, err, out)
	}
	g := got.Nodes[0].GPUs[0]
	if *g.Used != 3<<30 || *g.Utilisation != 87 || g.Count != 2 || g.Shares[0].Used != nil || *g.Shares[1].Used != 5<<30 || got.Hidden != "" {
		t.Errorf("got %s", out)
	}
}

// What is missing is said in one line, and the rest is shown.
func TestNodeWithoutUse(t *testing.T) {
	forbidden := refusal(metav1.StatusReasonForbidden, http.StatusForbidden, "no")
	for want, change := range map[string]func(map[string]any){
		"use: you may not get pods/proxy in namespace divvy-system, by which the API server asks the agent": func(o map[string]any) { o[proxyPath] = forbidden },
		"use: you may not list pods in namespace divvy-system, where the agents are":                        func(o map[string]any) { o[agentsPath] = forbidden },
		"use: no agent runs on the node in namespace divvy-system": func(o map[string]any) {
			o[agentsPath] = corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		},
		"use: the API server does not reach port 9410 of pod divvy-agent-x: agents listen on 127.0.0.1 unless the chart's agent.metrics.host is 0.0.0.0": func(o map[string]any) {
			o[proxyPath] = refusal(metav1.StatusReasonServiceUnavailable, http.StatusServiceUnavailable, "error trying to reach service: dial tcp 10.0.0.1:9410: connect: connection refused")
		},
		"use: port 9410 of pod divvy-agent-x has no metrics of an agent": func(o map[string]any) { o[proxyPath] = "other_metric 1\n" },
		"use: read the metrics of pod divvy-agent-x":                     func(o map[string]any) { o[proxyPath] = "<html>\n" },
	} {
		objects := nodeObjects(t)
		change(objects)
		clusterOf(t, objects)
		status, out, errOut := call("node", "gpu-1")
		if status != 0 || errOut != "" || !strings.Contains(out, "\nnot shown: "+want) || !strings.Contains(out, "GPU-0") || !strings.Contains(out, "train-gpu-x7") {
			t.Errorf("status %d, %s%s; want %s", status, out, errOut, want)
		}
	}
}

func TestNodeRefused(t *testing.T) {
	forbidden := refusal(metav1.StatusReasonForbidden, http.StatusForbidden, "no")
	for want, change := range map[string]func(map[string]any){
		"no such node: `kubectl get nodes` lists what there is": func(o map[string]any) { delete(o, nodePath) },
		"the node has no GPUs of Divvy's":                       func(o map[string]any) { delete(o, slicesPath) },
		"binds the ClusterRole divvy-viewer to you":             func(o map[string]any) { o[slicesPath] = forbidden },
	} {
		objects := nodeObjects(t)
		change(objects)
		clusterOf(t, objects)
		if status, out, errOut := call("node", "gpu-1"); status != program.ExitFailure || out != "" || !strings.Contains(errOut, want) {
			t.Errorf("status %d, %s%s; want %s", status, out, errOut, want)
		}
	}
}

func TestListCluster(t *testing.T) {
	objects := nodeObjects(t)
	objects["/api/v1/nodes"] = corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1"}}}}
	objects["/api/v1/pods"] = corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: map[string]string{v1alpha1.RequestAnnotation: "x"}}, Spec: corev1.PodSpec{SchedulerName: "s"},
	}}}
	objects["/apis/events.k8s.io/v1/events"] = json.RawMessage(`{"apiVersion": "events.k8s.io/v1", "kind": "EventList", "items": []}`)
	clusterOf(t, objects)
	status, out, errOut := call("ls", "--cluster")
	if status != 0 || errOut != "" || !strings.HasPrefix(out, "Node gpu-1: 1 GPU, 1 share, 4Gi of 80Gi granted, 1 pod waiting\n") || !strings.Contains(out, "pod p of namespace ns: scheduler s has not looked at it yet\n") {
		t.Errorf("status %d, %s%s", status, out, errOut)
	}
	status, out, _ = call("ls", "--cluster", "-o", "json")
	var got overview.Overview
	if err := json.Unmarshal([]byte(out), &got); status != 0 || err != nil || len(got.Nodes) != 1 || len(got.Waiting) != 1 {
		t.Errorf("status %d, %v, %s", status, err, out)
	}
}
