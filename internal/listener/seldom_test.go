package listener

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Refused handshakes are told of, but not each of a flood.
func TestSeldom(t *testing.T) {
	var text strings.Builder
	begin := time.Now()
	now := begin
	to := &Seldom{To: slog.NewLogLogger(slog.NewTextHandler(&text, nil), slog.LevelInfo).Writer(), Now: func() time.Time { return now }}
	for i := range 100 {
		now = begin.Add(time.Duration(i) * time.Second)
		if n, err := to.Write([]byte("refused\n")); n != len("refused\n") || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := strings.Count(text.String(), "refused"); got != 10 {
		t.Errorf("%d lines", got)
	}
}
