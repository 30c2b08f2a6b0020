package program

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/divvy-gpu/divvy/internal/scheduler"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// slowLock is a lock whose writes take a time of the fake clock.
type slowLock struct {
	resourcelock.Interface
	clock *time.Duration
	takes time.Duration
	fails error
}

func (l *slowLock) Identity() string { return "me" }

func (l *slowLock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	*l.clock += l.takes
	return l.fails
}

func (l *slowLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

// A write passes for as long as nobody else can have the lease, counted from before it was renewed. Reads always pass.
func TestLease(t *testing.T) {
	var writes, reads atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			reads.Add(1)
		} else {
			writes.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"kind":"Pod","apiVersion":"v1"}`)) //nolint:errcheck // the client fails then
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	clock := time.Hour
	lock := &slowLock{clock: &clock}
	l := &lease{Interface: lock, limit: 10 * time.Second, now: func() time.Duration { return clock }}
	if err := l.guard(client); err != nil {
		t.Fatal(err)
	}
	mine, nobody := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, resourcelock.LeaderElectionRecord{}
	try := func(when string, want bool) {
		t.Helper()
		before, asked := writes.Load(), reads.Load()
		err := client.CoreV1().Pods("default").Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}, metav1.CreateOptions{})
		if want && err != nil || !want && !errors.Is(err, errLease) || (writes.Load() > before) != want {
			t.Errorf("%s: %d writes, %v", when, writes.Load()-before, err)
		}
		if _, err := client.CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{}); err != nil || reads.Load() != asked+1 {
			t.Errorf("%s: a read: %v", when, err)
		}
	}
	try("before the lead", false)
	if err := l.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	try("with the lease", true)
	clock += 10 * time.Second
	try("at the deadline", true)
	clock++
	try("after it", false)
	lock.takes = 7 * time.Second
	if err := l.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	clock += 3 * time.Second
	try("renewed slowly", true)
	clock++
	try("ten seconds after a slow renewal began", false)
	lock.takes, lock.fails = 0, errors.New("no answer")
	if err := l.Update(t.Context(), mine); !errors.Is(err, lock.fails) {
		t.Fatal(err)
	}
	try("a renewal that failed", false)
	lock.fails = nil
	if err := l.Update(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	try("renewed", true)
	lock.fails = errors.New("no answer")
	_ = l.Update(t.Context(), nobody) // it fails, and may have been written
	try("given up", false)
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

// A leader that was stopped after it chose a place, and before its first write, writes nothing when it goes on while another
// leads: that one has given the place to somebody else.
func TestStoppedBeforeWriting(t *testing.T) {
	f := newFleet(t, 1, 1)
	marks := t.TempDir()
	quick := []string{"--leader-elect=true", "--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms", "--leader-elect-resource-namespace=default"}
	first := f.run("first", crashing, []string{"DIVVY_STOP_AFTER=" + scheduler.StepChosen, "DIVVY_CRASH_MARKS=" + marks}, quick...)
	t.Cleanup(func() { _ = first.Signal(syscall.SIGCONT) }) // it may be dead
	one := f.create(describing(t, "one", share(80, 100)))
	f.until("the leader is stopped", func(context.Context) (bool, string) {
		found, err := filepath.Glob(filepath.Join(marks, "stopped-after-*"))
		return err == nil && len(found) == 1, "it runs"
	})
	now := int64(0)
	if err := f.client.CoreV1().Pods(namespace).Delete(t.Context(), one.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	f.run("second", shipped, nil, quick...)
	f.create(describing(t, "two", share(80, 100)))
	f.bound(1)
	if err := first.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f.dead("first")
	claim, err := f.client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), *one.Spec.ResourceClaims[0].ResourceClaimName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the first leader has written %+v: %v", claim, err)
	}
	f.check()
	follows(t, f.Process("second"))
}

// follows looks that the figure of who leads names the lease.
func follows(t *testing.T, p *plane.Process) {
	t.Helper()
	text, err := p.Get(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	const want = `leader_election_master_status{name="divvy-scheduler"} 1`
	if !strings.Contains(string(text), want+"\n") {
		t.Errorf("no line %s", want)
	}
}
