package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// keyCase is what a benchmark reads from the test's log: how long it takes until a department runs that takes its GPUs back, less the
// time that the pods of the other one take to end.
const keyCase = "queue.key_case"

// departments are those of docs/examples/queues.yaml, to which four of the eight GPUs of n3 are guaranteed each. The bystanders have
// the three GPUs of n1 and n2, and nothing more is guaranteed to anybody.
type departments struct {
	*lab
	vision, speech *lab // in their own namespaces
	// asks are the objects of the example by which speech asks for its GPUs, has those by which vision uses all.
	asks, has string
	// keep are the pods that must stay, and where they are.
	keep map[types.UID]*lab
}

// withDepartments makes the queues, lets the bystanders use what is theirs, and removes all of it in the end.
func withDepartments(l *lab, run func(*departments)) {
	l.t.Helper()
	text, err := os.ReadFile(l.exampleFile("queues"))
	l.must(err)
	d := &departments{lab: l, keep: map[types.UID]*lab{}}
	queues := fmt.Sprintf("{apiVersion: %s, kind: Queue, metadata: {name: bystanders}, spec: {namespaces: [%s], resources: [{guaranteed: 3}]}}",
		v1alpha1.APIVersion, l.namespace)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		switch {
		case !strings.Contains(document, "\nkind: Job\n"):
			queues += "\n---\n" + document
		case strings.Contains(document, "\n  namespace: speech\n"):
			d.asks = document
		default:
			d.has = document
		}
	}
	defer d.close()
	l.must(l.ApplyText(l.ctx, queues))
	d.vision, d.speech = l.beside("vision"), l.beside("speech")
	l.observed("vision", "speech", "bystanders")
	for i := range 3 {
		l.run(holding(whole(fmt.Sprint("bystander-", i), 1)))
	}
	l.kubectl("uncordon", "n3")
	d.stay(l)
	run(d)
}

// close removes everything but what the scenario removes by itself.
func (d *departments) close() {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), ends)
	defer cancel()
	after := *d.lab
	after.ctx = ctx
	after.kubectl("cordon", "n3")
	for _, namespace := range []string{"vision", "speech"} {
		after.kubectl("delete", "jobs", "--all", "-n", namespace, "--wait=false")
		after.kubectl("delete", "pods", "--all", "-n", namespace, "--grace-period=1")
		after.kubectl("delete", "namespace", namespace, "--ignore-not-found")
	}
	after.kubectl("delete", "pods", "--all", "-n", d.namespace, "--grace-period=1")
	after.kubectl("delete", "queues.divvy.dev", "--all")
}

// beside is the same lab in another namespace.
func (l *lab) beside(namespace string) *lab {
	l.t.Helper()
	other := *l
	other.namespace = namespace
	other.makeNamespace(namespace)
	return &other
}

// queueSays is a part of a queue, by its path in the object.
func (l *lab) queueSays(name, path string) (string, error) {
	return l.Kubectl(l.ctx, "get", "queues.divvy.dev", name, "-o", "jsonpath="+path)
}

// observed waits until the scheduler knows queues.
func (l *lab) observed(names ...string) {
	l.t.Helper()
	for _, name := range names {
		l.eventually("the scheduler knows queue "+name, func() string {
			text, err := l.queueSays(name, "{.metadata.generation}={.status.observedGeneration}")
			if generation, seen, _ := strings.Cut(text, "="); err == nil && generation != seen {
				return text
			}
			return reason(err)
		})
	}
}

// stands waits until a queue's status says so.
func (l *lab) stands(name, used, borrowed string) {
	l.t.Helper()
	l.eventually("queue "+name+" uses "+used, func() string {
		text, err := l.queueSays(name, "{.status.resources[0].used} {.status.resources[0].borrowed}")
		if err == nil && text != used+" "+borrowed {
			return "it uses and borrows " + text
		}
		return reason(err)
	})
}

// grace is how long pods of a queue have to end for others.
func (l *lab) grace(name string) time.Duration {
	l.t.Helper()
	text, err := l.queueSays(name, "{.spec.grace}")
	l.must(err)
	if text == "" {
		return v1alpha1.DefaultGrace
	}
	grace, err := time.ParseDuration(text)
	l.must(err)
	return grace
}

