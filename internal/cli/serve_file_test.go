package cli

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/servefile"
)

// Who asks for a look finds what the file had when it asked, also with many others who ask, and few looks are made.
func TestServeFileAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), serveFileName)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("apiVersion: "+v1alpha1.APIVersion+"\nkind: "+servefile.Kind+"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("clients: {}\n")
	f := newServeFile(path, nil)
	if _, err := f.read(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var clients atomic.Int32
	go f.follow(ctx, slog.New(slog.DiscardHandler), func(now *servefile.File) {
		clients.Store(int32(len(now.Clients)))
	})
	write("clients:\n  ada: {shares: 1}\n")
	f.Look()
	if n := clients.Load(); n != 1 {
		t.Errorf("%d clients after a look", n)
	}
	write("clients:\n  ada: {shares: 1}\n  bea: {shares: 1}\n")
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			f.Look()
			if n := clients.Load(); n != 2 {
				t.Errorf("%d clients after a look", n)
			}
		})
	}
	all.Wait()
	if passed := time.Since(begun); passed < askPause {
		t.Errorf("two looks were made within %v", passed)
	}
	cancel()
	f.Look() // of a server that has ended
}
