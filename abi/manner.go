package abi

import (
	"fmt"
	"slices"
	"strings"
)

// Manner says how a call is made from another machine.
type Manner string

// The manners. Client and worker are written from the description for the first two; of the third neither is.
const (
	Waiting Manner = "waiting" // the client waits for the answer
	Posted  Manner = "posted"  // it goes on: an error comes late
	Hand    Manner = "hand"    // both sides are written by hand
	Local   Manner = "local"   // the client answers
	Refused Manner = "refused" // the client says no
)

var manners = []Manner{Waiting, Posted, Hand, Local, Refused}

// A Remote is how a function is called from another machine.
type Remote struct {
	Manner Manner
	Reason string // of hand, local and refused: one of the description's reasons
	Front  string // the reason for which the client's function is written by hand, around the generated one or the refusal
	Back   string // the reason for which the worker's function is
	Blocks bool   // the driver may hold whoever calls: for the GPU, or while it loads code
}

// Generated says whether client and worker are written from the description.
func (r Remote) Generated() bool { return r.Manner == Waiting || r.Manner == Posted }

// Served says whether a program on another machine can use the call.
func (r Remote) Served() bool { return r.Manner != Refused && r.Manner != "" }

// surrounded says whether a function by hand stands around the call, other than one of the client around a refusal.
func (r Remote) surrounded() bool { return r.Front != "" && r.Manner != Refused || r.Back != "" }

// blocking is the same of a call that may hold whoever makes it.
func (r Remote) blocking() (Remote, string) {
	switch {
	case !r.Served() || r.Manner == Local:
		return r, "blocks is for calls that a worker makes"
	case r.Back != "":
		return r, "blocks is for calls without back, which decides itself who waits"
	}
	r.Blocks = true
	return r, ""
}

// parseRemote reads "waiting" or "refused graphics".
func parseRemote(text, front, back string) (Remote, string) {
	manner, reason, _ := strings.Cut(text, " ")
	r := Remote{Manner: Manner(manner), Reason: reason, Front: front, Back: back}
	switch {
	case text == "" && (front != "" || back != ""):
		return r, "front and back need remote"
	case text == "":
		return r, ""
	case !slices.Contains(manners, r.Manner):
		return r, fmt.Sprintf("remote %q is none of waiting, posted, hand, local and refused", text)
	case r.Generated() && reason != "":
		return r, fmt.Sprintf("remote %q: %s needs no reason", text, manner)
	case !r.Generated() && !identifier.MatchString(reason):
		return r, fmt.Sprintf("remote %q: %s needs the name of a reason after it", text, manner)
	case !r.Generated() && r.surrounded():
		return r, fmt.Sprintf("front and back stand around what is generated, and %s is not", manner)
	case r.Manner == Posted && back != "":
		return r, "back is for calls that wait for an answer"
	}
	return r, ""
}
