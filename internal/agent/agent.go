// Package agent keeps the ledger of one machine's tenants: it grants shares, has
// a backend prepare tenants, notices when they end, and lists them. It has no
// rules of its own: api/v1alpha1 says what is valid, internal/alloc what fits,
// and the backend what is made.
//
// Locks: Agent.mu guards the tenants and the queue. It is held while they are
// saved, and never during a call of the backend that makes or looks at a tenant.
// Each tenant has a lock that orders the looks at it, and one for the beginning of a suspension. The order is preparing, the turn at a GPU's form, sweeping, such a beginning, a tenant's look,
// Agent.mu, that of gates, the lock of turns, the pacer's lock; neither of these two takes any of the others while it holds its own, and whoever holds that of members takes
// no other. Handlers of the control protocol may wait; loops may not.
package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sync/atomic"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/pacing"
	"github.com/divvy-gpu/divvy/internal/agent/turns"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Agent grants shares of one machine's GPUs.
type Agent struct {
	config     Config
	gpus       []backend.GPU
	checkpoint *checkpoint.File[saved]
	// notices are the backends', of what tenants do.
	notices backend.Notices
	events  events
	// follower is told what becomes of tenancies, nil for nobody.
	follower atomic.Pointer[func(Tenancy, control.Event)]
	// listings orders what is listed; it is before sweeping in the order of locks.
	listings listings
	// pacer divides GPU time, and turns whose memory is on a GPU.
	pacer   *pacing.Pacer
	turns   *turns.Loop
	members members
	// asking asks the kernel for looks, which may not wait for it.
	asking asking
	// paces bounds the looks that a user's notices make.
	paces paces

	// preparing orders Prepare and Release, choosing the choice of workers' users; each is before Agent.mu.
	preparing, choosing sync.Mutex
	sweeping            sync.Mutex // orders sweeps
	// rounds counts the calls of patrol, patrols those that looked at tenants.
	// sweeping guards both.
	rounds, patrols int
	// suspicious are the GPUs on which another reading of the driver's figures decides,
	// and strange the pids that the last one named and nobody has, by GPU. sweeping
	// guards both. initial is whether the agent is in the machine's first pid namespace.
	suspicious []string
	strange    map[string][]int
	initial    bool
	// gauges measure the overhead of tenants, by id. sweeping guards it.
	gauges map[string]*gauge
	// easing is sent to when there are eased GPUs: those on which something ended of which overhead was measured. mu guards eased.
	easing chan struct{}
	eased  map[string]bool
	// answered are the living processes without a share that were signalled for it. sweeping guards it.
	answered map[process.ID]bool

	mu      sync.Mutex // see the package comment
	tenants map[string]*tenant
	queue   []*ticket
	debts   debts
	outside []control.Outside
	faults  map[string]string // why a GPU takes no new tenants, by UUID
	// metricsTaken is as [control.Listing] has it.
	metricsTaken string
	// migModes are those that the figures say to be in MIG mode, with what to do where nobody can tell how they are divided.
	migModes map[string]string
	// unserved is why the driver serves no programs on a GPU, by UUID: see befall.
	unserved map[string]string
	// offences are those of tenants at GPUs: see accuse.
	offences map[[2]string]*offences
	// formings are how far GPUs are prepared for a backend's shares, by UUID, and reforming is sent to when one may be
	// needed no more.
	formings  map[string]*forming
	reforming chan struct{}
	// expected are tenancies that are to have a GPU as a whole, by UUID: see Expect.
	expected map[string]Expected
	// readings are what GPUs did when they were asked last, at readAt: see readGauges.
	readings map[string]*nvml.Reading
	readAt   time.Time
	// busy is how busy processes keep GPUs on which there are some outside, in percent, as the driver told at busyAt: see readOutside.
	busy   map[string]map[int]float64
	busyAt time.Time
	// open are the claims that have a GPU without a share, by UUID: see NoteOpen.
	open map[string][]string
	// mixes have what was learnt of requests for MIG instances.
	mixes alloc.Mixes
	// laying are the layouts that are being applied.
	laying []laying
	// intruders are processes without a share on GPUs in MIG mode: see intruded.
	intruders []intruder
	// inside are the backends that prepared MIG instances for their shares, by UUID of the instance.
	inside map[string]v1alpha1.Backend
	// unsettled is why instances are left of shares, by UUID of the instance.
	unsettled map[string]string
	// leftOut are the indexes of GPUs that are not served: see NoteLeftOut.
	leftOut []int
	// refusedGPUs is the driver's error of those that it answers with one, by index.
	refusedGPUs map[int]string
	// untold is why the driver does not answer a question about a GPU now.
	untold map[untold]string
	// handsOver is true for an agent that grants nothing any more.
	handsOver bool
	// wholes is what is known of each GPU as a whole, by UUID.
	wholes map[string]*whole
	// changed is closed and replaced whenever tenants or queue change.
	changed chan struct{}
	// arranged is changed as it was when it was decided which GPUs waiting requests keep.
	arranged chan struct{}

	// gathered is closed when those who ask are served, nil where they are at once: see
	// gather.
	gathered <-chan struct{}

	gates    gates // the pages of tenants that are suspended or may be
	arrivals int   // counts restorations that have ended; mu guards it

	// recorder makes records for the history.
	recorder recorder
	readers  readers

	// divisions are how GPUs are divided by MIG.
	divisions divisions

	stopped chan struct{} // closed when Run ends: tenants outlive the agent
	running sync.WaitGroup
}

