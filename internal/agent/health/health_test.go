package health

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// ward is a driver whose GPUs have the conditions that a test gives them.
type ward struct {
	conditions map[int]nvml.Condition
	faults     map[int]error
	count      int // of GPUs that the driver has
	reopened   int
	onReopen   func()
	now        time.Time
}

func (w *ward) Conditions(gpus []int) (all []nvml.Checkup) {
	for _, gpu := range gpus {
		c := w.conditions[gpu]
		all = append(all, nvml.Checkup{Condition: c, Err: w.faults[gpu]})
		c.XIDs = nil // each is told once
		w.conditions[gpu] = c
	}
	return all
}

func (w *ward) Answering() (uuids []string, silent int) {
	for i := range w.count {
		if w.faults[i] != nil {
			silent++
			continue
		}
		uuids = append(uuids, fmt.Sprintf("GPU-%d", i))
	}
	return uuids, silent
}

func (w *ward) Reopen() error {
	w.reopened++
	if w.onReopen != nil {
		w.onReopen()
	}
	return nil
}

func newWard(gpus int) (*ward, *Monitor) {
	w := &ward{conditions: map[int]nvml.Condition{}, faults: map[int]error{}, now: time.Unix(1e9, 0), count: gpus}
	c := Config{Driver: w, Interval: time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() time.Time { return w.now }}
	for i := range gpus {
		c.GPUs = append(c.GPUs, backend.GPU{Index: i, UUID: fmt.Sprintf("GPU-%d", i)})
	}
	return w, New(c)
}

// looks lets n seconds pass and returns the reasons of all faults then, in order of the GPUs.
func (w *ward) looks(h *Monitor, n int) string {
	for range n {
		w.now = w.now.Add(time.Second)
		h.Look(context.Background())
	}
	faults, _ := h.Faults()
	var reasons []string
	for i := range h.watched {
		fault, ill := faults[fmt.Sprintf("GPU-%d", i)]
		text := fault.Reason
		if fault.Lost {
			text += "!"
		}
		if ill != (text != "") || ill && fault.Text == "" {
			text += "?"
		}
		reasons = append(reasons, text)
	}
	return strings.Join(reasons, " ")
}

var errSilent = fmt.Errorf("%w: no answer", nvml.ErrDriver)

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name      string
		condition nvml.Condition
		err       error
		want      string
		lasting   bool
	}{
		{"nothing", nvml.Condition{}, nil, "", true},
		{"programs' own errors", nvml.Condition{XIDs: []uint64{13, 31, 43, 45, 68, 109}}, nil, "", true},
		{"an error of the GPU", nvml.Condition{XIDs: []uint64{31, 48, 45}}, nil, "xid-48", false},
		{"the last of several", nvml.Condition{XIDs: []uint64{48, 63}}, nil, "xid-63", false},
		{"off the bus", nvml.Condition{XIDs: []uint64{79, 119}}, nil, "lost!", false},
		{"lost", nvml.Condition{}, nvml.ErrLost, "lost!", true},
		{"lost, with an error", nvml.Condition{XIDs: []uint64{48}}, nvml.ErrLost, "lost!", true},
		{"vanished", nvml.Condition{}, nvml.ErrVanished, "vanished!", true},
		{"to be reset", nvml.Condition{}, nvml.ErrReset, "reset-required!", true},
		{"not asked while a mode changes", nvml.Condition{}, nvml.ErrLetGo, "", true},
		{"broken memory", nvml.Condition{RemapFailed: true, RemapPending: true}, nil, "row-remap-failed", true},
		{"memory to be replaced", nvml.Condition{RemapPending: true}, nil, "row-remap-pending", true},
		{"pages to be retired", nvml.Condition{RetirementPending: true}, nil, "page-retirement-pending", true},
		{"in MIG mode", nvml.Condition{MIG: true}, nil, "mig-mode", true},
		{"in MIG mode, with broken memory", nvml.Condition{MIG: true, RemapFailed: true}, nil, "row-remap-failed", true},
		{"the driver's judgement", nvml.Condition{RemapPending: true, Recovery: "gpu-reset"}, nil, "needs-gpu-reset", true},
	} {
		w, h := newWard(2)
		w.looks(h, 5)
		w.conditions[1], w.faults[1] = test.condition, test.err
		want := " " + test.want
		if got := w.looks(h, 1); got != want {
			t.Errorf("%s: %q, want %q", test.name, got, want)
		}
		if test.lasting {
			if got := w.looks(h, 5*recovery); got != want {
				t.Errorf("%s, later: %q", test.name, got)
			}
			w.conditions[1], w.faults[1] = nvml.Condition{}, nil
		}
		// It is offered again after that many looks, and not before.
		if got := w.looks(h, recovery-1); got != want {
			t.Errorf("%s, too soon: %q", test.name, got)
		}
		if got := w.looks(h, 1); got != " " {
			t.Errorf("%s is not over: %q", test.name, got)
		}
	}
}

