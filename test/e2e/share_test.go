package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

func TestShares(t *testing.T) {
	l := newLab(t)
	l.scenario("third-waits", third)
	l.scenario("limits", limits)
	l.scenario("containers", containers)
	l.scenario("shared-claim", sharedClaim)
	l.scenario("two-gpus", twoGPUs)
	l.scenario("whole-and-shared", wholeAndShared)
	l.scenario("whole-by-hand", wholeByHand)
	l.scenario("whole-of-before", earlierWhole)
	l.scenario("admin-access", adminAccess)
	l.scenario("node-defaults", nodeDefaults)
	l.scenario("examples", examples)
	l.scenario("bad-requests", badRequests)
	l.scenario("bad-claims", badClaims)
	l.scenario("hand-made", handMade)
	l.minutes("health", health)
	l.scenario("webhook-away", webhookAway)
	l.scenario("dialects", allDialects)
	l.scenario("foreign-quotas", foreignQuotas)
	l.scenario("foreign-pods", foreignPods)
	l.scenario("bypass", bypass)
}

// only lets the scheduler use one node for the rest of a scenario.
func (l *lab) only(n int) {
	l.t.Helper()
	for i, node := range l.Nodes {
		if i == n {
			continue
		}
		l.kubectl("cordon", node.Name)
		l.t.Cleanup(func() {
			if _, err := l.Kubectl(context.WithoutCancel(l.ctx), "uncordon", node.Name); err != nil {
				l.t.Error(err)
			}
		})
	}
}

// Shares of 4 and 8 GiB fit on a GPU of 16. Another one of 8 waits, an event says why,
// and it starts when one of the others has gone.
func third(l *lab) {
	l.only(0)
	l.example("share")
	l.example("memory")
	l.running("share")
	l.running("memory")
	l.agree()
	l.create(plain("third", "8Gi", ""))
	why := l.event("third", "NoShareFits")
	if !strings.Contains(why, "8Gi") {
		l.t.Errorf("the event does not say what is asked for: %s", why)
	}
	l.pending("third")
	l.agree()
	l.remove("memory")
	l.running("third")
	l.agree()
	l.limited("third", "main", 8*gib, 1)
}

// A container sees and gets its share whatever its environment contains.
func limits(l *lab) {
	l.run(plain("one", "4Gi", "30"))
	l.run(plain("other", "3Gi", ""))
	l.limited("one", "main", 4*gib, 1)
	l.limited("other", "main", 3*gib, 1)
	l.limited("one", "main", 4*gib, 1, "env", "-i", "PATH=/usr/local/bin:/usr/bin")
	l.limited("one", "main", 4*gib, 1, "env", "CUDA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=all",
		"LD_LIBRARY_PATH=/run/divvy/share:/usr/lib", "PATH=/usr/local/bin:/usr/bin")
	// The library is found by its name, without any environment.
	if text := l.exec("one", "main", "/usr/bin/env", "-i", "/usr/local/bin/gpubench", "info"); !strings.Contains(text, `"CUDA_SUCCESS"`) {
		l.t.Errorf("without any variable: %s", text)
	}
	l.agree()
}

// Each of two containers of a pod has its own share.
func containers(l *lab) {
	l.example("two-containers")
	l.running("two-containers")
	l.agree()
	l.run(pod("mine", container("large", "4Gi", "30"), container("small", "1Gi", "10")))
	l.limited("mine", "large", 4*gib, 1)
	l.limited("mine", "small", 1*gib, 1)
	l.agree()
}

