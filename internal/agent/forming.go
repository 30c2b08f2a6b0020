package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/registry"
	"github.com/divvy-gpu/divvy/internal/modes"
	"github.com/divvy-gpu/divvy/internal/process"
)

// forming is how far a GPU is prepared for the shares of a backend.
type forming struct {
	// turn orders the calls of Enter and Leave. It is before Agent.mu in the order of locks, and held while a backend
	// prepares the GPU, which may take seconds.
	turn sync.Mutex
	// read is when it was read last how the GPU is divided by MIG. Who has the turn may use it.
	read time.Time

	// What follows is guarded by Agent.mu.

	// has is the backend whose Enter began, "" if none did or Leave undid it.
	has v1alpha1.Backend
	// awaited counts who is about to have a share of a backend there, which nobody else's may be beside.
	awaited map[v1alpha1.Backend]int
	// interval is the length of time slices that a claim wants which is about to have the whole GPU, "" for none.
	interval string
	// closed is why no new share may begin there for a while, "" if one may.
	closed string
	// fault is why the GPU is not prepared as it should be.
	fault string
}

// formings has one entry for each GPU, and never another.
func formings(gpus []backend.GPU) map[string]*forming {
	all := map[string]*forming{}
	for _, gpu := range gpus {
		all[gpu.UUID] = &forming{awaited: map[v1alpha1.Backend]int{}}
	}
	return all
}

// formOf is the backend that the shares of a GPU have or that it is given, "" where nobody needs one. Agent.mu is held.
func (a *Agent) formOf(gpu backend.GPU) v1alpha1.Backend {
	if h, taken := a.machineOf(gpu); taken {
		return h.Form
	}
	if a.inMIGMode(gpu.UUID) {
		return v1alpha1.BackendMIG
	}
	for _, t := range a.tenants {
		if t.has(gpu.UUID) {
			return t.backend().Form()
		}
	}
	for b, n := range a.formings[gpu.UUID].awaited {
		if n > 0 {
			return b
		}
	}
	form, _ := a.config.Forms.Of(gpu)
	return form.Backend
}

