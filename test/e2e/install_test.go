package e2e

import (
	"fmt"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// dialects can be turned on together; each other dialect uses a name of one of these.
var dialects = []string{"hami", "vcuda", "qgpu", "elasticgpu", "gpushare", "volcano", "kai", "koordinator", "vgpu-manager"}

// install installs the chart with some dialects beside the plain form, or changes
// what is installed.
func (l *lab) install(values ...string) {
	l.t.Helper()
	if len(values) == 0 {
		for _, name := range dialects {
			values = append(values, "dialects."+name+".")
		}
	}
	l.must(l.tryInstall(values...))
	l.serving()
}

// tryInstall does the same without waiting for what it starts. A value that ends in
// a dot is a dialect without options.
func (l *lab) tryInstall(values ...string) error {
	args := []string{
		"upgrade", "--install", "divvy", filepath.Join(l.root, "deploy/chart"), "--namespace", system, "--create-namespace",
		"--reset-values", "--set", "webhook.replicas=1", "--set", "agent.simgpu.dir=" + l.Nodes[0].SimgpuDir(),
	}
	for _, value := range values {
		if name, ok := strings.CutSuffix(value, "."); ok {
			args = append(args, "--set-json", name+"={}")
			continue
		}
		args = append(args, "--set", value)
	}
	defer l.long("helm " + strings.Join(args, " "))()
	_, err := l.Helm(l.ctx, args...)
	return err
}

// ready waits until the newest form of everything installed runs and the API
// server calls the webhook and trusts its certificate.
func (l *lab) ready() {
	l.t.Helper()
	l.eventually("Divvy serves", func() string {
		agents, err := l.Client().AppsV1().DaemonSets(system).Get(l.ctx, "divvy-agent", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		s := agents.Status
		if s.ObservedGeneration != agents.Generation || s.UpdatedNumberScheduled != s.DesiredNumberScheduled ||
			s.NumberReady != s.DesiredNumberScheduled || int(s.NumberReady) != len(l.Nodes) {
			return fmt.Sprintf("agents: %+v", s)
		}
		list, err := l.Client().AppsV1().Deployments(system).List(l.ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if d := &list.Items[i]; !settled(d) {
				return fmt.Sprintf("%s: %+v", d.Name, d.Status)
			}
		}
		return ""
	})
	l.eventually("the webhook is asked", func() string {
		probe := plain("probe", "1Mi", "")
		probe.Namespace = "default"
		// A dry run goes through admission; a request that cannot be is refused by the webhook alone.
		probe.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceMemory] = quantity("1")
		_, err := l.Client().CoreV1().Pods("default").Create(l.ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "GPU request refused") {
			return fmt.Sprintf("a pod that asks for one byte: %v", err)
		}
		return ""
	})
}

// serving waits for the same, and until each GPU of the lab is offered.
func (l *lab) serving() {
	l.t.Helper()
	l.ready()
	l.eventually("GPUs are offered", func() string {
		slices, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		devices, gpus := 0, 0
		for i := range slices.Items {
			for _, d := range slices.Items[i].Spec.Devices {
				if !strings.HasPrefix(d.Name, "nic-") { // beside its network cards
					devices++
				}
			}
		}
		for _, n := range l.Nodes {
			if n.Machine == "" {
				continue
			}
			report, err := n.Oracle(l.ctx)
			if err != nil {
				return err.Error()
			}
			gpus += len(report.GPUs)
		}
		if devices != gpus {
			return fmt.Sprintf("%d devices, want one of each of %d GPUs", devices, gpus)
		}
		return ""
	})
}

func settled(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == *d.Spec.Replicas && s.Replicas == *d.Spec.Replicas &&
		s.ReadyReplicas == *d.Spec.Replicas
}
