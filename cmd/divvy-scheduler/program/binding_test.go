package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// binder is an API server that answers bindings as a test says, and counts them.
type binder struct {
	fwk.Handle
	*fake.Clientset
	t       *testing.T
	plugin  *plugin
	units   []*scheduler.Unit
	allowed bool

	mutex sync.Mutex
	tries map[string]int
	// answer is that of a binding, the number of which begins with 0; does tells whether the pod gets its node.
	answer func(pod string, try int) (does bool, err error)
}

func (b *binder) ClientSet() kubernetes.Interface { return b.Clientset }

func (b *binder) EventRecorder() events.EventRecorderLogger { return silent{} }

func (b *binder) setNode(name, node string) {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	got, err := b.Tracker().Get(pods, namespace, name)
	p, ok := got.(*corev1.Pod)
	if err != nil || !ok {
		return // it has gone
	}
	p = p.DeepCopy()
	p.Spec.NodeName = node
	if err := b.Tracker().Update(pods, p, namespace); err != nil {
		b.t.Error(err)
	}
}

// newBinder makes members of a gang of which so many must be bound.
func newBinder(t *testing.T, members, need int) *binder {
	t.Helper()
	before := again
	again.Duration, again.Jitter = time.Millisecond, 0
	t.Cleanup(func() { again = before })
	b := &binder{t: t, allowed: true, tries: map[string]int{}}
	var pods []runtime.Object
	for i := range members {
		p := pod(fmt.Sprint("p", i))
		p.UID = types.UID(p.Name)
		pods = append(pods, p)
		b.units = append(b.units, &scheduler.Unit{Pod: p})
	}
	scheduler.NewTeam("default/g", b.units, need)
	b.Clientset = fake.NewClientset(pods...)
	b.PrependReactor("create", "pods", b.bind)
	b.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: b.allowed}}, nil
	})
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := scheduler.New(policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.plugin = &plugin{handle: b, core: &core{ctx: t.Context(), engine: engine, writer: &scheduler.Writer{Client: b.Clientset}}}
	return b
}

func (b *binder) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	create, ok := action.(clienttesting.CreateAction)
	if !ok || action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	binding, ok := create.GetObject().(*corev1.Binding)
	if !ok {
		return false, nil, nil
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	try := b.tries[binding.Name]
	b.tries[binding.Name]++
	does, err := true, error(nil)
	if b.answer != nil {
		does, err = b.answer(binding.Name, try)
	}
	if does {
		b.setNode(binding.Name, binding.Target.Name)
	}
	return true, binding, err
}

// all binds all members side by side.
func (b *binder) all() (errs []error) {
	errs = make([]error, len(b.units))
	var group sync.WaitGroup
	for i, unit := range b.units {
		group.Go(func() { errs[i] = b.plugin.bindMember(b.t.Context(), unit, "n0") })
	}
	group.Wait()
	return errs
}

// left waits until pods of these names are left.
func (b *binder) left(names ...string) {
	b.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		list, err := b.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), namespace)
		if err != nil {
			b.t.Fatal(err)
		}
		var have []string
		if pods, ok := list.(*corev1.PodList); ok {
			for i := range pods.Items {
				have = append(have, pods.Items[i].Name)
			}
		}
		if slices.Equal(have, names) {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%v are left, want %v", have, names)
		}
		time.Sleep(time.Millisecond)
	}
}

var (
	inPods   = corev1.Resource("pods")
	forbids  = apierrors.NewForbidden(inPods, "p", errors.New("no"))
	invalid  = apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil)
	internal = apierrors.NewInternalError(errors.New("etcdserver: no space"))
	conflict = apierrors.NewConflict(inPods, "p", errors.New("already assigned"))
	timeout  = apierrors.NewTimeoutError("too slow", 1)
)

