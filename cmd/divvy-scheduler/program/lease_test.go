package program

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/scheduler"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// A leader that was stopped after it chose a place, and before its first write, writes nothing when it goes on while another
// leads: that one has given the place to somebody else.
func TestStoppedBeforeWriting(t *testing.T) {
	f := newFleet(t, 1, 1)
	marks := t.TempDir()
	first := f.run("first", crashing, []string{"DIVVY_STOP_AFTER=" + scheduler.StepChosen, "DIVVY_CRASH_MARKS=" + marks}, elected...)
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
	f.run("second", shipped, nil, elected...)
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
