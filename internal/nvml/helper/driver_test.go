package helper

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// While all is well one helper answers everything as the library would.
func TestOneHelperForAll(t *testing.T) {
	withDriver(t, 4, func(t *testing.T, m *double, d *Driver) {
		gpus, err := d.GPUs()
		if err != nil || len(gpus) != 4 || gpus[2].UUID != "GPU-2" || gpus[2].Silent || d.Architecture(1) != "hopper" || d.Version().Driver != "550.1" {
			t.Errorf("found %+v, %v", gpus, err)
		}
		var asking sync.WaitGroup
		for range 3 {
			asking.Go(func() {
				holdings, checkups := d.Holdings([]int{0, 1, 2}), d.Conditions([]int{2, 0})
				for i, h := range holdings {
					if h.Unlisted != nil || h.Unread != nil || !reflect.DeepEqual(h.Processes, []nvml.Process{{PID: 100 + i, Used: 5}}) || h.Used != uint64(i)<<20 {
						t.Errorf("memory of %d: %+v", i, h)
					}
				}
				for i, c := range checkups {
					if c.Err != nil || !slices.Equal(c.XIDs, []uint64{31}) {
						t.Errorf("condition %d: %+v", i, c)
					}
				}
				for i, b := range d.Activities([]int{2, 0}, []time.Time{time.Unix(5, 0), time.Unix(6, 0)}) {
					if b.Err != nil || len(b.Samples) != 1 || !b.Samples[0].At.Equal(time.Unix(int64(6+i), 0)) || b.Samples[0].Busy != 0.25 {
						t.Errorf("the whole of %d: %+v", i, b)
					}
				}
				for i, g := range d.Readings([]int{2, 0}) {
					if want := (nvml.Gauge{Reading: nvml.Reading{Utilisation: new(0), Temperature: new(42 - 2*i), MIG: new(false)}}); !reflect.DeepEqual(g, want) {
						t.Errorf("what GPU %d does: %+v", 2-2*i, g)
					}
				}
				for i, l := range d.Utilisations([]int{2, 3, 0}, []time.Time{time.Unix(5, 0), {}, time.Unix(7, 0)}) {
					if i == 1 {
						if !errors.Is(l.Err, nvml.ErrNotSupported) || errors.Is(l.Err, nvml.ErrDriver) {
							t.Errorf("not supported: %v", l.Err)
						}
						continue
					}
					if u := l.Samples; l.Err != nil || len(u) != 1 || !u[0].At.Equal(time.Unix(int64(6+i), 0)) || u[0].PID != 102-i || u[0].Busy != 0.5 {
						t.Errorf("utilisation %d: %+v", i, l)
					}
				}
			})
		}
		asking.Wait()
		if got := d.Holdings(nil); len(got) != 0 {
			t.Errorf("of no GPU: %+v", got)
		}
		m.change(func() { m.faults[1] = fmt.Errorf("read GPU 1: %w", nvml.ErrLost) })
		c := d.Conditions([]int{0, 1, 2})
		if err := c[1].Err; !errors.Is(err, nvml.ErrLost) || !errors.Is(err, nvml.ErrDriver) || err.Error() != "read GPU 1: "+nvml.ErrLost.Error() || len(c[1].XIDs) != 1 {
			t.Errorf("lost: %+v", c[1])
		}
		if c[0].Err != nil || c[2].Err != nil {
			t.Errorf("beside the lost one: %+v", c)
		}
		if living, started, _ := m.counts(); living != 1 || started != 1 {
			t.Errorf("%d helpers of %d", living, started)
		}
	})
}

