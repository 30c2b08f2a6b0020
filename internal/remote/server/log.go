package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/plaintext"
)

// mostLines is how many lines of the log strangers and clients may cause in a second.
const mostLines = 20

// longest is how much of a foreign text a line of the log has.
const longest = 200

// lines bounds what is logged, since others cause it.
type lines struct {
	mu    sync.Mutex
	since time.Time
	count int
}

// room reports whether a line may be written, and how many were left out before it.
func (l *lines) room() (ok bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.since) >= time.Second {
		leftOut = max(0, l.count-mostLines)
		l.since, l.count = now, 0
	}
	l.count++
	return l.count <= mostLines, leftOut
}

func (l *lines) log(ctx context.Context, log *slog.Logger, level slog.Level, text string, args ...any) {
	ok, leftOut := l.room()
	if leftOut > 0 {
		log.WarnContext(ctx, "lines were left out of this log", "count", leftOut)
	}
	if ok {
		log.Log(ctx, level, text, args...)
	}
}

func (l *lines) info(ctx context.Context, log *slog.Logger, text string, args ...any) {
	l.log(ctx, log, slog.LevelInfo, text, args...)
}

func (l *lines) warn(ctx context.Context, log *slog.Logger, text string, args ...any) {
	l.log(ctx, log, slog.LevelWarn, text, args...)
}

// short is a foreign text for a line of the log.
func short(text string) string { return plaintext.Line(text, longest) }
