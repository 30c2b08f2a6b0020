package server

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/plaintext"
)

// mostLines is how many lines of the log each client, and all strangers together, may cause in a second.
const mostLines = 20

// strangers cause lines together: who shows no certificate has no name.
const strangers = ""

// longest is how much of a foreign text a line of the log has.
const longest = 200

// Lines bounds what is logged, since others cause it. Nobody's lines leave out another's.
type Lines struct {
	mu   sync.Mutex
	from map[string]*second // by client
}

// second counts lines since a moment.
type second struct {
	since time.Time
	count int
}

// room reports whether a line may be written that a client causes, and how many were left out before it.
func (l *Lines) room(client string) (ok bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from == nil {
		l.from = map[string]*second{}
	}
	now := time.Now()
	s := l.from[client]
	if s == nil {
		l.forget(now)
		s = &second{}
		l.from[client] = s
	}
	if now.Sub(s.since) >= time.Second {
		leftOut = max(0, s.count-mostLines)
		s.since, s.count = now, 0
	}
	s.count++
	return s.count <= mostLines, leftOut
}

// mostKnown is how many clients are known of whom some may be forgotten: a cluster has another one for each claim.
const mostKnown = 1024

// forget forgets clients that caused nothing lately, where there are many, but for those of whom lines were left out. lines.mu is held.
func (l *Lines) forget(now time.Time) {
	if len(l.from) >= mostKnown {
		maps.DeleteFunc(l.from, func(_ string, s *second) bool { return now.Sub(s.since) >= time.Second && s.count <= mostLines })
	}
}

func (l *Lines) log(ctx context.Context, log *slog.Logger, level slog.Level, client, text string, args ...any) {
	ok, leftOut := l.room(client)
	if client != strangers {
		args = append([]any{"client", client}, args...)
	}
	if leftOut > 0 {
		log.WarnContext(ctx, "lines were left out of this log", "client", client, "count", leftOut)
	}
	if ok {
		log.Log(ctx, level, text, args...)
	}
}

// Info logs a line that a client causes, if there is room.
func (l *Lines) Info(ctx context.Context, log *slog.Logger, client, text string, args ...any) {
	l.log(ctx, log, slog.LevelInfo, client, text, args...)
}

// Warn logs a warning that a client causes, if there is room.
func (l *Lines) Warn(ctx context.Context, log *slog.Logger, client, text string, args ...any) {
	l.log(ctx, log, slog.LevelWarn, client, text, args...)
}

// nameOf is the name of a command for a line of the log. Its arguments may have secrets.
func nameOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return short(args[0])
}

// short is a foreign text for a line of the log.
func short(text string) string { return plaintext.Line(text, longest) }