// enterForm has a backend prepare a GPU on which it has a share in the ledger, or which is kept for one. What another
// backend did there is undone before. After an error the GPU is as it was before, but for what could not be undone.
func (a *Agent) enterForm(ctx context.Context, gpu backend.GPU, b v1alpha1.Backend) error {
	f := a.formings[gpu.UUID]
	if f == nil {
		return nil // a GPU that is gone
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	return a.enterInTurn(ctx, gpu, b)
}

// enterInTurn is enterForm for who has the turn.
func (a *Agent) enterInTurn(ctx context.Context, gpu backend.GPU, b v1alpha1.Backend) error {
	f := a.formings[gpu.UUID]
	a.mu.Lock()
	had := f.has
	a.mu.Unlock()
	if had != "" && had != b {
		if err := a.leaveInTurn(ctx, gpu); err != nil {
			return err
		}
	}
	former, ok := a.config.Backends.Of(b).(backend.Former)
	if !ok {
		return nil
	}
	a.mu.Lock()
	f.has = b
	a.mu.Unlock()
	a.step("form-begun")
	if err := former.Enter(ctx, gpu); err != nil {
		if had == b {
			return err // it is as it was
		}
		return errors.Join(err, a.leaveInTurn(context.WithoutCancel(ctx), gpu))
	}
	a.step("form-entered")
	a.mu.Lock()
	defer a.mu.Unlock()
	f.fault = ""
	return nil
}

// leaveInTurn has the backend undo what it did to a GPU. Who calls it has the turn.
func (a *Agent) leaveInTurn(ctx context.Context, gpu backend.GPU) error {
	f := a.formings[gpu.UUID]
	a.mu.Lock()
	had := f.has
	a.mu.Unlock()
	if former, ok := a.config.Backends.Of(had).(backend.Former); ok && had != "" {
		if err := former.Leave(ctx, gpu); err != nil {
			return err
		}
	}
	a.step("form-left")
	a.mu.Lock()
	defer a.mu.Unlock()
	f.has, f.fault = "", ""
	return nil
}

// enterForms has the GPUs of a tenant that is in the ledger prepared, before it is planned.
func (a *Agent) enterForms(ctx context.Context, t *tenant) error {
	wanted := a.wanted(t)
	for _, s := range wanted.Shares {
		enter := a.enterForm
		if s.GPU.Instance.UUID != "" {
			enter = a.enterInstance
		}
		if err := enter(ctx, s.GPU, wanted.Backend.Form()); err != nil {
			return control.Errorf(control.CodeRefused, "GPU %d cannot be prepared for shares of backend %s: %v", s.GPU.Index, wanted.Backend, err)
		}
	}
	return nil
}

// enterFormsOf keeps the GPUs of a tenancy for its backend and has them prepared. Done ends that, and must be called.
func (a *Agent) enterFormsOf(ctx context.Context, wanted Tenancy) (done func(), err error) {
	type awaited struct {
		gpu      backend.GPU
		of       v1alpha1.Backend
		interval string
	}
	var all []awaited
	await := func(n int) {
		for _, p := range all {
			f := a.formings[p.gpu.UUID]
			if f.awaited[p.of] += n; n > 0 {
				f.interval = p.interval
			} else {
				f.interval = ""
			}
		}
		a.config.Forms.lend(a.intervals())
	}
	done = func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		await(-1)
		if len(all) > 0 {
			a.reform()
		}
	}
	a.mu.Lock()
	for _, s := range wanted.Shares {
		f := a.formings[s.UUID]
		if f != nil && s.Instance == nil && (a.isFormer(s.Config.Backend) || f.has != "") {
			all = append(all, awaited{a.gpu(s.UUID), s.Config.Backend, s.Interval})
		}
	}
	if len(all) > 0 {
		kept := a.expected
		a.expected = a.expectedBesides(wanted.Key)
		_, err = a.fit(ctx, wanted)
		a.expected = kept
	}
	if err != nil {
		all = nil
	}
	await(1)
	a.mu.Unlock()
	for i := 0; err == nil && i < len(all); i++ {
		if err = a.enterForm(ctx, all[i].gpu, all[i].of); err != nil {
			err = fmt.Errorf("prepare GPU %d for shares of backend %s: %w", all[i].gpu.Index, all[i].of, err)
		}
	}
	return done, err
}

// addForming adds to a GPU, whose tenants are known, what is about to happen to its form. Agent.mu is held.
func (a *Agent) addForming(gpu backend.GPU, g *alloc.GPU) {
	f := a.formings[gpu.UUID]
	for b, n := range f.awaited {
		if n > 0 && g.Form == "" {
			g.Form = string(b)
		}
	}
	if h, taken := a.machineOf(gpu); taken {
		g.Form, g.Fault = string(h.Form), machineText(h)
	}
	if g.Fault == "" {
		g.Fault = f.closed
	}
}

// reform has GPUs looked at soon whose form nobody needs any more. Agent.mu is held.
func (a *Agent) reform() {
	select {
	case a.reforming <- struct{}{}:
	default:
	}
}

