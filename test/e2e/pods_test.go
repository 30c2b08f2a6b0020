package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// bench is the image that all pods of the tests run.
const bench = "ghcr.io/divvy-gpu/gpubench:0.1.0"

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

// container makes a container that waits until it is ended. It does not ask for empty amounts.
func container(name, memory, cores string) corev1.Container {
	c := corev1.Container{
		Name: name, Image: bench, Command: []string{"sleep", "infinity"},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{}},
	}
	if memory != "" {
		c.Resources.Limits[v1alpha1.ResourceMemory] = quantity(memory)
	}
	if cores != "" {
		c.Resources.Limits[v1alpha1.ResourceCores] = quantity(cores)
	}
	return c
}

// pod makes a pod that ends at once when it is asked to.
func pod(name string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Containers: containers,
		},
	}
}

// plain makes a pod with one share.
func plain(name, memory, cores string) *corev1.Pod {
	return pod(name, container("main", memory, cores))
}

// whole makes a pod with whole GPUs.
func whole(name string, count int) *corev1.Pod {
	p := plain(name, "", "")
	p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceGPU] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	return p
}

// on gives a pod a node selector for one node.
func on(n *cluster.Machine, p *corev1.Pod) *corev1.Pod {
	p.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": n.Name}
	return p
}

// takeTurn and giveTurn are around what allocates in a busy pod, so that only one program does at a time.
const (
	takeTurn = "until mkdir /run/turn 2> /dev/null; do sleep 0.05; done"
	giveTurn = "rm -r /run/turn"
)

// turn is before a program of a busy pod that is to have all that the pod's share has left: the pod allocates nothing meanwhile, and so
// is refused nothing.
var turn = []string{"sh", "-c", takeTurn + `; "$@"; status=$?; ` + giveTurn + "; exit $status", "turn"}

// busyScript allocates and launches without end, in one process that lives on and
// in one after another, and ends at the first error.
const busyScript = `gpubench load --ns=2000000 --sync=1 > /dev/null & load=$!
round=0
while kill -0 $load; do
  ` + takeTurn + `
  gpubench alloc --count=4 --bytes=64Mi > /run/last || { cat /run/last; echo allocation failed; exit 1; }
  ` + giveTurn + `
  round=$((round + 1)); echo round $round; sleep 0.2
done
echo launches ended; exit 1`

// busy makes a pod that fails whenever something happens to its share.
func busy(name, memory, cores string) *corev1.Pod {
	p := plain(name, memory, cores)
	p.Spec.Containers[0].Command = []string{"sh", "-c", busyScript}
	return p
}

// create makes a pod in the scenario's namespace.
func (l *lab) create(p *corev1.Pod) {
	l.t.Helper()
	_, err := l.Client().CoreV1().Pods(l.namespace).Create(l.ctx, p, metav1.CreateOptions{})
	l.must(err)
}

// taken makes a pod while the webhook may have no endpoint: like a controller it
// tries again until the pod is admitted.
func (l *lab) taken(p *corev1.Pod) {
	l.t.Helper()
	l.eventually("pod "+p.Name+" is taken", func() string {
		_, err := l.Client().CoreV1().Pods(l.namespace).Create(l.ctx, p, metav1.CreateOptions{})
		if !apierrors.IsInternalError(err) {
			l.must(err)
		}
		return reason(err)
	})
}

// refused returns why a pod is not admitted.
func (l *lab) refused(p *corev1.Pod) string {
	l.t.Helper()
	_, err := l.Client().CoreV1().Pods(l.namespace).Create(l.ctx, p, metav1.CreateOptions{})
	if err == nil {
		l.t.Fatalf("pod %s is admitted", p.Name)
	}
	return err.Error()
}

// run makes a pod and waits until it runs.
func (l *lab) run(p *corev1.Pod) *corev1.Pod {
	l.t.Helper()
	l.create(p)
	return l.running(p.Name)
}

func (l *lab) bound() (context.Context, context.CancelFunc) {
	return context.WithTimeout(l.ctx, longest)
}

func (l *lab) running(name string) *corev1.Pod {
	l.t.Helper()
	ctx, cancel := l.bound()
	defer cancel()
	p, err := l.WaitRunning(ctx, l.namespace, name)
	l.must(err)
	return p
}

// remove deletes a pod and waits until it is gone.
func (l *lab) remove(names ...string) {
	l.t.Helper()
	for _, name := range names {
		l.must(l.Client().CoreV1().Pods(l.namespace).Delete(l.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(1))}))
	}
	for _, name := range names {
		ctx, cancel := l.bound()
		l.must(l.WaitGone(ctx, l.namespace, name))
		cancel()
	}
}

// event waits for an event about a pod or a claim, whose text must be one line.
func (l *lab) event(name, eventReason string) string {
	l.t.Helper()
	ctx, cancel := l.bound()
	defer cancel()
	defer l.long("event " + eventReason + " about " + name)()
	found, err := l.WaitEvent(ctx, l.namespace, name, func(e *corev1.Event) bool { return e.Reason == eventReason })
	l.must(err)
	if strings.ContainsAny(strings.TrimSpace(found.Message), "\n\r") {
		l.t.Errorf("event %s about %s is more than a line: %s", eventReason, name, found.Message)
	}
	l.t.Logf("event %s about %s: %s", eventReason, name, found.Message)
	return found.Message
}

