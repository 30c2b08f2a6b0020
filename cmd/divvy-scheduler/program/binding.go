package program

import (
	"context"
	"errors"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/divvy-gpu/divvy/internal/scheduler"
)

var (
	// errLost marks members that have gone, or are on another node.
	errLost = errors.New("the pod cannot be bound any more")
	// errForever marks members that the API server refuses to bind, however often it is asked.
	errForever = errors.New("the API server refuses it")
)

// again is how a binding is repeated after the other members may have bound: for about 25 seconds.
var again = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 9}

// mostRefused is how many refusals in a row are taken for good: at least 12 seconds of them.
const mostRefused = 8

// bindMember binds a pod once all members of its gang have their claims.
func (p *plugin) bindMember(ctx context.Context, unit *scheduler.Unit, node string) error {
	team := unit.Team
	err := p.writer.Write(ctx, unit)
	if err == nil && p.engine.Gangs.Doubted(team.ID) {
		err = p.tryBinding(ctx, unit, node)
	}
	if err != nil {
		team.Fail(err)
		return err
	}
	if err := team.Arrive(ctx); err != nil {
		return err
	}
	if err := p.bindAgain(ctx, unit, node); err != nil {
		if errors.Is(err, errForever) {
			p.refusedForever(unit, err)
		}
		return fmt.Errorf("bind %s after its gang was let on: %w", unit.Pod.Name, err)
	}
	all, ended := team.Bound(unit)
	if ended != nil {
		p.endMember(unit.Pod, ended)
	} else if all {
		p.engine.Gangs.Whole(team.ID)
	}
	return nil
}

// tryBinding finds out whether a member of a gang that was ended before can be bound, and binds nothing.
func (p *plugin) tryBinding(ctx context.Context, unit *scheduler.Unit, node string) error {
	err := p.bindOnce(ctx, unit, node, metav1.DryRunAll)
	if apierrors.IsConflict(err) {
		return nil // whose it is will be seen
	}
	return err
}

func (p *plugin) bindOnce(ctx context.Context, unit *scheduler.Unit, node string, dryRun ...string) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: unit.Pod.Namespace, Name: unit.Pod.Name, UID: unit.Pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	return p.handle.ClientSet().CoreV1().Pods(unit.Pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{DryRun: dryRun})
}

// bindAgain binds a member, and repeats it where that can help. The error is errLost, errForever, scheduler.ErrEnded or, after
// about 25 seconds, the last answer.
func (p *plugin) bindAgain(ctx context.Context, unit *scheduler.Unit, node string) error {
	var last error
	refused := 0
	err := wait.ExponentialBackoffWithContext(ctx, again, func(ctx context.Context) (bool, error) {
		ended := unit.Team.Ended()
		if ended == nil {
			last = p.bindOnce(ctx, unit, node)
		}
		if ended != nil || apierrors.IsConflict(last) { // an answer may have been lost
			bound, err := p.isBound(ctx, unit, node)
			switch {
			case bound || errors.Is(err, errLost):
				return bound, err
			case err == nil && ended != nil:
				return false, ended
			}
			return false, nil
		}
		switch {
		case last == nil:
			return true, nil
		case apierrors.IsNotFound(last):
			return false, fmt.Errorf("%w: %w", errLost, last)
		case !judged(last):
			refused = 0
			return false, nil
		}
		if refused++; refused >= mostRefused && p.mayBind(ctx, unit.Pod.Namespace) {
			return false, fmt.Errorf("%w: %w", errForever, last)
		}
		return false, nil
	})
	if wait.Interrupted(err) {
		err = errors.Join(last, err)
	}
	return err
}

// judged reports whether an API server has judged a binding, rather than failed at it.
func judged(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// isBound reports whether a member has its node. The error is errLost for one that can never get it, or that the API server does
// not answer.
func (p *plugin) isBound(ctx context.Context, unit *scheduler.Unit, node string) (bool, error) {
	pod, err := p.handle.ClientSet().CoreV1().Pods(unit.Pod.Namespace).Get(ctx, unit.Pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, fmt.Errorf("%w: %w", errLost, err)
	case err != nil:
		return false, err
	case pod.UID != unit.Pod.UID:
		return false, fmt.Errorf("%w: another pod has its name", errLost)
	case pod.Spec.NodeName != "" && pod.Spec.NodeName != node:
		return false, fmt.Errorf("%w: somebody has bound it to node %s", errLost, pod.Spec.NodeName)
	case pod.Spec.NodeName == "" && pod.DeletionTimestamp != nil:
		return false, fmt.Errorf("%w: it is being deleted", errLost)
	}
	return pod.Spec.NodeName == node, nil
}

// mayBind reports whether this scheduler has the right to bind pods. Without it, a refusal says nothing about the pod.
func (p *plugin) mayBind(ctx context.Context, namespace string) bool {
	review, err := p.handle.ClientSet().AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "create", Version: "v1", Resource: "pods", Subresource: "binding",
		}},
	}, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed
}

// refusedForever ends the gang of a member that can never be bound, unless enough others can.
func (p *plugin) refusedForever(unit *scheduler.Unit, why error) {
	bound, ended := unit.Team.Refused(unit, why)
	if ended == nil {
		return
	}
	p.engine.Gangs.Ended(unit.Team.ID, ended)
	p.tell(unit.Pod, ended)
	for _, one := range bound {
		p.endMember(one.Pod, ended)
	}
}

// endMember takes a member's place away: its owner makes another one.
func (p *plugin) endMember(pod *corev1.Pod, why error) {
	p.tell(pod, why)
	go func() {
		if err := p.writer.End(p.ctx, pod, why.Error()); err != nil {
			klog.FromContext(p.ctx).Error(err, "Member of a gang that was ended still runs", "pod", klog.KObj(pod))
		}
	}()
}

func (p *plugin) tell(pod *corev1.Pod, why error) {
	p.handle.EventRecorder().Eventf(pod, nil, corev1.EventTypeWarning, scheduler.ReasonEnded, "Ending", "%s", why)
}
