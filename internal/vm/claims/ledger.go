package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// FileName is the ledger's, in an agent's directory.
const FileName = "claims.json"

// Config is how a [Ledger] is kept.
type Config struct {
	Path string
	// Makers are those of the forms that this agent gives.
	Makers map[v1alpha1.Backend]Maker
	Nodes  Nodes
	Now    func() time.Time
	Log    *slog.Logger
	// Broken is why the makers do not know what they have given, nil where they do. Then no claim is made or released, and each
	// has that fault.
	Broken error
	// Step is called after each step, so that a test can end the agent there; it may be nil.
	Step func(name string)
}

// Ledger keeps the claims of one host. Its functions may be called at the same time: what is about one claim does not wait
// for another one.
type Ledger struct {
	config Config

	mu       sync.Mutex // held while the file is saved; never while a device is waited for
	file     *checkpoint.File[saved]
	claims   []Claim
	reserved []Reserved
	unreset  []Unreset
	limited  []pci.Address
	// working are the names of claims that are being taken or put back by somebody.
	working map[string]bool
	faults  map[string]string
	changed chan struct{}
	tell    func(Claim, string)
}

// saved is what the file has.
type saved struct {
	Claims   []Claim    `json:"claims,omitempty"`
	Reserved []Reserved `json:"reserved,omitempty"`
	Unreset  []Unreset  `json:"unreset,omitempty"`
	// Limited are in their order.
	Limited []pci.Address `json:"limited,omitempty"`
}

// decodeV1 reads the file of a version that reserved nothing.
func decodeV1(state []byte) (saved, error) {
	all, err := checkpoint.Strict[[]Claim](state)
	return saved{Claims: all}, err
}

// Open reads the ledger at a path. A file that does not exist is an empty ledger. [Ledger.Recover] must follow.
func Open(c Config) (*Ledger, error) {
	l := &Ledger{
		config: c, file: checkpoint.NewFile(c.Path, "claims", 2, checkpoint.Older[saved]{Version: 1, Decode: decodeV1}), working: map[string]bool{}, faults: map[string]string{},
		changed: make(chan struct{}), tell: func(Claim, string) {},
	}
	all, err := l.file.Load()
	if err != nil {
		return nil, fmt.Errorf("read which devices virtual machines have: %w", err)
	}
	l.claims, l.reserved, l.unreset, l.limited = all.Claims, all.Reserved, all.Unreset, all.Limited
	return l, nil
}