// Two containers of a shared claim have one limit together.
func sharedClaim(l *lab) {
	l.example("shared-claim")
	l.running("shared-claim")
	l.agree()
	var one, two []shown
	l.eventually("both containers use 1 GiB each, and are shown the same", func() string {
		one, two = l.nvml("shared-claim", "one"), l.nvml("shared-claim", "two")
		if len(one) != 1 || len(two) != 1 || one[0] != two[0] || one[0].Used < 2*gib {
			return fmt.Sprintf("they are shown %+v and %+v", one, two)
		}
		return ""
	})
	if one[0].Total != 4*gib {
		l.t.Errorf("shown is %+v, want a total of 4 GiB", one[0])
	}
	f := l.fill("shared-claim", "one", 0)
	if f.Result != "CUDA_ERROR_OUT_OF_MEMORY" || f.Allocated+one[0].Used > 4*gib {
		l.t.Errorf("beside %d bytes in use, %d more were allocated of 4 GiB: %s", one[0].Used, f.Allocated, f.Result)
	}
	l.agree()
}

func twoGPUs(l *lab) {
	l.example("two-gpus")
	p := l.running("two-gpus")
	if p.Spec.NodeName != "n2" {
		l.t.Errorf("the pod is on %s, which has one GPU", p.Spec.NodeName)
	}
	l.agree()
	two := plain("mine", "4Gi", "")
	two.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceGPU] = quantity("2")
	l.run(two)
	l.limited("mine", "main", 4*gib, 2)
	if d := l.nvml("mine", "main"); len(d) == 2 && d[0].UUID == d[1].UUID {
		l.t.Errorf("both GPUs are %s", d[0].UUID)
	}
	l.agree()
}

// A whole GPU has one tenant, and a GPU with a share on it cannot be given as a whole.
func wholeAndShared(l *lab) {
	l.only(0)
	n := l.Nodes[0]
	first, err := l.listing(n)
	l.must(err)
	shared := pool.Name(first.GPUs[0].UUID, pool.Shared)
	l.published(n, shared)
	l.example("whole-gpu")
	l.running("whole-gpu")
	l.agree()
	l.published(n, shared)
	l.create(plain("share", "1Gi", ""))
	l.event("share", "NoShareFits")
	l.pending("share")
	l.remove("whole-gpu")
	l.running("share")
	l.create(whole("whole", 1))
	l.event("whole", "NoShareFits")
	l.pending("whole")
	l.agree()
	l.remove("share")
	l.running("whole")
	l.limited("whole", "main", first.GPUs[0].Capacity, 1)
	l.agree()
}

// Every example that no other scenario has run works as it is written.
func examples(l *lab) {
	for _, name := range []string{"claim", "burst", "half-gpu"} {
		l.example(name)
		l.running(name)
		l.agree()
		l.kubectl("delete", "-n", l.namespace, "-f", l.exampleFile(name), "--grace-period=1")
	}
	l.example("deployment")
	l.kubectl("rollout", "status", "-n", l.namespace, "deployment/deployment", "--timeout=3m")
	l.agree()
	l.kubectl("delete", "-n", l.namespace, "deployment/deployment", "--cascade=foreground")
	l.example("online-offline")
	l.kubectl("rollout", "status", "-n", l.namespace, "deployment/online", "--timeout=3m")
	l.eventually("the job's pod runs", func() string { // kubectl does not wait for a pod that is not made yet
		list, err := l.Client().CoreV1().Pods(l.namespace).List(l.ctx, metav1.ListOptions{LabelSelector: "job-name=offline"})
		if err == nil && !slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return cluster.PodReady(&p) }) {
			return fmt.Sprintf("none of %d does", len(list.Items))
		}
		return reason(err)
	})
	l.agree()
	l.kubectl("delete", "-n", l.namespace, "deployment/online", "job/offline")
	quota(l)
}

// The namespace of the quota is the example's.
func quota(l *lab) {
	file := l.exampleFile("quota")
	l.makeNamespace("quota")
	l.kubectl("apply", "-f", file)
	q := *l
	q.namespace = "quota"
	q.running("within")
	l.agree()
	l.eventually("the quota counts the pod", func() string {
		p := plain("beyond", "5Gi", "")
		_, err := l.Client().CoreV1().Pods("quota").Create(l.ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return "5 GiB beside 4 are admitted where 8 are allowed"
		}
		if !strings.Contains(err.Error(), "quota") {
			return err.Error()
		}
		l.t.Logf("beyond the quota: %v", err)
		return ""
	})
	q.clear()
}