// While one GPU is silent nobody waits for it but who asked first, the others are answered about, and it has one
// helper, however long that hangs and whether or not it can be killed.
func TestSilentGPU(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		t.Run(fmt.Sprint("asleep ", asleep), func(t *testing.T) {
			withDriver(t, 3, func(t *testing.T, m *double, d *Driver) {
				m.change(func() { m.asleep = asleep })
				m.hush(1)
				begun := time.Now()
				var asking sync.WaitGroup
				for range 3 {
					asking.Go(func() {
						if got := m.answers(d); !slices.Equal(got, []int{0, 2}) {
							t.Errorf("at first answered about %v", got)
						}
					})
				}
				asking.Wait()
				if waited := time.Since(begun); waited > Usual.Others {
					t.Errorf("waited %s for GPU 1", waited)
				}
				if got := m.silence(d); len(got) != 0 || time.Since(begun) > Usual.Others {
					t.Errorf("silent are %v after %s", got, time.Since(begun))
				}
				time.Sleep(Usual.Answer - Usual.Others)
				synctest.Wait()
				if got := m.silence(d); !slices.Equal(got, []int{1}) {
					t.Errorf("silent are %v after %s", got, time.Since(begun))
				}
				for range 10 {
					begun := time.Now()
					if got := m.answers(d); !slices.Equal(got, []int{0, 2}) || time.Since(begun) != 0 {
						t.Errorf("answered about %v after %s", got, time.Since(begun))
					}
					if uuids, silent := d.Answering(); len(uuids) != 2 || silent != 1 {
						t.Errorf("answering are %v, silent %d", uuids, silent)
					}
					time.Sleep(time.Minute)
				}
				gpus, err := d.GPUs()
				if err != nil || len(gpus) != 3 || !gpus[1].Silent || gpus[0].Silent {
					t.Errorf("listed %+v, %v", gpus, err)
				}
				if living, _, worst := m.counts(); living > 2 || worst != 1 {
					t.Errorf("%d helpers, %d at once about one GPU", living, worst)
				}
				m.speak(1)
				time.Sleep(Usual.LongestPause + time.Second)
				if got := m.silence(d); len(got) != 0 {
					t.Errorf("silent are %v when all answer", got)
				}
				for range steady + 1 {
					if got := m.answers(d); !slices.Equal(got, []int{0, 1, 2}) {
						t.Fatalf("answered about %v", got)
					}
				}
				time.Sleep(time.Second)
				if living, _, _ := m.counts(); living != 1 {
					t.Errorf("%d helpers when all is well again", living)
				}
			})
		})
	}
}

// A driver that is only slow is asked no second time: its answer ends the silence.
func TestLateAnswer(t *testing.T) {
	withDriver(t, 2, func(t *testing.T, m *double, d *Driver) {
		m.fallSilent(d, 0)
		m.speak(0)
		synctest.Wait()
		if got := m.answers(d); !slices.Equal(got, []int{0, 1}) {
			t.Errorf("answered about %v", got)
		}
		if _, started, _ := m.counts(); started != 2 {
			t.Errorf("%d helpers were started", started)
		}
	})
}

// A driver that is silent about everything, also to those who begin to use it, makes one helper wait for each GPU at
// most.
func TestSilentDriver(t *testing.T) {
	withDriver(t, 8, func(t *testing.T, m *double, d *Driver) {
		m.change(func() { m.asleep = true })
		m.hush(0, 1, 2, 3, 4, 5, 6, 7, initKey)
		for range 20 {
			if got := m.answers(d); len(got) != 0 {
				t.Errorf("answered about %v", got)
			}
			time.Sleep(time.Minute)
		}
		if living, _, worst := m.counts(); living > 8 || worst > 1 {
			t.Errorf("%d helpers, %d at once about one GPU", living, worst)
		}
		begun := time.Now()
		if err := d.Reopen(); err != nil || time.Since(begun) != 0 {
			t.Errorf("opened again after %s: %v", time.Since(begun), err)
		}
		m.speak(0, 1, 2, 3, 4, 5, 6, 7, initKey)
		time.Sleep(2 * Usual.LongestPause)
		if got := m.answers(d); len(got) != 8 {
			t.Errorf("answered about %v", got)
		}
	})
}

// An agent that starts while a GPU is silent serves the others, and the silent one by what was known of it.
func TestStartWithSilentGPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "gpus.json")
		m := newDouble(t, 3)
		m.close(m.mustOpen(path))
		m.hush(2)
		begun := time.Now()
		d := m.mustOpen(path)
		if waited := time.Since(begun); waited > Usual.Start {
			t.Errorf("the start took %s", waited)
		}
		gpus, err := d.GPUs()
		if err != nil || len(gpus) != 3 || gpus[2].UUID != "GPU-2" || !gpus[2].Silent || d.Architecture(2) != "hopper" {
			t.Errorf("found %+v, %v", gpus, err)
		}
		if silent, answered := d.LeftOut(); len(silent)+len(answered) != 0 {
			t.Errorf("left out are %v and %v, which are served", silent, answered)
		}
		m.close(d)

		d = m.mustOpen("") // without a memory
		if gpus, err := d.GPUs(); err != nil || len(gpus) != 2 {
			t.Errorf("found %+v, %v", gpus, err)
		}
		if silent, answered := d.LeftOut(); !slices.Equal(silent, []int{2}) || len(answered) != 0 {
			t.Errorf("left out are %v, answered %v", silent, answered)
		}
		m.speak(2)
		time.Sleep(Usual.LongestPause + time.Second)
		if silent, answered := d.LeftOut(); len(silent) != 0 || !slices.Equal(answered, []int{2}) {
			t.Errorf("then left out are %v, answered %v", silent, answered)
		}
		if uuids, silent := d.Answering(); len(uuids) != 3 || silent != 0 {
			t.Errorf("answering are %v, silent %d", uuids, silent)
		}
		m.close(d)
	})
}

