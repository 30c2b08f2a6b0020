package webpage

import (
	"fmt"
	"net/http"
	"time"
)

// peer is who asks, "" where nobody tells.
func (s *Site) peer(r *http.Request) string {
	if s.config.Peer == nil {
		return ""
	}
	return s.config.Peer(r)
}

// stream tells a browser when a view changes, by server-sent events: each has the name of what is to be shown and the time
// of it. The browser then asks for that, which is compressed and the same for all who look at it.
func (s *Site) stream(w http.ResponseWriter, r *http.Request, v *view, reader Reader) {
	peer := s.peer(r)
	if !s.streams.take(reader, peer) {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "enough browsers are being told of changes: look again by yourself", http.StatusServiceUnavailable)
		return
	}
	defer s.streams.give(peer)
	out := http.NewResponseController(w)
	// The server bounds requests, and this one lasts.
	if err := out.SetReadDeadline(time.Time{}); err != nil {
		s.untold(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	end := time.NewTimer(s.life)
	defer end.Stop()
	tick := time.NewTicker(s.config.Every)
	defer tick.Stop()
	last, told := "", time.Time{}
	for s.config.Ended == nil || !s.config.Ended(r) {
		event, tag := "event: trouble\ndata: {}\n\n", ""
		if now, err := s.fresh(r.Context(), v); err == nil {
			tag = now.tag
			event = fmt.Sprintf("event: look\ndata: {\"version\":%q,\"time\":%q}\n\n", tag, now.time.UTC().Format(time.RFC3339))
		}
		if tag != last || time.Since(told) >= s.beat {
			if err := out.SetWriteDeadline(time.Now().Add(s.write)); err != nil {
				return
			}
			if _, err := w.Write([]byte(event)); err != nil {
				return
			}
			if err := out.Flush(); err != nil {
				return
			}
			last, told = tag, time.Now()
		}
		select {
		case <-tick.C:
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}
