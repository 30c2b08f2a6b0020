package server

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

func TestInventory(t *testing.T) {
	s := newStage(t)
	w := s.open("ada", wire.Open{Purpose: wire.PurposeInventory})
	if a := s.answer(w); a.Inventory == nil || a.Inventory.Host != "far" || a.Inventory.Version != "ada at 127.0.0.1" {
		t.Errorf("%+v", a)
	}
	if _, err := w.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("after the inventory: %v", err)
	}
}

// A share is told of in order, ends with its connection, and its links with it.
func TestShareEndsWithItsConnection(t *testing.T) {
	s := newStage(t)
	s.host.wait = make(chan struct{})
	w := s.open("ada", wire.Open{Purpose: wire.PurposeShare, Take: &wire.Take{Host: "laptop", User: "ada", Wait: true}})
	if a := s.answer(w); a.Queued == nil || a.Queued.Place != 1 || a.Queued.Of != 2 || a.Queued.Reason != "it is full" {
		t.Fatalf("%+v", a)
	}
	close(s.host.wait)
	a := s.answer(w)
	if a.Granted == nil || len(a.Granted.Secret) < 26 || a.Granted.ID != "1" || a.Granted.Memory != 1<<30 {
		t.Fatalf("%+v", a.Granted)
	}
	taken := within(t, s.host.taken)
	if taken.who.Name != "ada" || taken.who.Address != "127.0.0.1" || taken.who.Issued.IsZero() || taken.take.Host != "laptop" || !taken.take.Wait {
		t.Errorf("taken by %+v: %+v", taken.who, taken.take)
	}
	l, worker := s.link("ada", a.Granted.Secret)
	_ = w.Close()
	within(t, taken.over)
	if _, err := worker.Read(make([]byte, 1)); err == nil {
		t.Error("the worker's connection lives")
	}
	if _, err := l.Read(); err == nil {
		t.Error("the link lives")
	}
	s.refused(s.open("ada", wire.Open{Purpose: wire.PurposeLink, Share: a.Granted.Secret}), wire.CodeShare, "no such share")
}

// A client that gives up while it waits has no share.
func TestGiveUpWaiting(t *testing.T) {
	s := newStage(t)
	s.host.wait = make(chan struct{})
	w := s.open("ada", wire.Open{Purpose: wire.PurposeShare, Take: &wire.Take{Wait: true}})
	if a := s.answer(w); a.Queued == nil {
		t.Fatalf("%+v", a)
	}
	_ = w.Close()
	eventually(t, "it is given up", func() bool { return strings.Contains(s.log.String(), "gave up") })
	if s.host.shares != 0 {
		t.Error("it has a share")
	}
}

// Why a share ended is told to its client, and its links end.
func TestShareEndsByItself(t *testing.T) {
	s := newStage(t)
	w, granted, taken := s.share("ada")
	l, _ := s.link("ada", granted.Secret)
	taken.ended <- wire.Ended{Text: "root stopped it"}
	if a := s.answer(w); a.Ended == nil || a.Ended.Text != "root stopped it" {
		t.Errorf("%+v", a)
	}
	within(t, taken.over)
	if _, err := l.Read(); err == nil {
		t.Error("the link lives")
	}
}

// A server that ends tells all clients, and has ended their shares when it is gone.
func TestServerEnds(t *testing.T) {
	s := newStage(t)
	w, granted, taken := s.share("ada")
	_, worker := s.link("ada", granted.Secret)
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	if a := s.answer(w); a.Ended == nil || !strings.Contains(a.Ended.Text, "server") {
		t.Errorf("%+v", a)
	}
	within(t, taken.over)
	if _, err := worker.Read(make([]byte, 1)); err == nil {
		t.Error("the worker's connection lives")
	}
	_ = w.Close()
	if err := within(t, stopped); err != nil {
		t.Error(err)
	}
}

// A link carries what both say, but for the first words of the program.
func TestLink(t *testing.T) {
	s := newStage(t)
	_, granted, _ := s.share("ada")
	l, worker := s.link("ada", granted.Secret)
	hello := []byte("DIVVYRL1protocolkindpid_12345678")
	sent := make([]byte, 3<<20)
	draw := rand.New(rand.NewPCG(5, 6))
	for i := range sent {
		sent[i] = byte(draw.Uint32())
	}
	said := append(bytes.Clone(hello), sent...)
	go func() {
		for rest := said; len(rest) > 0; {
			size := min(len(rest), 1+draw.IntN(1<<draw.IntN(18)))
			if err := l.Write(0, rest[:size]); err != nil {
				return
			}
			rest = rest[size:]
		}
		_ = l.End(0)
	}()
	heard, err := io.ReadAll(worker)
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(said)
	wire.ToStream(want)
	if !bytes.Equal(heard, want) {
		t.Errorf("the worker hears %d bytes of %d that begin %q", len(heard), len(want), heard[:wire.HelloBytes])
	}
	go func() { // what the worker says last comes, also after its program has ended this direction
		_, _ = worker.Write(sent)
		_ = worker.Close()
	}()
	var back bytes.Buffer
	if err := l.Pour(0, &back); err != nil || !bytes.Equal(back.Bytes(), sent) {
		t.Errorf("%d bytes of %d come back, %v", back.Len(), len(sent), err)
	}
}

