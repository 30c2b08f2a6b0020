package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// sleeper is an agent's part that takes shares off their GPUs. It outlives the agents of a test, as a checkpoint does.
type sleeper struct {
	mu      sync.Mutex
	ordered map[string]agent.Order
	away    map[string]bool // off its GPUs, or on the way back
	changed chan struct{}
	asked   []string
	// refuse answers Suspend of a key, and hold lets it wait until it is closed; back is the same for Resume.
	refuse     map[string]error
	hold, back chan struct{}
	rests      int // how often it was waited for a change
}

func newSleeper() *sleeper {
	return &sleeper{ordered: map[string]agent.Order{}, away: map[string]bool{}, changed: make(chan struct{}), refuse: map[string]error{}}
}

func (s *sleeper) note(text string, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, text)
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func wait(ctx context.Context, until chan struct{}) error {
	if until == nil {
		return nil
	}
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sleeper) Suspend(ctx context.Context, key string, o agent.Order) error {
	var err error
	s.note(fmt.Sprintf("suspend %d", o.Number), func() {
		if err = s.refuse[key]; err == nil {
			s.ordered[key], s.away[key] = o, true
		}
	})
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return wait(ctx, hold)
}

func (s *sleeper) Resume(ctx context.Context, key string) error {
	s.note("resume", func() { delete(s.ordered, key) })
	s.mu.Lock()
	back := s.back
	s.mu.Unlock()
	if err := wait(ctx, back); err != nil {
		return err
	}
	s.note("back", func() { s.away[key] = false })
	return nil
}

func (s *sleeper) Ordered() map[string]agent.Order {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ordered)
}

func (s *sleeper) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rests++
	return s.changed
}

// did is what was asked since the last call.
func (s *sleeper) did() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := strings.Join(s.asked, ", ")
	s.asked = nil
	return asked
}

// tending lets an agent of the machine carry out orders, until what it returns is called.
func (m *machine) tending(r *running, s *sleeper) (o *orders, stop func()) {
	m.t.Helper()
	o, err := newOrders(r.driver, s)
	if err != nil {
		m.t.Fatal(err)
	}
	o.pause = time.Millisecond
	m.atomic.Do(func() {
		apply := clienttesting.ObjectReaction(m.client.Tracker())
		m.client.PrependReactor("patch", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
			m.writing.Lock()
			defer m.writing.Unlock()
			return apply(a)
		})
	})
	r.orders = o
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { o.run(ctx) })
	stop = func() { cancel(); done.Wait() }
	m.t.Cleanup(stop)
	return o, stop
}

func (m *machine) readClaim(namespace, name string) *resourcev1.ResourceClaim {
	m.t.Helper()
	object, err := m.client.Tracker().Get(claimResource, namespace, name)
	claim, ok := object.(*resourcev1.ResourceClaim)
	if err != nil || !ok {
		m.t.Fatal(err)
	}
	return claim
}

// order writes an order as the scheduler does, and takes it away where it is 0.
func (m *machine) order(claim *resourcev1.ResourceClaim, number int64) {
	m.t.Helper()
	m.writing.Lock()
	defer m.writing.Unlock()
	now := m.readClaim(claim.Namespace, claim.Name).DeepCopy()
	delete(now.Annotations, v1alpha1.SuspendAnnotation)
	delete(now.Labels, v1alpha1.SuspendNodeLabel)
	if number > 0 {
		text, err := v1alpha1.Suspension{Order: number, For: "vision/train-0", Queue: "vision"}.Text()
		if err != nil {
			m.t.Fatal(err)
		}
		metav1.SetMetaDataAnnotation(&now.ObjectMeta, v1alpha1.SuspendAnnotation, text)
		metav1.SetMetaDataLabel(&now.ObjectMeta, v1alpha1.SuspendNodeLabel, v1alpha1.SuspendNode(nodeName))
	}
	if err := m.client.Tracker().Update(claimResource, now, now.Namespace); err != nil {
		m.t.Fatal(err)
	}
}

// said is what was answered of each device of a claim: reason, order and message.
func (m *machine) said(claim *resourcev1.ResourceClaim) (all []string) {
	m.t.Helper()
	now := m.readClaim(claim.Namespace, claim.Name)
	for i := range now.Status.Devices {
		if c := v1alpha1.SuspensionAnswerOf(&now.Status.Devices[i]); c != nil {
			all = append(all, fmt.Sprintf("%s %s %d %s", c.Status, c.Reason, c.ObservedGeneration, c.Message))
		}
	}
	return all
}

