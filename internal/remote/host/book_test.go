package host

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/remote/server"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
	"github.com/divvy-gpu/divvy/internal/servefile"
	"github.com/divvy-gpu/divvy/internal/visible"
)

const gib = 1 << 30

// bookOf is a book of one client.
func bookOf(c servefile.Client) *book {
	c.Name = "ada"
	return &book{file: &servefile.File{Clients: map[string]servefile.Client{"ada": c}}, held: map[string]map[*entry]bool{}}
}

// asks is a request for so much of each of so many GPUs.
func asks(memory v1alpha1.Memory, cores, gpus int) v1alpha1.ShareRequest {
	r := v1alpha1.ShareRequest{Memory: memory, Cores: cores, GPUs: gpus}
	r.Default()
	return r
}

// Requests of one client that race do not pass its bounds together, and what was refused or has ended gives them back.
func TestBoundsWhenRequestsRace(t *testing.T) {
	for name, c := range map[string]servefile.Client{
		"memory": {Memory: 40 * gib}, "cores": {Cores: 100}, "shares": {Shares: 10},
	} {
		b := bookOf(c)
		for range 20 {
			var granted atomic.Int64
			var asking sync.WaitGroup
			entries := make(chan *entry, 64)
			for range 64 {
				asking.Go(func() {
					e, _, err := b.reserve(server.Client{Name: "ada"}, asks(v1alpha1.Bytes(4*gib), 10, 1), 80*gib)
					if err != nil {
						if refused := new(wire.Refused); !errors.As(err, &refused) || refused.Code != wire.CodeBounds {
							t.Errorf("%s: %v", name, err)
						}
						return
					}
					granted.Add(1)
					entries <- e
				})
			}
			asking.Wait()
			if n := granted.Load(); n != 10 {
				t.Fatalf("%s: %d of 10 have something", name, n)
			}
			for range 10 {
				b.release(<-entries)
			}
			if len(b.held) != 0 {
				t.Fatalf("%s: %v is held by nobody", name, b.held)
			}
		}
	}
}

// What was granted counts in place of what was asked for.
func TestBoundsOfWhatWasGranted(t *testing.T) {
	b := bookOf(servefile.Client{Memory: 100 * gib})
	e, _, err := b.reserve(server.Client{Name: "ada"}, asks(v1alpha1.Percent(50), 0, 2), 80*gib)
	if err != nil || b.sum("ada").Memory != 80*gib {
		t.Fatalf("%+v, %v", b.sum("ada"), err)
	}
	b.grant(e, &share{granted: wire.Granted{UUIDs: []string{"GPU-0", "GPU-1"}, Memory: 20 * gib}})
	if got := b.sum("ada"); got.Memory != 40*gib || got.Shares != 2 {
		t.Errorf("%+v", got)
	}
	_, left, err := b.left(server.Client{Name: "ada"})
	if err != nil || *left.Memory != 60*gib || left.Shares != nil {
		t.Errorf("%+v, %v", left, err)
	}
	// One byte beyond, in words that name the bound, the wish and what it has.
	_, _, err = b.reserve(server.Client{Name: "ada"}, asks(v1alpha1.Bytes(60*gib+1), 0, 1), 80*gib)
	if err == nil || !strings.Contains(err.Error(), "100Gi") || !strings.Contains(err.Error(), "40Gi") {
		t.Errorf("%v", err)
	}
	if _, _, err := b.reserve(server.Client{Name: "ada"}, asks(v1alpha1.Bytes(60*gib), 0, 1), 80*gib); err != nil {
		t.Error(err)
	}
}

