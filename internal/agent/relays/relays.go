// Package relays keeps the relays by which containers of this node have shares on other hosts. A relay outlives the agent that
// started it: the next one finds it by the folder of its share, in the agent's run directory, which ends with the machine as
// relays do.
package relays

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/backend/remote"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
)

// Options say where everything is.
type Options struct {
	// Dir is the directory of the shares' folders.
	Dir string
	// Node is this node's name.
	Node string
	Tree install.Tree
	// Divvy is the program that becomes a relay.
	Divvy string
	// Cover installs the program that hides driver libraries of an image, and returns where container runtimes find it.
	Cover func() (string, error)
	// Certify returns what proves to a share's host that this node may have it, valid for a time, and where the host is.
	Certify func(ctx context.Context, s dra.RemoteShare) (Permit, error)
	// Apart has a relay live on when the agent's container ends, nil for an agent in none.
	Apart func(process.ID) error
	Log   *slog.Logger
	// look is the time between two looks at all relays; left out it is [lookInterval].
	look time.Duration
}

// Permit is what a node shows the host of a share.
type Permit struct {
	// Bundle is for the host by its node's name.
	Bundle *identity.Bundle
	// Address is where the host listens.
	Address netip.AddrPort
}

// Keeper keeps relays. It is a [dra.Remotes], and whoever asks it orders what is done for one claim.
type Keeper struct {
	options Options

	mu       sync.Mutex // guards the rest
	followed map[string]follower
}

// follower is who is told when a share ends.
type follower struct {
	share dra.RemoteShare
	told  func(s dra.RemoteShare, why string)
	// renew is when its certificate is renewed.
	renew time.Time
}

var _ dra.Remotes = (*Keeper)(nil)

// New returns a keeper of what is in its directory.
func New(o Options) *Keeper {
	if o.look == 0 {
		o.look = lookInterval
	}
	return &Keeper{options: o, followed: map[string]follower{}}
}

// Names in the folder of a share, beside those of [relay] and [remote].
const (
	bundleName = "bundle.pem"
	lifeName   = "life"
	logName    = "relay.log"
)

// folder is that of a share. A socket in it has a short path, whatever requests are called.
func (k *Keeper) folder(key string) string {
	claim, rest, divided := strings.Cut(key, "/")
	if divided {
		sum := sha256.Sum256([]byte(rest))
		claim += "." + hex.EncodeToString(sum[:6])
	}
	return filepath.Join(k.options.Dir, claim)
}

// Take implements [dra.Remotes]. Nobody else takes or ends shares of that claim meanwhile.
func (k *Keeper) Take(ctx context.Context, want dra.RemoteShare) (edits.Edits, error) {
	cover, err := k.options.Cover()
	if err != nil {
		return edits.Edits{}, err
	}
	c := remote.Contained{Dir: k.folder(want.Key), Tree: k.options.Tree, Cover: cover, Name: want.Name}
	if err := c.Check(); err != nil {
		return edits.Edits{}, err
	}
	if now := k.look(c.Dir); now.lives() {
		return c.Plan().Edits, nil
	}
	if err := k.end(ctx, c.Dir); err != nil {
		return edits.Edits{}, err
	}
	ready, err := k.start(ctx, c, want)
	if err != nil {
		return edits.Edits{}, err
	}
	c.Lacks = ready.Lacks
	plan := c.Plan()
	if err := plan.Apply(ctx); err != nil {
		return edits.Edits{}, errors.Join(err, k.end(context.WithoutCancel(ctx), c.Dir))
	}
	return plan.Edits, nil
}

// End implements [dra.Remotes].
func (k *Keeper) End(ctx context.Context, claim types.UID) error {
	// A pod that ends with its share has its claim released at once.
	for _, f := range k.all() {
		if s := k.look(k.folder(f.share.Key)); f.share.Claim == claim && !s.lives() {
			k.tell(f, s)
		}
	}
	k.forget(claim)
	entries, err := os.ReadDir(k.options.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find the relays of a claim: %w", err)
	}
	var faults []error
	for _, entry := range entries {
		if uid, _, _ := strings.Cut(entry.Name(), "."); uid == string(claim) {
			faults = append(faults, k.end(ctx, filepath.Join(k.options.Dir, entry.Name())))
		}
	}
	return errors.Join(faults...)
}

