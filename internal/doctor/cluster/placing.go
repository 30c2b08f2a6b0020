package cluster

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/doctor"
)

// Names that the chart gives where slots are served.
const (
	schedulerContainer = "scheduler"
	extenderContainer  = "extender"
	extenderLease      = "divvy-scheduler-extender"
	schedulerPods      = "app.kubernetes.io/name=divvy,app.kubernetes.io/component=scheduler"
)

// fencesTime is for how long a fence is told of: as long as API servers keep an event by default.
const fencesTime = time.Hour

// placing checks, where slots are served, that somebody places pods with shares: the scheduler with the extender beside it, or
// the extender alone, which the cluster's own scheduler asks.
func (c Cluster) placing(ctx context.Context, server *version.Info) []doctor.Check {
	found, check := c.deployment(ctx, "cluster.scheduler", schedulerName, "the scheduler")
	if found == nil {
		if check.Next == "" {
			check.Next = "give --kubeconfig an account that may read deployments of namespace " + c.Namespace
		}
		return []doctor.Check{check}
	}
	alone := !slices.ContainsFunc(found.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == schedulerContainer })
	if alone {
		check.Name = "the extender"
		c.standing(ctx, found, &check)
	}
	c.awaited(found, &check)
	checks := append([]doctor.Check{check}, suits(found, server)...)
	if !alone {
		leader, holder := c.leader(ctx)
		c.ready(ctx, &leader, holder, schedulerContainer)
		checks = append(checks, leader)
	}
	chooses := doctor.Check{ID: "cluster.extender", Name: "who chooses GPUs", Status: doctor.OK}
	holder := c.held(ctx, &chooses, extenderLease, "deployment/"+schedulerName+" -c "+extenderContainer)
	c.ready(ctx, &chooses, holder, extenderContainer)
	return append(checks, chooses)
}

// suits warns of a kube-scheduler that Kubernetes does not support beside this API server, as after an upgrade of the cluster alone:
// its minor version is the same, or one older. Nothing is said where the image's name does not tell its version. It is pure.
func suits(deployment *appsv1.Deployment, server *version.Info) []doctor.Check {
	for _, c := range deployment.Spec.Template.Spec.Containers {
		if c.Name != schedulerContainer {
			continue
		}
		image, _, _ := strings.Cut(c.Image, "@")
		tag := image[strings.LastIndexAny(image, ":/")+1:]
		found := minorOf.FindStringSubmatch(tag)
		minor, err := strconv.Atoi(strings.TrimRight(server.Minor, "+"))
		if found == nil || err != nil || server.Major != "1" {
			continue
		}
		if of, err := strconv.Atoi(found[1]); err == nil && of != minor && of != minor-1 {
			return []doctor.Check{{
				ID: "cluster.kube-scheduler", Name: "the scheduler's version", Status: doctor.Warn,
				Found: fmt.Sprintf("kube-scheduler %s does not serve Kubernetes %s", tag, server.GitVersion),
				Next:  "`helm upgrade` without slots.kubeScheduler.version, which takes the API server's version; without Helm write that into the manifest",
			}}
		}
	}
	return nil
}

// minorOf finds the minor version in an image's tag.
var minorOf = regexp.MustCompile(`^v1\.([0-9]{1,4})\.[0-9]`)

// standing judges replicas of which, as the chart has it, only the one that leads is ready: the others have to run.
func (c Cluster) standing(ctx context.Context, deployment *appsv1.Deployment, check *doctor.Check) {
	if check.Status == doctor.Fail {
		return
	}
	check.Status, check.Next = doctor.OK, ""
	pods, err := c.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: schedulerPods})
	if err != nil {
		check.Status, check.Found, check.Next = doctor.Warn, err.Error(), "give --kubeconfig an account that may list pods of namespace "+c.Namespace
		return
	}
	var running int32
	for i := range pods.Items {
		status := &pods.Items[i].Status
		halts := slices.ContainsFunc(status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.State.Running == nil })
		if pods.Items[i].DeletionTimestamp == nil && len(status.ContainerStatuses) > 0 && !halts {
			running++
		}
	}
	want := wanted(deployment)
	check.Found = fmt.Sprintf("%d of %d replicas run, and one answers", running, want)
	if running < want {
		check.Status = doctor.Warn
	}
}

// awaited says what to do about replicas that are missing.
func (c Cluster) awaited(deployment *appsv1.Deployment, check *doctor.Check) {
	describe := fmt.Sprintf("`kubectl -n %s describe pods -l app.kubernetes.io/component=scheduler` says why", c.Namespace)
	switch {
	case wanted(deployment) == 0:
		check.Next = fmt.Sprintf("pods with shares wait: `kubectl -n %s scale deployment %s --replicas=2`", c.Namespace, schedulerName)
	case check.Status == doctor.Fail:
		check.Next = "pods with shares wait: " + describe
	case check.Status == doctor.Warn:
		check.Next = describe + "; while none is there, pods with shares wait"
	}
}

// ready checks that a container of the pod that leads answers its probes: while it hangs, the lease may still be held.
func (c Cluster) ready(ctx context.Context, check *doctor.Check, pod, container string) {
	if check.Status != doctor.OK {
		return
	}
	leads, err := c.Client.CoreV1().Pods(c.Namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil { // the lease says who leads; a pod that has gone does not renew it
		return
	}
	for i := range leads.Status.ContainerStatuses {
		if s := &leads.Status.ContainerStatuses[i]; s.Name == container && !s.Ready {
			check.Status = doctor.Fail
			check.Found = fmt.Sprintf("%s leads, and its container %s is not ready", pod, container)
			check.Next = fmt.Sprintf("pods with shares wait: `kubectl -n %s describe pod %s` says why; one that hangs is started again after a minute and a half", c.Namespace, pod)
		}
	}
}

// fenced tells, where slots are served, of GPUs that the extender gives to nobody.
func (c Cluster) fenced(ctx context.Context) doctor.Check {
	check := doctor.Check{ID: "cluster.fenced", Name: "fenced GPUs", Status: doctor.OK, Found: "no event of the last hour tells of one"}
	all, err := c.Client.EventsV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + v1alpha1.ReasonFenced})
	if err != nil {
		check.Status, check.Found, check.Next = doctor.Warn, err.Error(), "give --kubeconfig an account that may list events"
		return check
	}
	nodes := map[string]bool{}
	var last *eventsv1.Event
	for i := range all.Items {
		e := &all.Items[i]
		if e.Reason != v1alpha1.ReasonFenced || e.Regarding.Kind != "Node" || time.Since(seen(e)) > fencesTime {
			continue
		}
		nodes[e.Regarding.Name] = true
		if last == nil || seen(e).After(seen(last)) {
			last = e
		}
	}
	if last == nil {
		return check
	}
	check.Status = doctor.Warn
	check.Found = fmt.Sprintf("events of the last hour tell of %d nodes, the newest of %s, %v ago: %s",
		len(nodes), last.Regarding.Name, time.Since(seen(last)).Round(time.Second), strings.TrimSpace(last.Note))
	check.Next = "what the line says; where a pod and the node's agent differ for long, delete that pod, or where it is gone the agent's pod on " +
		"that node (docs/runbooks.md, DivvySchedulerDiffers). Events stay for an hour, also when the GPU takes shares again"
	return check
}