// A client that the file no longer has loses its shares, also those that are granted just then; another keeps them.
func TestClientsOfAnotherFile(t *testing.T) {
	b := bookOf(servefile.Client{User: "ada"})
	b.file.Clients["bea"] = servefile.Client{Name: "bea"}
	var ended []string
	has := func(client string) *entry {
		e, _, err := b.reserve(server.Client{Name: client}, asks(v1alpha1.Bytes(gib), 0, 1), 80*gib)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	begun := has("ada")
	b.begin(begun, func(why string) { ended = append(ended, why) })
	b.begin(has("bea"), func(string) { t.Error("bea's ended") })
	late := has("ada")
	f := &servefile.File{Clients: map[string]servefile.Client{"ada": {Name: "ada", User: "eve"}, "bea": {Name: "bea"}}}
	for _, end := range b.replace(f) {
		end()
	}
	if len(ended) != 1 || !strings.Contains(ended[0], "client ada is no longer in the file") {
		t.Errorf("%q", ended)
	}
	if why := b.begin(late, func(string) {}); why == "" {
		t.Error("it got a share after it was gone")
	}
	b.replace(&servefile.File{})
	_, _, err := b.reserve(server.Client{Name: "ada"}, asks(v1alpha1.Bytes(gib), 0, 1), 80*gib)
	if refused := new(wire.Refused); !errors.As(err, &refused) || refused.Code != wire.CodeClient || !strings.Contains(err.Error(), "divvy serve admit ada") {
		t.Errorf("%v", err)
	}
}

// A client that was expelled after its handshake, and one of its name admitted, gets nothing by the old certificate.
func TestExpelledSinceTheHandshake(t *testing.T) {
	since := time.Unix(100, 0)
	b := bookOf(servefile.Client{Since: since})
	old, renewed := server.Client{Name: "ada", Issued: since.Add(-time.Second)}, server.Client{Name: "ada", Issued: since}
	_, _, share := b.reserve(old, asks(v1alpha1.Bytes(gib), 0, 1), 80*gib)
	_, _, inventory := b.left(old)
	for _, err := range []error{share, inventory} {
		if refused := new(wire.Refused); !errors.As(err, &refused) || refused.Code != wire.CodeClient {
			t.Errorf("the old certificate: %v", err)
		}
	}
	if _, _, err := b.reserve(renewed, asks(v1alpha1.Bytes(gib), 0, 1), 80*gib); err != nil {
		t.Error(err)
	}
}

// Requests have processes, so also a client without bounds has some number of them at most, and the file can say another one.
func TestClientsWithoutBounds(t *testing.T) {
	for _, test := range []struct{ says, has int }{{0, mostUnbound}, {mostUnbound + 40, mostUnbound + 40}} {
		b := bookOf(servefile.Client{Shares: test.says})
		for i := range test.has {
			if _, _, err := b.reserve(server.Client{Name: "ada"}, asks(v1alpha1.Bytes(gib), 0, 1), 80*gib); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		_, _, err := b.reserve(server.Client{Name: "ada"}, asks(v1alpha1.Bytes(gib), 0, 1), 80*gib)
		if refused := new(wire.Refused); !errors.As(err, &refused) || refused.Code != wire.CodeBounds {
			t.Errorf("with %d shares: %v", test.has, err)
		}
	}
}

// A client's number of GPUs counts as it says it, and one that makes no sense is refused. What is left out is one.
func TestNumbersOfGPUs(t *testing.T) {
	h := New(Options{}, &servefile.File{Clients: map[string]servefile.Client{"ada": {Name: "ada"}}})
	served := []visible.GPU{{Index: 0, UUID: "GPU-0"}, {Index: 1, UUID: "GPU-1"}}
	for n, want := range map[int]int{0: 1, 1: 1, 2: 2} {
		if r, err := h.among(v1alpha1.ShareRequest{GPUs: n}, served, "ada"); err != nil || r.GPUs != want {
			t.Errorf("%d: %d, %v", n, r.GPUs, err)
		}
	}
	for _, n := range []int{-1, -3, math.MinInt, 3, v1alpha1.MaxGPUs + 1, math.MaxInt} {
		_, err := h.among(v1alpha1.ShareRequest{GPUs: n}, served, "ada")
		if refused := new(wire.Refused); !errors.As(err, &refused) || !strings.Contains(refused.Text, strconv.Itoa(n)+" GPUs") {
			t.Errorf("%d: %v", n, err)
		}
	}
}
