package agent

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

func TestDebtsArePaidAndTakenOver(t *testing.T) {
	begin := time.Unix(1000, 0)
	second := uint64(time.Second)
	var all debts
	owe := func(debtor, uuid string, rate uint32, owed uint64) {
		all.add(begin, debt{Debtor: debtor, UUID: uuid, Owed: owed, Rate: rate, At: begin})
	}
	owe("user 1", "a", page.Whole/10, second)
	owe("user 1", "a", page.Whole/10, second) // of a second share
	owe("user 1", "a", page.Whole/2, second)
	owe("user 1", "b", page.Whole/10, second)
	owe("user 2", "a", page.Whole/10, second)
	if len(all) != 4 {
		t.Errorf("debts %+v", all)
	}
	later := begin.Add(time.Second)
	if got, want := all.take(later, "user 1", "a"), 2*second-second/10+second-second/2; got != want {
		t.Errorf("takes over %d, want %d", got, want)
	}
	if got := all.take(later, "user 1", "a"); got != 0 {
		t.Errorf("twice, the second time %d", got)
	}
	if left := all.left(begin.Add(-time.Minute)); len(left) != 2 || left[0].at(begin.Add(-time.Minute)) != second {
		t.Errorf("with a clock set back %+v", left)
	}
	if left := all.left(begin.Add(10 * time.Second)); len(left) != 0 || len(all) != 0 {
		t.Errorf("when all is paid %+v", left)
	}
	owe("user 1", "a", 1, 2*page.MostOwed)
	if got := all.take(begin.Add(time.Second), "user 1", "a"); got != page.MostOwed {
		t.Errorf("takes over %d", got)
	}
	owe("user 1", "a", 1, page.MostOwed)
	if left := all.left(begin.Add(debtKept)); len(left) != 0 {
		t.Errorf("after an hour %+v", left)
	}
}

