package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// ErrGone is returned by calls on a connection whose agent has ended.
var ErrGone = errors.New("the agent is gone")

// Client is one connection to an agent. Its methods may be called at once from
// several goroutines.
type Client struct {
	conn *net.UnixConn
	from received
	info Info

	write sync.Mutex // orders lines on the socket

	mu      sync.Mutex // guards what follows; never held over a read or write
	nextID  uint64
	pending map[uint64]call
	// refused is why the agent ended the connection, nil if it did not say so.
	refused error

	done chan struct{} // closed when nothing more will be read
}

// call is a request under way.
type call struct {
	answer chan response
	// told is given what comes before the answer; it may be nil.
	told func(progress json.RawMessage)
}

// Dial connects to the agent at a socket and greets it.
func Dial(ctx context.Context, socket string) (*Client, error) {
	var d net.Dialer
	dialled, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the agent: %w", err)
	}
	conn, ok := dialled.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("connect to the agent: %s is not a socket", socket), dialled.Close())
	}
	c := &Client{conn: conn, from: received{conn: conn}, pending: map[uint64]call{}, done: make(chan struct{})}
	go c.read()
	if err := c.greet(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("greet the agent at %s: %w", socket, err)
	}
	if c.info.Protocol != ProtocolVersion {
		_ = c.Close()
		return nil, fmt.Errorf("the agent at %s (pid %d) speaks protocol %d and this program %d: restart the agent with this version of divvy",
			socket, c.info.PID, c.info.Protocol, ProtocolVersion)
	}
	return c, nil
}

func (c *Client) greet(ctx context.Context) error {
	return c.call(ctx, MethodHello, nil, &c.info)
}

// peer is the agent's process, nil where the kernel does not tell.
func (c *Client) peer() *unix.Ucred {
	cred, err := PeerCredentials(c.conn)
	if err != nil {
		return nil
	}
	return cred
}

// Info returns what the agent said of itself when it was greeted.
func (c *Client) Info() Info {
	return c.info
}

// Done is closed when the agent is gone or the client closed.
func (c *Client) Done() <-chan struct{} {
	return c.done
}

// Close ends the connection.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	c.from.drop()
	return err
}

// Create asks for a tenant that this process holds until it ends, whatever
// programs it becomes. The request may have fields left out. With Wait it
// returns when the request fits or ctx is done; told, which may be nil, is called when
// the request begins to wait and whenever its place or its reason changes.
func (c *Client) Create(ctx context.Context, p CreateParams, told func(Queued)) (*Created, error) {
	var created Created
	p.Command = ShortCommand(p.Command)
	progress := func(data json.RawMessage) {
		var q Queued
		if err := json.Unmarshal(data, &q); err == nil && told != nil {
			told(q)
		}
	}
	if err := c.callTold(ctx, MethodCreate, p, &created, progress); err != nil {
		return nil, err
	}
	if created.Served {
		// It came with the first byte of the answer.
		if created.life = c.from.take(); created.life == nil {
			return nil, errors.New("the agent handed over no life of the worker: start it again with this version of divvy")
		}
	}
	return &created, nil
}

// List returns the agent's GPUs, tenants and events.
func (c *Client) List(ctx context.Context) (*Listing, error) {
	var l Listing
	if err := c.call(ctx, MethodList, nil, &l); err != nil {
		return nil, err
	}
	return &l, nil
}

// Explain asks what each backend could do for a request. It creates nothing.
func (c *Client) Explain(ctx context.Context, p ExplainParams) (*Explanation, error) {
	var e Explanation
	if err := c.call(ctx, MethodExplain, p, &e); err != nil {
		return nil, err
	}
	return &e, nil
}

// Set changes a tenant's shares and returns them as they are then.
func (c *Client) Set(ctx context.Context, p SetParams) (*Tenant, error) {
	var t Tenant
	if err := c.call(ctx, MethodSet, p, &t); err != nil {
		return nil, err
	}
	return &t, nil
}

// Stop ends a tenant and returns when it has ended.
func (c *Client) Stop(ctx context.Context, p StopParams) error {
	return c.call(ctx, MethodStop, p, nil)
}

