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
		if err := l.config.Nodes.SetOwner(c.Nodes[i], Ownership{UID: c.UID, GID: before.GID, Mode: before.Mode}); err != nil {
			l.config.Log.WarnContext(ctx, "cannot give a device node to its user again", "node", c.Nodes[i], "error", err)
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
