// Package helper asks NVIDIA's management library in processes of their own, because a call may never return: it then
// holds up its process and not the agent, and the GPU is said to be silent until the driver answers again.
//
// One helper asks about all GPUs while all is well, about all of them in one question. When that takes long, the GPU
// whose call has not returned gets the helper for its own and is waited for apart; a new one serves the other GPUs. A helper that sleeps in the kernel cannot be
// killed, so it is not replaced before it has ended: no GPU ever has more than one.
package helper

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Limits are how long the driver may take.
type Limits struct {
	// Open is for opening the library, First for the first question about a GPU, which may have to wake it, and Answer
	// for any other: after that the GPU is silent.
	Open, First, Answer time.Duration
	// Others is how long other GPUs wait for one that was asked about before.
	Others time.Duration
	// Start bounds all of [Open]: GPUs that were not asked about by then count as silent.
	Start time.Duration
	// Abandon is how long a question that was not answered in time is left with its helper before that is killed.
	Abandon time.Duration
	// Change is for a change of a GPU, such as its MIG mode or instances. Keep is how long the process that changes it is
	// kept for the next one.
	Change, Keep time.Duration
	// Pause and LongestPause are the least and the greatest time between two helpers for one purpose.
	Pause, LongestPause time.Duration
}

// Usual are limits for real drivers: without persistence mode, waking a GPU takes seconds.
var Usual = Limits{
	Open: 15 * time.Second, First: 8 * time.Second, Answer: 4 * time.Second, Others: time.Second / 2, Start: 20 * time.Second,
	Abandon: 30 * time.Second, Change: time.Minute, Keep: 5 * time.Second, Pause: time.Second, LongestPause: 30 * time.Second,
}

// Config is what a [Driver] works with.
type Config struct {
	// Start starts a helper, see the function of that name.
	Start func() (Process, error)
	// Library is the path of NVML.
	Library string
	// Memory is the path of the file in which the facts of GPUs are kept, for GPUs that are silent when the next agent
	// starts; empty is none.
	Memory string
	Limits Limits
	Log    *slog.Logger
	Now    func() time.Time
	// LetGo has nothing else of the agent's have the driver open until release is called; it may be nil.
	LetGo func() (release func(), err error)
}

// Driver asks NVML through helpers. Its questions about a GPU that is silent are answered at once with
// [nvml.ErrSilent]. Several goroutines may ask at once.
type Driver struct {
	config Config
	memory *checkpoint.File[memory]
	closed chan struct{}

	running sync.WaitGroup // what waits for silent helpers

	mu      sync.Mutex
	version nvml.Version
	count   int
	common  *seat
	gpus    map[int]*gpu // by index
	// awake are the GPUs that a helper had open which another one replaces now.
	awake map[int]bool
	// changers change GPUs, by index.
	changers map[int]*changer
	// away is true while nobody may have the library open but who changes a GPU, and lone orders who wants that.
	away bool
	lone sync.Mutex
}

// gpu is what is known of one GPU.
type gpu struct {
	index int
	seat  *seat
	// facts are valid if known; listed tells that it is one of GPUs.
	facts         nvml.Facts
	known, listed bool
	// refused is the error with which the driver has answered so far, see [Driver.pursue].
	refused error
}

// seat is the place of one helper, shared by the GPUs that it serves.
type seat struct {
	gpu    *gpu // whose it is, nil for the common one
	helper *helper
	// since is when it fell silent, zero while it answers; late is when a call began that has taken long, until it
	// returns or the seat is silent.
	since, late time.Time
	// fault is why it cannot be opened, and until is how long that is believed; pause is how long the next time.
	fault error
	until time.Time
	pause time.Duration
	// good counts the answers since it was silent.
	good int
}

// silent is the error of a question that nobody is asked.
type silent struct {
	index int // of the GPU, [everyGPU] where the driver answers about none
	since time.Time
}

