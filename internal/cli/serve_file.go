package cli

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/divvy-gpu/divvy/internal/servefile"
)

// serveFile is a server's file, which is read again when it changes.
type serveFile struct {
	path  string
	users servefile.Users
	// content and fault are what was read last, and what was wrong with reading it.
	content []byte
	fault   string
}

// read reads the file.
func (f *serveFile) read() (*servefile.File, error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("read the file of the server: %w: `divvy serve init` makes one", err)
	}
	f.content = content
	return servefile.Parse(f.path, content, f.users)
}

// lookPause is between two looks at the file.
const lookPause = time.Second

// follow has changes of the file count until the context is done. A faulty file changes nothing.
func (f *serveFile) follow(ctx context.Context, log *slog.Logger, replace func(*servefile.File)) {
	ticker := time.NewTicker(lookPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.look(ctx, log, replace)
		case <-ctx.Done():
			return
		}
	}
}

// look reads the file if it has changed.
func (f *serveFile) look(ctx context.Context, log *slog.Logger, replace func(*servefile.File)) {
	before := f.content
	file, err := f.read()
	switch {
	case err != nil:
		if text := err.Error(); text != f.fault {
			f.fault = text
			log.ErrorContext(ctx, "the file of the server cannot be read: what it said before counts", "error", err)
		}
	case !bytes.Equal(before, f.content) || f.fault != "":
		f.fault = ""
		log.InfoContext(ctx, "the file of the server has changed", "clients", len(file.Clients))
		replace(file)
	}
}
