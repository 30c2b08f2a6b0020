package servefile

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Kind is the kind that a file must name; its apiVersion is [v1alpha1.APIVersion].
const Kind = "ServeConfig"

// Port is where a server listens unless its file says otherwise.
const Port = 7117

var (
	// ErrFile marks every error of a file.
	ErrFile = errors.New("invalid file of a server")
	// ErrClient marks a client that may not connect.
	ErrClient = errors.New("not admitted")
)

// File is what a file says.
type File struct {
	// Listen is an address and a port, such as ":7117" or "10.0.0.5:7117".
	Listen string
	// GPUs are those that are offered, each an index or a whole UUID; nil is all.
	GPUs []string
	// Clients are those that may connect, by their names.
	Clients map[string]Client
}

// Client is what one client may have. The zero value of a bound is none.
type Client struct {
	Name string
	// User is the local user whose its shares are, empty where the server runs as that user.
	User string
	// Memory is of all its shares together, in bytes, and Cores what is guaranteed to them together, in percent of one GPU's time.
	Memory uint64
	Cores  int
	// Shares is how many it may have at once; a share of two GPUs counts as two.
	Shares int
	// Class is the class that its shares have, empty for either.
	Class v1alpha1.Class
	// Commands says whether it may run commands on this host.
	Commands bool
	// Environment are the variables that its commands may bring along beside those that say where programs are and which language
	// they speak: names, or beginnings of names with a * behind.
	Environment []string
	// Since is when a certificate of the client must have been made at the earliest, zero for any time: a client that was expelled
	// and is admitted again cannot use what it had before.
	Since time.Time
}

// Admitted returns the client to whom a certificate was issued at a time, or why it may not connect.
func (f *File) Admitted(name string, issued time.Time) (Client, error) {
	c, there := f.Clients[name]
	switch {
	case !there:
		return Client{}, fmt.Errorf("%w: client %.80q is not in the server's file: have `divvy serve admit %.80s` run there", ErrClient, name, name)
	case issued.Before(c.Since):
		return Client{}, fmt.Errorf("%w: the certificate of client %s is from before it was admitted: use the bundle that `divvy serve admit %s` wrote last", ErrClient, name, name)
	}
	return c, nil
}

// Wish is what a request would add to what a client has.
type Wish struct {
	Memory     uint64
	Cores      int
	Shares     int
	Class      v1alpha1.Class
	Overcommit bool
}

// Held is what a client has.
type Held struct {
	Memory uint64
	Cores  int
	Shares int
}

// Rest is what a client may still have; nil is without a bound.
type Rest struct {
	Memory *uint64
	Cores  *int
	Shares *int
}

// Default gives a request the class of the client where it names none. It comes before the request's own defaults.
func (c Client) Default(r *v1alpha1.ShareRequest) {
	if r.Class == "" {
		r.Class = c.Class
	}
}

// WishOf is what a request asks for, whose defaults are set. Largest is the largest memory that a GPU has for tenants, in bytes:
// a part of a GPU is counted as that of this one.
func WishOf(r v1alpha1.ShareRequest, largest uint64) Wish {
	return Wish{
		Memory: times(r.Memory.Of(largest), r.GPUs), Cores: r.Guaranteed(r.Cores) * r.GPUs, Shares: r.GPUs, Class: r.Class,
		Overcommit: r.Overcommit,
	}
}

// times multiplies without a wrap.
func times(memory uint64, n int) uint64 {
	high, low := bits.Mul64(memory, uint64(max(0, n)))
	if high != 0 {
		return math.MaxUint64
	}
	return low
}

// BoundsError says which bound of its client a request exceeds.
type BoundsError struct{ text string }

// Error implements error.
func (e *BoundsError) Error() string { return e.text }

// Permit returns a [*BoundsError] if a client that holds so much may not have what it wishes.
func Permit(c Client, w Wish, h Held) error {
	refuse := func(format string, args ...any) error {
		return &BoundsError{fmt.Sprintf("client %s may have ", c.Name) + fmt.Sprintf(format, args...)}
	}
	switch {
	case c.Class != "" && w.Class != c.Class:
		return refuse("shares of class %s, and this one would be %s: add --class %s", c.Class, w.Class, c.Class)
	case w.Overcommit:
		return refuse("no share that overcommits a GPU: leave out --overcommit")
	case c.Shares > 0 && w.Shares > c.Shares-min(h.Shares, c.Shares):
		return refuse("%s, and asks for %d while it has %d", count(c.Shares, "share"), w.Shares, h.Shares)
	case c.Memory > 0 && w.Memory > c.Memory-min(h.Memory, c.Memory):
		return refuse("%s of memory, and asks for %s while it has %s", v1alpha1.FormatBytes(c.Memory), v1alpha1.FormatBytes(w.Memory), v1alpha1.FormatBytes(h.Memory))
	case c.Cores > 0 && w.Cores > c.Cores-min(h.Cores, c.Cores):
		return refuse("%s, and asks for %d while it has %d", count(c.Cores, "core"), w.Cores, h.Cores)
	}
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Left is what a client may still have that holds so much.
func (c Client) Left(h Held) (left Rest) {
	if c.Memory > 0 {
		left.Memory = new(c.Memory - min(h.Memory, c.Memory))
	}
	if c.Cores > 0 {
		left.Cores = new(c.Cores - min(h.Cores, c.Cores))
	}
	if c.Shares > 0 {
		left.Shares = new(c.Shares - min(h.Shares, c.Shares))
	}
	return left
}