// call sends a request and decodes the answer into result, unless that is nil.
func (c *Client) call(ctx context.Context, method Method, params, result any) error {
	return c.callTold(ctx, method, params, result, nil)
}

// callTold is call for a request that may be told of before its answer.
func (c *Client) callTold(ctx context.Context, method Method, params, result any, told func(json.RawMessage)) error {
	req := request{Method: method}
	if params != nil {
		data, err := encode(params)
		if err != nil {
			return fmt.Errorf("ask for %s: %w", method, err)
		}
		req.Params = data
	}
	answer := make(chan response, 1)
	c.mu.Lock()
	c.nextID++
	req.ID = c.nextID
	c.pending[req.ID] = call{answer, told}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, req.ID)
		c.mu.Unlock()
	}()
	if err := c.send(req); errors.Is(err, ErrGone) {
		// It may have said why before it closed the connection.
		select {
		case <-c.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	} else if err != nil {
		return err
	}
	return c.await(ctx, req, answer, result)
}

// await returns when a request is answered, the agent has ended or is silent for too long, or ctx is done.
func (c *Client) await(ctx context.Context, req request, answer <-chan response, result any) error {
	watch := c.silence(ctx, req.Method)
	ticker := time.NewTicker(lookPause)
	defer ticker.Stop()
	for {
		select {
		case resp := <-answer:
			return resp.decode(result)
		case <-c.done:
			return c.lastAnswer(answer, result)
		case <-ctx.Done():
			// Best effort: if the agent is gone there is nothing to give up.
			_ = c.send(request{ID: req.ID, Method: methodCancel})
			return ctx.Err()
		case now := <-ticker.C:
			if err := watch.look(now); err != nil {
				return err
			}
		}
	}
}

// lastAnswer prefers an answer that came just before the connection ended, and what the
// agent said of its end.
func (c *Client) lastAnswer(answer <-chan response, result any) error {
	select {
	case resp := <-answer:
		return resp.decode(result)
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused != nil {
		return c.refused
	}
	return ErrGone
}

func (r response) decode(result any) error {
	if r.Error != nil {
		return r.Error
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(r.Result, result); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

func (c *Client) send(req request) error {
	line, err := encodeLine(req)
	if err != nil {
		return err
	}
	if len(line) > maxLine {
		return fmt.Errorf("ask the agent: the request has %d KiB and may have %d: shorten LD_LIBRARY_PATH", len(line)>>10, maxLine>>10)
	}
	c.write.Lock()
	defer c.write.Unlock()
	if _, err := c.conn.Write(line); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// read hands answers to their callers until the connection ends.
func (c *Client) read() {
	defer close(c.done)
	in := newLines(&c.from, maxAnswer)
	for {
		var resp response
		if _, err := in.next(&resp, decodeResponse); err != nil {
			return
		}
		c.mu.Lock()
		if resp.ID == 0 && resp.Error != nil {
			c.refused = resp.Error // of no request
		}
		asked := c.pending[resp.ID]
		if resp.Progress == nil {
			delete(c.pending, resp.ID)
		}
		c.mu.Unlock()
		switch {
		case resp.Progress != nil && asked.told != nil:
			asked.told(resp.Progress)
		case resp.Progress == nil && asked.answer != nil:
			asked.answer <- resp
		}
	}
}

// Limit returns the memory limit that a request would get on a GPU of this
// listing, in bytes.
func (g GPU) Limit(m v1alpha1.Memory) uint64 {
	return m.Of(g.Capacity)
}

// HandOver asks a user's own agent to leave its shares to this one. It ends when the
// client is closed.
func (c *Client) HandOver(ctx context.Context) (*Heritage, error) {
	var h Heritage
	if err := c.call(ctx, MethodHandOver, nil, &h); err != nil {
		return nil, err
	}
	return &h, nil
}

// Peer is the user and the process at the other end, as the kernel tells.
func (c *Client) Peer() (uid, pid int, err error) {
	cred, err := PeerCredentials(c.conn)
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Uid), int(cred.Pid), nil
}