// state is what is known of a relay.
type state struct {
	relay.Record
	// here is false for a share without a folder, and known where there is a record.
	here, known bool
	// running is true while the relay's process is there.
	running bool
}

// lives reports whether containers can use the share.
func (s *state) lives() bool { return s.known && s.running && s.State == relay.StateTaken }

// look finds out what has become of the share of a folder.
func (k *Keeper) look(dir string) *state {
	s := &state{}
	if _, err := os.Lstat(dir); err != nil {
		return s
	}
	s.here = true
	s.running, _ = relay.Locked(dir)
	record, err := relay.ReadRecord(dir)
	if s.known = err == nil && record.Process.PID != 0; s.known {
		s.Record = record
		s.running = s.running && record.Process.Alive()
	}
	return s
}

// endTime is how long a relay may take to say farewell to its host.
const endTime = 5 * time.Second

// errStarting is a relay of which nothing is known yet.
var errStarting = errors.New("the relay of an earlier agent is just taking the share: it ends soon, and the next try finds it gone")

// end ends the relay of a folder, and removes the folder. That there is none is no error.
func (k *Keeper) end(ctx context.Context, dir string) error {
	s := k.look(dir)
	switch {
	case !s.here:
		return nil
	case s.running && !s.known:
		return errStarting
	case s.running:
		if err := stop(ctx, s.Process); err != nil {
			return fmt.Errorf("end a relay: %w", err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the folder of a share: %w", err)
	}
	return nil
}

// lookInterval is the time between two looks at all relays: one that was killed gives no notice.
const lookInterval = 2 * time.Second

// Follow implements [dra.Remotes].
func (k *Keeper) Follow(shares []dra.RemoteShare, told func(s dra.RemoteShare, why string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range shares {
		if had, ok := k.followed[s.Key]; ok {
			had.share, had.told = s, told
			k.followed[s.Key] = had
			continue
		}
		k.followed[s.Key] = follower{share: s, told: told, renew: k.renewal(s.Key)}
	}
}

func (k *Keeper) forget(claim types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, f := range k.followed {
		if f.share.Claim == claim {
			delete(k.followed, key)
		}
	}
}

// Run tells of shares that have ended, and renews the certificates of the others, until ctx is done. The two do not wait for each
// other: a controller that is away takes its time for each certificate.
func (k *Keeper) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { k.each(ctx, k.notice) })
	loops.Go(func() { k.each(ctx, k.refresh) })
	loops.Wait()
	return nil
}

// each looks at all shares again and again until ctx is done.
func (k *Keeper) each(ctx context.Context, look func(context.Context, follower)) {
	ticker := time.NewTicker(k.options.look)
	defer ticker.Stop()
	for {
		for _, f := range k.all() {
			look(ctx, f)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *Keeper) all() []follower {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]follower, 0, len(k.followed))
	for _, f := range k.followed {
		all = append(all, f)
	}
	return all
}

// notice tells of a share that has ended.
func (k *Keeper) notice(_ context.Context, f follower) {
	if s := k.look(k.folder(f.share.Key)); !s.lives() {
		k.tell(f, s)
	}
}

// refresh renews the certificate of a share when it is time.
func (k *Keeper) refresh(ctx context.Context, f follower) {
	if time.Now().After(f.renew) && k.look(k.folder(f.share.Key)).lives() {
		k.renew(ctx, f)
	}
}

// tell says once that a share has ended.
func (k *Keeper) tell(f follower, s *state) {
	k.mu.Lock()
	_, asked := k.followed[f.share.Key]
	delete(k.followed, f.share.Key)
	k.mu.Unlock()
	why := s.Why
	switch {
	case !asked:
		return // it was told, or the share was given back meanwhile
	case why == "" && s.here:
		why = "its relay on node " + k.options.Node + " was killed"
	case why == "":
		why = "it has no relay on node " + k.options.Node
	}
	f.told(f.share, why)
}