// holding has a pod use its GPU, until it is killed.
func holding(p *corev1.Pod) *corev1.Pod {
	c := &p.Spec.Containers[0]
	c.Command, c.Stdin = []string{"gpubench", "hold", "--bytes=1Gi"}, true
	return p
}

// stubborn is holding, of a pod that heeds no signal.
func stubborn(p *corev1.Pod) *corev1.Pod {
	holding(p).Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; gpubench hold --bytes=1Gi; exit 1"}
	return p
}

// stay notes that the pods of a namespace must not end.
func (d *departments) stay(in *lab) {
	d.t.Helper()
	for uid := range in.staying() {
		d.keep[uid] = in
	}
}

// staying are the pods of a namespace that run and are not told to end.
func (l *lab) staying() map[types.UID]bool {
	l.t.Helper()
	list, err := l.Client().CoreV1().Pods(l.namespace).List(l.ctx, metav1.ListOptions{})
	l.must(err)
	all := map[types.UID]bool{}
	for i := range list.Items {
		if p := &list.Items[i]; p.DeletionTimestamp == nil && cluster.PodReady(p) {
			all[p.UID] = true
		}
	}
	return all
}

// staysWith waits until so many pods of a namespace run.
func (l *lab) staysWith(n int) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("%d pods of %s run", n, l.namespace), func() string {
		if have := len(l.staying()); have != n {
			return fmt.Sprintf("%d do", have)
		}
		return ""
	})
}

// A department that uses all eight GPUs gives back four to the one to which they are guaranteed, and nobody else ends: the example
// as it is. Its pods end as soon as they are told to, and its Job makes other ones for them, which wait.
func takenByPods(l *lab) {
	withDepartments(l, func(d *departments) {
		l.must(l.ApplyText(l.ctx, d.has))
		d.takesBack("pods", 8, 4, 0, func() { l.must(l.ApplyText(l.ctx, d.asks)) })
	})
}

// The same where the pods of vision lie in halves of GPUs and take all of their grace to end, and those of speech ask as a gang.
func takenByGang(l *lab) {
	withDepartments(l, func(d *departments) {
		for i := range 16 {
			d.vision.create(stubborn(plain(fmt.Sprint("half-", i), "8Gi", "50")))
		}
		asks := gang("four", "first", "second", "third", "fourth")
		for _, p := range asks {
			p.Spec.Containers[0].Resources.Limits = whole("", 1).Spec.Containers[0].Resources.Limits
			holding(p)
		}
		d.takesBack("gang", 16, 8, d.grace("vision"), func() { d.speech.createAll(asks) })
	})
}

// takesBack has speech ask for four GPUs once all pods of vision run, and checks who runs then and who has ended. vision keeps so
// many. The others take so long to end.
func (d *departments) takesBack(name string, has, keeps int, ends time.Duration, ask func()) {
	d.t.Helper()
	d.vision.staysWith(has)
	d.settled()
	before := d.vision.staying()
	asked := time.Now()
	ask()
	d.speech.staysWith(4)
	took := time.Since(asked)
	d.t.Logf("figure %s %s %.2f", keyCase, name, (took - ends).Seconds())
	if took < ends {
		d.t.Errorf("speech runs after %s, and the others take %s to end", took, ends)
	}
	d.stay(d.speech)
	d.settled()
	kept := d.vision.staying()
	if len(kept) != keeps {
		d.t.Errorf("%d pods of vision stay, and it is entitled to %d", len(kept), keeps)
	}
	for uid := range kept {
		if !before[uid] {
			d.t.Errorf("pod %s of vision was not there before", uid)
		}
	}
	d.stands("vision", "4", "0")
	d.stands("speech", "4", "0")
	d.stands("bystanders", "3", "0")
	for uid, in := range d.keep {
		if !in.staying()[uid] {
			d.t.Errorf("pod %s in namespace %s has ended, and nobody is entitled to that", uid, in.namespace)
		}
	}
}
