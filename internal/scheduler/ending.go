package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// ErrEnded marks members of a gang that was ended after some of its members were bound.
var ErrEnded = errors.New("gang was ended")

// ReasonEnded is the reason of events and of pods' conditions where a gang was ended.
const ReasonEnded = "GangEnded"

// ending says which members of a team are bound, and whether they may stay so.
type ending struct {
	guard sync.Mutex
	// need is how many of the units must be bound, lost how many cannot be.
	need, lost int
	bound      []*Unit
	why        error
}

// Bound notes that a unit is bound, and reports whether all are. Where the team has been ended meanwhile, the error is why, and
// the caller ends the unit.
func (t *Team) Bound(u *Unit) (all bool, err error) {
	t.guard.Lock()
	defer t.guard.Unlock()
	if t.why == nil {
		t.bound = append(t.bound, u)
	}
	return len(t.bound) == len(t.Units), t.why
}

// Ended is why the team was ended, nil for one that was not.
func (e *ending) Ended() error {
	e.guard.Lock()
	defer e.guard.Unlock()
	return e.why
}

// Refused notes that a unit can never be bound. If fewer can be than must, the team is ended: the error is [ErrEnded] then, and
// the caller ends the units that are bound. Units that were bound for this gang before this team are not among them.
func (t *Team) Refused(u *Unit, why error) (bound []*Unit, err error) {
	t.guard.Lock()
	defer t.guard.Unlock()
	if t.lost++; t.why != nil || len(t.Units)-t.lost >= t.need {
		return nil, nil
	}
	t.why = fmt.Errorf("%w: pod %s cannot be bound: %w", ErrEnded, u.Pod.Name, why)
	bound, t.bound = t.bound, nil
	return bound, t.why
}

// mostSaid bounds what the API server's words add to a reason.
const mostSaid = 400

// Ended notes why a pod's gang was ended. Its members say it while they wait, and [Gangs.Doubted] is true, until
// [Gangs.Whole] or until no pod of the gang is left.
func (g *Gangs) Ended(id string, why error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.members.There(id) {
		text := strings.Join(strings.Fields(why.Error()), " ")
		g.ended[id] = text[:min(len(text), mostSaid)]
		g.touch(id)
	}
}

// Doubted reports whether a gang was ended, so that it is to be found out whether its members can be bound before one is.
func (g *Gangs) Doubted(id string) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.ended[id] != ""
}

// Whole notes that all members of a gang that were planned together are bound.
func (g *Gangs) Whole(id string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	delete(g.ended, id)
}

// lack is why a gang cannot be planned, empty for one that can.
func (g *Gangs) lack(id string, s *gang.State) string {
	if why := g.ended[id]; s.Reason != "" && why != "" {
		return s.Reason + "; " + why
	}
	return s.Reason
}

// endLimit is how long a deletion is tried.
const endLimit = 5 * time.Minute

// End deletes a pod that is bound, unless there is another one of its name by now. Its condition DisruptionTarget says why, so
// that a job's rules on failures can tell it from a failure of its own. It returns once the pod is deleted, or after 5 minutes.
func (w *Writer) End(ctx context.Context, pod *corev1.Pod, why string) error {
	pods := w.Client.CoreV1().Pods(pod.Namespace)
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: ReasonEnded, Message: why, LastTransitionTime: metav1.Now(),
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, "status": map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return fmt.Errorf("write the condition of pod %s: %w", pod.Name, err)
	}
	if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		klog.FromContext(ctx).V(2).Info("Condition not written", "pod", klog.KObj(pod), "err", err)
	}
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	var last error
	err = repeat(ctx, func() bool {
		last = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		// A conflict says that the name is another pod's.
		return last == nil || apierrors.IsNotFound(last) || apierrors.IsConflict(last)
	})
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, errors.Join(last, err))
	}
	return nil
}