func TestMemoryErrors(t *testing.T) {
	w, h := newWard(1)
	w.conditions[0] = nvml.Condition{Uncorrected: 3} // from before our time
	if got := w.looks(h, 5); got != "" {
		t.Errorf("old errors: %q", got)
	}
	w.conditions[0] = nvml.Condition{Uncorrected: 4}
	if got := w.looks(h, 1); got != "ecc" {
		t.Errorf("a new error: %q", got)
	}
	if got := w.looks(h, recovery); got != "" {
		t.Errorf("no more errors: %q", got)
	}
	w.conditions[0] = nvml.Condition{} // reset: it counts from 0
	w.looks(h, 1)
	w.conditions[0] = nvml.Condition{Uncorrected: 1}
	if got := w.looks(h, 1); got != "ecc" {
		t.Errorf("an error after a reset: %q", got)
	}
}

// A driver that does not answer once is busy; that of all GPUs sends nobody away.
func TestSilence(t *testing.T) {
	w, h := newWard(2)
	w.looks(h, 1)
	w.faults[0], w.faults[1] = errSilent, errSilent
	if got := w.looks(h, silentLooks-1); got != " " {
		t.Errorf("after %d looks: %q", silentLooks-1, got)
	}
	if got := w.looks(h, 1); got != "no-answer no-answer" {
		t.Errorf("after %d looks: %q", silentLooks, got)
	}
	w.faults[0] = nil
	w.looks(h, recovery-1)
	w.faults[0] = errSilent // once
	w.looks(h, 1)
	w.faults[0] = nil
	if got := w.looks(h, recovery-1); got != "no-answer no-answer" {
		t.Errorf("answers with a gap: %q", got)
	}
	if got := w.looks(h, 1); got != " no-answer" {
		t.Errorf("answers without a gap: %q", got)
	}
}

// A GPU of which the driver has told nothing yet, because it answers with an error, takes nobody from the first look on.
func TestErrorFromTheStart(t *testing.T) {
	w, h := newWard(2)
	w.faults[0], w.faults[1] = errSilent, fmt.Errorf("%w: NVML result 999", nvml.ErrResult)
	if got := w.looks(h, 1); got != " no-answer" {
		t.Errorf("after one look: %q", got)
	}
}

// A driver that does not return from the question is no busy one: the GPU takes no new tenants at once, whoever runs there
// stays, and the library, which is open in other processes, is not opened again for it.
func TestDriverThatNeverAnswers(t *testing.T) {
	w, h := newWard(2)
	w.looks(h, 1)
	w.faults[1] = fmt.Errorf("%w about GPU 1", nvml.ErrSilent)
	if got := w.looks(h, 1); got != " silent" {
		t.Errorf("after one look: %q", got)
	}
	faults, _ := h.Faults()
	for uuid, fault := range faults {
		if fault.Lost || !strings.Contains(fault.Text, "does not answer about GPU 1") {
			t.Errorf("the fault of %s: %+v", uuid, fault)
		}
	}
	if w.looks(h, 3*firstReopen); w.reopened != 0 {
		t.Errorf("opened again %d times", w.reopened)
	}
	w.faults[1] = nil
	if got := w.looks(h, 1); got != " " {
		t.Errorf("when it answers: %q", got)
	}
	// One that falls silent again and again stays away for longer, and nothing untrue is said of it.
	w.faults[1] = fmt.Errorf("%w about GPU 1", nvml.ErrSilent)
	w.looks(h, 1)
	w.faults[1] = nil
	if got := w.looks(h, 1); got != " silent" {
		t.Errorf("when it answers once more: %q", got)
	}
	faults, _ = h.Faults()
	for _, fault := range faults {
		if !strings.Contains(fault.Text, "answers about it again") {
			t.Errorf("it answers, and this is said: %q", fault.Text)
		}
	}
	if got := w.looks(h, 2*recovery-2); got != " silent" {
		t.Errorf("before it has answered for long: %q", got)
	}
	if got := w.looks(h, 1); got != " " {
		t.Errorf("when it has answered for long: %q", got)
	}
}

// A GPU that fails again and again is offered more and more seldom, and one that was well for long as if it were new.
func TestRelapses(t *testing.T) {
	w, h := newWard(1)
	fail := func() (looks int) {
		w.conditions[0] = nvml.Condition{XIDs: []uint64{74}}
		w.looks(h, 1)
		for w.looks(h, 1) != "" {
			looks++
		}
		return looks + 1
	}
	want := recovery
	for i := range mostDoublings + 3 {
		if got := fail(); got != want {
			t.Errorf("failure %d takes %d looks, want %d", i, got, want)
		}
		want = min(2*want, recovery<<mostDoublings)
	}
	w.now = w.now.Add(relapseTime)
	if got := fail(); got != recovery {
		t.Errorf("after a good hour it takes %d looks", got)
	}
}

