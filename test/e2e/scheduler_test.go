package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
	"github.com/divvy-gpu/divvy/test/e2e/desk"
)

// TestScheduler has Divvy's scheduler place what the cluster's own does in the other tests. Whatever happens to it, claims,
// agents, the oracle and the scheduler's ledger agree afterwards.
func TestScheduler(t *testing.T) {
	gate(t)
	roots := []string{"--set", "gpus[1].switch=0000:3e:00.0"} // one of n2's GPUs is under another PCIe root
	l := startLab(t, cluster.Node{Name: "n3", Machine: "h100x8"}, cluster.Node{Name: "n2", MachineFlags: roots})
	l.kubectl("cordon", "n3")                                  // but for departments
	l.install("scheduler.enabled=true", "allocators={nobody}") // besides Divvy's own
	l.scenario("gang-refused", gangRefused)
	l.scenario("through-stock", throughStock)
	l.scenario("one-root-of-two-drivers", oneRootOfTwoDrivers)
	l.scenario("pairs", func(l *lab) {
		l.kubectl("uncordon", "n3")
		defer l.kubectl("cordon", "n3")
		pairs(l, l.Nodes[2], l.settled)
	})
	l.scenario("gpu-of-gang-lost", gpuOfGangLost)
	l.minutes("node-of-gang-lost", nodeOfGangLost)
	l.scenario("taken-by-pods", takenByPods)
	l.minutes("taken-by-gang", takenByGang)
	l.scenario("pages", func(l *lab) {
		const name = "test/e2e.TestScheduler"
		l.pages(desk.Open(l.t, l.Cluster, "docs/queues.md", name), desk.Open(l.t, l.Cluster, "docs/scheduler.md", name))
	})
	l.withoutScheduler()
	l.scenario("scheduler-killed", schedulerKilled)
	l.scenario("leader-stopped", leaderStopped)
}

