package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// playStep is how often a played GPU is asked what has happened: the only moments at which processes learn of it.
const playStep = 50 * Microsecond

// player is a GPU that somebody else plays. Each launch stands between two stamps.
type player struct {
	m        *Model
	say      func(line string) ([]string, error)
	at       uint64 // played up to here
	clients  map[string]*process
	launches map[string][]*launch // of each client, those that have not ended
	busy     uint64
	asked    bool // the next step is planned
	failed   error
}

func (g *player) worked() uint64 { return g.busy }

func (g *player) give(p *process, l *launch) {
	g.account()
	name := clientName(p)
	if g.clients[name] == nil {
		g.clients[name] = p
		g.tell("client " + name)
	}
	p.work = append(p.work, l)
	g.launches[name] = append(g.launches[name], l)
	g.tell("stamp " + name)
	g.tell(fmt.Sprintf("submit %s %d", name, l.left))
	g.tell("stamp " + name)
	g.ask()
}

func clientName(p *process) string { return strings.ReplaceAll(p.key, "/", ".") }

// ask plans the next look while anybody has work.
func (g *player) ask() {
	if g.asked {
		return
	}
	g.asked = true
	g.m.after(playStep, func() {
		g.asked = false
		g.account()
		for _, waiting := range g.launches {
			if len(waiting) > 0 {
				g.ask()
				return
			}
		}
	})
}

func (g *player) account() {
	if span := g.m.now - g.at; span > 0 {
		g.at = g.m.now
		g.tell(fmt.Sprintf("advance %d", span))
	}
}

func (g *player) drop(p *process) {
	g.account()
	name := clientName(p)
	if g.clients[name] != nil {
		g.tell("end " + name)
		delete(g.clients, name)
		delete(g.launches, name)
		p.work = nil
	}
}

// tell gives a line to the player and takes what it says of stamps and of GPU time.
func (g *player) tell(line string) {
	if g.failed != nil {
		return
	}
	answers, err := g.say(line)
	for _, answer := range answers {
		switch words := strings.Fields(answer); {
		case len(words) == 4 && words[0] == "stamp":
			g.stamped(words[1], number(words[2]), Second+number(words[3]))
		case len(words) >= 2 && words[0] == "time":
			g.executed(words[2:])
		default:
			err = fmt.Errorf("play %q: %s", line, answer)
		}
	}
	g.failed = err
}

func number(word string) uint64 {
	n, _ := strconv.ParseUint(word, 10, 64)
	return n
}

// stamped notes a stamp: those with odd numbers are before a launch, the others after it.
func (g *player) stamped(name string, which, at uint64) {
	waiting := g.launches[name]
	if len(waiting) == 0 {
		return
	}
	l := waiting[0]
	if which%2 == 1 {
		l.begun = at
		return
	}
	p := g.clients[name]
	g.launches[name] = waiting[1:]
	p.work = slices.Delete(p.work, 0, 1)
	l.ended = at
	p.finished(l)
}

// executed takes the player's record: names and GPU time in turn.
func (g *player) executed(pairs []string) {
	for ; len(pairs) >= 2; pairs = pairs[2:] {
		if p := g.clients[pairs[0]]; p != nil {
			own := number(pairs[1])
			p.tenant.own += own - p.own
			g.busy += own - p.own
			p.own = own
		}
	}
}

// Failed is what went wrong with a GPU that somebody else plays.
func (m *Model) Failed() error {
	if g, ok := m.gpu.(*player); ok {
		return g.failed
	}
	return nil
}
