package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/attack"
)

// attackDir is where each node has the program that tries ways past a memory limit.
const attackDir = "/var/lib/attack"

// bypass tries every way past the memory limit in a pod, under agents that kill. Each is
// prevented, or the agent says what the pod does and ends it; the neighbour goes on.
func bypass(l *lab) {
	l.install("agent.outside=kill")
	for _, n := range l.Nodes {
		l.must(os.MkdirAll(n.Path(attackDir), 0o755))
		l.must(attack.Build(l.ctx, n.Path(attackDir)))
	}
	l.run(busy("honest", "2Gi", ""))
	var prevented []string
	for _, way := range attack.Ways {
		if way.Prevented {
			l.create(attacker(way.Name))
			prevented = append(prevented, way.Name)
		}
	}
	for _, name := range prevented {
		l.running(name)
		l.eventually(name+" has tried", func() string {
			text, err := l.PodLogs(l.ctx, l.namespace, name, "main")
			if err == nil && !strings.Contains(text, "\n") {
				return "it has printed " + text
			}
			return reason(err)
		})
	}
	l.agree() // by the oracle none ever had more than its share
	for _, name := range prevented {
		if p := l.found(name); p.Status.Phase != corev1.PodRunning || l.accused(p) != "" {
			l.t.Errorf("pod %s is %s: %s", name, p.Status.Phase, l.accused(p))
		}
	}
	l.remove(prevented...)
	// One after the other: together they have more than a GPU.
	for _, way := range attack.Ways {
		if !way.Prevented {
			l.create(attacker(way.Name))
			l.ended(way.Name)
			l.remove(way.Name)
		}
	}
	if why := l.accused(l.found("honest")); why != "" {
		l.t.Errorf("the honest pod is accused: %s", why)
	}
	l.unmoved("honest")
}

// attacker makes a pod that tries a way and then waits.
func attacker(way string) *corev1.Pod {
	p := plain(way, fmt.Sprint(attack.Limit), "")
	p.Spec.Volumes = []corev1.Volume{{Name: "attack", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: attackDir}}}}
	c := &p.Spec.Containers[0]
	c.Command, c.Stdin = attack.Command(attackDir, way), true
	c.Env = []corev1.EnvVar{{Name: "HOME", Value: "/run"}} // where it can write
	c.VolumeMounts = []corev1.VolumeMount{{Name: "attack", MountPath: attackDir, ReadOnly: true}}
	p.Spec.AutomountServiceAccountToken = ptr.To(false)
	return p
}

func (l *lab) found(name string) *corev1.Pod {
	l.t.Helper()
	p, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, name, metav1.GetOptions{})
	l.must(err)
	return p
}

// ended waits until a pod was killed, and checks that its node's agent says why.
func (l *lab) ended(name string) {
	l.t.Helper()
	var p *corev1.Pod
	l.eventually(name+" is ended", func() string {
		p = l.found(name)
		if p.Status.Phase != corev1.PodFailed {
			return "it is " + string(p.Status.Phase)
		}
		return ""
	})
	const killed = 128 + 9
	if end := p.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != killed {
		l.t.Errorf("%s ended with %+v, want status %d", name, end, killed)
	}
	l.eventually("an event tells why "+name+" was ended", func() string {
		why := l.accused(p)
		if why == "" {
			return "none does"
		}
		l.t.Logf("%s: %s", name, why)
		return ""
	})
}

// accused is what the agent of a pod's node says of the memory that the pod takes.
func (l *lab) accused(p *corev1.Pod) string {
	l.t.Helper()
	for _, n := range l.Nodes {
		if n.Name != p.Spec.NodeName {
			continue
		}
		listing, err := l.listing(n)
		l.must(err)
		about := func(e control.Event) bool {
			return e.Kind == control.EventExcess && strings.Contains(e.Tenant, l.namespace+"/"+p.Name)
		}
		if i := slices.IndexFunc(listing.Events, about); i >= 0 {
			return listing.Events[i].Text
		}
	}
	return ""
}
