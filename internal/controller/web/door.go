package web

import "net/http"

const (
	// mostRequests bounds those that are answered at once, streams among them, and mostGuests those of them whose reader is not
	// known: each keeps its headers in memory until the other end has read the answer.
	mostRequests = 1024
	mostGuests   = 128
)

// door bounds requests.
type door struct {
	requests, guests chan struct{} // each holds one entry for each
}

func newDoor() *door {
	return &door{requests: make(chan struct{}, mostRequests), guests: make(chan struct{}, mostGuests)}
}

// enter takes a place and returns what gives it back, which may be called twice. Where there is none it does not return: an
// answer would have to be kept for somebody who may never read it.
func enter(places chan struct{}) (leave func()) {
	select {
	case places <- struct{}{}:
	default:
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to end a request without an answer
	}
	there := true
	return func() {
		if there {
			there = false
			<-places
		}
	}
}