// dialectPods are the examples by the values with which their dialects are on.
var dialectPods = []struct {
	values   []string
	examples []string
}{
	{[]string{"dialects.nvidia.replicas=4", "dialects.nvidia.renamed=true"}, []string{"nvidia"}},
	{[]string{"dialects.4paradigm."}, []string{"4paradigm"}},
	{nil, dialects},
}

// allDialects changes what is installed each time, with a tenant that runs.
func allDialects(l *lab) {
	l.run(busy("busy", "2Gi", ""))
	for _, group := range dialectPods {
		l.install(group.values...)
		for _, name := range group.examples {
			l.translated("dialect-" + name)
			l.example("dialect-" + name)
			p := l.running("dialect-" + name)
			l.agree()
			l.t.Logf("%s has %+v", p.Name, l.nvml(p.Name, "main"))
			if p.Spec.SchedulerName != "default-scheduler" {
				l.t.Errorf("pod %s has scheduler %s", p.Name, p.Spec.SchedulerName)
			}
			l.remove(p.Name)
		}
		if len(group.values) > 0 && group.examples[0] == "nvidia" {
			mig(l)
		}
	}
	l.unmoved("busy")
}

// translated waits until the API server has an example's pod translated by the
// newest configuration: it takes a moment to hear of another one.
func (l *lab) translated(name string) {
	l.t.Helper()
	l.eventually(name+" is translated", func() string {
		text, err := l.Kubectl(l.ctx, "create", "--dry-run=server", "-o", "json", "-n", l.namespace, "-f", l.exampleFile(name))
		if err != nil {
			return err.Error()
		}
		var p corev1.Pod
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return err.Error()
		}
		if limits := p.Spec.Containers[0].Resources.Limits; len(limits) > 0 || len(p.Spec.ResourceClaims) == 0 {
			return fmt.Sprintf("it has limits %v and %d claims", limits, len(p.Spec.ResourceClaims))
		}
		return ""
	})
}

// mig is refused where a container asks for several MIG devices.
func mig(l *lab) {
	p := plain("mig", "", "")
	p.Spec.Containers[0].Resources.Limits["nvidia.com/mig-1g.5gb"] = quantity("2")
	why := l.refused(p)
	l.t.Logf("two MIG devices: %s", why)
	if !strings.Contains(why, "MIG") || strings.Contains(why, "\n") {
		l.t.Errorf("two MIG devices are refused with: %s", why)
	}
}

// unmoved checks that busy pods never noticed anything: they run, were never
// started again, and go on.
func (l *lab) unmoved(names ...string) {
	l.t.Helper()
	for _, name := range names {
		p, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, name, metav1.GetOptions{})
		l.must(err)
		if p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0 {
			text, _ := l.PodLogs(l.ctx, l.namespace, name, "main")
			l.t.Fatalf("pod %s is %s after %d restarts:\n%s", name, p.Status.Phase, p.Status.ContainerStatuses[0].RestartCount, tail(text))
		}
		before := l.rounds(name)
		l.eventually("pod "+name+" goes on", func() string {
			if now := l.rounds(name); now <= before {
				return "it does not allocate"
			}
			return ""
		})
	}
}

// rounds is how often a busy pod has allocated.
func (l *lab) rounds(name string) int {
	l.t.Helper()
	var text string
	l.eventually("what pod "+name+" writes can be read", func() (why string) { // a kubelet that has just started does not know its pods
		var err error
		if text, err = l.PodLogs(l.ctx, l.namespace, name, "main"); err != nil {
			why = err.Error()
		}
		return why
	})
	if strings.Contains(text, "failed") || strings.Contains(text, "ended") {
		l.t.Fatalf("pod %s noticed:\n%s", name, tail(text))
	}
	return strings.Count(text, "\n")
}

func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