// A start under a driver that is silent altogether is bounded; with a memory it serves what was known.
func TestStartWithSilentDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "gpus.json")
		m := newDouble(t, 8)
		m.close(m.mustOpen(path))
		for _, keys := range [][]int{{initKey}, {0, 1, 2, 3, 4, 5, 6, 7}} {
			m.hush(keys...)
			begun := time.Now()
			if d, err := m.open(""); keys[0] == initKey && (!errors.Is(err, nvml.ErrSilent) || strings.Contains(err.Error(), "GPU 0")) {
				t.Errorf("without a memory: %v", err)
			} else if err == nil {
				m.close(d)
			}
			d := m.mustOpen(path)
			if waited := time.Since(begun); waited > 2*(Usual.Start+Usual.First+leaving) {
				t.Errorf("two starts took %s", waited)
			}
			if err := d.Holdings([]int{3})[0].Unread; keys[0] == initKey && (err == nil || !strings.Contains(err.Error(), "about any GPU")) {
				t.Errorf("a driver that does not initialise: %v", err)
			}
			if gpus, err := d.GPUs(); err != nil || len(gpus) != 8 || !gpus[7].Silent || d.Version().Driver != "550.1" {
				t.Errorf("found %+v, %v", gpus, err)
			}
			m.speak(keys...)
			time.Sleep(2 * Usual.LongestPause)
			if got := m.answers(d); len(got) != 8 {
				t.Errorf("answered about %v", got)
			}
			m.close(d)
		}
	})
}

// What the driver refuses is told at once and tried again later.
func TestDriverThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newDouble(t, 2)
		m.refused = fmt.Errorf("%w: not loaded", nvml.ErrDriver)
		if d, err := m.open(""); d != nil || !errors.Is(err, nvml.ErrDriver) || errors.Is(err, nvml.ErrSilent) {
			t.Errorf("opened: %v", err)
		}
		m.refused = nil
		d := m.mustOpen("")
		defer m.close(d)
		m.change(func() { m.refused = fmt.Errorf("%w: not loaded", nvml.ErrDriver) })
		if err := d.Reopen(); err != nil {
			t.Error(err)
		}
		_, before, _ := m.counts()
		for range 100 {
			if err := d.Holdings([]int{0})[0].Unread; !errors.Is(err, nvml.ErrDriver) || errors.Is(err, nvml.ErrSilent) {
				t.Errorf("asked: %v", err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if _, started, _ := m.counts(); started > before+3 {
			t.Errorf("%d helpers were started in a second", started-before)
		}
		m.change(func() { m.refused = nil })
		time.Sleep(Usual.LongestPause)
		if got := m.answers(d); len(got) != 2 {
			t.Errorf("answered about %v", got)
		}
	})
}

// A helper that somebody kills is replaced.
func TestKilledHelper(t *testing.T) {
	withDriver(t, 2, func(t *testing.T, m *double, d *Driver) {
		m.first().Kill()
		synctest.Wait()
		if err := d.Holdings([]int{0})[0].Unread; !errors.Is(err, nvml.ErrDriver) || errors.Is(err, nvml.ErrSilent) {
			t.Errorf("asked: %v", err)
		}
		time.Sleep(2 * Usual.Pause)
		if got := m.answers(d); len(got) != 2 {
			t.Errorf("answered about %v", got)
		}
	})
}

// Opening again finds a GPU anew, also one that was silent while it was reset, and never beside a helper that has not
// ended.
func TestReset(t *testing.T) {
	withDriver(t, 2, func(t *testing.T, m *double, d *Driver) {
		m.change(func() { m.asleep = true })
		m.hush(0)
		m.answers(d)
		if err := d.Reopen(); err != nil {
			t.Error(err)
		}
		if got := m.answers(d); !slices.Equal(got, []int{1}) {
			t.Errorf("answered about %v", got)
		}
		m.change(func() { m.faults[0] = nvml.ErrLost }) // the sleeper woke to this
		m.speak(0)
		time.Sleep(Usual.LongestPause + time.Second)
		if err := d.Conditions([]int{0})[0].Err; !errors.Is(err, nvml.ErrLost) {
			t.Errorf("condition: %v", err)
		}
		m.change(func() { delete(m.faults, 0) })
		if err := d.Reopen(); err != nil {
			t.Error(err)
		}
		if got := m.answers(d); len(got) != 2 {
			t.Errorf("answered about %v", got)
		}
	})
}
