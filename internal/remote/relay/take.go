package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/plaintext"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// Share is a share on another host, which lasts as long as its connection.
type Share struct {
	Host    Host
	Granted wire.Granted
	// Told is what the host said before, nil where it was not asked.
	Told *wire.Inventory

	conn  *wire.Conn
	ended chan struct{}
	why   string
}

// take asks one host for a share. It says who waits their place.
func (h Host) take(ctx context.Context, take wire.Take, told func(wire.Queued)) (*Share, error) {
	conn, err := h.open(ctx, wire.Open{Purpose: wire.PurposeShare, Take: &take})
	if err != nil {
		return nil, err
	}
	for {
		a, err := h.answer(ctx, conn)
		switch {
		case err != nil:
			return nil, errors.Join(err, conn.Close())
		case a.Queued != nil:
			told(*a.Queued)
		case a.Granted != nil:
			if err := sane(*a.Granted); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
			s := &Share{Host: h, Granted: *a.Granted, conn: conn, ended: make(chan struct{})}
			go s.follow(context.WithoutCancel(ctx))
			return s, nil
		default:
			return nil, errors.Join(fmt.Errorf("%w: no answer to a request", wire.ErrFrame), conn.Close())
		}
	}
}

// longestName is how long the name of a share may be, in characters.
const longestName = 253

// sane returns why no share can be like that. Commands and lists have its name and its sizes as they are.
func sane(g wire.Granted) error {
	switch {
	case g.Name == "" || g.Name != plaintext.Line(g.Name, longestName):
		return fmt.Errorf("%w: a share is named %.80q", wire.ErrFrame, g.Name)
	case len(g.UUIDs) == 0 || len(g.UUIDs) > v1alpha1.MaxGPUs:
		return fmt.Errorf("%w: a share of %d GPUs", wire.ErrFrame, len(g.UUIDs))
	case g.Cores < 0 || g.Cores > v1alpha1.MaxCores:
		return fmt.Errorf("%w: a share with %d cores", wire.ErrFrame, g.Cores)
	}
	return nil
}

// follow waits for the share's end.
func (s *Share) follow(ctx context.Context) {
	defer close(s.ended)
	var a wire.Answer
	err := s.conn.Receive(&a)
	switch {
	case err == nil && a.Ended != nil:
		s.why = a.Ended.Text
	case err == nil && a.Refused != nil:
		s.why = a.Refused.Text
	case err == nil:
		s.why = wire.ErrFrame.Error()
	case errors.Is(err, wire.ErrSilent):
		s.why = silent(s.Host, err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		s.why = "the server at " + s.Host.Name + " has ended"
	default:
		s.why = fmt.Sprintf("the connection to %s has ended: %s", s.Host.Name, plain(s.Host.explain(ctx, err)))
	}
	_ = s.conn.Close() // it has ended
}

// silent is why a share ended of whose host nothing was heard.
func silent(h Host, err error) string {
	return fmt.Sprintf("%s is gone, or the network to it is: %s", h.Name, plain(err))
}

// Ended is closed when the share has ended.
func (s *Share) Ended() <-chan struct{} { return s.ended }

// Why says why it ended.
func (s *Share) Why() string {
	<-s.ended
	return s.why
}

// End gives the share back.
func (s *Share) End() { _ = s.conn.Close() }

// Hosts are those on which a share may be taken.
type Hosts []Host

// RefusedByAll is why no host gave a share: a line for each.
type RefusedByAll struct {
	Hosts []Host
	Words []string
}

// Error has one line for each host.
func (e *RefusedByAll) Error() string {
	lines := make([]string, len(e.Hosts))
	for i, h := range e.Hosts {
		lines[i] = h.words(errors.New(e.Words[i]))
	}
	if len(lines) == 1 {
		return lines[0]
	}
	return "no host gives the share\n" + strings.Join(lines, "\n")
}

// tellLeftOut names the hosts that did not answer. Where none serves, the refusal says the same.
func tellLeftOut(candidates []Candidate, tell func(string)) {
	for _, o := range candidates {
		if o.Err != nil {
			tell("left out: " + o.Host.words(o.Err))
		}
	}
}

// Take takes a share on the best of the hosts, see [inTurn]. It tells people what they should know.
func (hosts Hosts) Take(ctx context.Context, take wire.Take, tell func(string)) (*Share, error) {
	var taken *Share
	err := inTurn(ctx, hosts.candidates(ctx, take), map[int]string{}, take, tell, func(o Candidate, asked wire.Take) (over bool, err error) {
		h := o.Host
		if asked.Wait && len(hosts) > 1 {
			tell(fmt.Sprintf("no host has room: waiting at %s, which lacks least", h.Name))
		}
		taken, err = h.take(ctx, asked, func(q wire.Queued) { tell(h.Name + ": " + q.String()) })
		if err == nil {
			taken.Told = o.Inventory
		}
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// inTurn has use ask the best of the hosts that are not gone, the next best where that has no room any more, and where none has
// room and the request waits, that which lacks least. Use gets the request as the host is to be asked, and reports whether its
// error counts, which may be nil: otherwise the host is gone by it. Where all are, the error says why each is.
func inTurn(ctx context.Context, candidates []Candidate, gone map[int]string, take wire.Take, tell func(string),
	use func(o Candidate, asked wire.Take) (over bool, err error),
) error {
	said := false
	overtaken := map[int]bool{}
	for ctx.Err() == nil {
		c := Choose(candidates, gone, take.Request)
		at, asked := c.At, take
		asked.Wait = at < 0
		if at < 0 && take.Wait {
			at = c.Wait
		}
		if at < 0 {
			return refusedBy(candidates, c)
		}
		if !said {
			said = true
			tellLeftOut(candidates, tell)
		}
		over, err := use(candidates[at], asked)
		if over {
			return err
		}
		if c.At >= 0 && take.Wait && !overtaken[at] && isRefusal(err) {
			// Somebody was faster, and the host may be waited for: what it has now counts.
			candidates[at], overtaken[at] = candidates[at].Host.candidate(ctx), true
			continue
		}
		gone[at] = err.Error()
	}
	return context.Cause(ctx)
}

// refusedBy is a refusal by all hosts.
func refusedBy(candidates []Candidate, c Choice) error {
	refused := &RefusedByAll{}
	for i, o := range candidates {
		refused.Hosts, refused.Words = append(refused.Hosts, o.Host), append(refused.Words, c.Words[i])
	}
	return refused
}

// isRefusal reports whether a server refused a request that may have room later: its agent, or by what the client has there.
func isRefusal(err error) bool {
	var refused *wire.Refused
	return errors.As(err, &refused) && (refused.Code == string(control.CodeRefused) || refused.Code == wire.CodeBounds)
}

// plain is an error's text in one line.
func plain(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
