package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/plaintext"
)

// Relay keeps a share on another host for a command.
type Relay struct {
	spec  Spec
	hosts Hosts
	// say tells people something, where their command writes its errors.
	say func(string)

	taking sync.Mutex // orders takes and returns of the share

	mu     sync.Mutex // guards what follows
	share  *Share     // nil while there is none
	links  map[*link]int
	record Record
	over   bool // the share has ended and is not taken again
}

// New returns the relay of a share that is not taken yet.
func New(spec Spec, hosts Hosts, say func(string)) *Relay {
	name := spec.Take.Request.Name
	if name == "" && spec.WhenUsed && len(spec.Take.Command) > 0 { // no host has given it one
		name = filepath.Base(spec.Take.Command[0])
	}
	return &Relay{
		spec: spec, hosts: hosts, say: say, links: map[*link]int{},
		record: Record{
			Name: name, State: StateReady, Hosts: spec.Hosts, Since: time.Now(), Command: spec.Take.Command, Process: spec.Process,
		},
	}
}

// Begin takes the share, or, where that is done later, asks the hosts whether one may give it.
func (r *Relay) Begin(ctx context.Context) (*Ready, error) {
	if !r.spec.WhenUsed {
		s, err := r.hosts.Take(ctx, r.spec.Take, r.say)
		if err != nil {
			return nil, err
		}
		r.hold(s)
		return &Ready{Host: s.Host.Name, Name: r.record.Name, GPUs: len(s.Granted.UUIDs), Lacks: s.Granted.Lacks}, r.save()
	}
	candidates := Candidates(ctx, r.hosts)
	ready := &Ready{Name: r.record.Name, GPUs: max(1, r.spec.Take.Request.GPUs)}
	refused, heard := &RefusedByAll{}, false
	for _, o := range candidates {
		if o.Err != nil {
			refused.Hosts, refused.Words = append(refused.Hosts, o.Host), append(refused.Words, o.Err.Error())
			continue
		}
		heard = true
		ready.Lacks = append(ready.Lacks, o.Inventory.Lacks...)
	}
	if !heard {
		return nil, refused
	}
	for i, h := range refused.Hosts {
		r.say("left out: " + h.words(errors.New(refused.Words[i])))
	}
	slices.Sort(ready.Lacks)
	ready.Lacks = slices.Compact(ready.Lacks)
	return ready, r.save()
}

// Serve accepts processes until the context ends, and returns when all links have ended and the share is given back.
func (r *Relay) Serve(ctx context.Context, socket *net.UnixListener) {
	var served sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	served.Go(func() { r.watchSuspension(ctx) })
	for {
		conn, err := socket.AcceptUnix()
		if err != nil {
			break
		}
		served.Go(func() { r.serve(ctx, conn) })
	}
	cancel()
	r.finish("its command has ended")
	served.Wait()
}

// hold notes a share that was taken, and follows its end.
func (r *Relay) hold(s *Share) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.share = s
	r.record.State, r.record.Host, r.record.Share, r.record.Since = StateTaken, s.Host.Name, s.Granted.Name, time.Now()
	r.record.Memory, r.record.Cores, r.record.GPUs = s.Granted.Memory, s.Granted.Cores, gpusOf(s)
	if r.record.Name == "" {
		r.record.Name = s.Granted.Name
	}
	go func() {
		<-s.Ended()
		r.end(s, s.Why())
	}()
}

// gpusOf are the GPUs of a share, as its host described them.
func gpusOf(s *Share) []GPU {
	var gpus []GPU
	for _, uuid := range s.Granted.UUIDs {
		g := GPU{UUID: uuid, Index: -1}
		if s.Told != nil {
			for _, o := range s.Told.GPUs {
				if o.UUID == uuid {
					g.Index, g.Model = o.Index, o.Model
				}
			}
		}
		gpus = append(gpus, g)
	}
	return gpus
}

// end ends a share, and its links. One that this relay gave back is none of its shares any more.
func (r *Relay) end(s *Share, why string) {
	r.mu.Lock()
	if r.share != s {
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	r.finish(why)
}

// finish ends the share for good, and all links, for a reason. When it returns, lists are told.
func (r *Relay) finish(why string) {
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return
	}
	why = plaintext.Line(why, mostOfWhy)
	r.over = true
	share, now := r.share, time.Now()
	r.share = nil
	r.record.State, r.record.Ended, r.record.Why = StateEnded, &now, why
	links := make([]*link, 0, len(r.links))
	for l := range r.links {
		links = append(links, l)
	}
	_ = r.put() // lists are for people; what ends must end
	r.mu.Unlock()
	for _, l := range links {
		l.end(why)
	}
	if share != nil {
		share.End()
	}
}

// mostOfWhy bounds a reason, in characters: the client library prints it in one line.
const mostOfWhy = 400

// errOver is why a process gets no link any more.
var errOver = errors.New("the share has ended")

// shareFor is the share for a process that connects, which is taken where there is none yet.
func (r *Relay) shareFor(ctx context.Context, l *link, pid int) (*Share, error) {
	r.taking.Lock()
	defer r.taking.Unlock()
	r.mu.Lock()
	share, over, why := r.share, r.over, r.record.Why
	r.mu.Unlock()
	switch {
	case over:
		return nil, fmt.Errorf("%w: %s", errOver, why)
	case share == nil:
		taken, err := r.hosts.Take(ctx, r.spec.Take, func(string) {})
		if err != nil {
			return nil, err
		}
		r.hold(taken)
		share = taken
	}
	r.mu.Lock()
	r.links[l] = pid
	r.mu.Unlock()
	return share, r.save()
}

// leave forgets a link. The last one gives the share back, if it is taken when it is used.
func (r *Relay) leave(l *link) {
	r.taking.Lock()
	defer r.taking.Unlock()
	r.mu.Lock()
	delete(r.links, l)
	var share *Share
	if r.spec.WhenUsed && len(r.links) == 0 && !r.over {
		share, r.share = r.share, nil
		r.record.State, r.record.Host, r.record.Share, r.record.GPUs = StateReady, "", "", nil
	}
	r.mu.Unlock()
	if share != nil {
		share.End()
	}
	_ = r.save() // as in finish
}

// save writes the record.
func (r *Relay) save() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.put()
}

// put is save for who holds mu.
func (r *Relay) put() error {
	r.record.Processes = nil
	for _, pid := range r.links {
		r.record.Processes = append(r.record.Processes, pid)
	}
	slices.Sort(r.record.Processes)
	return recordOf(r.spec.Dir).Save(r.record)
}

// Remove takes the folder of the share away.
func (r *Relay) Remove() error {
	if err := os.RemoveAll(r.spec.Dir); err != nil {
		return fmt.Errorf("remove the folder of a share: %w", err)
	}
	return nil
}