// says waits until all devices of a claim have an answer that begins so.
func (m *machine) says(claim *resourcev1.ResourceClaim, prefix string) {
	m.t.Helper()
	m.eventually("it is said: "+prefix, func() bool {
		all := m.said(claim)
		return len(all) == len(claim.Status.Allocation.Devices.Results) && !slices.ContainsFunc(all, func(text string) bool { return !strings.HasPrefix(text, prefix) })
	}, func() string { return strings.Join(m.said(claim), "; ") })
}

func (m *machine) eventually(about string, is func() bool, instead func() string) {
	m.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("%s does not come true: %s", about, instead())
		}
	}
}

// idles waits until nobody tends a claim any more.
func (m *machine) idles(o *orders) {
	m.t.Helper()
	m.eventually("nobody tends a claim", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.tended) == 0
	}, func() string { return "" })
}

func TestOrderIsAnswered(t *testing.T) {
	claim := claimWith(result("r", firstID, "1Gi", "0"), result("r", otherID, "1Gi", "0"))
	m := newMachine(t, claim)
	r, s := m.start(), newSleeper()
	o, _ := m.tending(r, s)
	m.mustPrepare(r, claim)
	m.order(claim, 1)
	m.says(claim, "True Suspended 1 for pod vision/train-0 of queue vision: its programs wait")
	m.order(claim, 2) // for the next one
	m.says(claim, "True Suspended 2")
	if got := s.Ordered(); len(got) != 1 || got[string(uidA)].Whom != "pod vision/train-0 of queue vision" {
		t.Errorf("the agent has %v", got)
	}
	m.order(claim, 0)
	m.says(claim, "False Resumed 2")
	m.idles(o)
	if asked := s.did(); strings.Count(asked, "back") != 1 {
		t.Errorf("it was asked to %s", asked)
	}
	m.requests()
	o.saw(m.readClaim("team", "a"))
	m.idles(o)
	if asked, did := m.requests(), s.did(); len(asked) > 0 || did != "" {
		t.Errorf("of a claim that is as it is to be it asked %v and %s", asked, did)
	}
}

// TestOtherStatusStays has another driver and another condition in the status of the claim's devices.
func TestOtherStatusStays(t *testing.T) {
	claim := claimWith(result("r", firstID, "1Gi", "0"))
	foreign := resourcev1.DeviceRequestAllocationResult{Request: "net", Driver: "net.example.com", Pool: nodeName, Device: "eth1"}
	claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, foreign)
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Up", LastTransitionTime: metav1.NewTime(time.Unix(1_800_000_000, 0))}
	mine := claim.Status.Allocation.Devices.Results[0]
	claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{
		{Driver: foreign.Driver, Pool: nodeName, Device: "eth1", Conditions: []metav1.Condition{ready}},
		{Driver: mine.Driver, Pool: mine.Pool, Device: mine.Device, ShareID: new(string(*mine.ShareID)), Conditions: []metav1.Condition{ready}},
	}
	m := newMachine(t, claim)
	r, s := m.start(), newSleeper()
	m.tending(r, s)
	m.mustPrepare(r, claim)
	m.order(claim, 1)
	m.eventually("it is answered", func() bool { return len(m.said(claim)) == 1 }, func() string { return strings.Join(m.said(claim), "; ") })
	now := m.readClaim("team", "a")
	if len(now.Status.Devices) != 2 || len(now.Status.Devices[0].Conditions) != 1 || len(now.Status.Devices[1].Conditions) != 2 || now.Status.Devices[1].Conditions[0].Type != "Ready" {
		t.Errorf("the status is %+v", now.Status.Devices)
	}
}

// TestOrderIsRefused has a share that cannot be suspended: that is said once for each order, and the other shares of the claim
// stay as well.
func TestOrderIsRefused(t *testing.T) {
	claim := claimWith(result("r", firstID, "1Gi", "0"))
	m := newMachine(t, claim)
	r, s := m.start(), newSleeper()
	m.tending(r, s)
	m.mustPrepare(r, claim)
	s.refuse[string(uidA)] = control.Errorf(control.CodeRefused, "it works\non")
	m.order(claim, 1)
	m.says(claim, "False Refused 1 suspend team/a: it works; on")
	s.mu.Lock()
	clear(s.refuse)
	s.mu.Unlock()
	m.order(claim, 0)
	m.order(claim, 2)
	m.says(claim, "True Suspended 2")
	if asked := s.did(); strings.Count(asked, "suspend 1") != 1 {
		t.Errorf("it was asked to %s", asked)
	}
}