// pending checks that a pod has not been placed.
func (l *lab) pending(name string) {
	l.t.Helper()
	p, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, name, metav1.GetOptions{})
	l.must(err)
	if p.Spec.NodeName != "" {
		l.t.Errorf("pod %s is on node %s, where nothing is free", name, p.Spec.NodeName)
	}
}

// example applies a file of docs/examples as it is.
func (l *lab) example(name string) {
	l.t.Helper()
	l.kubectl("apply", "-n", l.namespace, "-f", l.exampleFile(name))
}

func (l *lab) exampleFile(name string) string {
	return filepath.Join(l.root, "docs/examples", name+".yaml")
}

// exec runs a program in a container. Callers that need the exit status have the
// program print it.
func (l *lab) exec(pod, container string, command ...string) string {
	l.t.Helper()
	var text string
	l.eventually(strings.Join(command, " ")+" in pod "+pod, func() string {
		var err error
		text, err = l.PodExec(l.ctx, l.namespace, pod, container, command...)
		if err != nil && !strings.Contains(err.Error(), "pod does not exist") { // as a kubelet says that has just started: nothing ran
			l.must(err)
		}
		return reason(err)
	})
	return text
}

// shown is what a container sees of one GPU.
type shown struct {
	UUID  string `json:"uuid"`
	Total uint64 `json:"total_bytes"`
	Used  uint64 `json:"used_bytes"`
	Free  uint64 `json:"free_bytes"`
}

// nvml returns what NVML reports in a container.
func (l *lab) nvml(pod, container string, prefix ...string) []shown {
	l.t.Helper()
	var answer struct {
		Devices []shown `json:"devices"`
		Code    int     `json:"code"`
	}
	text := l.exec(pod, container, append(prefix, "gpubench", "nvml")...)
	l.must(decode(text, &answer))
	if answer.Code != 0 {
		l.t.Fatalf("NVML in %s/%s answers %d", pod, container, answer.Code)
	}
	return answer.Devices
}

// filled is how much a container could allocate.
type filled struct {
	Result    string `json:"result"`
	Allocated uint64 `json:"allocated_bytes"`
	Free      uint64 `json:"free_bytes"`
	Total     uint64 `json:"total_bytes"`
}

// fill allocates in a container until it is refused.
func (l *lab) fill(pod, container string, device int, prefix ...string) filled {
	l.t.Helper()
	command := append(prefix, "sh", "-c", fmt.Sprintf("gpubench alloc --bytes=32Mi --count=4096 --device=%d || test $? = 1", device))
	var f filled
	l.must(decode(l.exec(pod, container, command...), &f))
	return f
}

// limited checks that cuMemGetInfo and NVML report so many bytes in a container and
// that allocations get no more. The container must use nothing else meanwhile.
func (l *lab) limited(pod, container string, limit uint64, gpus int, prefix ...string) {
	l.t.Helper()
	devices := l.nvml(pod, container, prefix...)
	if len(devices) != gpus {
		l.t.Errorf("%s/%s: NVML shows %d GPUs, want %d", pod, container, len(devices), gpus)
	}
	for i, d := range devices {
		if d.Total != limit || d.Used+d.Free != limit {
			l.t.Errorf("%s/%s: NVML shows %+v, want a total of %d", pod, container, d, limit)
		}
		f := l.fill(pod, container, i, prefix...)
		if f.Result != "CUDA_ERROR_OUT_OF_MEMORY" || f.Total != limit {
			l.t.Errorf("%s/%s: the last allocation: %+v, want a refusal and a total of %d", pod, container, f, limit)
		}
		// What is neither allocated nor free is the process's context.
		const context = 512 * mib
		if f.Allocated > limit || f.Allocated+context+32*mib < limit || f.Allocated+f.Free > limit || f.Free >= 32*mib {
			l.t.Errorf("%s/%s: %d bytes could be allocated and %d are free of %d", pod, container, f.Allocated, f.Free, limit)
		}
	}
}

// claim returns a ResourceClaim for one share with opaque configurations, as YAML.
func (l *lab) claim(name, amounts string, configs ...string) string {
	return fmt.Sprintf(`{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: %s, namespace: %s}, spec: {devices: {`+
		`requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {%s}}}}], config: [%s]}}}`,
		name, l.namespace, amounts, strings.Join(configs, ", "))
}

// shareConfig returns one opaque configuration, as YAML.
func shareConfig(fields string) string {
	return `{opaque: {driver: divvy.dev, parameters: {apiVersion: divvy.dev/v1alpha1, kind: ShareConfig, ` + fields + `}}}`
}

// uses makes a pod use an existing claim.
func uses(p *corev1.Pod, claim string) *corev1.Pod {
	p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: claim})
	}
	return p
}