// Tell names who is told what befalls claims that nobody asked for, before the first of them. It must not ask for the claim's end.
func (l *Ledger) Tell(tell func(c Claim, text string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell = tell
}

// List are all claims by name, and a channel that is closed when they change.
func (l *Ledger) List() (all []Claim, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all = slices.Clone(l.claims)
	for i := range all {
		c := &all[i]
		c.Fault = l.faults[c.Name]
	}
	slices.SortFunc(all, func(a, b Claim) int { return strings.Compare(a.Name, b.Name) })
	return all, l.changed
}

// Take makes a claim, or nothing. What the same claim has already is not taken again. Admit, which may be nil, is asked before
// anything changes, with the functions that would be taken.
func (l *Ledger) Take(ctx context.Context, w Want, admit func(members []pci.Address) error) (Claim, error) {
	if l.config.Broken != nil {
		return Claim{}, fmt.Errorf("claim %s: %w", w.Name, l.config.Broken)
	}
	if err := l.check(w); err != nil {
		return Claim{}, err
	}
	c, err := l.enter(w)
	if err != nil || c.Phase == Held {
		return c, err
	}
	defer l.done(w.Name)
	l.step("entered")
	admitted := false // before that, a maker has changed nothing
	c.Given, err = l.config.Makers[w.Form].Take(ctx, w, func(members []pci.Address) error {
		l.mu.Lock()
		err := errors.Join(l.clash(w, members), l.stale(w, members), l.mayLeave(members))
		if err == nil {
			err = l.replace(w.Name, func(c *Claim) { c.Members = members })
		}
		l.mu.Unlock()
		if err == nil && admit != nil {
			err = admit(members)
		}
		admitted = admitted || err == nil
		return err
	})
	if err == nil {
		l.step("taken")
		err = l.give(&c)
	}
	switch {
	case err != nil && !admitted: // what the maker has under this name is not of this call
		return Claim{}, errors.Join(err, l.cross(w.Name))
	case err != nil:
		return Claim{}, errors.Join(err, l.back(context.WithoutCancel(ctx), w.Name, err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.replace(w.Name, func(one *Claim) {
		c.Phase = Held
		*one = c
	})
	l.step("held")
	return c, err
}

// enter finds or begins a claim, on which the caller works then unless it is held.
func (l *Ledger) enter(w Want) (Claim, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.find(w.Name); at >= 0 {
		c := l.claims[at]
		switch {
		case l.working[w.Name], c.Phase != Held:
			return Claim{}, fmt.Errorf("claim %s: %w%s", w.Name, ErrBusy, Because(l.faults[w.Name]))
		case c.differs(w) != "":
			return Claim{}, fmt.Errorf("claim %s: %w, otherwise than it is asked for: with %s; choose another name, or release it first", w.Name, ErrTaken, c.differs(w))
		}
		return c, nil
	}
	if older := l.config.Makers[w.Form].Standing(w.Name); older.There {
		return Claim{}, fmt.Errorf("claim %s: %w: %s has that name, and the ledger does not know it, as after its file was damaged: `divvy vm release %s` puts it back", w.Name, ErrTaken, older.What, w.Name)
	}
	if err := l.clash(w, nil); err != nil {
		return Claim{}, err
	}
	c := Claim{Want: w, Given: Given{Group: -1}, Times: Times{Since: l.config.Now(), Phase: Taking}}
	if err := l.save(append(slices.Clone(l.claims), c)); err != nil {
		return Claim{}, err
	}
	l.working[w.Name] = true
	return c, nil
}

// Because is the end of an error's text that names a fault, "" for none.
func Because(fault string) string {
	if fault == "" {
		return ""
	}
	return ": " + fault
}

func (l *Ledger) done(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.working, name)
}

// give makes the nodes of a claim its user's. Whose they were is written down first.
func (l *Ledger) give(c *Claim) error {
	for _, node := range c.Nodes {
		before, err := l.config.Nodes.Owner(node)
		if err != nil {
			return fmt.Errorf("give %s to user %d: %w", node, c.UID, err)
		}
		c.Before = append(c.Before, before)
	}
	l.mu.Lock()
	err := l.replace(c.Name, func(one *Claim) { one.Given, one.Before = c.Given, c.Before })
	l.mu.Unlock()
	if err != nil {
		return err
	}
	l.step("recorded")
	for i, node := range c.Nodes {
		if err := l.config.Nodes.SetOwner(node, c.owns(c.Before[i])); err != nil {
			return fmt.Errorf("give %s to user %d: %w", node, c.UID, err)
		}
	}
	l.step("given")
	return nil
}

// back puts back what a claim has that was not made. What cannot be put back now is left to [Ledger.Run].
func (l *Ledger) back(ctx context.Context, name string, why error) error {
	l.mu.Lock()
	at := l.find(name)
	if at < 0 {
		l.mu.Unlock()
		return nil
	}
	form := l.claims[at].Form
	err := l.replace(name, func(c *Claim) { c.Phase = Leaving })
	l.mu.Unlock()
	if err != nil {
		return err
	}
	left, err := l.config.Makers[form].Release(ctx, name)
	l.tellLeft(ctx, name, left)
	if standing := l.config.Makers[form].Standing(name); standing.There || err != nil {
		l.fault(name, cmp.Or(standing.Stuck, textOf(err), textOf(why)))
		return nil // why it was not made says it
	}
	return l.cross(name)
}

// Release is [Ledger.PutBack] for who does not tell what is left.
func (l *Ledger) Release(ctx context.Context, name string) error {
	_, err := l.PutBack(ctx, name)
	return err
}

// PutBack ends a claim: all that was changed for it is put back, but what somebody else changed meanwhile, which is left. A device that
// a virtual machine has open stays, with [ErrOpen].
func (l *Ledger) PutBack(ctx context.Context, name string) (left []string, err error) {
	if l.config.Broken != nil {
		return nil, fmt.Errorf("release claim %q: %w", name, l.config.Broken)
	}
	l.mu.Lock()
	at := l.find(name)
	switch {
	case at < 0:
		err = fmt.Errorf("release claim %q: %w", name, ErrUnknown)
	case l.working[name]:
		err = fmt.Errorf("release claim %s: %w", name, ErrBusy)
	default:
		err = l.replace(name, func(c *Claim) { c.Phase = Leaving })
	}
	if err != nil {
		l.mu.Unlock()
		return nil, err
	}
	l.working[name] = true
	c := l.claims[at]
	l.mu.Unlock()
	defer l.done(name)
	l.step("leaving")
	return l.leave(ctx, c)
}

// leave puts back what a claim has. Who calls it works on the claim.
func (l *Ledger) leave(ctx context.Context, c Claim) (left []string, err error) {
	maker := l.config.Makers[c.Form]
	if maker == nil {
		return nil, fmt.Errorf("release claim %s: %w: this agent gives no devices of form %s", c.Name, ErrInvalid, c.Form)
	}
	// The nodes come first. That of a virtual function is the next tenant's too, and its user must not open it after it is free.
	l.restore(ctx, c)
	l.step("restored")
	left, err = maker.Release(ctx, c.Name)
	l.tellLeft(ctx, c.Name, left)
	switch {
	case errors.Is(err, ErrOpen):
		l.giveAgain(ctx, c)
		l.mu.Lock()
		defer l.mu.Unlock()
		return left, errors.Join(err, l.replace(c.Name, func(one *Claim) { one.Phase = Held }))
	case err != nil:
		l.fault(c.Name, cmp.Or(maker.Standing(c.Name).Stuck, err.Error()))
		return left, err
	}
	l.step("released")
	return left, l.cross(c.Name)
}

// restore gives the nodes of a claim back to whose they were. Those that are gone, and those that are somebody else's now, are left.
func (l *Ledger) restore(ctx context.Context, c Claim) {
	for i, before := range c.Before {
		if i >= len(c.Nodes) {
			break
		}
		now, err := l.config.Nodes.Owner(c.Nodes[i])
		if err != nil || now.UID != c.UID {
			continue
		}
		if err := l.config.Nodes.SetOwner(c.Nodes[i], before); err != nil {
			l.config.Log.WarnContext(ctx, "cannot give a device node back", "node", c.Nodes[i], "error", err)
		}
	}
}

// cross takes a claim out of the ledger.
func (l *Ledger) cross(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.faults, name)
	before := l.unreset
	if at := l.find(name); at >= 0 {
		l.unreset = l.used(l.claims[at])
	}
	err := l.save(slices.DeleteFunc(slices.Clone(l.claims), func(c Claim) bool { return c.Name == name }))
	if err != nil {
		l.unreset = before
	}
	l.step("crossed-out")
	return err
}

// fault notes what keeps a claim from being put back, and tells it once.
func (l *Ledger) fault(name, text string) {
	l.mu.Lock()
	at := l.find(name)
	if at < 0 || l.faults[name] == text {
		l.mu.Unlock()
		return
	}
	l.faults[name] = text
	l.announce()
	c, tell := l.claims[at], l.tell
	l.mu.Unlock()
	tell(c, text)
}

// tellLeft tells what is not as it was before, in the log and to who listens.
func (l *Ledger) tellLeft(ctx context.Context, name string, left []string) {
	l.mu.Lock()
	c, tell := Claim{Want: Want{Name: name}}, l.tell
	if at := l.find(name); at >= 0 {
		c = l.claims[at]
	}
	l.mu.Unlock()
	for _, text := range left {
		l.config.Log.WarnContext(ctx, "something of a device is not as it was", "claim", name, "left", text)
		tell(c, text)
	}
}

func (l *Ledger) find(name string) int {
	return slices.IndexFunc(l.claims, func(c Claim) bool { return c.Name == name })
}

// replace changes one claim and writes it down. The lock is held.
func (l *Ledger) replace(name string, change func(*Claim)) error {
	next := slices.Clone(l.claims)
	if at := l.find(name); at >= 0 {
		change(&next[at])
	}
	return l.save(next)
}

// save writes all claims down. The lock is held.
func (l *Ledger) save(next []Claim) error {
	if err := l.file.Save(saved{next, l.reserved, l.unreset, l.limited}); err != nil {
		return fmt.Errorf("write down which devices virtual machines have: %w", err)
	}
	l.claims = next
	l.announce()
	return nil
}

// announce wakes who waits for a change. The lock is held.
func (l *Ledger) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Ledger) step(name string) {
	if l.config.Step != nil {
		l.config.Step("claim-" + name)
	}
}
