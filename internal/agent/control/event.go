package control

import (
	"time"
)

// Event is something that people should know.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   EventKind `json:"kind"`
	Tenant string    `json:"tenant,omitempty"`
	// User is the tenant's, because names alone do not tell tenants apart, or that of the
	// process.
	User string `json:"user,omitempty"`
	UUID string `json:"uuid,omitempty"`
	PID  int    `json:"pid,omitempty"`
	Text string `json:"text"`
	// Times is how often it happened within a minute of the last time, at Time.
	Times int `json:"times,omitempty"`
}

// LastGone is the text of a share's end of which there is nothing more to say.
const LastGone = "its last process is gone"

// Routine reports whether an event tells only what shares do every day: it must not hide
// why another was ended.
func (e Event) Routine() bool {
	return e.Answered() || e.Kind == EventReaped || e.Kind == EventEnded && e.Text == LastGone
}

// Answered reports whether an event tells what whoever asked was told at once.
func (e Event) Answered() bool {
	return e.Kind == EventGranted || e.Kind == EventChanged || e.Kind == EventRefused
}

// EventKind groups events.
type EventKind string

// The kinds of events.
const (
	// EventOutside is a process on a GPU that is in no share.
	EventOutside EventKind = "outside"
	// EventFault is a tenant's state page that cannot be read.
	EventFault EventKind = "fault"
	// EventGPU is a GPU that takes no new shares, or takes them again.
	EventGPU EventKind = "gpu"
	// EventReaped is memory taken back from a process that died.
	EventReaped EventKind = "reaped"
	// EventMisuse is a share that uses GPU time otherwise than it may or says.
	EventMisuse EventKind = "misuse"
	// EventExcess is memory in use beyond what was granted or is accounted for.
	EventExcess EventKind = "excess"
	// EventOverhead is a share that is past its limit by overhead alone.
	EventOverhead EventKind = "overhead"
	// EventLimit is a share that is ended because of its user's limits.
	EventLimit EventKind = "limit"
	// EventIdle is a share that has used no GPU for long.
	EventIdle EventKind = "idle"
	// EventSuspended is a share that is off its GPUs.
	EventSuspended EventKind = "suspended"
	// EventResumed is a share that is on its GPUs again.
	EventResumed EventKind = "resumed"
	// EventGranted is a share that begins.
	EventGranted EventKind = "granted"
	// EventChanged is a share that somebody changed.
	EventChanged EventKind = "changed"
	// EventRefused is a request that was refused.
	EventRefused EventKind = "refused"
	// EventMemory are allocations of a share that were refused: the share's word.
	EventMemory EventKind = "out-of-memory"
	// EventTurn is a swap share whose work did not end with its turn.
	EventTurn EventKind = "turn"
	// EventThrashing is a swap share or a GPU for which memory moves most of the time.
	EventThrashing EventKind = "thrashing"
	// EventHistory is a history that is not written, or is again.
	EventHistory EventKind = "history"
	// EventEnded is a tenant whose last process is gone.
	EventEnded EventKind = "ended"
)