// TestOrderAsksAgain has an agent and an API server that cannot answer at the moment, which says nothing of the share.
func TestOrderAsksAgain(t *testing.T) {
	claim := claimWith(result("r", firstID, "1Gi", "0"))
	m := newMachine(t, claim)
	r, s := m.start(), newSleeper()
	m.tending(r, s)
	m.mustPrepare(r, claim)
	s.refuse[string(uidA)] = control.Errorf(control.CodeInternal, "the agent ends")
	m.order(claim, 1)
	m.eventually("it is tried again", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.asked) > 2 }, s.did)
	if said := m.said(claim); len(said) > 0 {
		t.Errorf("it is said: %s", said)
	}
	failures := 2
	m.client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		failures--
		return failures >= 0, nil, errors.New("the API server is away")
	})
	s.mu.Lock()
	clear(s.refuse)
	s.mu.Unlock()
	m.says(claim, "True Suspended 1")
}

// TestOrderBeforePrepare has an order for a claim that the kubelet has not asked for yet.
func TestOrderBeforePrepare(t *testing.T) {
	claim := claimWith(result("r", firstID, "1Gi", "0"))
	m := newMachine(t, claim)
	r, s := m.start(), newSleeper()
	o, _ := m.tending(r, s)
	m.order(claim, 1)
	m.eventually("it is known, and waited for", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.rests > 0 && !o.written.of(idOf(claim)).none()
	}, s.did)
	m.mustPrepare(r, m.readClaim("team", "a"))
	m.says(claim, "True Suspended 1")
}

// TestOrderIsTakenBack has an order go while it is carried out, and a share stray from it.
func TestOrderIsTakenBack(t *testing.T) {
	claim := claimWith(result("r", firstID, "1Gi", "0"))
	m := newMachine(t, claim)
	r, s := m.start(), newSleeper()
	o, _ := m.tending(r, s)
	m.mustPrepare(r, claim)
	s.hold = make(chan struct{})
	m.order(claim, 1)
	m.eventually("it leaves", func() bool { return len(s.Ordered()) == 1 }, s.did)
	m.order(claim, 0)
	m.says(claim, "False Resumed 1")
	m.idles(o)
	s.mu.Lock()
	s.hold = nil
	s.mu.Unlock()
	m.order(claim, 2)
	m.says(claim, "True Suspended 2")
	s.note("stray", func() { clear(s.ordered) })
	m.eventually("it is suspended again", func() bool { return len(s.Ordered()) == 1 }, s.did)
}

// TestOrderAcrossAgents has an agent end in each state, and things change before the next one.
func TestOrderAcrossAgents(t *testing.T) {
	claim := claimWith(result("r", firstID, "1Gi", "0"))
	m := newMachine(t, claim)
	r, s := m.start(), newSleeper()
	m.mustPrepare(r, claim)
	again := func() (o *orders, stop func()) { return m.tending(r, s) }
	m.order(claim, 1)
	_, stop := again()
	m.says(claim, "True Suspended 1")
	stop()
	s.did()
	_, stop = again() // nothing has changed
	m.eventually("it has looked", func() bool { return len(s.did()) > 0 }, s.did)
	m.says(claim, "True Suspended 1")
	stop()
	m.order(claim, 0) // while nobody is there
	o, stop := again()
	m.says(claim, "False Resumed 1")
	m.idles(o)
	// One that was killed on the way back, of which its record knows no order any more.
	m.order(claim, 2)
	m.says(claim, "True Suspended 2")
	s.mu.Lock()
	s.back = make(chan struct{})
	s.mu.Unlock()
	m.order(claim, 0)
	m.eventually("it comes back", func() bool { return len(s.Ordered()) == 0 }, s.did)
	stop()
	o, _ = again()
	o.saw(m.readClaim("team", "a")) // as an agent that starts reads each claim
	m.says(claim, "True Suspended 2")
	close(s.back)
	m.says(claim, "False Resumed 2")
	m.idles(o)
}
