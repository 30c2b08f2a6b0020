package webpage

import "sync"

const (
	// mostStreams bounds the browsers that are told of changes; others look by themselves.
	mostStreams = 640
	// forAnybody and forNamed are how many of them readers without a name, and all but the first, may have: somebody who opens
	// many keeps nobody from their own page, and root from none.
	forAnybody, forNamed = 520, 600
	// partOfPeer is the part of all that one peer may have.
	partOfPeer = 8
)

// places counts the browsers that are told of changes.
type places struct {
	anybody, named, all, each int

	mu  sync.Mutex
	sum int
	of  map[string]int // by peer
}

func newPlaces() *places {
	return &places{anybody: forAnybody, named: forNamed, all: mostStreams, each: mostStreams / partOfPeer, of: map[string]int{}}
}

// take has a place for a reader at a peer, if there is one; peer is "" where nobody tells. Whoever took it gives it back.
func (p *places) take(reader Reader, peer string) bool {
	most := p.anybody
	switch {
	case reader.First:
		most = p.all
	case reader.Name != "":
		most = p.named
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sum >= most || peer != "" && p.of[peer] >= p.each {
		return false
	}
	p.sum++
	p.of[peer]++
	return true
}

func (p *places) give(peer string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum--
	if p.of[peer]--; p.of[peer] == 0 {
		delete(p.of, peer)
	}
}
