// Package claimed gives claims of a cluster their shares of a node's GPUs that other nodes reach. Who asks shows a certificate
// for one node and one claim; what the claim has of which GPU the API server says. The shares themselves are made as those of
// any client of `divvy serve`.
package claimed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// Giver makes shares of this machine's GPUs for the clients of a file.
type Giver interface {
	server.Host
	// Replace has another file count from now on.
	Replace(f *servefile.File)
}

// Host is a [server.Host] for claims.
type Host struct {
	node   string
	client kubernetes.Interface
	giver  Giver
	now    func() time.Time

	mu      sync.Mutex // guards the rest, and the giver's file
	clients map[string]*client
}

// client is a claim of which somebody has shown a certificate.
type client struct {
	held   map[string]amount // by UUID
	shares int
	asked  time.Time
}

// New returns the host of a node.
func New(node string, cluster kubernetes.Interface, giver Giver) *Host {
	return &Host{node: node, client: cluster, giver: giver, now: time.Now, clients: map[string]*client{}}
}

// apiTime bounds a question to the API server.
const apiTime = 5 * time.Second

// idle is for how long a claim without a share is remembered: nodes ask what there is before they take it.
const idle = time.Minute

// Inventory implements [server.Host].
func (h *Host) Inventory(ctx context.Context, who server.Client) (*wire.Inventory, error) {
	if _, _, err := parse(who.Name); err != nil {
		return nil, err
	}
	h.admit(who.Name)
	inventory, err := h.giver.Inventory(ctx, who)
	if inventory != nil {
		inventory.Host, inventory.Commands = h.node, false
	}
	return inventory, err
}

// Take implements [server.Host].
func (h *Host) Take(ctx context.Context, who server.Client, take wire.Take, told func(wire.Queued)) (server.Share, error) {
	_, uid, err := parse(who.Name)
	if err != nil {
		return nil, err
	}
	claim, err := h.claim(ctx, take.Claim, uid)
	if err != nil {
		return nil, err
	}
	has, err := allotted(claim, h.node)
	if err != nil {
		return nil, refused("claim %s: %s", nameOf(claim), err)
	}
	wish, err := wished(take.Request)
	if err != nil {
		return nil, err
	}
	if err := h.reserve(who.Name, has, wish); err != nil {
		return nil, err
	}
	take.Wait = false // the scheduler has given the room
	taken, err := h.giver.Take(ctx, who, take, told)
	if err != nil {
		h.release(who.Name, wish)
		return nil, err
	}
	return &share{Share: taken, release: sync.OnceFunc(func() { h.release(who.Name, wish) })}, nil
}

// Command implements [server.Host].
func (h *Host) Command(context.Context, server.Client, wire.Take, wire.Command, *wire.Conn) error {
	return &wire.Refused{Code: wire.CodeClient, Text: "host " + h.node + " gives claims of pods their shares, and runs no commands"}
}

// share counts no more when it has ended.
type share struct {
	server.Share
	release func()
}

// End implements [server.Share].
func (s *share) End() {
	s.Share.End()
	s.release()
}

// parse reads a client's name.
func parse(name string) (node, uid string, err error) {
	node, uid, ok := v1alpha1.ParseRemoteClient(name)
	if !ok {
		return "", "", &wire.Refused{Code: wire.CodeClient, Text: fmt.Sprintf("client %.80q is no node with a claim, and this host serves no others", name)}
	}
	return node, uid, nil
}

// claim reads the claim that a request is for, which is named NAMESPACE/NAME/UID. The certificate says which UID it may be.
func (h *Host) claim(ctx context.Context, named, uid string) (*resourcev1.ResourceClaim, error) {
	refuse := func(format string, args ...any) error {
		return &wire.Refused{Code: wire.CodeClient, Text: fmt.Sprintf(format, args...)}
	}
	parts := strings.Split(named, "/")
	if len(parts) != 3 || parts[2] != uid {
		return nil, refuse("the request is for claim %.200q, and the certificate for the one with UID %s", named, uid)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	claim, err := h.client.ResourceV1().ResourceClaims(parts[0]).Get(ctx, parts[1], metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && string(claim.UID) != uid:
		return nil, refuse("there is no claim %s/%s with UID %s any more", parts[0], parts[1], uid)
	case err != nil:
		return nil, fmt.Errorf("node %s cannot ask the API server what claim %s/%s has: %w", h.node, parts[0], parts[1], err)
	}
	return claim, nil
}

func nameOf(claim *resourcev1.ResourceClaim) string { return claim.Namespace + "/" + claim.Name }

// admit has the giver know a client.
func (h *Host) admit(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known(name)
}

// known is a client, which the giver knows then. Host.mu is held.
func (h *Host) known(name string) *client {
	c := h.clients[name]
	if c != nil {
		c.asked = h.now()
		return c
	}
	for other, o := range h.clients {
		if o.shares == 0 && h.now().Sub(o.asked) > idle {
			delete(h.clients, other)
		}
	}
	c = &client{held: map[string]amount{}, asked: h.now()}
	h.clients[name] = c
	f := &servefile.File{Clients: map[string]servefile.Client{}}
	for name := range h.clients {
		f.Clients[name] = servefile.Client{Name: name}
	}
	h.giver.Replace(f)
	return c
}

// reserve counts what a claim is to have, if it may.
func (h *Host) reserve(name string, has, wish map[string]amount) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.known(name)
	if err := permit(has, c.held, wish); err != nil {
		return err
	}
	c.shares++
	for uuid, w := range wish {
		now := c.held[uuid]
		c.held[uuid] = amount{now.memory + w.memory, now.cores + w.cores}
	}
	return nil
}

func (h *Host) release(name string, wish map[string]amount) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.clients[name]
	c.shares--
	c.asked = h.now()
	for uuid, w := range wish {
		now := c.held[uuid]
		c.held[uuid] = amount{now.memory - w.memory, now.cores - w.cores}
	}
}