// After the barrier, a member is bound again until it is, or until that cannot help. What was bound by an answer that was lost
// is bound.
func TestBindAgain(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(b *binder, try int) (bool, error)
		denied bool
		want   error // nil is bound
		tries  int
	}{
		"at once": {func(*binder, int) (bool, error) { return true, nil }, false, nil, 1},
		"after failures": {func(_ *binder, try int) (bool, error) {
			return try == 3, []error{internal, timeout, internal, nil}[try]
		}, false, nil, 4},
		"answer lost":        {func(_ *binder, try int) (bool, error) { return try == 0, []error{timeout, conflict}[try] }, false, nil, 2},
		"bound elsewhere":    {func(b *binder, _ int) (bool, error) { b.setNode("p0", "n1"); return false, conflict }, false, errLost, 1},
		"gone":               {func(*binder, int) (bool, error) { return false, apierrors.NewNotFound(inPods, "p0") }, false, errLost, 1},
		"conflict that ends": {func(_ *binder, try int) (bool, error) { return try == 2, []error{conflict, conflict, nil}[try] }, false, nil, 3},
		"refused for a while": {func(_ *binder, try int) (bool, error) {
			return try == 6, []error{forbids, invalid, forbids, invalid, forbids, forbids, nil}[try]
		}, false, nil, 7},
		"refused now and then": {func(_ *binder, try int) (bool, error) {
			return false, map[bool]error{true: internal, false: forbids}[try == 4]
		}, false, forbids, 9},
		"refused for ever":       {func(*binder, int) (bool, error) { return false, invalid }, false, errForever, mostRefused},
		"forbidden for ever":     {func(*binder, int) (bool, error) { return false, forbids }, false, errForever, mostRefused},
		"without the right":      {func(*binder, int) (bool, error) { return false, forbids }, true, forbids, 9},
		"failing for ever":       {func(*binder, int) (bool, error) { return false, internal }, false, internal, 9},
		"never in time":          {func(*binder, int) (bool, error) { return false, timeout }, false, timeout, 9},
		"refused once, then not": {func(_ *binder, try int) (bool, error) { return try == 1, []error{forbids, nil}[try] }, false, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBinder(t, 1, 1)
			b.allowed = !test.denied
			b.answer = func(_ string, try int) (bool, error) { return test.answer(b, try) }
			err := b.plugin.bindMember(t.Context(), b.units[0], "n0")
			if test.want == nil && err != nil || !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if forever := errors.Is(test.want, errForever); errors.Is(err, errForever) != forever {
				t.Errorf("got %v, want one for ever: %v", err, forever)
			}
			if b.tries["p0"] != test.tries {
				t.Errorf("%d tries, want %d", b.tries["p0"], test.tries)
			}
		})
	}
}

// A gang of which a member can never be bound is ended whole; where the others are enough, or the member has failed or gone,
// it is not.
func TestGangEnds(t *testing.T) {
	for name, test := range map[string]struct {
		need   int
		answer error
		left   []string
	}{
		"all needed":         {3, invalid, []string{"p1"}},
		"one to spare":       {2, invalid, []string{"p0", "p1", "p2"}},
		"one that fails":     {3, internal, []string{"p0", "p1", "p2"}},
		"one that went away": {3, apierrors.NewNotFound(inPods, "p1"), []string{"p0", "p1", "p2"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBinder(t, 3, test.need)
			forever := judged(test.answer)
			if forever { // it is refused once the others were bound, however late they go on
				again.Steps, again.Factor = 60_000, 1
			}
			b.answer = func(pod string, _ int) (bool, error) {
				switch {
				case pod != "p1":
					return true, nil
				case forever && (b.tries["p0"] == 0 || b.tries["p2"] == 0):
					return false, internal
				}
				return false, test.answer
			}
			errs := b.all()
			if errs[0] != nil || errs[1] == nil || errs[2] != nil {
				t.Errorf("got %v", errs)
			}
			b.left(test.left...)
			if ended := b.units[0].Team.Ended(); (ended != nil) != (len(test.left) < 3) {
				t.Errorf("the gang was ended: %v", ended)
			}
		})
	}
}

// A member that is bound while its gang is ended is ended too, also where nobody has heard of its binding, and one that has not
// been tried is not bound.
func TestGangEndsBehindAMember(t *testing.T) {
	b := newBinder(t, 3, 3)
	ended, tried := make(chan struct{}), make(chan struct{})
	b.answer = func(pod string, try int) (bool, error) {
		switch {
		case pod == "p1":
			return false, internal // so that its gang is ended by the test alone
		case pod == "p2" && try == 0:
			close(tried)
			return true, timeout // it is bound, and nobody knows
		}
		return true, nil
	}
	go func() {
		<-tried
		if _, err := b.units[1].Team.Refused(b.units[1], invalid); err != nil {
			close(ended)
		}
	}()
	errs := make([]error, 3)
	var group sync.WaitGroup
	for _, i := range []int{1, 2} {
		group.Go(func() { errs[i] = b.plugin.bindMember(t.Context(), b.units[i], "n0") })
	}
	group.Go(func() {
		if err := b.units[0].Team.Arrive(t.Context()); err != nil {
			t.Error(err)
		}
		<-ended
		errs[0] = b.plugin.bindAgain(context.Background(), b.units[0], "n0")
	})
	group.Wait()
	if !errors.Is(errs[0], scheduler.ErrEnded) || errs[2] != nil || b.tries["p0"] != 0 {
		t.Errorf("got %v after %v", errs, b.tries)
	}
	b.left("p0", "p1")
}