// A process that ends has its worker end, and a worker that ends its process.
func TestLinkEnds(t *testing.T) {
	s := newStage(t)
	_, granted, _ := s.share("ada")
	l, worker := s.link("ada", granted.Secret)
	_ = l.Close()
	if _, err := worker.Read(make([]byte, 1)); err == nil {
		t.Error("the worker's connection lives")
	}
	l, worker = s.link("ada", granted.Secret)
	_ = worker.Close()
	if f, err := l.Read(); err != nil || f.Kind != wire.KindEnd {
		t.Errorf("%v, %v", f.Kind, err)
	}
	if _, err := l.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	_ = l.Close()
	eventually(t, "no link is left", func() bool {
		s.server.shares.mu.Lock()
		defer s.server.shares.mu.Unlock()
		return s.server.shares.all["ada"][0].count == 0
	})
}

// The end of a worker whose share is about to end is not passed on: the share has the reason. That of one that was killed before it
// read all is an end like any other.
func TestLinkEndsWithItsShare(t *testing.T) {
	s := newStage(t)
	w, granted, taken := s.share("ada")
	l, worker := s.link("ada", granted.Secret)
	if err := l.Write(0, make([]byte, wire.HelloBytes)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(worker, make([]byte, 1)); err != nil { // what it does not read has its end be a reset
		t.Fatal(err)
	}
	_ = worker.Close()
	if f, err := l.Read(); err != nil || f.Kind != wire.KindEnd {
		t.Errorf("%v, %v", f.Kind, err)
	}
	l, worker = s.link("ada", granted.Secret)
	taken.ending.Store(true)
	_ = worker.Close()
	within(t, taken.asked)
	taken.ended <- wire.Ended{Text: "root stopped it"}
	if a := s.answer(w); a.Ended == nil || a.Ended.Text != "root stopped it" {
		t.Errorf("%+v", a)
	}
	if f, err := l.Read(); err == nil {
		t.Errorf("a frame of kind %d in place of the link's end", f.Kind)
	}
}

// Who knows another client's secret has nothing of it.
func TestLinkToOthersShare(t *testing.T) {
	s := newStage(t)
	_, granted, _ := s.share("ada")
	for _, secret := range []string{granted.Secret, "", granted.Secret[:25], granted.Secret + "A"} {
		s.refused(s.open("bea", wire.Open{Purpose: wire.PurposeLink, Share: secret}), wire.CodeShare, "no such share of client bea")
	}
	for _, secret := range []string{"", granted.Secret[:25], granted.Secret + "A"} {
		s.refused(s.open("ada", wire.Open{Purpose: wire.PurposeLink, Share: secret}), wire.CodeShare, "no such share of client ada")
	}
	if len(s.host.workers) != 0 {
		t.Error("a worker was started")
	}
}

// As many links as a share has workers, and one more when another ends.
func TestLinksAreBounded(t *testing.T) {
	s := newStage(t)
	_, granted, _ := s.share("ada")
	var links []*wire.Conn
	for range mostLinks {
		l, _ := s.link("ada", granted.Secret)
		links = append(links, l)
	}
	s.refused(s.open("ada", wire.Open{Purpose: wire.PurposeLink, Share: granted.Secret}), wire.CodeShare, "256 processes use share share")
	_ = links[7].Close()
	eventually(t, "one more links", func() bool {
		w := s.open("ada", wire.Open{Purpose: wire.PurposeLink, Share: granted.Secret})
		return s.answer(w).Linked != nil
	})
}

// A refusal of the host's is told as it is.
func TestRefusals(t *testing.T) {
	s := newStage(t)
	s.host.refuse = &wire.Refused{Code: wire.CodeBounds, Text: "client ada may have 1 share"}
	s.refused(s.open("ada", wire.Open{Purpose: wire.PurposeShare, Take: &wire.Take{}}), wire.CodeBounds, "client ada may have 1 share")
	s.host.refuse = net.ErrClosed
	s.refused(s.open("ada", wire.Open{Purpose: wire.PurposeShare, Take: &wire.Take{}}), wire.CodeHost, net.ErrClosed.Error())
	s.refused(s.open("ada", wire.Open{Purpose: wire.PurposeShare}), wire.CodeMessage, "without saying which")
	s.refused(s.open("ada", wire.Open{Purpose: "tea"}), wire.CodeMessage, "install the same version")
}