// tenant is one tenant and what was last seen of it.
type tenant struct {
	record

	look    sync.Mutex   // orders the looks at the tenant, and its end
	notices atomic.Int32 // of deaths that no look has followed yet
	// followUps bounds how often notices are followed by looks.
	followUps pace

	expiry

	// What follows is guarded by Agent.mu.
	highest      []highest // by share
	ready        bool      // all that the backend makes for it is there
	ended        bool
	connection   bool            // the asking connection is open
	asker        *control.Peer   // at its other end
	process      bool            // the asking process lives
	stopping     bool            // somebody asked for its end, whatever descriptors keep
	parting      bool            // its gate is open outside its turns, because it is stopped
	parted       bool            // that has been so
	vacated      bool            // a lasting tenant that is to end and of which no process is left
	gone         string          // why its MIG instance is not there any more, empty while it is
	why          string          // the agent ended it, empty if it ended by itself
	fault, needs string          // why it cannot be looked at, and what it asked for that its backend cannot give
	unreaped     bool            // somebody was dead and not reaped at the last look
	lingers      bool            // it ends when its last process on a GPU does
	noticed      chan struct{}   // wakes who follows notices up
	seen         backend.Figures // by the last look that could tell; fitting
	seenAt       time.Time       // when that was
	// request is what it asked for, nil for a tenant of an earlier agent's or of the cluster's.
	request *alloc.Request
	// on is what the driver tells of it, by UUID of the GPU.
	on   map[string]*watched
	plan *backend.Plan
	mover
	// samples are what its shares had done at the ends of the last minutes, see sampleLately.
	samples []sample
	// owes is what its shares owed at its end, nil before.
	owes []pacing.Debt
}

