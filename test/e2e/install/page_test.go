package install

import (
	"context"

	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/e2e/desk"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pages runs the commands of the page on Kubernetes, and those that other pages have for this cluster, in which Divvy is
// not installed.
func (l *lab) pages(kubernetes, doctor *desk.Desk) {
	l.t.Helper()
	l.kubectl("delete", "namespace", system)
	const (
		uninstall = "helm uninstall divvy --namespace divvy-system"
		plain     = "kubectl apply --server-side -f deploy/manifests/divvy.yaml"
	)
	kubernetes.Last(uninstall, plain)
	kubernetes.Through(l.ctx, "kubectl get nodes -L divvy.dev/gpu.model,divvy.dev/gpu.memory,divvy.dev/gpu.count")
	l.trusted()
	kubernetes.Through(l.ctx, "kubectl get resourceclaims")
	l.kubectl("label", "node", "gpu-2", "pool=batch")
	kubernetes.Through(l.ctx, "helm rollback divvy --namespace divvy-system")
	l.must(l.WaitInstalled(l.ctx))
	l.trusted()

	l.kubectl("delete", "pod", "share")
	l.train()
	kubernetes.Through(l.ctx, "helm upgrade divvy deploy/chart --namespace divvy-system --reset-then-reuse-values --set agent.metrics.host=0.0.0.0")
	l.must(l.WaitInstalled(l.ctx))
	kubernetes.Through(l.ctx, "kubectl divvy node gpu-1")
	doctor.Rest(l.ctx)
	kubernetes.Through(l.ctx, "kubectl describe pod train-0")
	_, err := l.PodExec(l.ctx, "default", "train-0", "", "touch", "/run/end")
	l.must(err)
	kubernetes.Through(l.ctx, "kubectl events --for pod/train-0")
	l.kubectl("delete", "pods", "--all", "--grace-period=1")
	kubernetes.Through(l.ctx, uninstall)
	kubernetes.Rest(l.ctx)
	l.must(l.WaitInstalled(l.ctx))
}

// train has a pod on node gpu-1 that once asked for more than its share and then uses a part of it, until its file says that
// it ends, and another one that waits for more than any node has.
func (l *lab) train() {
	l.t.Helper()
	for name, ask := range map[string]struct{ command, memory string }{
		"train-0": {"gpubench alloc --bytes=1Gi --count=9; gpubench hold --bytes=2Gi <&- & until test -e /run/end; do sleep 0.2; done", "4Gi"},
		"train-1": {"exec gpubench hold --bytes=1Gi", "40Gi"},
	} {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To(int64(1)),
				NodeSelector: map[string]string{corev1.LabelHostname: "gpu-1"},
				Containers: []corev1.Container{{
					Name: "main", Image: "ghcr.io/divvy-gpu/gpubench:0.1.0", Command: []string{"sh", "-c", ask.command}, Stdin: true,
					Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
						v1alpha1.ResourceMemory: resource.MustParse(ask.memory), v1alpha1.ResourceCores: resource.MustParse("30"),
					}},
				}},
			},
		}
		_, err := l.Client().CoreV1().Pods("default").Create(l.ctx, p, metav1.CreateOptions{})
		l.must(err)
	}
	_, err := l.WaitRunning(l.ctx, "default", "train-0")
	l.must(err)
}

func (l *lab) kubectl(args ...string) {
	l.t.Helper()
	_, err := l.Kubectl(l.ctx, args...)
	l.must(err)
}

// bounded is the same lab with a time of its own.
func (l *lab) bounded() (*lab, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(l.t.Context(), longest)
	other := *l
	other.ctx = ctx
	return &other, cancel
}