func (e silent) Error() string {
	about := fmt.Sprintf("about GPU %d", e.index)
	if e.index == everyGPU {
		about = "about any GPU, one of which may hold it up"
	}
	return fmt.Sprintf("%v %s since %s", nvml.ErrSilent, about, e.since.Format("15:04:05 on 2 January 2006"))
}

func (e silent) Unwrap() error { return nvml.ErrSilent }

// late is the error of a question that nobody is asked because one before it has not been answered yet.
type late struct {
	index int
	since time.Time
}

func (e late) Error() string {
	return fmt.Sprintf("%v: it has not answered about GPU %d since %s", nvml.ErrDriver, e.index, e.since.Format("15:04:05"))
}

func (e late) Unwrap() error { return nvml.ErrDriver }

// None is the driver of a machine without one: it has no GPUs, and starts no helper.
func None() *Driver {
	return &Driver{config: Config{Log: slog.New(slog.DiscardHandler), Now: time.Now}, closed: make(chan struct{}), common: &seat{}, gpus: map[int]*gpu{}, changers: map[int]*changer{}}
}

// Version is the driver's, or the last that is known while the driver is silent.
func (d *Driver) Version() nvml.Version {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.version
}

// GPUs lists the GPUs that were there when the driver was opened, by index. Of a GPU that was silent then, or about which
// the driver answered with an error, it tells what was known of it before.
func (d *Driver) GPUs() ([]nvml.GPU, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []nvml.GPU
	for i := range d.count {
		if g := d.gpus[i]; g != nil && g.listed {
			one := g.facts.GPU
			one.Silent = !g.seat.since.IsZero() || g.refused != nil
			all = append(all, one)
		}
	}
	return all, nil
}

// LeftOut are the indexes of the GPUs that [Driver.GPUs] leaves out because the driver was silent about them or answered
// with an error: those of which nothing is known yet, and those about which it has answered since.
func (d *Driver) LeftOut() (silent, answered []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.count {
		switch g := d.gpus[i]; {
		case g == nil || g.listed:
		case g.known:
			answered = append(answered, i)
		case !g.seat.since.IsZero() || g.refused != nil:
			silent = append(silent, i)
		}
	}
	return silent, answered
}

// Refused says of GPUs that are left out with which error the driver answers about them, by index.
func (d *Driver) Refused() map[int]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	texts := map[int]string{}
	for i, g := range d.gpus {
		if !g.listed && !g.known && g.refused != nil {
			texts[i] = g.refused.Error()
		}
	}
	return texts
}

// Architecture is [nvml.Library.Architecture].
func (d *Driver) Architecture(index int) string {
	return d.facts(index).Architecture
}

// Brand is [nvml.Library.Brand].
func (d *Driver) Brand(index int) string {
	return d.facts(index).Brand
}

// Capability is [nvml.Library.Capability].
func (d *Driver) Capability(index int) string {
	return d.facts(index).Capability
}

// MIGCapable is [nvml.Library.MIGCapable].
func (d *Driver) MIGCapable(index int) bool {
	return d.facts(index).MIGCapable
}

// NVLinks is [nvml.Library.NVLinks].
func (d *Driver) NVLinks(index int) ([]nvml.NVLink, string) {
	f := d.facts(index)
	return f.Links, f.Clique
}

func (d *Driver) facts(index int) nvml.Facts {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.gpus[index]; g != nil {
		return g.facts
	}
	return nvml.Facts{}
}

// Reopen ends the helpers that answer, so that the next questions find GPUs anew that were reset or replugged. A helper
// that is in a call that has not returned ends by itself or not at all, and finds the GPUs anew then.
func (d *Driver) Reopen() error {
	d.mu.Lock()
	seats := map[*seat]bool{d.common: true}
	for _, g := range d.gpus {
		seats[g.seat] = true
	}
	var answering []*seat
	for s := range seats {
		if s.since.IsZero() && s.late.IsZero() && s.helper != nil {
			answering = append(answering, s)
		}
	}
	d.mu.Unlock()
	for _, s := range answering {
		d.retire(s, func() {})
	}
	return nil
}