// New finds the GPUs and the tenants that an earlier agent left.
func New(ctx context.Context, c Config) (*Agent, error) {
	a := &Agent{
		config: c, tenants: map[string]*tenant{}, changed: make(chan struct{}), unserved: map[string]string{}, offences: map[[2]string]*offences{}, stopped: make(chan struct{}), untold: map[untold]string{},
		answered: map[process.ID]bool{}, strange: map[string][]int{}, gauges: map[string]*gauge{}, easing: make(chan struct{}, 1), eased: map[string]bool{}, wholes: map[string]*whole{}, initial: process.InFirstNamespace(),
		listings: listings{turn: make(chan struct{}, 1)}, reforming: make(chan struct{}, 1), inside: map[string]v1alpha1.Backend{}, unsettled: map[string]string{},
	}
	a.listen(ctx)
	a.beginHistory()
	gpus, err := c.Backends.Discover(ctx)
	if err != nil {
		return nil, fmt.Errorf("find GPUs: %w", err)
	}
	a.gpus, a.checkpoint, a.formings = gpus, newCheckpoint(c.Checkpoint), formings(gpus)
	if c.Forms == nil {
		a.config.Forms = &Forms{rules: c.Rules}
	}
	a.events.now = c.Now
	if a.notices, err = c.Backends.Notices(); err != nil {
		return nil, err
	}
	a.turns = turns.New(turns.Config{Ledger: ledger{a}, Log: c.Log})
	a.pacer, err = pacing.New(pacing.Config{GPUs: gpus, Driver: c.Driver, Ledger: ledger{a}, Misuse: c.Misuse, Closed: a.turns.Closed, Log: c.Log})
	if err != nil {
		return nil, err
	}
	a.recoverDivisions(ctx)
	if err := a.restore(ctx); err != nil {
		return nil, err
	}
	a.restoreForms(ctx)
	a.finishLayouts(ctx)
	a.restoreDevices(ctx)
	a.resumeHistory(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holdTaken(ctx)
	for _, gpu := range a.gpus {
		a.noteVanished(ctx, gpu)
	}
	a.publish()
	return a, nil
}

// Run watches until ctx is done. Tenants outlive it. Connections may be closed
// only after it has returned: until then a closed connection ends its tenant.
func (a *Agent) Run(ctx context.Context) {
	a.running.Go(func() {
		a.notices.Run(ctx, backend.Listener{
			Death: func(id string) { a.lookSoon(ctx, id) }, Stir: a.stir, Lost: func() { a.sweep(ctx) },
		})
	})
	a.running.Go(func() { a.pacer.Run(ctx) })
	a.running.Go(func() { a.turns.Run(ctx) })
	a.running.Go(func() { a.expire(ctx) })
	a.running.Go(func() { a.keepForms(ctx) })
	if a.config.Checkpointer != nil {
		a.running.Go(func() { a.tendSuspended(ctx) })
	}
	if a.config.History != nil {
		a.config.History.Start(func(text string, fault bool) { a.tellHistory(ctx, text, fault) })
	}
	patrol := time.NewTimer(moment(a.config.Interval))
	defer patrol.Stop()
	a.sweep(ctx) // nobody gave notice of deaths while no agent ran
	for {
		select {
		case <-a.soon():
			a.recheck(ctx)
		case <-a.easing:
			a.suspectEased()
		case <-ctx.Done():
			close(a.stopped)
			a.notices.Close()
			a.running.Wait()
			a.closeGauges()
			a.keepAll(context.WithoutCancel(ctx))
			a.recordLast()
			return
		case <-patrol.C:
			patrol.Reset(moment(a.config.Interval))
			a.patrol(ctx)
			a.sampleLately()
			a.recordHour()
			a.retryHeld()
			a.dropUnclaimed(ctx)
		}
	}
}

// sweep looks at all tenants and GPUs, and so finds what no notice told of.
func (a *Agent) sweep(ctx context.Context) []snapshot { return a.sweepBeside(ctx, func() {}) }

// sweepBeside is [Agent.sweep], and has ask called while it looks at tenants, when it needs the driver no more for that.
func (a *Agent) sweepBeside(ctx context.Context, ask func()) []snapshot {
	a.sweeping.Lock()
	defer a.sweeping.Unlock()
	snapshots := a.observe(ctx)
	var asked sync.WaitGroup
	defer asked.Wait()
	asked.Go(ask)
	for _, t := range a.all() {
		a.lookAt(ctx, t)
	}
	a.findOutside(ctx, on(snapshots))
	a.compare(ctx, snapshots)
	return snapshots
}

const (
	// few is up to how many tenants every patrol looks at all of them. Of more it
	// looks at one in part.
	few  = 10
	part = 10
	// leisure is every how many rounds a patrol looks at many tenants while none
	// of them launches anything.
	leisure = 2
)

// patrol is a sweep that looks at only some of many tenants. That is enough,
// because deaths give notice and every listing sweeps. When a process is on a GPU
// that no tenant accounts for, patrol looks at all. What the driver tells is compared
// for all of them.
func (a *Agent) patrol(ctx context.Context) {
	a.sweeping.Lock()
	defer a.sweeping.Unlock()
	all := a.all()
	a.retry(ctx)
	snapshots := a.observe(ctx)
	if a.rounds++; len(all) > few && a.rounds%leisure != 0 && a.pacer.Rests() {
		a.compare(ctx, snapshots)
		return
	}
	a.patrols++
	present := on(snapshots)
	spare := len(all) > few && !slices.ContainsFunc(present, func(p onGPU) bool {
		counted, _ := a.accounted(p)
		return !counted
	})
	for i, t := range all {
		if !spare || (i+a.patrols)%part == 0 {
			a.lookAt(ctx, t)
		}
	}
	a.findOutside(ctx, present)
	a.compare(ctx, snapshots)
}
