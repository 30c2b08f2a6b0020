package helper

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// double is a machine whose driver can be silent, and whose helpers are goroutines.
type double struct {
	t *testing.T

	mu sync.Mutex
	// silent are closed when the driver answers again: by GPU, and initKey for opening.
	silent map[int]chan struct{}
	// asleep: who is in a call that does not return cannot be killed.
	asleep  bool
	faults  map[int]error
	modes   map[int]string // compute modes by GPU
	mig     fakeMIG
	gpus    int
	refused error // of opening
	uuid    func(index int) string

	// reset is how many helpers there had been when a GPU was reset: their libraries have lost it.
	reset map[int]int

	living, started int
	hanging         map[int]int
	worst           int // most processes that hung in calls about one GPU
	current         []*fake
}

const initKey = -1

func newDouble(t *testing.T, gpus int) *double {
	t.Helper()
	return &double{
		t: t, gpus: gpus, silent: map[int]chan struct{}{}, faults: map[int]error{}, modes: map[int]string{}, mig: fakeMIG{modes: map[int]bool{}}, reset: map[int]int{}, hanging: map[int]int{},
		uuid: func(i int) string { return fmt.Sprintf("GPU-%d", i) },
	}
}

// withDriver runs a test with the opened driver of a machine, and closes it.
func withDriver(t *testing.T, gpus int, test func(t *testing.T, m *double, d *Driver)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		m := newDouble(t, gpus)
		d := m.mustOpen("")
		defer m.close(d)
		test(t, m, d)
	})
}

// change changes the machine while helpers look at it.
func (m *double) change(what func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	what()
}

func (m *double) hush(keys ...int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		m.silent[key] = make(chan struct{})
	}
}

// fallSilent hushes a GPU until the driver is told that it is silent.
func (m *double) fallSilent(d *Driver, index int) {
	m.t.Helper()
	m.hush(index)
	m.answers(d)
	time.Sleep(Usual.Answer)
	synctest.Wait()
	if got := m.silence(d); !slices.Equal(got, []int{index}) {
		m.t.Errorf("silent are %v, want %d", got, index)
	}
}

func (m *double) speak(keys ...int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		close(m.silent[key])
		delete(m.silent, key)
	}
}

func (m *double) counts() (living, started, worst int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.living, m.started, m.worst
}

// first is the helper that was started first.
func (m *double) first() *fake {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current[0]
}

// fake is a helper process.
type fake struct {
	net.Conn
	machine *double
	ended   chan struct{}
	dying   chan struct{} // killed, or its connection is closed
	once    sync.Once
	calls   sync.WaitGroup
	number  int // how many were started before
	// dead: it was killed, and is in no call from then on. The machine's mu protects it.
	dead bool
	// deaf: what it would answer is lost.
	deaf atomic.Bool

	mu    sync.Mutex
	asked []int // GPUs, in the order of the calls
}

// answers is a helper's end of its connection.
type answers struct {
	*fake
	conn net.Conn
}

func (a answers) Read(p []byte) (int, error) { return a.conn.Read(p) }
func (a answers) Write(p []byte) (int, error) {
	if a.deaf.Load() {
		return len(p), nil
	}
	return a.conn.Write(p)
}

func (m *double) start() (Process, error) {
	ours, theirs := net.Pipe()
	f := &fake{Conn: ours, machine: m, ended: make(chan struct{}), dying: make(chan struct{})}
	m.mu.Lock()
	f.number = m.started
	m.living++
	m.started++
	m.current = append(m.current, f)
	m.mu.Unlock()
	go func() {
		_ = serve(answers{f, theirs}, func(string) (library, error) {
			if err := f.call(initKey); err != nil {
				return nil, err
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			return (*fakeLibrary)(f), m.refused
		}, f.Kill)
		f.Kill()
	}()
	go func() {
		<-f.dying
		m.mu.Lock()
		asleep := m.asleep
		f.dead = !asleep
		m.mu.Unlock()
		f.calls.Wait() // those of one that is not asleep end at once
		theirs.Close()
		m.mu.Lock()
		m.living--
		m.mu.Unlock()
		close(f.ended)
	}()
	return f, nil
}

func (f *fake) Kill()                  { f.once.Do(func() { close(f.dying) }) }
func (f *fake) Ended() <-chan struct{} { return f.ended }

// call returns when the driver answers.
func (f *fake) call(key int) error {
	m := f.machine
	m.mu.Lock()
	wait, fault := m.silent[key], m.faults[key]
	if f.dead {
		m.mu.Unlock()
		return io.ErrUnexpectedEOF // nobody reads it
	}
	if wait == nil {
		m.mu.Unlock()
		return fault
	}
	m.hanging[key]++
	m.worst = max(m.worst, m.hanging[key])
	asleep := m.asleep
	f.calls.Add(1)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.hanging[key]--
		m.mu.Unlock()
		f.calls.Done()
	}()
	if asleep {
		<-wait
		return nil
	}
	select {
	case <-wait:
		return nil
	case <-f.dying:
		return io.ErrUnexpectedEOF
	}
}

