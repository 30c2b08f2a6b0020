package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// holdersShown bounds the shares that a refusal names.
const holdersShown = 4

// refused is a refusal as the requester reads it: what is so, who holds what is missing,
// and what the requester can do, of which each way works. Another error stays as it is.
// Agent.mu is held.
func (a *Agent) refused(ctx context.Context, err error, who requester) error {
	var refusal *alloc.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	code := map[alloc.Reason]control.Code{
		alloc.ReasonNever: control.CodeInvalid, alloc.ReasonUnknown: control.CodeNotFound, alloc.ReasonFull: control.CodeRefused,
	}[refusal.Reason]
	text := a.facts(err, who.except)
	if refusal.Reason == alloc.ReasonFull {
		if ways := a.remedies(ctx, err, refusal, who); len(ways) > 0 {
			text += ": " + joined(ways, "or")
		}
	}
	return &control.Error{Code: code, Message: text}
}

// explained makes a handler tell the requester who fills a file system on which there was
// no room for a share.
func explained[P, R any](a *Agent, handle func(context.Context, *control.Peer, P) (R, error)) func(context.Context, *control.Peer, P) (R, error) {
	return func(ctx context.Context, peer *control.Peer, params P) (R, error) {
		result, err := handle(ctx, peer, params)
		if full, ok := rundir.NoRoom(err); ok {
			a.config.Log.WarnContext(ctx, "no room for a share", "user", peer.UID, "error", err)
			err = &control.Error{Code: control.CodeRefused, Message: full.Text(peer.UID)}
		}
		return result, err
	}
}

// facts is a refusal without advice: what is so, and who but except holds what is
// missing.
// Agent.mu is held.
func (a *Agent) facts(err error, except *tenant) string {
	var refusal *alloc.Refusal
	if !errors.As(err, &refusal) {
		return err.Error()
	}
	text := refusal.Error()
	if holders := a.holders(refusal.Misses, except); holders != "" {
		text += "; " + holders
	}
	return text
}

// holder is a share that holds what GPUs lack.
type holder struct {
	name   string
	memory uint64
	cores  int
}

// what says what it holds.
func (h holder) what() string {
	if h.memory == 0 {
		return fmt.Sprintf("%s holds %d cores", h.name, h.cores)
	}
	return h.name + " holds " + amount(h.memory)
}

