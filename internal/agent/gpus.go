package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/modes"
)

// Modes tells the modes of GPUs, and Changes which of them Divvy changed.
type Modes interface {
	Mode(ctx context.Context, gpu string, mode modes.Mode) (string, error)
	Users(ctx context.Context, gpu string) ([]modes.User, error)
	Changes() []modes.Change
}

// forms lists the forms of all GPUs.
func (a *Agent) forms(ctx context.Context, _ *control.Peer, _ struct{}) (*control.Forms, error) {
	list := &control.Forms{Info: a.config.Info}
	a.readDivisions(ctx)
	a.sweep(ctx)
	for _, gpu := range a.gpus {
		list.GPUs = append(list.GPUs, a.formed(ctx, gpu))
	}
	return list, nil
}

// formed describes the form of a GPU.
func (a *Agent) formed(ctx context.Context, gpu backend.GPU) control.Formed {
	v := control.Formed{Index: gpu.Index, UUID: gpu.UUID, Name: gpu.Name, DeviceID: gpu.DeviceID, Modes: a.modesOf(ctx, gpu)}
	form, by := a.formGiven(gpu)
	v.Given, v.Slice, v.Replicas, v.MultiUser, v.Layout = by, form.Slice, form.Replicas, form.MultiUser, form.Layout
	a.mu.Lock()
	defer a.mu.Unlock()
	v.Form = a.formOf(gpu)
	for _, t := range a.sorted() {
		if t.has(gpu.UUID) {
			v.Shares = append(v.Shares, control.FormedShare{Name: t.Name, User: t.User})
		}
	}
	for _, o := range a.outside {
		if o.UUID == gpu.UUID {
			o.Answer = ""
			v.Outside = append(v.Outside, o)
		}
	}
	v.MIG = a.dividedOf(gpu)
	f := a.formings[gpu.UUID]
	v.Fault = cmp.Or(f.fault, f.closed, a.faultOf(gpu.UUID), a.misgiven(gpu))
	return v
}

// modesOf are the modes of a GPU that forms change.
func (a *Agent) modesOf(ctx context.Context, gpu backend.GPU) (all []control.GPUMode) {
	if a.config.Modes == nil {
		return nil
	}
	changes := a.config.Modes.Changes()
	for _, mode := range modes.All {
		m := control.GPUMode{Mode: string(mode)}
		value, err := a.config.Modes.Mode(ctx, gpu.UUID, mode)
		if m.Value = value; err != nil {
			m.Value, m.Unknown = "", err.Error()
		}
		for _, c := range changes {
			if c.GPU == gpu.UUID && c.Mode == mode {
				m.Made, m.Before = c.Last(), c.Before
			}
		}
		all = append(all, m)
	}
	return all
}

// giveForm gives a GPU a form by hand, and makes it so.
func (a *Agent) giveForm(ctx context.Context, peer *control.Peer, p control.FormParams) (*control.Formed, error) {
	gpu, err := a.formable(peer, p)
	if err != nil {
		return nil, err
	}
	tell := tellAwaited(ctx)
	release, err := a.closeGPU(ctx, gpu, p.Wait, tell)
	if err != nil {
		return nil, err
	}
	defer release()
	back, err := a.config.Forms.give(gpu.UUID, p.Form)
	if err != nil {
		return nil, err
	}
	a.step("form-given")
	if err := a.changeForm(ctx, gpu, p.Wait, tell); err != nil {
		err = errors.Join(control.Errorf(control.CodeRefused, "GPU %d keeps its form: %v%s", gpu.Index, err, orWait(err, modes.ErrInUse)), back())
		a.settleForm(context.WithoutCancel(ctx), gpu)
		return nil, err
	}
	a.step("form-made")
	a.sweep(ctx) // who was waited for is gone
	v := a.formed(ctx, gpu)
	v.Fault = ""
	a.events.add(control.Event{Kind: control.EventGPU, UUID: gpu.UUID, Text: fmt.Sprintf("GPU %d was given %s", gpu.Index, formText(p.Form))})
	return &v, nil
}

// formText says for people what a GPU is given.
func formText(f agentconfig.Form) string {
	if f.Backend == "" {
		return "no form: its first share decides"
	}
	return "form " + string(f.Backend)
}

