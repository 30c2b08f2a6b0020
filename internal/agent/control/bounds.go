package control

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"
)

// limits are what one user may have of the agent at once. Root has several times as much
// for itself, so nobody locks root out.
type limits struct {
	connections int
	// requests under way, also those that wait for room.
	requests int
	// held are the bytes of lines that are not complete, of requests under way, and of
	// answers that are not read.
	held int
	// turns are requests that are worked on. Others wait for their turn, so that a user
	// who asks all the time takes no more of the agent's time than one who asks a few
	// things at once.
	turns int
}

// usual is far above what the shares of a machine need.
func usual() limits {
	l := limits{connections: 1024, requests: 512, held: 32 << 20, turns: 4}
	var descriptors unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &descriptors) == nil {
		l.connections = int(min(uint64(l.connections), descriptors.Cur/4))
	}
	return l
}

// forRoot is how many times as much root may have.
const forRoot = 4

// bounds knows what each user has of the agent.
type bounds struct {
	limits
	told func(open int)

	mu    sync.Mutex
	open  int
	users map[int]*user
}

// user is one who has a connection.
type user struct {
	connections, requests, held int
	turns                       chan struct{}
}

func newBounds(l limits, told func(open int)) *bounds {
	return &bounds{limits: l, told: told, users: map[int]*user{}}
}

// times is by how much a user's bounds are multiplied.
func times(uid int) int {
	if uid == 0 {
		return forRoot
	}
	return 1
}

// enter counts another connection of a user, or refuses it.
func (b *bounds) enter(uid int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	u, most := b.users[uid], b.connections*times(uid)
	switch {
	case u == nil:
		u = &user{turns: make(chan struct{}, b.turns*times(uid))}
		b.users[uid] = u
	case u.connections >= most:
		return Errorf(CodeBusy, "user %d already has %d connections to the agent, the most at once: end some of them", uid, most)
	}
	u.connections++
	b.open++
	b.told(b.open)
	return nil
}

func (b *bounds) leave(uid int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u := b.users[uid]; u.connections == 1 {
		delete(b.users, uid)
	} else {
		u.connections--
	}
	b.open--
	b.told(b.open)
}

// begin counts another request of a user who is in, or refuses it.
func (b *bounds) begin(uid, size int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	u, most := b.users[uid], b.requests*times(uid)
	if u.requests >= most {
		return Errorf(CodeBusy, "user %d already has %d requests under way, the most at once: wait until some are answered", uid, most)
	}
	if err := b.add(u, uid, size); err != nil {
		return err
	}
	u.requests++
	return nil
}

func (b *bounds) end(uid, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users[uid].requests--
	b.users[uid].held -= size
}

// hold counts bytes that are kept for a user, or refuses them; fewer than 0 are given back.
func (b *bounds) hold(uid, size int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.add(b.users[uid], uid, size)
}

func (b *bounds) add(u *user, uid, size int) error {
	if most := b.held * times(uid); size > 0 && u.held+size > most {
		return Errorf(CodeBusy, "user %d already has requests and answers of %d MiB under way, the most at once: wait until some are read", uid, most>>20)
	}
	u.held += size
	return nil
}

// turnOf returns what a request of a user needs to be worked on.
func (b *bounds) turnOf(uid int) *turn {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &turn{slots: b.users[uid].turns}
}

// turn is one request's part in the work that is done for its user. Only the request's
// goroutine uses it.
type turn struct {
	slots chan struct{}
	taken bool
}

// take waits for the turn. It returns without it when ctx is done.
func (t *turn) take(ctx context.Context) {
	select {
	case t.slots <- struct{}{}:
		if t.taken = true; ctx.Err() != nil {
			t.give() // both were so
		}
	case <-ctx.Done():
	}
}

func (t *turn) give() {
	if t.taken {
		<-t.slots
		t.taken = false
	}
}

// turnKey is the key under which a handler's context has its turn.
type turnKey struct{}

// Pause is called by a handler that begins to wait for something that can take long:
// other requests of its user are worked on meanwhile. It goes on with the function that
// Pause returns.
func Pause(ctx context.Context) (goOn func()) {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok {
		return func() {}
	}
	t.give()
	return func() { t.take(ctx) }
}