// holders names who but except holds the memory or cores that GPUs lack. Agent.mu is
// held.
func (a *Agent) holders(misses []alloc.Miss, except *tenant) string {
	lacks := map[string]alloc.Cause{}
	for _, m := range misses {
		lacks[m.UUID] = m.Cause
	}
	var all []holder
	for _, t := range a.sorted() {
		h := holder{name: t.fullName()}
		for i, s := range t.Shares {
			cause := lacks[s.UUID]
			if s.Instance != nil && s.Instance.UUID != "" {
				cause = lacks[s.Instance.UUID]
			}
			switch cause {
			case alloc.CauseMemory, alloc.CauseBusy, alloc.CauseForm, alloc.CauseUser:
				h.memory += t.counted(i) + a.turnsOf(t, i)
			case alloc.CauseCores:
				h.cores += s.Guaranteed(s.Cores)
			}
		}
		if t != except && (h.memory > 0 || h.cores > 0) {
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(x, y holder) int { return cmp.Or(cmp.Compare(y.memory, x.memory), y.cores-x.cores) })
	var texts []string
	for _, h := range all[:min(len(all), holdersShown)] {
		texts = append(texts, h.what())
	}
	switch more := len(all) - len(texts); {
	case more == 1:
		texts = append(texts, "another share the rest")
	case more > 1:
		texts = append(texts, fmt.Sprintf("%d other shares the rest", more))
	}
	return joined(texts, "and")
}

// fullName is a tenant's name with that of its user.
func (t *tenant) fullName() string {
	if t.isTenancy() {
		return t.Name // its namespace is in it
	}
	return t.User + "/" + t.Name
}

// remedies are what the requester of a request can do that fits later. Agent.mu is held.
func (a *Agent) remedies(ctx context.Context, err error, refusal *alloc.Refusal, who requester) (ways []string) {
	had := a.heldBy(who.uid, who.except)
	var limit errLimited
	if errors.As(err, &limit) {
		ways = a.waysWithin(ctx, limit, who, had)
	} else if less := a.less(ctx, refusal, who, had); less != "" {
		ways = append(ways, less)
	}
	anywhere := who.request
	anywhere.Among = ""
	for _, m := range refusal.Misses {
		if m.Name != "" {
			continue // an instance: its GPU is a miss of its own
		}
		_, beside := a.elsewhere(ctx, m.UUID)
		for _, way := range beside {
			if !slices.Contains(ways, way) && (way != control.AnotherGPU || a.fits(ctx, who, anywhere)) {
				ways = append(ways, way)
			}
		}
	}
	switch {
	case who.waits && limit.beyond != "":
		ways = append(ways, "add --wait to queue for a part of somebody else's "+limit.beyond)
	case who.waits:
		ways = append(ways, "add --wait to queue")
	}
	if limit.Refusal == nil && a.fitsOver(ctx, who) {
		ways = append(ways, "add --overcommit")
	}
	return ways
}

// fitsOver reports whether a requester has the right to overcommit, does not use it, and would be served with it. Agent.mu is
// held.
func (a *Agent) fitsOver(ctx context.Context, who requester) bool {
	over := who.request
	over.Overcommit, over.OvercommitCores = true, true
	return who.overcommit && !who.request.Overcommit && a.fits(ctx, who, over)
}

// waysWithin are what the requester can do about a limit. Agent.mu is held.
func (a *Agent) waysWithin(ctx context.Context, limit errLimited, who requester, had held) (ways []string) {
	if less := a.lessWithin(ctx, limit, who); less != "" {
		ways = append(ways, less)
	}
	switch {
	case limit.beyond != "":
		return append(ways, a.lesserProfile(ctx, who, had)...)
	case len(had.names) > 0:
		return append(ways, fmt.Sprintf("end one of your shares (`divvy stop %s`)", had.names[0]))
	}
	return ways
}

// lesserProfile is the largest profile of which an instance can be made for the request within its user's limits, as
// advice, none if there is none. Agent.mu is held.
func (a *Agent) lesserProfile(ctx context.Context, who requester, had held) (ways []string) {
	var best backend.Instance
	for _, gpu := range a.gpus {
		d := a.divisions.get(gpu.UUID)
		for _, s := range d.Sizes {
			s.Parent = gpu.UUID
			fewer := who.request
			fewer.Profile = s.Profile
			if bySize(s, best) > 0 && who.room(had, 1, s.Bytes, a.percentOf(s)) == nil && a.fits(ctx, who, fewer) {
				best = s
			}
		}
	}
	if best.Profile == "" {
		return nil
	}
	return []string{"ask for a part of a " + best.Profile + " at most"}
}

// lessWithin is the most that the requester's limit leaves, as advice, "" if it does not
// help. Agent.mu is held.
func (a *Agent) lessWithin(ctx context.Context, limit errLimited, who requester) string {
	fewer, most := who.request, ""
	switch {
	case limit.memory > 0:
		fewer.Memory, most = v1alpha1.Bytes(limit.memory), amount(limit.memory)
	case limit.cores > 0:
		fewer.Cores, most = limit.cores, strconv.Itoa(limit.cores)
	}
	if most == "" || !a.fits(ctx, who, fewer) {
		return ""
	}
	return "ask for at most " + most
}

// less is the most memory or cores for which the request would fit, as advice, "" if
// none helps. Agent.mu is held.
func (a *Agent) less(ctx context.Context, refusal *alloc.Refusal, who requester, had held) string {
	memory, cores := most(refusal, alloc.CauseMemory), most(refusal, alloc.CauseCores)
	fewer := who.request
	if memory > 0 {
		if l := who.limits.Memory; l > 0 {
			memory = min(memory, (l-min(had.memory, l))/uint64(max(1, who.request.Count)))
		}
		fewer.Memory = v1alpha1.Bytes(max(memory, 1))
		if a.fits(ctx, who, fewer) {
			return "ask for at most " + amount(memory)
		}
	}
	fewer = who.request
	if fewer.Cores = int(cores); cores > 0 && a.fits(ctx, who, fewer) {
		return fmt.Sprintf("ask for at most %d", cores)
	}
	return ""
}

// most is what is free of memory or cores on enough GPUs that miss for that cause.
func most(refusal *alloc.Refusal, cause alloc.Cause) uint64 {
	var free []uint64
	for _, m := range refusal.Misses {
		if m.Cause == cause {
			free = append(free, max(m.Free, m.Most))
		}
	}
	if refusal.Short < 1 || len(free) < refusal.Short {
		return 0
	}
	slices.Sort(free)
	return free[len(free)-refusal.Short]
}

// fits reports whether a request would be granted now. Agent.mu is held.
func (a *Agent) fits(ctx context.Context, who requester, r alloc.Request) bool {
	_, err := a.search(ctx, who.except, r)
	return err == nil
}

// joined writes a list with a word before its last entry.
func joined(texts []string, word string) string {
	if len(texts) < 2 {
		return strings.Join(texts, "")
	}
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " " + word + " " + texts[last]
}
