package relays

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
	"github.com/divvy-gpu/divvy/internal/remote/relay/relaytest"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

const uuid = "GPU-00000000-0000-4000-8000-000000000001"

// node is a node whose agents come and go, and the host that it reaches.
type node struct {
	t       *testing.T
	dir     string
	tree    install.Tree
	server  *relaytest.Server
	bundles string
	// refused is why there is no certificate.
	refused error
	issued  atomic.Int32
	// asks is told of each question for a certificate, which gets no answer, unless it is nil.
	asks chan struct{}
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "divvy-test-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, tree: installtest.Tree(t)}
	authority := relaytest.NewAuthority(t)
	n.bundles = authority.Bundles
	n.server = authority.Start(t, &relaytest.Server{
		Inventory: func() *wire.Inventory {
			return &wire.Inventory{Host: "localhost", GPUs: []alloc.GPU{{UUID: uuid, Model: "A100", Capacity: 80 << 30, ContextBytes: 400 << 20, Form: string(v1alpha1.BackendRemote.Form())}}}
		},
		Take: func(take wire.Take) wire.Answer {
			if take.Request.Memory.Of(1<<40) > 40<<30 {
				return wire.Answer{Refused: &wire.Refused{Code: wire.CodeBounds, Text: "the claim has 40Gi"}}
			}
			return wire.Answer{Granted: &wire.Granted{Secret: "s", ID: "t1", Name: "team.a", UUIDs: []string{uuid}, Memory: 4 << 30, Lacks: []string{"cuMemAlloc_v2"}}}
		},
	})
	t.Cleanup(func() {
		k := n.agent()
		for _, s := range []dra.RemoteShare{shareOf("a", ""), shareOf("a", "/q"), shareOf("b", "")} {
			if err := k.End(context.Background(), s.Claim); err != nil {
				t.Error(err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return n
}

// agent is the keeper of another agent.
func (n *node) agent() *Keeper {
	n.t.Helper()
	return New(Options{
		Dir: filepath.Join(n.dir, "remote"), Node: "n1", Tree: n.tree, Divvy: filepath.Join(string(n.tree), "bin", "divvy"),
		Cover: func() (string, error) { return "/run/divvy/divvy-cover", nil },
		Certify: func(ctx context.Context, _ dra.RemoteShare) (Permit, error) {
			if n.asks != nil {
				n.asks <- struct{}{}
				<-ctx.Done()
				return Permit{}, ctx.Err()
			}
			if n.refused != nil {
				return Permit{}, n.refused
			}
			n.issued.Add(1)
			files, err := filepath.Glob(filepath.Join(n.bundles, "*.pem"))
			if err != nil || len(files) != 1 {
				return Permit{}, errors.New("no bundle")
			}
			bundle, err := identity.ReadBundle(files[0])
			return Permit{bundle, netip.MustParseAddrPort(n.server.Address)}, err
		},
		Log: slog.New(slog.DiscardHandler), look: time.Millisecond,
	})
}

func shareOf(claim, rest string) dra.RemoteShare {
	s := dra.RemoteShare{
		Key: claim + rest, Name: "team/" + claim, Claim: types.UID(claim), Namespace: "team", ClaimName: claim, Host: "localhost", Pods: []string{"p"},
		Request: v1alpha1.ShareRequest{GPUs: 1, Among: []string{uuid}, Memory: v1alpha1.Bytes(4 << 30)},
	}
	s.Request.Backend = v1alpha1.BackendRemote
	return s
}

// follow runs a keeper that tells of ends.
func (n *node) follow(k *Keeper, s dra.RemoteShare) <-chan string {
	n.t.Helper()
	told := make(chan string, 10)
	k.Follow([]dra.RemoteShare{s}, func(_ dra.RemoteShare, why string) { told <- why })
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := k.Run(ctx); err != nil {
			n.t.Error(err)
		}
	})
	n.t.Cleanup(func() { cancel(); running.Wait() })
	return told
}

func (n *node) folders() (names []string) {
	n.t.Helper()
	entries, err := os.ReadDir(filepath.Join(n.dir, "remote"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// A relay outlives the agent that started it. The next one takes no second share, tells of its end, and gives it back.
func TestRelayOutlivesItsAgent(t *testing.T) {
	n := newNode(t)
	s := shareOf("a", "")
	first, err := n.agent().Take(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	k := n.agent()
	again, err := k.Take(t.Context(), s)
	if takes, held := n.server.Taken(); err != nil || len(takes) != 1 || held != 1 || len(again.Mounts) != len(first.Mounts) {
		t.Errorf("%v: %+v were asked for, and %d are held", err, takes, held)
	}
	if take, _ := n.server.Taken(); take[0].Claim != "team/a/a" || take[0].Host != "n1" || take[0].Request.Memory.Of(0) != 4<<30 {
		t.Errorf("the host is asked for %+v", take[0])
	}
	for _, m := range first.Mounts {
		if _, err := os.Stat(m.Source); err != nil {
			t.Error(err)
		}
		if m.Target == edits.ShareDir {
			info, err := os.Stat(filepath.Join(m.Source, "worker.sock"))
			if err != nil || info.Mode().Perm() != 0o666 {
				t.Errorf("the socket: %v, %v", info, err)
			}
		}
	}
	if bundle, err := os.Stat(filepath.Join(n.dir, "remote", "a", bundleName)); err != nil || bundle.Mode().Perm() != 0o600 {
		t.Errorf("the certificate: %v, %v", bundle, err)
	}
	told := n.follow(k, s)
	if err := k.End(t.Context(), s.Claim); err != nil {
		t.Fatal(err)
	}
	agenttest.Eventually(t, "the host has the share back", func() bool {
		_, held := n.server.Taken()
		return held == 0
	})
	if left := n.folders(); len(left) > 0 || len(told) > 0 {
		t.Errorf("left are %v, and of %d ends was told", left, len(told))
	}
}

// Requests of one claim have shares of their own, which end with it. Those of another one stay.
func TestClaimsApart(t *testing.T) {
	n := newNode(t)
	k := n.agent()
	for _, s := range []dra.RemoteShare{shareOf("a", "/q"), shareOf("a", "/"+strings.Repeat("long+", 30)), shareOf("b", "")} {
		if _, err := k.Take(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.End(t.Context(), types.UID("a")); err != nil {
		t.Fatal(err)
	}
	agenttest.Eventually(t, "one share is held", func() bool {
		_, held := n.server.Taken()
		return held == 1
	})
	if left := n.folders(); len(left) != 1 || left[0] != "b" {
		t.Errorf("left are %v", left)
	}
}

func TestRelayRefused(t *testing.T) {
	n := newNode(t)
	k := n.agent()
	large := shareOf("a", "")
	large.Request.Memory = v1alpha1.Bytes(41 << 30)
	if _, err := k.Take(t.Context(), large); err == nil || !strings.Contains(err.Error(), "the claim has 40Gi") {
		t.Errorf("too much: %v", err)
	}
	n.refused = errors.New("the controller knows no such claim")
	if _, err := k.Take(t.Context(), shareOf("a", "")); !errors.Is(err, n.refused) {
		t.Errorf("without a certificate: %v", err)
	}
	n.refused = nil
	n.server.Die()
	if _, err := k.Take(t.Context(), shareOf("a", "")); err == nil || !strings.Contains(err.Error(), "nobody listens") {
		t.Errorf("a host that is away: %v", err)
	}
	if left := n.folders(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// The end of a share is told once, also by an agent that came later, and so is that of a relay that was killed. The next Take has
// another one.
func TestShareEnds(t *testing.T) {
	for what, c := range map[string]struct {
		end  func(n *node)
		want string
	}{
		"the host ends it": {func(n *node) { n.server.End("its GPU was lost") }, "its GPU was lost"},
		"the relay is killed": {func(n *node) {
			record, err := relay.ReadRecord(filepath.Join(n.dir, "remote", "a"))
			if err == nil {
				err = record.Process.Signal(syscall.SIGKILL)
			}
			if err != nil {
				n.t.Fatal(err)
			}
		}, "its relay on node n1 was killed"},
	} {
		t.Run(what, func(t *testing.T) {
			n := newNode(t)
			s := shareOf("a", "")
			if _, err := n.agent().Take(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			k := n.agent()
			told := n.follow(k, s)
			c.end(n)
			if why := <-told; why != c.want {
				t.Errorf("told was %q", why)
			}
			if _, err := k.Take(t.Context(), s); err != nil {
				t.Error(err)
			}
			agenttest.Eventually(t, "another share is held", func() bool {
				takes, held := n.server.Taken()
				return len(takes) == 2 && held == 1
			})
			if len(told) > 0 {
				t.Errorf("told again: %s", <-told)
			}
		})
	}
}

// A share that has ended before it is given back is told of, too: its pod may have ended with it.
func TestShareEndsWithItsPod(t *testing.T) {
	n := newNode(t)
	s := shareOf("a", "")
	k := n.agent()
	if _, err := k.Take(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 10)
	k.Follow([]dra.RemoteShare{s}, func(_ dra.RemoteShare, why string) { told <- why })
	n.server.End("its GPU was lost")
	agenttest.Eventually(t, "the relay knows", func() bool { return !k.look(k.folder(s.Key)).lives() })
	for range 2 {
		if err := k.End(t.Context(), s.Claim); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 1 || <-told != "its GPU was lost" {
		t.Errorf("told was %d times", len(told))
	}
}

// While the controller gives no answer, the end of a share is told all the same.
func TestShareEndsDuringRenewal(t *testing.T) {
	n := newNode(t)
	s := shareOf("a", "")
	if _, err := n.agent().Take(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	n.asks = make(chan struct{})
	k := n.agent()
	k.followed[s.Key] = follower{share: s, renew: time.Now().Add(-time.Second)}
	told := n.follow(k, s)
	<-n.asks
	n.server.End("its GPU was lost")
	if why := <-told; why != "its GPU was lost" {
		t.Errorf("told was %q", why)
	}
}

// A certificate is renewed before it ends, and a failure is tried again.
func TestRenewal(t *testing.T) {
	n := newNode(t)
	s := shareOf("a", "")
	k := n.agent()
	if _, err := k.Take(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	k.Follow([]dra.RemoteShare{s}, func(dra.RemoteShare, string) {})
	due := k.all()[0].renew
	if left := time.Until(due); left < 25*time.Minute || left > 35*time.Minute { // of an hour
		t.Errorf("it is renewed in %v", left)
	}
	f := k.all()[0]
	f.renew = time.Now().Add(-time.Second)
	before := n.issued.Load()
	n.refused = errors.New("the controller is away")
	k.refresh(t.Context(), f)
	if left := time.Until(k.all()[0].renew); left > retryTime || n.issued.Load() != before {
		t.Errorf("after a failure it is tried again in %v", left)
	}
	n.refused = nil
	k.refresh(t.Context(), f)
	if left := time.Until(k.all()[0].renew); left < 25*time.Minute || n.issued.Load() != before+1 {
		t.Errorf("the next one is in %v, and %d were issued", left, n.issued.Load()-before)
	}
}
