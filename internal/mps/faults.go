package mps

import (
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

// drainTime is how long the clients of a server in FAULT may stay. They can do nothing but end, and nobody else is served
// while one is left.
const drainTime = 5 * time.Second

// Server is what a server does.
type Server struct {
	PID    int
	Status Status
	// Clients are the processes that it serves.
	Clients []int
}

// EventKind is what became of a daemon or a server.
type EventKind string

// The events.
const (
	// EventDied says that the daemon ended and nobody had asked it to. Its clients fail.
	EventDied EventKind = "died"
	// EventFault says that a client of a server made a fatal fault, and that all its clients fail.
	EventFault EventKind = "fault"
	// EventServes says that the daemon serves new clients again.
	EventServes EventKind = "serves"
	// EventFailed says that the daemon does not start, and why.
	EventFailed EventKind = "failed"
	// EventLimits says that somebody changed the daemon's limits, which were put right.
	EventLimits EventKind = "limits"
	// EventHeld says that a process was connected to the daemon and silent, so that nobody else was served. Its connection was
	// cut.
	EventHeld EventKind = "held"
	// EventTied says that the daemon serves, and will end with this process's container or service.
	EventTied EventKind = "tied"
)

// Event is what became of a daemon or one of its servers.
type Event struct {
	Kind EventKind
	// Server is the process of the server, and Clients are the processes of its clients, of an [EventFault]; of an
	// [EventDied] Clients are those of all servers when they were last asked for.
	Server  int
	Clients []int
	// By is the process of an [EventHeld], the zero ID where it has ended.
	By process.ID
	// Err is why the daemon does not start, of an [EventFailed], why it stays where it is, of an [EventTied], and what was
	// changed, of an [EventLimits].
	Err error
}

// faults are the servers in FAULT, since when.
type faults map[int]time.Time

// judge compares what servers do with the faults that are known. It returns what is to be told, and the servers that are
// to be shut down because their clients stay.
func (f faults) judge(now time.Time, servers []Server) (events []Event, shutdown []int) {
	for _, s := range servers {
		since, known := f[s.PID]
		switch {
		case s.Status != StatusFault:
		case !known:
			f[s.PID] = now
			events = append(events, Event{Kind: EventFault, Server: s.PID, Clients: s.Clients})
		case now.Sub(since) >= drainTime:
			shutdown = append(shutdown, s.PID)
		}
	}
	for pid := range f {
		recovered := !slices.ContainsFunc(servers, func(s Server) bool { return s.PID == pid && s.Status == StatusFault })
		if recovered {
			delete(f, pid)
			events = append(events, Event{Kind: EventServes, Server: pid})
		}
	}
	return events, shutdown
}
