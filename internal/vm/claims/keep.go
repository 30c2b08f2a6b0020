package claims

import (
	"context"
	"errors"
	"time"
)

// look is the time between two looks at the claims.
const look = time.Second

// Recover takes up what an earlier agent left: what was not made is put back, what was being put back goes on. What is held
// stays as it is.
func (l *Ledger) Recover(ctx context.Context) error {
	var faults []error
	if knows := l.config.Broken == nil; knows { // else [Ledger.Run] tells of it, once somebody listens
		all, _ := l.List()
		for _, c := range all {
			if c.Phase != Held {
				faults = append(faults, l.resume(ctx, c))
			}
		}
		l.Look(ctx)
	}
	return errors.Join(faults...)
}

// resume goes on with a claim that is to be put back.
func (l *Ledger) resume(ctx context.Context, c Claim) error {
	err := l.Release(ctx, c.Name)
	if errors.Is(err, ErrUnknown) || errors.Is(err, ErrBusy) {
		return nil
	}
	return err
}

// Run keeps the claims as they are in the ledger until ctx is done.
func (l *Ledger) Run(ctx context.Context) {
	again := time.NewTicker(look)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			l.Look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Look puts back what could not be put back before, and gives nodes to their users again: udev may make a node root's a moment
// after it appeared. It is for [Ledger.Run], and for tests.
func (l *Ledger) Look(ctx context.Context) {
	all, _ := l.List()
	for _, c := range all {
		if l.config.Broken != nil {
			l.fault(c.Name, l.config.Broken.Error())
			continue
		}
		maker := l.config.Makers[c.Form]
		if maker == nil || l.isWorking(c.Name) {
			continue
		}
		standing := maker.Standing(c.Name)
		switch {
		case standing.Stuck != "":
			l.fault(c.Name, standing.Stuck)
		case c.Phase == Held && standing.Lost != "":
			l.fault(c.Name, standing.Lost)
		case c.Phase == Held && standing.There:
			l.sound(c.Name)
			l.keepGiven(ctx, c.Name)
		case c.Phase == Held:
			l.fault(c.Name, "its device is gone")
		default:
			if err := l.resume(ctx, c); err == nil {
				l.config.Log.InfoContext(ctx, "a device of a virtual machine was put back", "claim", c.Name, "form", c.Form, "device", c.Device)
				l.told(c, "its device was put back")
			}
		}
	}
}

// sound forgets what was wrong with a claim that is held.
func (l *Ledger) sound(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.find(name); at >= 0 && !l.working[name] && l.claims[at].Phase == Held && l.faults[name] != "" {
		delete(l.faults, name)
		l.announce()
	}
}

func (l *Ledger) isWorking(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.working[name]
}

// keepGiven gives the nodes of a claim again that is still held, and that nobody works on. Whoever has been told that a claim is
// released finds no node its user's afterwards.
func (l *Ledger) keepGiven(ctx context.Context, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.find(name); at >= 0 && !l.working[name] && l.claims[at].Phase == Held {
		l.giveAgain(ctx, l.claims[at])
	}
}

// giveAgain gives nodes to a claim's user that have the owner from before again.
func (l *Ledger) giveAgain(ctx context.Context, c Claim) {
	for i, before := range c.Before {
		now, err := l.config.Nodes.Owner(c.Nodes[i])
		if err != nil || now.UID != before.UID || now.UID == c.UID {
			continue
		}
		if err := l.config.Nodes.SetOwner(c.Nodes[i], c.owns(before)); err != nil {
			l.config.Log.WarnContext(ctx, "cannot give a device node to its user again", "node", c.Nodes[i], "error", err)
		}
	}
}

// rootsAlone is a node that only root opens, which does so whatever its mode is.
var rootsAlone = Ownership{Mode: 0o600}

// owns is whose a node of the claim is while it lasts. One of root's keeps no group and no mode by which somebody else opens it; of a
// cluster's, those that the host's administrator chose are also for its containers.
func (c Claim) owns(before Ownership) Ownership {
	switch {
	case c.UID == 0 && c.Cluster != "" && before.UID == 0:
		return before
	case c.UID == 0:
		return rootsAlone
	}
	return Ownership{UID: c.UID, GID: before.GID, Mode: before.Mode}
}

// Disown makes nodes root's alone of which no claim tells whose they were. Again makes them what they were just now.
func (l *Ledger) Disown(ctx context.Context, nodes []string) (again func()) {
	var back []func()
	set := func(node string, to Ownership) {
		if err := l.config.Nodes.SetOwner(node, to); err != nil {
			l.config.Log.WarnContext(ctx, "cannot change whose a device node is", "node", node, "error", err)
		}
	}
	for _, node := range nodes {
		if now, err := l.config.Nodes.Owner(node); err == nil { // else it is gone
			set(node, rootsAlone)
			back = append(back, func() { set(node, now) })
		}
	}
	return func() {
		for _, undo := range back {
			undo()
		}
	}
}

func (l *Ledger) told(c Claim, text string) {
	l.mu.Lock()
	tell := l.tell
	l.mu.Unlock()
	tell(c, text)
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