// keepForms undoes what nobody needs, and prepares what should be, until ctx is done.
func (a *Agent) keepForms(ctx context.Context) {
	again := time.NewTicker(moment(a.config.Interval))
	defer again.Stop()
	for {
		select {
		case <-a.reforming:
			a.settleForms(ctx, false)
			a.settleInstances(ctx)
		case <-again.C:
			a.settleForms(ctx, true)
			a.readSometimes(ctx)
			a.settleInstances(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// settleForms makes every GPU as it should be. Only those are tried again that could not be made so.
func (a *Agent) settleForms(ctx context.Context, failed bool) {
	a.mu.Lock()
	wanted := a.intervals()
	before := a.config.Forms.lend(wanted)
	a.mu.Unlock()
	for _, gpu := range a.gpus {
		f := a.formings[gpu.UUID]
		a.mu.Lock()
		should, skip := a.formOf(gpu), failed && f.fault == ""
		stays := before[gpu.UUID] == wanted[gpu.UUID]
		same := (f.has == should || f.has == "" && !a.isFormer(should)) && f.fault == ""
		a.mu.Unlock()
		if stays && (skip || same) {
			continue
		}
		a.settleForm(ctx, gpu)
	}
}

// besidesOwn leaves out the processes that a backend keeps running.
func (a *Agent) besidesOwn(users []modes.User) []modes.User {
	return slices.DeleteFunc(users, func(u modes.User) bool {
		id, err := process.Find(u.PID)
		return err == nil && slices.ContainsFunc(a.config.Backends.Kinds(), func(k registry.Kind) bool {
			reporter, ok := k.Backend.(backend.Reporter)
			return ok && reporter.Own(id)
		})
	})
}

// isFormer reports whether a backend prepares GPUs.
func (a *Agent) isFormer(b v1alpha1.Backend) bool {
	_, ok := a.config.Backends.Of(b).(backend.Former)
	return ok && b != ""
}

// settleForm makes one GPU as it should be, and notes why it cannot be.
func (a *Agent) settleForm(ctx context.Context, gpu backend.GPU) {
	f := a.formings[gpu.UUID]
	f.turn.Lock()
	defer f.turn.Unlock()
	a.mu.Lock()
	should := a.formOf(gpu)
	a.mu.Unlock()
	var err error
	if a.isFormer(should) {
		err = a.enterInTurn(ctx, gpu, should)
	} else {
		err = a.leaveInTurn(ctx, gpu)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := f.fault
	f.fault = ""
	if err != nil && ctx.Err() == nil {
		f.fault = err.Error()
	}
	if f.fault != before {
		if f.fault != "" {
			a.config.Log.WarnContext(ctx, "a GPU does not have the form that it should", "gpu", gpu.Index, "error", err)
			a.events.add(control.Event{Kind: control.EventGPU, UUID: gpu.UUID, Text: fmt.Sprintf("GPU %d does not have the form that it should: %s", gpu.Index, f.fault)})
		}
		a.tell()
	}
}

// restoreForms makes GPUs as they should be after an earlier agent, which may have died on the way from one form to
// another: each backend that nobody needs there leaves, and the one that is needed enters.
func (a *Agent) restoreForms(ctx context.Context) {
	a.mu.Lock()
	a.config.Forms.lend(a.intervals())
	a.mu.Unlock()
	var running sync.WaitGroup
	for _, gpu := range a.gpus {
		running.Go(func() {
			a.mu.Lock()
			should := a.formOf(gpu)
			a.mu.Unlock()
			for _, k := range a.config.Backends.Kinds() {
				if k.Name != should {
					a.leaveRestored(ctx, gpu, k)
				}
			}
			if a.isFormer(should) {
				a.settleForm(ctx, gpu)
				a.mu.Lock()
				ended := a.formings[gpu.UUID].has == ""
				a.mu.Unlock()
				if ended { // who needed it has ended meanwhile, and nobody knew what the earlier agent had done
					a.leaveRestored(ctx, gpu, registry.Kind{Name: should, Backend: a.config.Backends.Of(should)})
				}
			}
			a.restoreInstances(ctx, gpu)
		})
	}
	running.Wait()
}

// leaveRestored has a backend undo what an earlier agent may have done to a GPU.
func (a *Agent) leaveRestored(ctx context.Context, gpu backend.GPU, k registry.Kind) {
	former, ok := k.Backend.(backend.Former)
	if !ok {
		return
	}
	err := former.Leave(ctx, gpu)
	if err == nil {
		return
	}
	a.mu.Lock()
	a.formings[gpu.UUID].has, a.formings[gpu.UUID].fault = k.Name, err.Error()
	a.mu.Unlock()
	a.config.Log.WarnContext(ctx, "cannot undo what an earlier agent did to a GPU", "gpu", gpu.Index, "backend", k.Name, "error", err)
}