func TestDebtor(t *testing.T) {
	for want, r := range map[string]record{
		"user 7":       {ID: "x", UID: 7},
		"namespace ml": {ID: "c-1", Tenancy: &Tenancy{Namespace: "ml"}},
		"tenant c-2":   {ID: "c-2", Tenancy: &Tenancy{}},
	} {
		if got := r.debtor(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// capped asks for a tenth of the time of a GPU.
func capped(name string) control.CreateParams {
	p := ask(gib)
	p.Request.Name, p.Request.Cores, p.Request.Policy = name, 10, v1alpha1.PolicyFixed
	return p
}

// balance reads the bucket of a tenant's first GPU, and writes it if that is wanted.
func balance(t *testing.T, dir string, write *int64) int64 {
	t.Helper()
	file, err := os.OpenFile(tenantdir.Dir(dir).State(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	at := int64(page.SizeOfState + page.OffsetOfGPUBucket + page.OffsetOfBucketBalance)
	var words [16]byte
	if write != nil {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint64(words[:], uint64(*write))
		binary.LittleEndian.PutUint64(words[8:], uint64(now.Nano()))
		if _, err := file.WriteAt(words[:], at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := file.ReadAt(words[:], at); err != nil {
		t.Fatal(err)
	}
	return int64(binary.LittleEndian.Uint64(words[:]))
}

// aged has a share live for a while, in which it could use that much of a GPU.
func aged(r *running, created *control.Created, life time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tenants[created.Tenant.ID]
	t.Created = t.Created.Add(-life)
}

// A share that was charged for hours of work and lived for seconds owes seconds: no GPU can
// have worked for it longer. What it took over it owes all the same.
func TestDebtIsNoMoreThanALife(t *testing.T) {
	n := newNode(t)
	r := n.start()
	charged := -3600 * int64(time.Second)
	const life = 20 * time.Second
	slack := int64(600 * time.Second) // for a slow test
	first := n.asker(os.Getuid())
	created := n.grant(r, first, capped("first"))
	balance(t, created.Tenant.Dir, &charged)
	aged(r, created, life)
	first.hangUp()
	first.kill()
	eventually(t, "the share ends", n.gone(r, created))
	second := n.asker(os.Getuid())
	created = n.grant(r, second, capped("second"))
	left := balance(t, created.Tenant.Dir, nil)
	if left > -int64(life)/2 || left < -int64(life)-slack {
		t.Errorf("the next share begins at %d", left)
	}
	if got := mostOwed(7, -time.Hour); got != 7 {
		t.Errorf("with a clock set back it owes %d", got)
	}
	if got := mostOwed(uint64(time.Hour), time.Second); got != uint64(time.Hour+time.Second) {
		t.Errorf("a share that took over an hour owes %d", got)
	}
}

// A share's debt goes to exactly one later share of its user, also after the agent was
// started again, and to nobody else's.
func TestDebtOutlivesItsShare(t *testing.T) {
	n := newNode(t)
	r := n.start()
	first := n.asker(os.Getuid())
	created := n.grant(r, first, capped("first"))
	if got := balance(t, created.Tenant.Dir, nil); got != 0 {
		t.Errorf("a user without debts begins at %d", got)
	}
	owed := -2000 * int64(time.Second)
	balance(t, created.Tenant.Dir, &owed)
	aged(r, created, time.Hour)
	first.hangUp()
	first.kill()
	eventually(t, "the share ends", n.gone(r, created))
	r.stopAgent()
	if _, err := os.Stat(filepath.Join(n.dir, "tenants.json")); err != nil {
		t.Fatalf("the debt is not saved: %v", err)
	}
	r = n.start()
	paid := int64(600 * time.Second) // at a tenth, more than any test takes
	begins := func(uid int, name string) int64 {
		return balance(t, n.grant(r, n.asker(uid), capped(name)).Tenant.Dir, nil)
	}
	if got := begins(os.Getuid()+1, "stranger"); got != 0 {
		t.Errorf("another user begins at %d", got)
	}
	if got := begins(os.Getuid(), "second"); got > owed+paid || got < owed {
		t.Errorf("the next share begins at %d, want about %d", got, owed)
	}
	if got := begins(os.Getuid(), "third"); got != 0 {
		t.Errorf("the one beside it begins at %d", got)
	}
	r.stopAgent()
	r = n.start()
	if got := begins(os.Getuid(), "fourth"); got != 0 {
		t.Errorf("after another start of the agent one begins at %d", got)
	}
}

// A share that is started before the agent was told of the last one's end takes over its
// debt all the same, unless that one goes on.
func TestDebtOfAShareThatEndedJustNow(t *testing.T) {
	n := newNode(t)
	r := n.start()
	owed := -2000 * int64(time.Second)
	paid := int64(600 * time.Second) // at a tenth, more than any test takes
	first := n.asker(os.Getuid())
	created := n.grant(r, first, capped("first"))
	balance(t, created.Tenant.Dir, &owed)
	aged(r, created, time.Hour)
	process := n.enter(created.Tenant.Dir, 0, first.cmd.Process.Pid, gib/2)
	for _, left := range []bool{false, true} {
		first.left.Store(left)
		if got := balance(t, n.grant(r, n.asker(os.Getuid()), capped("beside-"+strconv.FormatBool(left))).Tenant.Dir, nil); got != 0 {
			t.Errorf("beside one that goes on a share begins at %d", got)
		}
	}
	process.die()
	first.kill()
	if got := balance(t, n.grant(r, n.asker(os.Getuid()), capped("next")).Tenant.Dir, nil); got > owed+paid || got < owed {
		t.Errorf("the next share begins at %d, want about %d", got, owed)
	}
}

// A share that could not be made owes what it took over.
func TestDebtOfAShareThatWasNotMade(t *testing.T) {
	n := newNode(t)
	r := n.start()
	uuid := n.list(r).GPUs[1].UUID
	a := n.asker(os.Getuid())
	r.mu.Lock()
	r.debts.add(time.Now(), debt{Debtor: (&record{UID: os.Getuid()}).debtor(), UUID: uuid, Owed: page.MostOwed, Rate: 1, At: time.Now()})
	r.mu.Unlock()
	n.backend.fail = os.ErrPermission
	if _, err := r.create(t.Context(), a.peer, capped("fails")); err == nil {
		t.Fatal("it was made")
	}
	n.backend.fail = nil
	if got := balance(t, n.grant(r, a, capped("next")).Tenant.Dir, nil); got > -page.MostOwed/2 {
		t.Errorf("the next share begins at %d", got)
	}
}