// fakeLibrary is the library in a helper.
type fakeLibrary fake

func (l *fakeLibrary) call(index int) error {
	l.mu.Lock()
	l.asked = append(l.asked, index)
	l.mu.Unlock()
	err := (*fake)(l).call(index)
	l.machine.mu.Lock()
	defer l.machine.mu.Unlock()
	if err == nil && l.number < l.machine.reset[index] {
		return nvml.ErrLost
	}
	return err
}

func (l *fakeLibrary) Version() nvml.Version { return nvml.Version{Driver: "550.1", CUDA: 12040} }
func (l *fakeLibrary) Know([]nvml.GPU)       {}
func (l *fakeLibrary) Count() (int, error)   { return l.machine.gpus, nil }

func (l *fakeLibrary) Identify(index int) (nvml.Facts, error) {
	if err := l.call(index); err != nil {
		return nvml.Facts{}, err
	}
	return nvml.Facts{GPU: nvml.GPU{Index: index, UUID: l.machine.uuid(index), Total: 1 << 30}, Architecture: "hopper"}, nil
}

func (l *fakeLibrary) Condition(index int) (nvml.Condition, error) {
	return nvml.Condition{XIDs: []uint64{31}}, l.call(index)
}

func (l *fakeLibrary) Processes(index int) ([]nvml.Process, error) {
	return []nvml.Process{{PID: 100 + index, Used: 5}}, l.call(index)
}

func (l *fakeLibrary) Used(index int) (uint64, error) {
	return uint64(index) << 20, l.call(index)
}

func (l *fakeLibrary) Busy(index int, since time.Time) ([]nvml.Sample, error) {
	return []nvml.Sample{{At: since.Add(time.Second), Busy: 0.25}}, l.call(index)
}

func (l *fakeLibrary) Reading(index int) (nvml.Reading, error) {
	return nvml.Reading{Utilisation: new(0), Temperature: new(40 + index), MIG: new(false)}, l.call(index)
}

func (l *fakeLibrary) Utilisation(index int, since time.Time) ([]nvml.Utilisation, error) {
	if index == 3 {
		return nil, fmt.Errorf("%w: of GPU 3", nvml.ErrNotSupported)
	}
	return []nvml.Utilisation{{PID: 100 + index, At: since.Add(time.Second), Busy: 0.5}}, l.call(index)
}

// open opens the machine's driver; limits are the usual ones.
func (m *double) open(memory string) (*Driver, error) {
	return Open(Config{Start: m.start, Library: "lib", Memory: memory, Limits: Usual, Log: slog.New(slog.DiscardHandler)})
}

func (m *double) mustOpen(memory string) *Driver {
	m.t.Helper()
	d, err := m.open(memory)
	if err != nil {
		m.t.Fatal(err)
	}
	return d
}

// close ends the driver and finds that no process is left.
func (m *double) close(d *Driver) {
	m.t.Helper()
	if err := d.Close(); err != nil {
		m.t.Error(err)
	}
	if living, _, worst := m.counts(); living != 0 || worst > 1 {
		m.t.Errorf("%d processes are left, %d hung about one GPU at once", living, worst)
	}
}

// all are the machine's GPUs.
func (m *double) all() (gpus []int) {
	for i := range m.gpus {
		gpus = append(gpus, i)
	}
	return gpus
}

// answers says which of the GPUs are answered about, and finds that no other has a figure.
func (m *double) answers(d *Driver) (answering []int) {
	m.t.Helper()
	for i, h := range d.Holdings(m.all()) {
		switch {
		case h.Unread == nil && h.Unlisted == nil && h.Used == uint64(i)<<20 && len(h.Processes) == 1 && h.Processes[0].PID == 100+i:
			answering = append(answering, i)
		case h.Unread == nil || h.Used != 0:
			m.t.Errorf("GPU %d uses %d bytes, %v", i, h.Used, h.Unread)
		case !errors.Is(h.Unread, nvml.ErrDriver) || !errors.Is(h.Unlisted, nvml.ErrDriver):
			m.t.Errorf("GPU %d: %v, %v", i, h.Unread, h.Unlisted)
		}
	}
	return answering
}

// silence is which GPUs are said to be silent.
func (m *double) silence(d *Driver) (gpus []int) {
	for i, c := range d.Conditions(m.all()) {
		if errors.Is(c.Err, nvml.ErrSilent) {
			gpus = append(gpus, i)
		}
	}
	return gpus
}

func (l *fakeLibrary) ComputeMode(index int) (string, error) {
	err := l.call(index)
	l.machine.mu.Lock()
	defer l.machine.mu.Unlock()
	return l.machine.modes[index], err
}

func (l *fakeLibrary) SetComputeMode(index int, mode string) error {
	err := l.call(index)
	l.machine.mu.Lock()
	defer l.machine.mu.Unlock()
	if err == nil {
		l.machine.modes[index] = mode
	}
	return err
}
