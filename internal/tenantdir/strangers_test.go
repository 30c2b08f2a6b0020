package tenantdir

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
)

// searched counts searches among very many processes, which take 300 ms each.
type searched struct {
	times int
	found map[process.Inner]process.ID
}

func (s *searched) outer(uint64) map[process.Inner]process.ID {
	s.times++
	found := s.found
	time.Sleep(300 * time.Millisecond) // of the bubble's clock
	return found
}

func named(pid int) []page.Process {
	return []page.Process{{Namespace: 2, PID: pid, Live: true}}
}

// A user whose pages name processes that are not there has the agent search less and less
// often, and nobody else waits for that.
func TestForgedNamesAreSearchedForSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self, err := process.Find(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		all := &searched{}
		s := strangers{outer: all.outer}
		begun, waited := time.Now(), time.Duration(0)
		for n := 1; time.Since(begun) < 10*time.Minute; n++ {
			at := time.Now()
			s.name("user 1", named(n), 1)
			waited = max(waited, time.Since(at))
			time.Sleep(10 * time.Millisecond)
		}
		if all.times < 10 || all.times > 20 {
			t.Errorf("%d searches in ten minutes", all.times)
		}
		if waited > mostSearchWait {
			t.Errorf("a look waited for %s", waited)
		}
		time.Sleep(searchPauses * time.Second)
		all.found = map[process.Inner]process.ID{{Namespace: 2, PID: 4711}: self}
		honest := named(4711)
		s.name("user 2", honest, 1)
		synctest.Wait()
		time.Sleep(time.Second)
		s.name("user 2", honest, 1)
		if honest[0].HostPID != self.PID {
			t.Errorf("another user's process is not found: %+v", honest)
		}
	})
}

// Also while the pages name other living processes all the time, most of the time is left
// to others.
func TestSearchesLeaveTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self, err := process.Find(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		all := &searched{found: map[process.Inner]process.ID{}}
		s := strangers{outer: all.outer}
		begun := time.Now()
		for n := 1; time.Since(begun) < time.Minute; n++ {
			all.found = map[process.Inner]process.ID{{Namespace: 2, PID: n}: self}
			s.name("user 1", named(n), 1)
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Duration(all.times) * 300 * time.Millisecond; all.times < 10 || took > time.Minute/searchPauses {
			t.Errorf("%d searches took %s of a minute", all.times, took)
		}
	})
}
