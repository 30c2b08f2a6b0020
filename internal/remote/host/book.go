package host

import (
	"fmt"
	"sync"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// book counts what clients have. What is asked for counts from before the agent is asked, so that requests of one client
// that race do not pass its bounds together.
type book struct {
	mu   sync.Mutex
	file *servefile.File
	held map[string]map[*entry]bool
	// waiting are the requests of each client that wait for room within its bounds, in their order. changed is closed when there
	// may be some; it is nil where nobody waits.
	waiting map[string][]*waiter
	changed chan struct{}
}

// mostUnbound is how many shares and commands a client has and asks for at once where the file bounds their number by nothing:
// each has processes on this host.
const mostUnbound = 256

// entry is a share that a client has or asks for.
type entry struct {
	client string
	servefile.Held
	// stop ends the share or the command that has it; nil while it is asked for.
	stop    func(why string)
	removed string // why the client is gone, if it went meanwhile
}

// find returns what the file grants a client, who may have been expelled since the handshake, and a later one of that name
// admitted. book.mu is held.
func (b *book) find(who server.Client) (servefile.Client, error) {
	client, err := b.file.Admitted(who.Name, who.Issued)
	if err != nil {
		return client, &wire.Refused{Code: wire.CodeClient, Text: err.Error()}
	}
	return client, nil
}

// sum is what a client has and asks for. book.mu is held.
func (b *book) sum(name string) (all servefile.Held) {
	for e := range b.held[name] {
		all.Memory += e.Memory
		all.Cores += e.Cores
		all.Shares += e.Shares
	}
	return all
}

func (b *book) gpus() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.file.GPUs
}

// class is the class of a share for which a client asks so.
func (b *book) class(name string, asked v1alpha1.Class) v1alpha1.Class {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := v1alpha1.ShareRequest{}
	r.Class = asked
	b.file.Clients[name].Default(&r)
	return r.Class
}

// left is what a client may still have.
func (b *book) left(who server.Client) (servefile.Client, servefile.Rest, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	client, err := b.find(who)
	return client, client.Left(b.sum(who.Name)), err
}

// reserve counts what a client asks for, if that is within its bounds. A part of a GPU counts as that of the largest.
func (b *book) reserve(who server.Client, r v1alpha1.ShareRequest, largest uint64) (*entry, servefile.Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.enter(who, r, largest)
}

// enter is reserve. book.mu is held.
func (b *book) enter(who server.Client, r v1alpha1.ShareRequest, largest uint64) (*entry, servefile.Client, error) {
	name := who.Name
	client, err := b.find(who)
	if err != nil {
		return nil, client, err
	}
	if client.Shares == 0 && len(b.held[name]) >= mostUnbound {
		return nil, client, &wire.Refused{Code: wire.CodeBounds, Text: fmt.Sprintf("client %s has or asks for %d shares and commands, and none may have more unless the file of the GPU's host says how many: end one, or ask for `divvy serve admit %s --shares N`", name, mostUnbound, name)}
	}
	wish := servefile.WishOf(r, largest)
	if err := permit(client, wish, b.sum(name)); err != nil {
		return nil, client, err
	}
	e := &entry{client: name, Held: servefile.Held{Memory: wish.Memory, Cores: wish.Cores, Shares: wish.Shares}}
	if b.held[name] == nil {
		b.held[name] = map[*entry]bool{}
	}
	b.held[name][e] = true
	return e, client, nil
}

// grant counts what was granted in place of what was asked for. Why says why the client may not have it any more, if so.
func (b *book) grant(e *entry, s *share) (why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(s.granted.UUIDs)
	e.Memory, e.Shares = s.granted.Memory*uint64(n), n
	e.stop = s.stop
	b.alter()
	return e.removed
}

// release counts a share no more.
func (b *book) release(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held[e.client], e)
	if len(b.held[e.client]) == 0 {
		delete(b.held, e.client)
	}
	b.alter()
}

// replace has another file count, and returns what ends the shares of clients that it no longer has, has as those of another
// user, or has again after they were gone. A share that is asked for ends when it is granted.
func (b *book) replace(f *servefile.File) (ends []func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, entries := range b.held {
		before := b.file.Clients[name]
		if now, ok := f.Clients[name]; ok && now.User == before.User && now.Since.Equal(before.Since) {
			continue
		}
		for e := range entries {
			e.removed = "client " + name + " is no longer in the file of the GPU's host"
			if stop, why := e.stop, e.removed; stop != nil {
				ends = append(ends, func() { stop(why) })
			}
		}
	}
	b.file = f
	b.alter()
	return ends
}
