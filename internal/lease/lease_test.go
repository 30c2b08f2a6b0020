package lease

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// slowLock is a lock whose writes take a time of the fake clock.
type slowLock struct {
	resourcelock.Interface
	clock *time.Duration
	takes time.Duration
	fails error
	// has is what the API server has of it, and written counts its writes.
	has     resourcelock.LeaderElectionRecord
	written int
}

func (l *slowLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &l.has, nil, nil
}

func (l *slowLock) Identity() string { return "me" }

func (l *slowLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	*l.clock += l.takes
	l.written++
	return l.fails
}

func (l *slowLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

// counting is an API server that counts what it is asked, and does nothing.
type counting struct {
	*httptest.Server
	writes, reads atomic.Int64
}

func newCounting(t *testing.T) *counting {
	t.Helper()
	c := &counting{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			c.reads.Add(1)
		} else {
			c.writes.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"kind":"Pod","apiVersion":"v1"}`)) //nolint:errcheck // the client fails then
	}))
	t.Cleanup(c.Close)
	return c
}

// A write passes for as long as nobody else can have the lease, counted from before it was renewed. Reads pass until a lease that
// was held is spent.
func TestLease(t *testing.T) {
	server := newCounting(t)
	config := &rest.Config{Host: server.URL, UserAgent: "test"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	clock := time.Hour
	lock := &slowLock{clock: &clock}
	l := &Lock{Interface: lock, limit: 10 * time.Second, now: func() time.Duration { return clock }}
	if err := l.Guard(client, config); err != nil {
		t.Fatal(err)
	}
	mine, nobody := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, resourcelock.LeaderElectionRecord{}
	try := func(when string, want, reading bool) {
		t.Helper()
		before, asked := server.writes.Load(), server.reads.Load()
		err := client.CoreV1().Pods("default").Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}, metav1.CreateOptions{})
		if want && err != nil || !want && !errors.Is(err, ErrLease) || (server.writes.Load() > before) != want {
			t.Errorf("%s: %d writes, %v", when, server.writes.Load()-before, err)
		}
		if _, err := client.CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{}); (err == nil) != reading || (server.reads.Load() > asked) != reading {
			t.Errorf("%s: a read: %v", when, err)
		}
	}
	try("before the lead", false, true)
	if err := l.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	try("with the lease", true, true)
	clock += 10 * time.Second
	try("at the deadline", true, true)
	clock++
	try("after it", false, false)
	lock.takes = 7 * time.Second
	if err := l.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	clock += 3 * time.Second
	try("renewed slowly", true, true)
	clock++
	try("ten seconds after a slow renewal began", false, false)
	lock.takes, lock.fails = 0, errors.New("no answer")
	if err := l.Update(t.Context(), mine); !errors.Is(err, lock.fails) {
		t.Fatal(err)
	}
	try("a renewal that failed", false, false)
	lock.fails = nil
	if err := l.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	try("renewed", true, true)
	lock.fails = errors.New("no answer")
	_ = l.Update(t.Context(), nobody) // it fails, and may have been written
	try("given up", false, true)
}

// A request that was let through is not sent once its lease is spent, nor is anything else: whoever was stopped in between goes
// on there.
func TestSpentBeforeSending(t *testing.T) {
	server := newCounting(t)
	config := &rest.Config{Host: server.URL, UserAgent: "test"}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	clock, step := time.Hour, time.Duration(0)
	l := &Lock{Interface: &slowLock{clock: &clock}, limit: 10 * time.Second, now: func() time.Duration { clock += step; return clock }}
	if err := l.Guard(client, config); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{}); err != nil {
		t.Errorf("who does not lead yet reads: %v", err)
	}
	if err := l.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}); err != nil {
		t.Fatal(err)
	}
	step = 6 * time.Second // the check is in time, and what follows it is not
	err = client.CoreV1().Pods("default").Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}, metav1.CreateOptions{})
	if !errors.Is(err, ErrLease) || server.writes.Load() != 0 {
		t.Errorf("%d requests, %v", server.writes.Load(), err)
	}
}

// A lease is given up once nothing that was written can be on its way any more.
func TestGivenUpAfterAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, clock := time.Now(), time.Duration(0)
		lock := &slowLock{clock: &clock}
		now := func() time.Duration { return time.Hour + time.Since(begun) }
		l := &Lock{Interface: lock, limit: 10 * time.Second, way: 5 * time.Second, now: now}
		nobody := resourcelock.LeaderElectionRecord{}
		if err := l.Update(t.Context(), nobody); err != nil || time.Since(begun) != 0 {
			t.Errorf("nothing was written: %v after %v", err, time.Since(begun))
		}
		l.unanswered.Store(int64(now()))
		time.Sleep(time.Second)
		if err := l.Update(t.Context(), nobody); err != nil || time.Since(begun) != l.way {
			t.Errorf("a write was not answered: %v after %v", err, time.Since(begun))
		}
		l.flight.RLock()
		defer l.flight.RUnlock()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		lock.fails = errors.New("written")
		if err := l.Update(ctx, nobody); !errors.Is(err, context.Canceled) {
			t.Errorf("a write is on its way: %v", err)
		}
	})
}

// A replica that was stopped while another one led does not lead again, though the lease is free when it goes on: it does not
// know what the other one has written.
func TestLeadsOnce(t *testing.T) {
	clock := time.Hour
	for name, again := range map[string]func(l *Lock, record resourcelock.LeaderElectionRecord) error{
		"taken":   func(l *Lock, record resourcelock.LeaderElectionRecord) error { return l.Update(t.Context(), record) },
		"deleted": func(l *Lock, record resourcelock.LeaderElectionRecord) error { return l.Create(t.Context(), record) },
	} {
		lock := &slowLock{clock: &clock}
		l := &Lock{Interface: lock, limit: 10 * time.Second, now: func() time.Duration { return clock }}
		record := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaderTransitions: 3}
		for range 2 { // got, and renewed
			if err := l.Update(t.Context(), record); err != nil || l.Held() != nil {
				t.Fatalf("%s: %v, %v", name, err, l.Held())
			}
		}
		clock += time.Minute
		record.LeaderTransitions = 5
		if err := again(l, record); !errors.Is(err, ErrAgain) || l.Held() == nil {
			t.Errorf("%s: %v, %v", name, err, l.Held())
		}
	}
}

// A replica that was stopped while another one took the lease does not give that one's away, and one that sees its lease in other
// hands writes no more, however lately it renewed it.
func TestLeaseOfAnother(t *testing.T) {
	clock := time.Hour
	lock := &slowLock{clock: &clock}
	l := &Lock{Interface: lock, limit: 10 * time.Second, now: func() time.Duration { return clock }}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaderTransitions: 3}
	if err := l.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	lock.has = mine
	if _, _, err := l.Get(t.Context()); err != nil || l.Held() != nil {
		t.Fatalf("%v, %v", err, l.Held())
	}
	lock.has = resourcelock.LeaderElectionRecord{HolderIdentity: "other", LeaderTransitions: 4}
	if _, _, err := l.Get(t.Context()); err != nil || l.Held() == nil {
		t.Errorf("it writes while another one leads: %v, %v", err, l.Held())
	}
	written := lock.written
	if err := l.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaderTransitions: 4}); !errors.Is(err, ErrOthers) || lock.written != written {
		t.Errorf("it gave the other's lease away: %v, %d writes", err, lock.written-written)
	}
	lock.has = resourcelock.LeaderElectionRecord{LeaderTransitions: 5} // free again after a third one had it
	l.renewed.Store(int64(clock))
	if _, _, err := l.Get(t.Context()); err != nil || l.Held() == nil {
		t.Errorf("it writes after another one led: %v, %v", err, l.Held())
	}
}

// The clock of the lease goes on.
func TestBootTime(t *testing.T) {
	boot, begun := bootTime(), time.Now()
	for time.Since(begun) < 2*time.Millisecond {
	}
	if took := bootTime() - boot; took < 2*time.Millisecond || took > time.Minute {
		t.Errorf("2 ms took %v", took)
	}
}
