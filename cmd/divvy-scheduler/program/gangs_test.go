package program

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// gangOf makes a member of a gang that asks for a share.
func gangOf(t *testing.T, name string, size, i, gibibytes int) *corev1.Pod {
	t.Helper()
	p := describing(t, fmt.Sprintf("%s-%d", name, i), share(gibibytes, 10))
	p.Annotations[v1alpha1.GangAnnotation], p.Annotations[v1alpha1.GangSizeAnnotation] = name, fmt.Sprint(size)
	return p
}

// A gang is bound when it is complete, whole, and one that does not fit holds nothing.
func TestGang(t *testing.T) {
	f := newFleet(t, 2, 4)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	for i := range 5 {
		f.create(gangOf(t, "six", 6, i, 60))
	}
	for _, reason := range f.waiting(5) {
		if !strings.Contains(reason, "members") {
			t.Errorf("an incomplete gang waits because %q", reason)
		}
	}
	f.create(gangOf(t, "six", 6, 5, 60))
	f.bound(6)
	if sums := f.check(); len(sums) != 6 {
		t.Errorf("six members are on %d GPUs", len(sums))
	}
	for i := range 3 {
		f.create(gangOf(t, "three", 3, i, 60))
	}
	f.waiting(3)
	if sums := f.check(); len(sums) != 6 {
		t.Errorf("a gang that does not fit has taken %d GPUs", len(sums)-6)
	}
	f.create(describing(t, "single", share(60, 10)))
	f.bound(7)
}

// A gang whose members write their claims is not stopped by the next one that is planned meanwhile.
func TestGangsSideBySide(t *testing.T) {
	const gangs = 12
	f := newFleet(t, gangs, 2)
	for i := range 2 {
		for g := range gangs {
			f.create(gangOf(t, fmt.Sprint("pair-", g), 2, i, 60))
		}
	}
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	f.bound(2 * gangs)
	if sums := f.check(); len(sums) != 2*gangs {
		t.Errorf("%d members are on %d GPUs", 2*gangs, len(sums))
	}
	if logs := f.logs(); strings.Contains(logs, scheduler.ErrGang.Error()) {
		t.Errorf("a gang was stopped:\n%s", logs)
	}
}

// A scheduler that dies while a gang's claims are written leaves nothing that the next one does not finish.
func TestGangKilled(t *testing.T) {
	for _, step := range []string{scheduler.StepMade, scheduler.StepAllocated} {
		t.Run(step, func(t *testing.T) {
			f := newFleet(t, 2, 4)
			f.run("first", crashing, []string{"DIVVY_CRASH_AFTER=" + step, "DIVVY_CRASH_MARKS=" + t.TempDir()}, single)
			for i := range 8 {
				f.create(gangOf(t, "eight", 8, i, 60))
			}
			f.dead("first")
			f.run("second", shipped, nil, single)
			f.bound(8)
			if sums := f.check(); len(sums) != 8 {
				t.Errorf("eight members are on %d GPUs", len(sums))
			}
		})
	}
}

// All members say the same: how many are there, and why there is no room, also after one has come or gone.
func TestGangReasons(t *testing.T) {
	f := newFleet(t, 1, 4)
	f.run(v1alpha1.SchedulerName, shipped, nil, single)
	const size = 6
	for i := range size - 1 {
		f.create(gangOf(t, "six", size, i, 60))
	}
	for i := range size - 1 {
		f.says(fmt.Sprint("six-", i), "5 of 6 are there")
	}
	f.create(gangOf(t, "six", size, size-1, 60))
	for i := range size {
		f.says(fmt.Sprint("six-", i), "only 4 of 6 members fit together")
	}
	now := int64(0)
	if err := f.client.CoreV1().Pods(namespace).Delete(t.Context(), "six-2", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 1, 3, 4, 5} {
		f.says(fmt.Sprint("six-", i), "5 of 6 are there")
	}
	f.addNode(1, 4)
	f.create(gangOf(t, "six", size, 2, 60))
	f.bound(size)
	f.check()
}
