package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/line"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// Holder is the side of the process that holds a share.
type Holder struct{ line *line.Line }

// Hold speaks to the server at a socket, and returns what it wants to be held.
func Hold(socket *os.File) (*Holder, Spec, error) {
	l, err := line.Of(socket, maxOrder)
	if err != nil {
		return nil, Spec{}, err
	}
	var o order
	if err := l.Hear(&o); err != nil {
		return nil, Spec{}, err
	}
	if o.Spec == nil {
		return nil, Spec{}, fmt.Errorf("read from the server: it does not say what to hold")
	}
	return &Holder{l}, *o.Spec, nil
}

// Queued tells that the request waits.
func (h *Holder) Queued(q wire.Queued) { _ = h.line.Say(answer{Queued: &q}, nil) } // a server that is gone ends this process

// say tells the server something. A server that is gone, as it is for a client that has given up, ends this process, and need
// not be told.
func (h *Holder) say(a answer) error {
	err := h.line.Say(a, nil)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return err
}

// Refuse tells why there is no share.
func (h *Holder) Refuse(r wire.Refused) error { return h.say(answer{Refused: &r}) }

// Grant tells of the share.
func (h *Holder) Grant(g wire.Granted) error { return h.say(answer{Granted: &g}) }

// End tells why the share ends.
func (h *Holder) End(why string) error { return h.say(answer{Ended: &wire.Ended{Text: why}}) }

// Serve connects with workers as the server asks, until the server is gone.
func (h *Holder) Serve(ctx context.Context, dial func(ctx context.Context) (*net.UnixConn, error)) {
	for {
		var o order
		if err := h.line.Hear(&o); err != nil {
			return
		}
		go h.dial(ctx, o.Dial, dial)
	}
}

func (h *Holder) dial(ctx context.Context, id uint64, dial func(ctx context.Context) (*net.UnixConn, error)) {
	said := answer{Dialled: id}
	conn, err := dial(ctx)
	var file *os.File
	if err == nil {
		defer func() { _ = conn.Close() }() // which may have ended
		file, err = conn.File()
	}
	if err != nil {
		said.Failed = err.Error()
	} else {
		defer file.Close()
	}
	_ = h.line.Say(said, file) // a server that is gone ends this process
}