// withoutScheduler ends the installed schedulers. One that is still ending places pods, so it waits until they are gone.
func (l *lab) withoutScheduler() {
	l.t.Helper()
	l.kubectl("scale", "-n", system, "deployment/divvy-scheduler", "--replicas=0")
	l.eventually("the schedulers are gone", func() string {
		list, err := l.Client().CoreV1().Pods(system).List(l.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=scheduler"})
		if err == nil && len(list.Items) > 0 {
			return fmt.Sprintf("there are %d", len(list.Items))
		}
		return reason(err)
	})
}

// gang makes pods of one gang, each of which asks for half of a GPU of its own.
func gang(name string, members ...string) (all []*corev1.Pod) {
	for _, member := range members {
		p := plain(member, "8Gi", "20")
		p.Annotations = map[string]string{v1alpha1.GangAnnotation: name, v1alpha1.GangSizeAnnotation: strconv.Itoa(len(members))}
		all = append(all, p)
	}
	return all
}

func (l *lab) createAll(pods []*corev1.Pod) {
	l.t.Helper()
	for _, p := range pods {
		l.create(p)
	}
}

// settled checks that the records agree, the leading scheduler's ledger among them.
func (l *lab) settled() {
	l.t.Helper()
	l.agree()
	l.counts()
}

// counts waits until the leading scheduler's ledger is that of the cluster's objects.
func (l *lab) counts() {
	l.t.Helper()
	const figure = "divvy_scheduler_ledger_differences"
	l.eventually("the scheduler's ledger is that of the cluster's objects", func() string {
		list, err := l.Client().CoreV1().Pods(system).List(l.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=scheduler"})
		if err != nil {
			return err.Error()
		}
		for i := range list.Items {
			text, err := l.Client().CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces", system, "pods", "https:"+list.Items[i].Name+":10260", "proxy/metrics").DoRaw(l.ctx)
			if err != nil {
				return err.Error()
			}
			if strings.Contains(string(text), "\n"+figure+" 0\n") {
				return ""
			}
		}
		return "nobody tells " + figure + " 0"
	})
}

// waitsFor waits until a pod says why it has no node.
func (l *lab) waitsFor(name, why string) {
	l.t.Helper()
	ctx, cancel := l.bound()
	defer cancel()
	_, err := l.WaitPod(ctx, l.namespace, name, "it says "+why, func(p *corev1.Pod) (bool, error) {
		if p == nil || p.Spec.NodeName != "" {
			return false, errors.New("it does not wait")
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, why) {
				return true, nil
			}
		}
		return false, nil
	})
	l.must(err)
}

// refusal has an admission policy refuse the claims of one pod.
const refusal = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: nothing-for-refused}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [resource.k8s.io], apiVersions: [v1], resources: [resourceclaims/status], operations: [UPDATE]}]
  validations:
    - expression: "!has(object.status) || !has(object.status.allocation) || !object.metadata.ownerReferences.exists(o, o.name == 'refused')"
      message: this pod gets nothing
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: nothing-for-refused}
spec: {policyName: nothing-for-refused, validationActions: [Deny]}
`

// A gang over both nodes of which one claim is refused gets nothing, and everything once nobody refuses it.
func gangRefused(l *lab) {
	l.must(l.ApplyText(l.ctx, refusal))
	l.refuses()
	l.createAll(gang("both", "first", "second", "refused"))
	l.waitsFor("refused", "this pod gets nothing")
	l.waitsFor("first", "this pod gets nothing")
	l.settled()
	for _, name := range []string{"first", "second", "refused"} {
		l.pending(name)
	}
	l.kubectl("delete", "validatingadmissionpolicybinding/nothing-for-refused", "validatingadmissionpolicy/nothing-for-refused")
	on := map[string]int{}
	for _, name := range []string{"first", "second", "refused"} {
		on[l.running(name).Spec.NodeName]++
		l.limited(name, "main", 8*gib, 1)
	}
	if on["n1"] != 1 || on["n2"] != 2 {
		l.t.Errorf("the gang is on %v", on)
	}
	l.settled()
}

// refuses waits until the policy holds: the API server hears of it by itself.
func (l *lab) refuses() {
	l.t.Helper()
	owner, err := l.Client().CoreV1().ConfigMaps(l.namespace).Create(l.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}, metav1.CreateOptions{})
	l.must(err)
	claims := l.Client().ResourceV1().ResourceClaims(l.namespace)
	claim, err := claims.Create(l.ctx, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: v1alpha1.ClassShare},
		}}}},
	}, metav1.CreateOptions{})
	l.must(err)
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: "other.example.com", Pool: "pool", Device: "device"}},
	}}
	l.eventually("the policy holds", func() string {
		_, err := claims.UpdateStatus(l.ctx, claim, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "this pod gets nothing") {
			return fmt.Sprint(err)
		}
		return ""
	})
	l.must(claims.Delete(l.ctx, claim.Name, metav1.DeleteOptions{}))
}

// A pod by hand through the cluster's own scheduler gets nothing and says what to do; the same pod through Divvy's runs.
func throughStock(l *lab) {
	l.must(l.ApplyText(l.ctx, l.claim("mine", "memory: 4Gi")))
	p := uses(plain("by-hand", "", ""), "mine")
	l.create(p)
	l.eventually("an event says what to do", func() string {
		events, err := l.Events(l.ctx, l.namespace, "by-hand")
		for i := range events {
			if strings.Contains(events[i].Message, "spec.schedulerName divvy-scheduler") {
				return ""
			}
		}
		return fmt.Sprintf("%d events: %v", len(events), err)
	})
	l.pending("by-hand")
	l.settled()
	l.remove("by-hand")
	p = uses(plain("by-divvy", "", ""), "mine")
	p.Spec.SchedulerName = v1alpha1.SchedulerName
	l.run(p)
	l.limited("by-divvy", "main", 4*gib, 1)
	l.settled()
}

// A gang that loses a GPU goes on without that member. Another one in its place waits until the GPU is back.
func gpuOfGangLost(l *lab) {
	l.createAll(gang("train", "one", "two", "three"))
	lost := ""
	for _, name := range []string{"one", "two", "three"} {
		if l.running(name).Spec.NodeName == "n1" {
			lost = name
		}
	}
	l.settled()
	l.inject(l.Nodes[0], 0, "--call", "nvml", "--return", "15") // NVML_ERROR_GPU_IS_LOST
	ctx, cancel := l.bound()
	defer cancel()
	l.must(l.WaitGone(ctx, l.namespace, lost))
	again := gang("train", "again", "", "")[0]
	l.create(again)
	l.waitsFor("again", "")
	l.inject(l.Nodes[0], 0, "--clear")
	l.running("again")
	l.settled()
}

// schedulers run beside the cluster, as the chart's service account, and do something to themselves after steps.
type schedulers struct {
	*lab
	program     string
	dir, config string
	lives       context.Context // of the processes
	stop        context.CancelFunc
	group       sync.WaitGroup
}

func (l *lab) besides() *schedulers {
	l.t.Helper()
	config, err := clientcmd.LoadFromFile(l.Kubeconfig())
	l.must(err)
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + system + ":divvy-scheduler"
	}
	s := &schedulers{lab: l, dir: l.t.TempDir()}
	s.program, err = cluster.Built("test/scheduler/crashing")
	l.must(err)
	s.config = filepath.Join(s.dir, "kubeconfig")
	l.must(clientcmd.WriteToFile(*config, s.config))
	s.lives, s.stop = context.WithCancel(l.ctx)
	l.t.Cleanup(s.end)
	return s
}

// end ends all of them.
func (s *schedulers) end() {
	s.stop()
	s.group.Wait()
}

// start starts one. What it returns is closed when it has ended.
func (s *schedulers) start(port int, environment ...string) <-chan struct{} {
	cmd := s.Command(s.lives, s.program, "--kubeconfig="+s.config, "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port),
		"--authentication-skip-lookup", "--cert-dir="+filepath.Join(s.dir, strconv.Itoa(port)),
		"--leader-elect-resource-namespace="+system, "--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms")
	cmd.Env = append(cmd.Env, append(environment, "DIVVY_CRASH_MARKS="+s.dir)...)
	ended := make(chan struct{})
	s.group.Go(func() {
		defer close(ended)
		_, _ = s.Output(cmd) // it kills itself, or is killed at the end
	})
	return ended
}

// lead has a scheduler run until the end of all, as a Deployment does: one ends by itself that could not renew its lease in time.
func (s *schedulers) lead(port int) {
	s.group.Go(func() {
		pause := time.NewTicker(time.Second)
		defer pause.Stop()
		for s.lives.Err() == nil {
			<-s.start(port)
			select {
			case <-pause.C:
			case <-s.lives.Done():
			}
		}
	})
}

// A scheduler that dies after each step leaves nothing that the next one does not finish. Each dies after one step alone: of one
// that may die after any of them, what it has on its way for other pods may leave its successors nothing of a step to do.
func schedulerKilled(l *lab) {
	s := l.besides()
	l.createAll(gang("pair", "left", "right"))
	l.create(plain("single", "4Gi", ""))
	for _, step := range []string{"claim-made", "claim-allocated", "pod-bound"} {
		ended := s.start(10300, "DIVVY_CRASH_AFTER="+step)
		l.eventually("a scheduler dies after "+step, func() string {
			select {
			case <-ended:
				_, err := os.Stat(filepath.Join(s.dir, "crashed-after-"+step))
				if err != nil {
					ended = s.start(10300, "DIVVY_CRASH_AFTER="+step)
				}
				return reason(err)
			default:
				return "it runs"
			}
		})
	}
	s.lead(10300)
	for _, name := range []string{"left", "right", "single"} {
		l.running(name)
	}
	l.agree()
	s.end()
}

// A leader that is stopped between writing a claim and binding, and goes on when another one has bound the pods, changes
// nothing.
func leaderStopped(l *lab) {
	s := l.besides()
	const stops = "DIVVY_STOP_AFTER=claim-allocated"
	first := s.start(10300, stops)
	l.createAll(gang("pair", "left", "right"))
	l.create(plain("single", "4Gi", ""))
	mark := filepath.Join(s.dir, "stopped-after-claim-allocated")
	pid := 0
	l.eventually("the leader stops", func() string {
		text, err := os.ReadFile(mark)
		if err == nil {
			pid, err = strconv.Atoi(string(text))
		}
		if err == nil {
			return ""
		}
		select {
		case <-first: // it could not renew its lease in time
			first = s.start(10300, stops)
		default:
		}
		return err.Error()
	})
	s.lead(10301)
	for _, name := range []string{"left", "right", "single"} {
		l.running(name)
	}
	l.must(syscall.Kill(pid, syscall.SIGCONT))
	l.eventually("the first scheduler has ended", func() string {
		select {
		case <-first:
			return ""
		default:
			return "it runs"
		}
	})
	for _, name := range []string{"left", "right"} {
		l.limited(name, "main", 8*gib, 1)
	}
	l.agree()
	s.end()
}