func TestChangesAreTold(t *testing.T) {
	w, h := newWard(2)
	_, changed := h.Faults()
	isTold := func() bool {
		select {
		case <-changed:
			_, changed = h.Faults()
			return true
		default:
			return false
		}
	}
	for i, step := range []struct {
		do   func()
		told bool
	}{
		{func() {}, false},
		{func() { w.faults[1] = nvml.ErrLost }, true},
		{func() {}, false},
		{func() { w.faults[0] = nvml.ErrLost }, true},
		{func() { w.faults[1] = nvml.ErrVanished }, true},
		{func() { w.faults[0], w.faults[1] = nil, nil; w.looks(h, recovery-2) }, false},
		{func() { w.looks(h, 1) }, true},
	} {
		step.do()
		w.looks(h, 1)
		if got := isTold(); got != step.told {
			t.Errorf("step %d: told %v", i, got)
		}
	}
}

// For a GPU that is away the library is opened anew, and the more seldom the longer that does not help.
func TestReopen(t *testing.T) {
	w, h := newWard(1)
	w.looks(h, 1000)
	if w.reopened != 0 {
		t.Errorf("opened %d times for a healthy GPU", w.reopened)
	}
	w.faults[0] = fmt.Errorf("read: %w", nvml.ErrLost)
	w.looks(h, firstReopen+1)
	if w.reopened != 1 {
		t.Errorf("opened %d times after %d looks", w.reopened, firstReopen+1)
	}
	w.looks(h, 3600)
	if w.reopened < 8 || w.reopened > 12 {
		t.Errorf("opened %d times in an hour", w.reopened)
	}
	w.onReopen = func() { w.faults[0] = nil }
	if got := w.looks(h, lastReopen+recovery+1); got != "" {
		t.Errorf("a GPU that came back: %q", got)
	}
}

// A GPU that was lost when the agent started is looked for, and told of once it answers.
func TestFound(t *testing.T) {
	w, h := newWard(2)
	found := func() bool {
		select {
		case <-h.Found():
			return true
		default:
			return false
		}
	}
	w.faults[1] = nvml.ErrLost // one of those known
	w.looks(h, 3*countEvery)
	w.faults[1] = nil
	w.looks(h, 3*countEvery)
	if found() {
		t.Error("a GPU that was known is found")
	}
	reopened := w.reopened
	w.count, w.faults[2] = 3, nvml.ErrLost
	w.looks(h, countEvery+firstReopen+1)
	if found() || w.reopened != reopened+1 {
		t.Errorf("a lost GPU: found %v, opened %d times", found(), w.reopened-reopened)
	}
	w.faults[2] = nil
	w.looks(h, countEvery)
	if !found() {
		t.Error("a GPU that came back is not found")
	}
	w.looks(h, 2*countEvery)
}

// Every error that the driver reports is counted, also those that indicate no fault.
func TestXIDsAreCounted(t *testing.T) {
	w, h := newWard(2)
	for _, xids := range [][]uint64{{13, 48}, {13}, nil} {
		w.conditions[1] = nvml.Condition{XIDs: xids}
		w.looks(h, 1)
	}
	want := map[string]XIDs{"GPU-1": {Count: map[uint64]uint64{13: 2, 48: 1}, Last: 13}}
	if got := h.XIDs(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for n := range uint64(2 * mostKinds) {
		w.conditions[0] = nvml.Condition{XIDs: []uint64{1000 + n}}
		w.looks(h, 1)
	}
	if n := len(h.XIDs()["GPU-0"].Count); n != mostKinds {
		t.Errorf("%d kinds are counted", n)
	}
}

// A GPU that has left the driver for a virtual machine is not asked about, is no fault and has nothing opened again. When it is
// back it begins anew.
func TestAway(t *testing.T) {
	w, h := newWard(2)
	away := false
	h.config.Away = func(uuid string) bool { return away && uuid == "GPU-1" }
	healthy := w.looks(h, 1)
	away = true
	w.faults[1] = nvml.ErrVanished
	if got := w.looks(h, 3*firstReopen); got != healthy || w.reopened != 0 {
		t.Errorf("faults %q, want %q; the library was opened again %d times", got, healthy, w.reopened)
	}
	if _, told := h.Faults(); told == nil {
		t.Error("nobody is told of changes")
	}
	away = false
	w.faults[1] = nil
	if got := w.looks(h, 1); got != healthy {
		t.Errorf("once it is back: %q, want %q", got, healthy)
	}
	w.faults[1] = nvml.ErrVanished
	if got := w.looks(h, 1); got == healthy {
		t.Errorf("a GPU that vanished by itself is no fault: %q", got)
	}
}