// formable returns the GPU that is to be given a form, or why that can never be.
func (a *Agent) formable(peer *control.Peer, p control.FormParams) (gpu backend.GPU, err error) {
	switch {
	case peer.UID != 0 && peer.UID != a.config.Info.UID:
		return gpu, control.Errorf(control.CodeDenied, "the form of a GPU concerns all users of it: ask as root")
	case a.config.Info.Ephemeral:
		return gpu, control.Errorf(control.CodeInvalid, "your own agent ends with its last share, and would forget the form: start a system agent, as root")
	case a.config.Forms.byFile():
		return gpu, control.Errorf(control.CodeInvalid, "the agent's configuration gives GPUs their forms: change its field backends, and start the agent again")
	}
	if p.Form != (agentconfig.Form{}) {
		if err := p.Form.Check(); err != nil {
			return gpu, control.Errorf(control.CodeInvalid, "%v", err)
		}
		if !a.config.Backends.Has(p.Form.Backend) {
			return gpu, control.Errorf(control.CodeInvalid, "this agent makes no shares of backend %s", p.Form.Backend)
		}
	}
	uuids, err := a.resolve([]string{p.GPU})
	if err != nil {
		return gpu, err
	}
	gpu = a.gpu(uuids[0])
	switch inMode := a.inMIGMode(gpu.UUID); {
	case inMode && p.Form.Backend != "" && p.Form.Backend != v1alpha1.BackendMIG:
		return gpu, control.Errorf(control.CodeInvalid, "GPU %d is in MIG mode, where its form is mig: turn that off with `divvy gpu set %[1]d --mig off`", gpu.Index)
	case !inMode && p.Form.Backend == v1alpha1.BackendMIG:
		return gpu, control.Errorf(control.CodeInvalid, "GPU %d is not in MIG mode: turn it on with `divvy gpu set %[1]d --mig on`", gpu.Index)
	}
	return gpu, nil
}

// tellAwaited returns a function that tells the asker of a request for what it waits, a reason once for as long as it stays
// the same. Agent.mu is not held while it is called.
func tellAwaited(ctx context.Context) func(reason string) {
	told := ""
	return func(reason string) {
		if reason != told {
			control.Tell(ctx, control.Awaited{Reason: reason})
			told = reason
		}
	}
}

// orWait is the advice to wait for who keeps a GPU from a change, "" where another error keeps it.
func orWait(err, used error) string {
	if errors.Is(err, used) {
		return ", or wait with --wait"
	}
	return ""
}

// closeGPU keeps new shares from a GPU when it has none, and waits for that if wanted. Release opens it again.
func (a *Agent) closeGPU(ctx context.Context, gpu backend.GPU, wait bool, tell func(reason string)) (release func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.formings[gpu.UUID]
	if h, taken := a.machineOf(gpu); taken {
		return nil, control.Errorf(control.CodeRefused, "GPU %d cannot change: %s", gpu.Index, machineText(h))
	}
	if f.closed != "" {
		return nil, control.Errorf(control.CodeRefused, "somebody else gives GPU %d a form just now", gpu.Index)
	}
	f.closed = "it is about to change its form"
	open := func() {
		f.closed = ""
		a.announce()
	}
	for {
		users := a.usersOf(gpu)
		if len(users) == 0 {
			return func() {
				a.mu.Lock()
				defer a.mu.Unlock()
				open()
			}, nil
		}
		if !wait {
			open()
			return nil, control.Errorf(control.CodeRefused, "GPU %d has shares: %s: end them first, or wait with --wait", gpu.Index, strings.Join(users, ", "))
		}
		changed := a.changed
		a.mu.Unlock()
		tell(fmt.Sprintf("GPU %d has shares: %s", gpu.Index, strings.Join(users, ", ")))
		select {
		case <-changed:
		case <-ctx.Done():
		}
		a.mu.Lock()
		if ctx.Err() != nil {
			open()
			return nil, fmt.Errorf("wait for the shares of GPU %d: %w", gpu.Index, ctx.Err())
		}
	}
}

// usersOf names who has a share of a GPU or is about to have one. Agent.mu is held.
func (a *Agent) usersOf(gpu backend.GPU) (names []string) {
	for _, t := range a.sorted() {
		if t.has(gpu.UUID) {
			names = append(names, t.fullName())
		}
	}
	for b, n := range a.formings[gpu.UUID].awaited {
		if n > 0 {
			names = append(names, fmt.Sprintf("one of backend %s that begins", b))
		}
	}
	return names
}

// leaves is the time between two looks whether a process without a share has left a GPU.
const leaves = 200 * time.Millisecond

// changeForm makes a GPU without shares as it is given. Processes without a share on it are waited for if wanted, and
// refuse the change otherwise.
func (a *Agent) changeForm(ctx context.Context, gpu backend.GPU, wait bool, tell func(reason string)) error {
	for {
		err := a.changeFormNow(ctx, gpu)
		if !wait || !errors.Is(err, modes.ErrInUse) {
			return err
		}
		tell(fmt.Sprintf("GPU %d: %v", gpu.Index, err))
		select {
		case <-time.After(leaves):
		case <-ctx.Done():
			return err
		}
	}
}

func (a *Agent) changeFormNow(ctx context.Context, gpu backend.GPU) error {
	if a.config.Modes != nil {
		users, err := a.config.Modes.Users(ctx, gpu.UUID)
		if err != nil {
			return fmt.Errorf("see whether somebody is on it: %w", err)
		}
		users = a.besidesOwn(users)
		if len(users) > 0 {
			return fmt.Errorf("%w by %s: end them first", modes.ErrInUse, modes.Named(users))
		}
	}
	f := a.formings[gpu.UUID]
	f.turn.Lock()
	defer f.turn.Unlock()
	if err := a.leaveInTurn(ctx, gpu); err != nil { // also a backend that is to stay: what is given with it may differ
		return err
	}
	a.mu.Lock()
	should := a.formOf(gpu)
	a.mu.Unlock()
	if !a.isFormer(should) {
		return nil
	}
	return a.enterInTurn(ctx, gpu, should)
}
