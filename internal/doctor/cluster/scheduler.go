package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/doctor"
)

const (
	schedulerName = v1alpha1.SchedulerName
	// allocationsName is the policy that says who may give GPUs to claims.
	allocationsName = "divvy-allocations"
	// clocksDiffer is by how much the clock here may differ from that of a scheduler's node.
	clocksDiffer = time.Minute
)

// scheduler checks Divvy's scheduler where there is one, and who else may give GPUs.
func (c Cluster) scheduler(ctx context.Context) []doctor.Check {
	found, check := c.deployment(ctx, "cluster.scheduler", schedulerName, "the scheduler")
	switch {
	case found != nil:
		if check.Status == doctor.Warn {
			check.Next = "while none runs, pods that ask for GPUs wait: run two"
		}
		leader, _ := c.leader(ctx)
		return append([]doctor.Check{check, leader}, c.allocators(ctx)...)
	case strings.Contains(check.Found, "not found"):
		return append(c.orphans(ctx), c.allocators(ctx)...)
	default:
		return []doctor.Check{check}
	}
}

// leader checks that one of the schedulers leads, and names it.
func (c Cluster) leader(ctx context.Context) (check doctor.Check, holder string) {
	check = doctor.Check{ID: "cluster.leader", Name: "who schedules", Status: doctor.OK}
	holder = c.held(ctx, &check, schedulerName, "deployment/"+schedulerName)
	return check, holder
}

// held checks that somebody has a lease and renews it, and names the pod that had it last. Where nobody does, the logs say why.
func (c Cluster) held(ctx context.Context, check *doctor.Check, name, logs string) (holder string) {
	lease, err := c.Client.CoordinationV1().Leases(c.Namespace).Get(ctx, name, metav1.GetOptions{})
	next := fmt.Sprintf("pods that ask for GPUs wait: `kubectl -n %s logs %s` says why none leads", c.Namespace, logs)
	switch {
	case apierrors.IsNotFound(err):
		check.Status, check.Found, check.Next = doctor.Fail, "no replica has led yet", next
	case err != nil:
		check.Status, check.Found, check.Next = doctor.Warn, err.Error(), "it is not known whether a replica leads"
	case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || lease.Spec.RenewTime == nil:
		check.Status, check.Found, check.Next = doctor.Fail, "nobody has lease "+name, next
	default:
		// The identity is the pod's name, and what tells its processes apart.
		holder, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
		check.Found = holder + " leads"
		lasts := clocksDiffer
		if lease.Spec.LeaseDurationSeconds != nil {
			lasts += time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
		}
		if ago := time.Since(lease.Spec.RenewTime.Time); ago > lasts {
			check.Status, check.Next = doctor.Fail, next
			check.Found = fmt.Sprintf("%s led, and has not renewed its lease for %v", holder, ago.Round(time.Second))
		}
	}
	return holder
}

// listed is the list of users in the policy's expression.
var listed = regexp.MustCompile(`request\.userInfo\.username in (\[[^\]]*\])`)

// allocators checks that one writer gives GPUs. Where claims are not used there is no policy, and nothing is said.
func (c Cluster) allocators(ctx context.Context) []doctor.Check {
	check := doctor.Check{ID: "cluster.allocators", Name: "who gives GPUs", Status: doctor.OK}
	policy, err := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, allocationsName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	users := []string(nil)
	if err == nil {
		users, err = usersOf(policy)
	}
	switch {
	case err != nil:
		check.Status, check.Found, check.Next = doctor.Warn, err.Error(), "install the chart again, so that one writer alone gives GPUs to claims"
	case len(users) > 1:
		check.Status, check.Found = doctor.Warn, strings.Join(users, " and ")+": in the same moment each could give away the last of a GPU"
		check.Next = "once no pod with claims for GPUs waits for another scheduler, name one only: `allocators: []` with Divvy's (docs/scheduler.md)"
	default:
		check.Found = strings.Join(users, "")
	}
	return []doctor.Check{check}
}

func usersOf(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (users []string, err error) {
	for i := range policy.Spec.Validations {
		if found := listed.FindStringSubmatch(policy.Spec.Validations[i].Expression); found != nil {
			err := json.Unmarshal([]byte(found[1]), &users)
			return users, err
		}
	}
	return nil, fmt.Errorf("policy %s names nobody: it is not that of the chart", policy.Name)
}

// orphans tells of pods that wait for a scheduler that is not installed.
func (c Cluster) orphans(ctx context.Context) []doctor.Check {
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.schedulerName=" + schedulerName + ",status.phase=" + string(corev1.PodPending), Limit: 1000,
	})
	if err != nil {
		return nil
	}
	waits := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Spec.SchedulerName != schedulerName || p.Spec.NodeName != ""
	})
	if len(waits) == 0 {
		return nil
	}
	first := &waits[0]
	return []doctor.Check{{
		ID: "cluster.scheduler", Name: "the scheduler", Status: doctor.Fail,
		Found: fmt.Sprintf("it is not installed in %s, and %d pods wait for it, such as %s of namespace %s", c.Namespace, len(waits), first.Name, first.Namespace),
		Next:  "set scheduler.enabled, or delete these pods and let their owners make them again (docs/scheduler.md, Upgrade and removal)",
	}}
}
