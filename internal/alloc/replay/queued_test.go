package replay

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

const eightGPUs = "name,cpu_milli,memory_mib,gpus,gpu_model,gpu_memory_mib\nn0,64000,262144,4,A100,81920\nn1,64000,262144,4,T4,16384\n"

const queuedHeader = "name,cpu_milli,memory_mib,gpus,gpu_memory,gpu_models,queue,quota,priority,arrival_s,runtime_s,members,minimum\n"

func share(name string, resources ...v1alpha1.QueueShare) queue.Spec {
	return queue.Spec{Name: name, QueueSpec: v1alpha1.QueueSpec{Namespaces: []string{name}, Resources: resources}}
}

func guaranteed(amount string) v1alpha1.QueueShare {
	return v1alpha1.QueueShare{Guaranteed: v1alpha1.Written(amount)}
}

func queuedTrace(t *testing.T, pods string, queues ...queue.Spec) *QueuedTrace {
	t.Helper()
	trace := &QueuedTrace{Nodes: readNodes(t, eightGPUs), Queues: queues}
	var err error
	if trace.Pods, err = ReadQueuedPods("pods.csv", strings.NewReader(queuedHeader+pods), trace.Nodes, queues); err != nil {
		t.Fatal(err)
	}
	return trace
}

func replayed(t *testing.T, trace *QueuedTrace) QueueResult {
	t.Helper()
	r, err := trace.Run(t.Context(), QueueOptions{Policy: "spread"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *QueueResult) total(t *testing.T, name string) QueueTotal {
	t.Helper()
	for _, q := range r.Totals {
		if q.Queue == name {
			return q
		}
	}
	t.Fatalf("no totals of %q: %+v", name, r.Totals)
	return QueueTotal{}
}

// A department that lent its four GPUs has them back once the grace is over; who gave them comes back and runs from the beginning.
func TestQueuesGiveBack(t *testing.T) {
	var pods strings.Builder
	for i := range 8 {
		fmt.Fprintf(&pods, "a/%d,1000,0,1,,,,,,100,1000,,\n", i)
	}
	for i := range 4 {
		fmt.Fprintf(&pods, "b/%d,1000,0,1,,,,,,200,300,,\n", i)
	}
	pods.WriteString("host,1000,0,0,,,a,,,100,,,\n")
	trace := queuedTrace(t, pods.String(), share("a", guaranteed("4")), share("b", guaranteed("4")))
	r := replayed(t, trace)
	if want := (QueueTotal{Queue: "a", Arrived: 8, Started: 8, EndedForOthers: 4, Lost: 0.111}); r.total(t, "a") != want {
		t.Errorf("%+v, want %+v", r.total(t, "a"), want)
	}
	if want := (QueueTotal{Queue: "b", Arrived: 4, Started: 4, Waited: 30, LongestWaited: 30}); r.total(t, "b") != want {
		t.Errorf("%+v, want %+v", r.total(t, "b"), want)
	}
	if want := (QueueTotal{Arrived: 1, Started: 1}); r.total(t, "") != want {
		t.Errorf("a pod without GPUs: %+v", r.total(t, ""))
	}
	// From 100 on a uses 8, from 200 on b is to have 4 of them, until 530; then a's four begin anew.
	if r.Seconds != 1430 || len(r.Series) != 2 || len(r.Series[0].Points) != 80 {
		t.Fatalf("%v seconds, %d series", r.Seconds, len(r.Series))
	}
	a := r.Series[0]
	for at, want := range map[int]float64{0: 8, 15: 4, 40: 8, 79: 4} {
		if a.Points[at].Used != want {
			t.Errorf("point %d: %+v, want %v used", at, a.Points[at], want)
		}
	}
	if p := a.Points[15]; p.Guaranteed != 4 || p.Entitled != 4 || p.Demand != 8 || p.Borrowed != 0 {
		t.Errorf("%+v", p)
	}
	if again := replayed(t, trace); !reflect.DeepEqual(again, r) {
		t.Error("a second replay differs")
	}
}

// What a pod holds counts in its model's dimension once it has one.
func TestQueuesCountTheModelThatWasGiven(t *testing.T) {
	t4 := v1alpha1.QueueShare{Model: "T4", Guaranteed: v1alpha1.Written("4")}
	memory := v1alpha1.QueueShare{Unit: v1alpha1.UnitMemory, Guaranteed: v1alpha1.Written("80Gi")}
	trace := queuedTrace(t, "a/0,0,0,1,8Gi,,,,,0,100,,\na/1,0,0,2,,T4,,,,0,100,,\n", share("a", t4, memory, guaranteed("8")))
	r := replayed(t, trace)
	got := map[string]float64{}
	for _, s := range r.Series {
		got[s.Model+" "+string(s.Unit)] = s.Used
	}
	// 8Gi of an A100's 80Gi or of a T4's 16Gi, and two T4.
	onA100 := map[string]float64{"T4 gpus": 2, " gpus": 2.1, " memory": 40 << 30}
	onT4 := map[string]float64{"T4 gpus": 2.5, " gpus": 2.5, " memory": 40 << 30}
	if !reflect.DeepEqual(got, onA100) && !reflect.DeepEqual(got, onT4) {
		t.Errorf("%v", got)
	}
}

func TestQueuedGangs(t *testing.T) {
	r := replayed(t, queuedTrace(t, "g,0,0,1,,,a,,,0,50,6,4\nh,0,0,1,,,a,,5,0,50,4,4\nforever,0,0,1,,,a,opportunistic,,10,,,\n", share("a")))
	if want := (QueueTotal{Queue: "a", Arrived: 11, Started: 11, Waited: 3.636, LongestWaited: 40}); r.total(t, "a") != want {
		t.Errorf("%+v, want %+v", r.total(t, "a"), want)
	}
	if r.Seconds != 50 { // four members of g beside h, and then the last; the replay ends though it runs on
		t.Errorf("%v seconds", r.Seconds)
	}
}

func TestQueuedOpenb(t *testing.T) {
	nodes := readNodes(t, "sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,T4\n")
	const header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
	read := func(text string) ([]QueuedPod, error) {
		return ReadQueuedPods("pods.csv", strings.NewReader(header+text), nodes, []queue.Spec{share("a")})
	}
	pods, err := read("p,0,0,1,250,,LS,Running,10,100,40\nq,0,0,1,1000,,LS,Pending,10,100,\nr,0,0,1,1000,,LS,Running,10,,40\n")
	if err != nil || pods[0].Runs != time.Minute || pods[0].Arrives != 10*time.Second || pods[1].Runs != 90*time.Second || pods[2].Runs != Forever {
		t.Fatalf("%+v, %v", pods, err)
	}
	trace := &QueuedTrace{Nodes: nodes, Pods: pods, Queues: []queue.Spec{share("a", guaranteed("2"), v1alpha1.QueueShare{Unit: v1alpha1.UnitCores})}}
	if err := trace.Deal([]Part{{"a", 1}}); err != nil {
		t.Fatal(err)
	}
	r := replayed(t, trace)
	if first := r.Series[1].Points[0]; r.Series[1].Unit != v1alpha1.UnitGPUs || first.Used != 1.25 {
		t.Errorf("%+v", r.Series)
	}
	if first := r.Series[0].Points[0]; first.Used != 125 { // percent
		t.Errorf("%+v", first)
	}
	if _, err := read("p,0,0,1,250,,LS,Running,10,30,40\n"); err == nil || !strings.Contains(err.Error(), "line 2, column deletion_time: is before") {
		t.Errorf("%v", err)
	}
	trace.Queues = []queue.Spec{share("a", v1alpha1.QueueShare{Unit: v1alpha1.UnitMemory})}
	if _, err := trace.Run(t.Context(), QueueOptions{Policy: "spread"}); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "queue a: resource 0: unit memory") {
		t.Errorf("%v", err)
	}
}

func TestDeal(t *testing.T) {
	trace := &QueuedTrace{Queues: []queue.Spec{share("a"), share("b")}}
	for i := range 1000 {
		pod := QueuedPod{Pod: Pod{Name: fmt.Sprint("pod-", i)}}
		pod.Request.Count = 1
		trace.Pods = append(trace.Pods, pod)
	}
	trace.Pods[0].Queue, trace.Pods[1].Request.Count = "b", 0
	if err := trace.Deal([]Part{{"a", 3}, {"b", 1}}); err != nil {
		t.Fatal(err)
	}
	dealt := map[string]int{}
	for _, p := range trace.Pods {
		dealt[p.Queue]++
	}
	if dealt["a"] < 700 || dealt["a"] > 800 || dealt[""] != 1 || trace.Pods[0].Queue != "b" || trace.InQueues() != 999 {
		t.Errorf("%v", dealt)
	}
	for _, p := range []Part{{"c", 1}, {"a", 0}, {"a", -1}, {"a", 1 << 40}} {
		if err := trace.Deal([]Part{p}); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestQueuedFaults(t *testing.T) {
	nodes := readNodes(t, eightGPUs)
	for row, want := range map[string]string{
		"p,0,0,1,,,nobody,,,0,1,,":      `line 2, column queue: there is no queue "nobody"`,
		"p,0,0,1,,,a,best-effort,,0,,,": "column quota: invalid request: quota",
		"p,0,0,1,,,a,,-1,0,1,,":         "column priority: -1 is negative",
		"p,0,0,1,,,a,,,,1,,":            `column arrival_s: "" is not a whole number`,
		"p,0,0,1,,,a,,,0,1.5,,":         `column runtime_s: "1.5" is not a whole number`,
		"p,0,0,1,,,a,,,0,1,0,":          "column members: 0: give 1 or more",
		"p,0,0,1,,,a,,,0,1,2,3":         "column minimum: 3 of 2 members: give 1 to 2",
	} {
		_, err := ReadQueuedPods("pods.csv", strings.NewReader(queuedHeader+row+"\n"), nodes, []queue.Spec{share("a")})
		var fault *FieldError
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", row, err, want)
		}
	}
	_, err := ReadQueuedPods("pods.csv", strings.NewReader("name,cpu_milli,memory_mib,gpus,gpu_memory\np,0,0,1,\n"), nodes, nil)
	if err == nil || !strings.Contains(err.Error(), "column arrival_s: the column is missing") {
		t.Errorf("%v", err)
	}
	if _, err := (&QueuedTrace{Nodes: nodes}).Run(t.Context(), QueueOptions{Policy: "spread"}); !errors.Is(err, ErrOptions) {
		t.Errorf("without pods: %v", err)
	}
}
